// What goes wrong between the page and the real program: prompts beyond a message, a restart, a model that is gone, tabs.
import { Chat, expect, makeToy, test, withSettings } from "./harness.ts";

test("a prompt of a megabyte in Chinese is answered in a sentence, and blocks nothing", async ({ page, start }, info) => {
  const server = await start([makeToy("chat", info.outputPath("toy.gguf"))]);
  let sockets = 0;
  page.on("websocket", () => { sockets += 1; });
  const chat = new Chat(page, server.url);
  await chat.open();
  await chat.ask("汉".repeat(400_000));
  await expect(chat.answers.last().locator(".message__notice")).toBeVisible({ timeout: 45_000 });
  expect(sockets).toBe(1);
  await page.keyboard.press("Control+Shift+O");
  await chat.converse("Hello");
  await expect(chat.answers.last()).toContainText(/\d+ written/); // the toy may write what cannot be seen
});

test("recommended values are shown as their makers wrote them, and emptied ones fall back to the defaults", async ({ page, real }) => {
  const sent: string[] = [];
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => sent.push(String(payload))));
  const chat = new Chat(page, real.url);
  await chat.open();
  await page.getByRole("button", { name: "Settings" }).click();
  const panel = page.locator(".sheet--open");
  await expect(panel).toContainText(/Recommended for this model: 0\.\d{1,3}(?!\d)/);
  const set = async (name: string, value: string): Promise<void> => {
    await page.locator(`[data-setting="${name}"]`).fill(value);
    await page.locator(`[data-setting="${name}"]`).press("Tab");
  };
  await page.getByRole("radio", { name: "Defaults" }).click();
  await set("maxTokens", "3");
  await page.getByRole("radio", { name: "This chat" }).click();
  await set("maxTokens", "4");
  await set("maxTokens", "");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Hello");
  await expect(chat.answers.last()).toContainText("3 written");
  expect(sent.find((text) => text.includes('"messages"'))).toContain('"max_tokens":3');
});

test("a server that is killed and started again: the answer can be continued", async ({ page, start }) => {
  test.setTimeout(180_000);
  await page.addInitScript(withSettings, { temperature: 0, seed: 1, maxTokens: 4000 });
  const before = await start(["default"]);
  const chat = new Chat(page, before.url);
  await chat.open();
  await chat.ask("Write a very long story about a fox.");
  await expect(chat.answers.last().locator(".prose")).toContainText(/\w+ \w+/, { timeout: 30_000 });
  await before.end();
  await start(["default"], [], {}, new URL(before.url).port);
  await expect(chat.answers.last()).toContainText("The answer was interrupted before it was complete.", { timeout: 45_000 });
  const half = await chat.answers.last().locator(".prose").textContent() ?? "";
  await page.getByRole("button", { name: "Continue" }).click();
  await expect.poll(async () => (await chat.answers.last().locator(".prose").textContent() ?? "").length, { timeout: 30_000 }).toBeGreaterThan(half.length + 5);
});

test("a remembered model that the server does not offer: the default answers", async ({ page, real }) => {
  await page.addInitScript(() => localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, lastModel: "my-old-model", defaults: { maxTokens: 5 } })));
  const chat = new Chat(page, real.url);
  await chat.open();
  await expect(page.getByRole("button", { name: /^Model: default/ })).toBeVisible();
  await expect(await chat.converse("Hello")).not.toHaveText("");
});

test("a second tab shows the real answer as it is written", async ({ page, real, context }) => {
  await page.addInitScript(withSettings, { temperature: 0, seed: 1, maxTokens: 60 });
  const chat = new Chat(page, real.url);
  await chat.open();
  await chat.converse("Say hi.");
  const second = await context.newPage();
  const other = new Chat(second, real.url);
  await second.goto(page.url());
  await expect(other.answers).toHaveCount(1);
  await page.bringToFront();
  const whole = await (await chat.converse("Name the planets.")).textContent() ?? "";
  expect(whole.length).toBeGreaterThan(20);
  await expect(other.answers.last().locator(".prose")).toHaveText(whole);
  await expect(other.send).toBeVisible();
});

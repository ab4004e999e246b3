// The connection: its states, what happens when it is lost, and the way without WebSockets.
import { expect, gate, kept, test, withoutPauses, words } from "./harness.ts";

const text = Array.from({ length: 120 }, (_, at) => `word${at}`).join(" ");

test("each state is seen, and the dot pulses while the page connects, and only then", async ({ chat, fake, page }) => {
  const seen: string[] = []; // a state, and whether its dot moves
  await page.exposeFunction("saw", (state: string) => seen.push(state));
  await page.addInitScript(() => {
    const look = (): void => {
      const shown = document.querySelector<HTMLElement>(".head__state");
      const state = shown?.dataset["state"];
      if (state !== undefined && state !== look.last) (globalThis as unknown as { saw: (state: string) => void }).saw(`${state} ${shown?.getAnimations({ subtree: true }).length ?? 0}`);
      look.last = state;
    };
    look.last = undefined as string | undefined;
    new MutationObserver(look).observe(document, { subtree: true, childList: true, attributes: true });
  });
  fake.answers = [{ tokens: words(text), gap: 5 }];
  await page.clock.install();
  await chat.open();
  await chat.converse("Go");
  fake.fail();
  await expect(chat.state).toHaveText("Disconnected");
  await expect(page.locator(".banner--bad")).toContainText(/Trying again in [2-9] s/); // two attempts have failed
  await expect(page.locator(".banner--bad")).toBeVisible();
  await page.clock.pauseAt(await page.evaluate(() => Date.now() + 60_000)); // from here on the page tries nothing by itself
  await expect(chat.state).toHaveText("Disconnected");
  fake.up();
  await page.getByRole("button", { name: "Retry now" }).click();
  await expect(chat.state).toHaveText("Connected");
  await expect(page.locator(".banner--bad")).toBeHidden();
  expect(new Set(seen)).toEqual(new Set(["connecting 1", "connected 0", "generating 0", "disconnected 0"]));
});

test("a connection that is lost at every tenth token loses and doubles nothing", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words(text), gap: 3, cutEvery: 10, beforeCut: (written) => chat.shows(`word${written - 1}`) }];
  let connections = 0;
  page.on("websocket", () => { connections += 1; });
  await page.addInitScript(withoutPauses);
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last().locator(".prose")).toHaveText(text, { timeout: 60_000 });
  await expect(chat.answers.last()).toContainText("120 written");
  expect(fake.cuts).toBe(12); // each while the page was reading, the last between the last token and the end
  expect(connections).toBeGreaterThan(12);
  expect(fake.asked).toHaveLength(1);
});

test("the answer goes on by itself when the server is back", async ({ chat, fake, page }) => {
  const rest = gate();
  fake.answers = [{ tokens: words(text), gap: 2, hold: { after: 20, until: rest.until } }];
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last()).toContainText("word19");
  fake.fail();
  await expect(chat.answers.last()).toContainText("Connection lost");
  await expect(page.locator(".banner--bad")).toBeVisible();
  await expect(chat.stop).toBeVisible();
  fake.up();
  rest.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText(text, { timeout: 20_000 });
  await expect(chat.send).toBeVisible();
});

for (const withoutSockets of [false, true]) {
  test(`a server that was restarted, ${withoutSockets ? "without" : "with"} WebSockets: what had come can be continued, and Retry throws nothing away`, async ({ chat, fake, page }) => {
    fake.withoutSockets = withoutSockets;
    const half = { tokens: words(text), hold: { after: 8, until: new Promise<void>(() => undefined) } };
    fake.answers = [half];
    await page.goto(chat.url);
    await chat.ask("Go");
    await expect(chat.answers.last()).toContainText("word5", { timeout: 20_000 });
    fake.forget();
    await expect(chat.answers.last()).toContainText("The answer was interrupted before it was complete.", { timeout: 20_000 });
    fake.answers = [{ tokens: words(" and the end.") }];
    await page.getByRole("button", { name: "Continue" }).click();
    await expect(chat.answers.last().locator(".prose")).toContainText(/word5.* and the end\./);
    fake.answers = [half, { tokens: words("Anew.") }];
    await expect(chat.send).toBeVisible();
    await chat.ask("Once more");
    await expect(page.locator(".message--user").last()).toContainText("Once more");
    await expect(chat.answers.last()).toContainText("word5");
    fake.forget();
    await page.getByRole("button", { name: "Retry" }).click();
    await expect(chat.answers.last().locator(".prose")).toHaveText("Anew.", { timeout: 20_000 });
    await page.getByRole("button", { name: "Previous branch" }).click();
    await expect(chat.answers.last().locator(".prose")).toContainText("word5");
  });
}

test("a prompt too big for the server's messages ends nothing else", async ({ chat, fake, page }) => {
  const rest = gate();
  fake.answers = [{ tokens: words(text), gap: 2, hold: { after: 3, until: rest.until } }, { tokens: words("Understood.") }, { tokens: words("Hello.") }];
  let sockets = 0;
  page.on("websocket", () => { sockets += 1; });
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last()).toContainText("word2");
  await page.keyboard.press("Control+Shift+O");
  await expect(await chat.converse("汉".repeat(400_000))).toHaveText("Understood.");
  expect(fake.paths).toContain("/api/stream");
  await page.keyboard.press("Control+Shift+O");
  await expect(await chat.converse("Hi")).toHaveText("Hello.");
  await page.locator(".room__open").filter({ hasText: "Go" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("word0 word1 word2");
  await expect(chat.stop).toBeVisible();
  rest.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText(text);
  await expect(chat.answers.last()).toContainText("120 written");
  expect(fake.asked).toHaveLength(3);
  expect(sockets).toBe(1);
});

test("without WebSockets answers come by server-sent events, and survive a cut at every tenth token", async ({ chat, fake, page }) => {
  fake.withoutSockets = true;
  fake.answers = [{ tokens: words(text), gap: 3, cutEvery: 10, beforeCut: (written) => chat.shows(`word${written - 1}`) }];
  await page.addInitScript(withoutPauses);
  await page.goto(chat.url);
  await chat.field.fill("Go");
  await chat.field.press("Enter");
  await expect(chat.answers.last().locator(".prose")).toHaveText(text, { timeout: 60_000 });
  await expect(chat.answers.last()).toContainText("120 written");
  expect(fake.cuts).toBe(12);
  expect(fake.asked).toHaveLength(1); // then taken up
  expect(fake.paths.filter((path) => path === "/api/stream").length).toBe(13);
});

test("a page that is loaded again takes the running answer up", async ({ chat, fake, page }) => {
  const rest = gate();
  fake.answers = [{ tokens: words(text), gap: 2, hold: { after: 20, until: rest.until } }];
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last()).toContainText("word19");
  await expect.poll(() => kept(page, "messages")).toMatch(/"resume":"f+1:/); // the browser takes its time to write
  await page.reload();
  await expect(chat.answers.last()).toContainText("word19");
  await expect(chat.stop).toBeVisible();
  rest.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText(text, { timeout: 20_000 });
});

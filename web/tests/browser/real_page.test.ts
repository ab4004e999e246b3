// What readers do with the page in front of the real program: a network that is cut, search, files, branches, a hostile
// text, a phone.
import { readFile } from "node:fs/promises";
import findViolations from "./axe.ts";
import { Chat, choose, expect, importText, kept, Line, openSettings, room, settingField, test, withoutPauses, withSettings, type Page } from "./harness.ts";
import { dangerous, watch } from "./hostile_watch.ts";

const brief = { temperature: 0, seed: 1, maxTokens: 8 };

async function withoutSockets(page: Page): Promise<void> {
  await page.addInitScript(withoutPauses);
  await page.routeWebSocket(/\/ws$/, (socket) => void socket.close({ code: 1011 }));
}

/** Loads the page again once the branch that is shown is kept. */
async function reloaded(chat: Chat): Promise<void> {
  const id = await chat.answers.last().getAttribute("data-message") ?? "";
  await expect.poll(() => kept(chat.page, "conversations")).toContain(`:"${id}"`);
  await expect.poll(() => kept(chat.page, "messages")).toContain(`"id":"${id}"`);
  await chat.page.reload();
}

test("by server-sent events: an answer whose connection is cut is taken up, whole", async ({ page, real }) => {
  await withoutSockets(page);
  await page.addInitScript(withSettings, { temperature: 0, seed: 1, maxTokens: 60 });
  const line = await Line.to(real.url);
  try {
    const resumed: string[] = [];
    page.on("request", (request) => {
      const place = request.headers()["last-event-id"];
      if (place !== undefined) resumed.push(place);
    });
    const chat = new Chat(page, line.url);
    await chat.open();
    const whole = await (await chat.converse("Name the planets and describe each.")).textContent() ?? "";
    expect(whole.length).toBeGreaterThan(100);
    expect(resumed).toEqual([]);
    await page.keyboard.press("Control+Shift+O");
    await chat.ask("Name the planets and describe each.");
    for (const length of [10, 70]) {
      await page.waitForFunction((least) => (document.querySelector(".message--model .prose")?.textContent.length ?? 0) > least, length);
      line.cut();
    }
    await expect(chat.send).toBeVisible();
    await expect(chat.answers.last().locator(".prose")).toHaveText(whole);
    await expect(chat.answers.last()).toContainText("60 written");
    expect(resumed.length).toBeGreaterThanOrEqual(1); // the second cut may have come behind the end
  } finally {
    line.end();
  }
});

test("by server-sent events: Stop ends the answer in the server too", async ({ page, real }) => {
  await withoutSockets(page);
  await page.addInitScript(withSettings, { temperature: 0, seed: 1, maxTokens: 4000 });
  const chat = new Chat(page, real.url);
  await chat.open();
  await chat.ask("Write a very long story about a fox.");
  await expect(chat.answers.last().locator(".prose")).toContainText(/\w+ \w+/);
  const [told] = await Promise.all([page.waitForResponse((answer) => answer.request().method() === "DELETE"), chat.stop.click()]);
  expect(told.status()).toBe(200);
  await expect(chat.answers.last()).toContainText("Stopped.");
  await expect(chat.answers.last()).toContainText(/\d+ written/);
  await page.getByRole("button", { name: "Continue" }).click(); // and the chat goes on
  await chat.stop.click();
  await expect(chat.send).toBeVisible();
});

test("an exported chat is imported, found by a word of its answer, and goes on", async ({ page, real }) => {
  await page.addInitScript(withSettings, brief);
  const chat = new Chat(page, real.url);
  await chat.open();
  const text = (await (await chat.converse("Name a fox.")).textContent() ?? "").trim();
  const [file] = await Promise.all([page.waitForEvent("download"), choose(page, "Name a fox.", "Export as JSON")]);
  const saved = await readFile(await file.path(), "utf8");
  await page.keyboard.press("Control+Shift+O");
  await chat.converse("Name a bear.");
  await choose(page, "Name a fox.", "Delete");
  await importText(page, saved);
  await expect(page.getByText("1 conversation with 2 messages imported.")).toBeVisible();
  const word = /\p{L}{4,}/u.exec(text)?.[0] ?? "";
  expect(word).not.toBe("");
  await page.getByRole("searchbox").fill(word);
  const found = room(page, "Name a fox.");
  await expect(found.locator(".room__found mark").first()).toHaveText(new RegExp(word, "i"));
  await found.locator(".room__open").first().click();
  await expect(chat.answers.last().locator(".prose")).toHaveText(text);
  await page.getByRole("searchbox").fill("");
  await expect(await chat.converse("And its colour?")).not.toHaveText("");
  await expect(chat.answers).toHaveCount(2);
});

test("questions and answers that are edited are branches, which outlast a reload", async ({ page, real }) => {
  await page.addInitScript(withSettings, brief);
  const chat = new Chat(page, real.url);
  await chat.open();
  const shown = chat.answers.last().locator(".prose");
  const first = (await (await chat.converse("Name a fox.")).textContent() ?? "").trim();
  await page.locator(".message--user").hover();
  await page.getByRole("button", { name: "Edit and run again" }).click();
  await page.getByRole("textbox", { name: "Edit your message" }).fill("Count to three.");
  await page.getByRole("textbox", { name: "Edit your message" }).press("Enter");
  await expect(page.locator(".message--user .pager__place")).toHaveText("2/2");
  await expect(chat.answers.last()).toContainText(/\d written/);
  await chat.answers.last().hover();
  await page.getByRole("button", { name: "Edit the answer" }).click();
  await page.getByRole("textbox", { name: /^Edit/ }).fill("One, two.");
  await page.getByRole("textbox", { name: /^Edit/ }).press("Control+Enter");
  await expect(shown).toHaveText("One, two.");
  await expect(chat.answers.last().locator(".pager__place")).toHaveText("2/2");
  await page.locator(".message--user").getByRole("button", { name: "Previous branch" }).click();
  await expect(shown).toHaveText(first);
  await page.locator(".message--user").getByRole("button", { name: "Next branch" }).click();
  await expect(shown).toHaveText("One, two.");
  await reloaded(chat);
  await expect(shown).toHaveText("One, two.");
  await expect(page.locator(".pager__place")).toHaveText(["2/2", "2/2"]);
});

test("settings are what the model answers by: a seed repeats, another one does not", async ({ page, real }) => {
  await page.addInitScript(withSettings, { temperature: 1.5, seed: 7, maxTokens: 12 });
  const chat = new Chat(page, real.url);
  await chat.open();
  const ask = async (): Promise<string> => {
    const said = await (await chat.converse("Invent a name for a ship.")).textContent() ?? "";
    expect(said).not.toBe("");
    return said;
  };
  const first = await ask();
  await page.keyboard.press("Control+Shift+O");
  expect(await ask()).toBe(first);
  await page.keyboard.press("Control+Shift+O");
  await openSettings(page);
  await settingField(page, "seed").fill("8");
  await settingField(page, "seed").press("Tab");
  await page.getByRole("button", { name: "Done" }).click();
  expect(await ask()).not.toBe(first);
});

test("by the keyboard alone: a template, the list of shortcuts, a question; the theme outlasts a reload", async ({ page, real }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  const chat = new Chat(page, real.url);
  await chat.open();
  await chat.field.fill("Foxes are quick.");
  await page.getByRole("button", { name: "Templates" }).press("Enter");
  await page.getByRole("menuitem", { name: /^Summarize/ }).press("Enter");
  await expect(chat.field).toHaveValue(/^Summarize[^]*Foxes are quick\.$/);
  await chat.field.press("Enter");
  await expect(chat.answers.last()).toContainText(/\d written/);
  await page.locator(".thread").focus();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Shortcuts" })).toBeVisible();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Theme: system/ }).press("Enter");
  await expect(page.getByRole("button", { name: /^Theme: light/ })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("button", { name: /^Theme: light/ })).toBeVisible();
  await expect.poll(() => page.evaluate(() => getComputedStyle(document.body).backgroundColor)).toBe("rgb(251, 251, 250)");
});

test("a hostile text is text, under the program's own policy", async ({ page, real }) => {
  const wrong = await watch(page, real.url);
  await page.addInitScript(withSettings, brief);
  const chat = new Chat(page, real.url);
  await chat.open();
  const hostile = "Harmless <img src=x onerror=pwned()><script>pwned()</script> ![x](https://evil.example/pwned.png) [click](javascript:pwned()) <iframe src=https://evil.example/pwned></iframe> end";
  await chat.converse(hostile);
  await expect(page.locator(".message--user .message__text")).toHaveText(hostile);
  await chat.answers.last().hover();
  await page.getByRole("button", { name: "Edit the answer" }).click();
  await page.getByRole("textbox", { name: /^Edit/ }).fill(hostile);
  await page.getByRole("textbox", { name: /^Edit/ }).press("Control+Enter");
  await expect(chat.answers.last().locator(".prose")).toContainText(/Harmless.*end/);
  await reloaded(chat);
  await expect(chat.answers.last().locator(".prose")).toContainText(/Harmless.*end/);
  expect([wrong, await dangerous(page)]).toEqual([[], []]);
  // What got past the page would meet the policy.
  const blocked = await page.evaluate(() => new Promise((done) => {
    addEventListener("securitypolicyviolation", ({ effectiveDirective }) => done(effectiveDirective), { once: true });
    document.body.append(Object.assign(new Image(), { src: "https://evil.example/policy.png" }));
  }));
  expect(blocked).toBe("img-src");
});

test.describe("on a phone", () => {
  test.use({ viewport: { width: 360, height: 720 }, hasTouch: true, isMobile: true, colorScheme: "dark" });

  test("a chat with the real model fits, its drawer opens and closes, and axe finds nothing", async ({ page, real }) => {
    await page.addInitScript(withSettings, { ...brief, maxTokens: 40 });
    const chat = new Chat(page, real.url);
    await chat.open();
    await chat.field.tap();
    await chat.field.fill("Write a table of three animals and their colours.");
    await chat.send.tap();
    await expect(chat.answers.last()).toContainText(/\d+ written/);
    const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    expect(wide).toEqual([360, 360]);
    await expect(chat.field).toBeInViewport();
    for (const target of await page.locator("button:visible").all()) {
      const box = await target.boundingBox();
      expect([await target.innerText(), Math.min(box?.width ?? 0, box?.height ?? 0) >= 44]).toEqual([expect.any(String), true]);
    }
    expect(await findViolations(page)).toEqual([]);
    const drawer = page.getByRole("button", { name: "Conversations", exact: true });
    await drawer.tap();
    await expect(room(page, "Write a table")).toBeInViewport();
    await room(page, "Write a table").locator(".room__open").tap();
    await expect(room(page, "Write a table")).not.toBeInViewport();
    await expect(chat.answers).toHaveCount(1);
  });
});

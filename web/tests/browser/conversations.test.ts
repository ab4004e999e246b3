// Conversations in the browser: what is kept, found, exported, brought back, and shared between tabs.
import { readFile } from "node:fs/promises";
import { longConversation } from "./samples.ts";
import { Chat, choose, composes, expect, gate, importText, kept, room, test, words } from "./harness.ts";

async function begin(chat: Chat, texts: readonly string[]): Promise<void> {
  await chat.open();
  for (const text of texts) {
    await chat.page.keyboard.press("Control+Shift+O");
    await chat.converse(text);
  }
}

test("conversations are listed by day and there again after a reload", async ({ chat, page }) => {
  await begin(chat, ["About foxes", "About bears"]);
  await expect(page.getByRole("heading", { name: "Today" })).toBeVisible();
  await expect.poll(() => kept(page, "messages")).toMatch(/About foxes.*About bears|About bears.*About foxes/);
  await page.reload();
  await expect(room(page, "About bears")).toHaveClass(/room--current/);
  await expect(chat.answers).toHaveCount(1);
  await room(page, "About foxes").getByRole("button").first().click();
  await expect(page.locator(".message--user")).toContainText("About foxes");
});

test("a conversation is renamed", async ({ chat, page }) => {
  await begin(chat, ["About foxes"]);
  await choose(page, "About foxes", "Rename");
  await page.getByRole("textbox", { name: "Title" }).fill("Vulpes vulpes");
  await page.keyboard.press("Enter");
  await expect(room(page, "Vulpes vulpes")).toBeVisible();
  await expect.poll(() => kept(page, "conversations")).toContain("Vulpes vulpes");
  await page.reload();
  await expect(room(page, "Vulpes vulpes")).toBeVisible();
  await expect(page).toHaveTitle(/Vulpes vulpes/);
});

test("a title that is being typed outlasts what happens meanwhile", async ({ chat, fake, page }) => {
  await begin(chat, ["About foxes"]);
  const rest = gate();
  fake.answers = [{ tokens: words("one two three"), hold: { after: 1, until: rest.until } }];
  await chat.ask("More");
  await expect(chat.stop).toBeVisible();
  await choose(page, "About foxes", "Rename");
  const title = page.getByRole("textbox", { name: "Title" });
  await title.fill("Vulp");
  rest.open();
  await expect(chat.send).toBeVisible();
  await expect(title).toHaveValue("Vulp");
  await expect(title).toBeFocused();
  await page.keyboard.type("es");
  for (const key of ["Enter", "Escape"]) await composes(title, key);
  await expect(title).toHaveValue("Vulpes");
  await page.keyboard.press("Enter");
  await expect(room(page, "Vulpes")).toBeVisible();
  await expect(page.locator(".room__running")).toHaveCount(0);
});

test("a page that cannot start says so", async ({ fake, page }) => {
  await page.addInitScript(() => { IDBObjectStore.prototype.getAll = () => { throw new Error("The database is broken."); }; });
  await page.goto(fake.url);
  await expect(page.getByRole("alert")).toContainText("The page could not start (The database is broken).");
});

test("of two conversations that are asked for the later one is shown", async ({ chat, page }) => {
  await begin(chat, ["About foxes", "About bears"]);
  await expect.poll(() => kept(page, "messages")).toMatch(/About foxes.*About bears|About bears.*About foxes/);
  await page.reload();
  await expect(chat.answers).toHaveCount(1);
  await page.evaluate(() => {
    const read = Reflect.get<IDBIndex, "getAll">(IDBIndex.prototype, "getAll");
    IDBIndex.prototype.getAll = function slowly(this: IDBIndex, key) {
      const request = read.call(this, key);
      const late = { onsuccess: null as (() => void) | null, get result() { return request.result as unknown; } };
      request.onsuccess = () => setTimeout(() => {
        late.onsuccess?.();
        document.body.dataset["read"] = "late";
      }, 300);
      return late as unknown as IDBRequest<unknown[]>;
    };
  });
  await room(page, "About foxes").getByRole("button").first().click();
  await page.keyboard.press("Control+Shift+O");
  await expect(page.locator("body[data-read=late]")).toHaveCount(1);
  await expect(chat.answers).toHaveCount(0);
  await expect(page.locator(".room--current")).toHaveCount(0);
  expect(new URL(page.url()).hash).toBe("");
});

test("a conversation is deleted, and Undo brings it back whole", async ({ chat, page }) => {
  await begin(chat, ["About foxes"]);
  await choose(page, "About foxes", "Delete");
  await expect(room(page, "About foxes")).toHaveCount(0);
  await expect.poll(() => kept(page, "conversations")).toMatch(/"deletedAt":\d/);
  await page.getByRole("button", { name: "Undo" }).click();
  await expect(room(page, "About foxes")).toBeVisible();
  await expect(chat.answers).toHaveCount(1);
  await expect.poll(() => kept(page, "conversations")).toContain('"deletedAt":null');
  await page.reload();
  await expect(room(page, "About foxes")).toBeVisible();
  await expect(chat.answers).toHaveCount(1);
});

test("the search goes over texts and marks what it found", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("The word aardvark is in here.") }, { tokens: words("Nothing of that sort.") }];
  await begin(chat, ["First", "Second"]);
  await page.keyboard.press("Control+K");
  await page.keyboard.type("aardvark");
  await expect(page.locator(".room")).toHaveCount(1);
  await expect(page.locator(".room mark")).toHaveText("aardvark");
  await page.locator(".room__open").click();
  await expect(page.locator(".message--found")).toContainText("aardvark");
  await page.getByRole("searchbox").fill("zebra");
  await expect(page.getByText("No matches.")).toBeVisible();
  await page.getByRole("searchbox").press("Escape");
  await expect(page.locator(".room")).toHaveCount(2);
});

test("a text in a branch that is not shown is found and shown, marked for a while", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("The word aardvark is in here.") }, { tokens: words("Other words.") }];
  await page.clock.install();
  await begin(chat, ["First"]);
  await page.getByRole("button", { name: "Regenerate" }).click();
  await expect(chat.answers.last()).toContainText("Other words.");
  await expect(chat.send).toBeVisible();
  await page.keyboard.press("Control+K");
  await page.keyboard.type("aardvark");
  await page.locator(".room__open").filter({ hasText: "aardvark" }).click();
  await expect(page.locator(".message--found")).toContainText("aardvark");
  await expect(page.locator(".pager__place")).toHaveText("1/2");
  await page.clock.runFor(6000);
  await expect(page.locator(".message--found")).toHaveCount(0);
  await page.locator(".room__open").filter({ hasText: "aardvark" }).click();
  await expect(page.locator(".message--found")).toHaveCount(1);
  await page.getByRole("searchbox").fill("words");
  await expect(page.locator(".message--found")).toHaveCount(0);
});

test("what was typed and not sent is there after a reload, and an edit after a look elsewhere", async ({ chat, page }) => {
  await begin(chat, ["About foxes", "About bears"]);
  await expect.poll(() => kept(page, "messages")).toMatch(/About foxes.*About bears|About bears.*About foxes/);
  await chat.field.fill("half a thought");
  await room(page, "About foxes").getByRole("button").first().click();
  await expect(chat.field).toHaveValue("");
  await page.keyboard.press("Control+Shift+O");
  await chat.field.fill("a new one");
  await page.reload();
  await expect(chat.field).toHaveValue("a new one");
  await room(page, "About bears").getByRole("button").first().click();
  await expect(chat.field).toHaveValue("half a thought");
  await page.locator(".message--user").hover();
  await page.getByRole("button", { name: "Edit and run again" }).click();
  await page.keyboard.type(" and wolves");
  await room(page, "About foxes").getByRole("button").first().click();
  await expect(page.locator(".message--user")).toContainText("About foxes");
  await room(page, "About bears").getByRole("button").first().click();
  await expect(page.getByRole("textbox", { name: "Edit your message" })).toHaveValue("About bears and wolves");
});

test("an address that leads nowhere is told, and everything else works", async ({ fake, page }) => {
  for (const hash of ["#c=%E0%A4%A", "#c=unknown"]) {
    await page.goto("about:blank");
    await page.goto(`${fake.url}/${hash}`);
    await expect(page.locator(".note")).toContainText("That conversation is not in this browser.");
    expect(page.url()).toBe(`${fake.url}/`);
    await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog", { name: "Shortcuts" })).toBeVisible();
  }
});

test("one or all are exported as Markdown and as JSON with time and parameters, and imported again", async ({ chat, page }, info) => {
  await page.addInitScript(() => localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, defaults: { temperature: 0.3, seed: 7 } })));
  await begin(chat, ["About foxes", "About bears"]);
  const saved = async (press: () => Promise<void>): Promise<string> => {
    const [file] = await Promise.all([page.waitForEvent("download"), press()]);
    const path = info.outputPath(file.suggestedFilename());
    await file.saveAs(path);
    return path;
  };
  const markdown = await readFile(await saved(() => choose(page, "About foxes", "Export as Markdown")), "utf8");
  expect(markdown).toContain("About foxes");
  expect(markdown).toContain("How can I help you today?");
  expect(markdown).toMatch(/20\d\d-\d\d-\d\dT.*default.*temperature 0.3, seed 7/);
  expect(markdown).not.toContain("About bears");
  const one = JSON.parse(await readFile(await saved(() => choose(page, "About foxes", "Export as JSON")), "utf8")) as { conversations: unknown[] };
  expect(one.conversations).toHaveLength(1);
  expect(one.conversations[0]).toMatchObject({ title: "About foxes", messages: [{ role: "user" }, { role: "assistant", settings: { temperature: 0.3, seed: 7 } }] });
  const exportAll = (item: string) => async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: item }).click();
  };
  const both = await readFile(await saved(exportAll("Export all as Markdown")), "utf8");
  for (const title of ["# About foxes", "# About bears"]) expect(both).toContain(title);
  const all = await saved(exportAll("Export all as JSON"));
  await page.getByRole("button", { name: "All conversations" }).click();
  await page.getByRole("menuitem", { name: "Delete all" }).click();
  await page.getByRole("button", { name: "Delete all" }).click();
  await expect(page.locator(".room")).toHaveCount(0);
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), (async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Import" }).click();
  })()]);
  await chooser.setFiles(all);
  await expect(page.getByText("2 conversations with 4 messages imported.")).toBeVisible();
  await expect(page.locator(".room")).toHaveCount(2);
  await room(page, "About foxes").getByRole("button").first().click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Hello. How can I help you today?");
});

test("of 1000 messages only those near the view are in the document", async ({ chat, page }) => {
  await chat.open();
  await importText(page, longConversation(1000));
  await page.locator(".room__open").click();
  await expect(page.locator(".message").last()).toBeInViewport();
  expect(await page.locator(".message").count()).toBeLessThan(20);
  await page.locator(".thread").evaluate((node) => { node.scrollTop = 0; });
  await expect(page.getByText("Question 0:")).toBeVisible();
  expect(await page.locator(".message").count()).toBeLessThan(30);
  await page.locator(".thread").evaluate((node) => { node.scrollTop = node.scrollHeight / 2; });
  await expect(page.locator(".message").first()).toBeVisible();
  await expect(page.getByText("Question 0:")).toHaveCount(0);
});

test("a full quota is reported, and nothing that is shown is dropped", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Before");
  // Chromium takes small writes whatever the quota: what it does with large ones, it is made to do with all.
  await page.evaluate(() => {
    Object.defineProperty(IDBTransaction.prototype, "error", { get: () => new DOMException("full", "QuotaExceededError") });
    IDBObjectStore.prototype.put = function put(this: IDBObjectStore): never {
      this.transaction.abort();
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await chat.converse("After");
  await expect(page.locator(".banner:visible")).toContainText(/full|room|space/i);
  await expect(chat.answers).toHaveCount(2);
});

test("what is no export of ours is refused in a sentence", async ({ chat, page }) => {
  await chat.open();
  await importText(page, "not json at all");
  await expect(page.locator(".note")).toBeVisible();
  await expect(page.locator(".room")).toHaveCount(0);
});

test("all are deleted after a question, and Undo brings them back", async ({ chat, page }) => {
  await begin(chat, ["About foxes", "About bears"]);
  await page.getByRole("button", { name: "All conversations" }).click();
  await page.getByRole("menuitem", { name: "Delete all" }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  await expect(page.locator(".room")).toHaveCount(2);
  await page.getByRole("button", { name: "All conversations" }).click();
  await page.getByRole("menuitem", { name: "Delete all" }).click();
  await page.getByRole("button", { name: "Delete all" }).click();
  await expect(page.locator(".room")).toHaveCount(0);
  await page.getByRole("button", { name: "Undo" }).click();
  await expect(page.locator(".room")).toHaveCount(2);
});

/** What other tabs tell comes when the test says so. */
function hearLater(): void {
  const add = Reflect.get<BroadcastChannel, "addEventListener">(BroadcastChannel.prototype, "addEventListener");
  const heard = new Promise((hear) => addEventListener("hear", hear));
  BroadcastChannel.prototype.addEventListener = function later(this: BroadcastChannel, type: string, listener: (event: MessageEvent) => void): void {
    add.call(this, type, (event) => void heard.then(() => listener(event as MessageEvent)));
  } as typeof add;
}

test("two tabs see each other's messages and overwrite nothing", async ({ chat, fake, context, page }) => {
  await begin(chat, ["Shared"]);
  const second = await context.newPage();
  await second.addInitScript(hearLater);
  const other = new Chat(second, fake.url);
  await second.goto(page.url());
  await expect(other.answers).toHaveCount(1);
  const rest = gate();
  fake.answers = ["from one", "from two"].map((text) => ({ tokens: words(text), hold: { after: 1, until: rest.until } }));
  await chat.ask("in the first tab");
  await expect.poll(() => fake.asked.length).toBe(2);
  await other.ask("in the second tab"); // it knows nothing of the other question
  await expect.poll(() => fake.asked.length).toBe(3);
  await second.evaluate(() => dispatchEvent(new Event("hear")));
  rest.open();
  const all = ["in the first tab", "in the second tab", "from one", "from two"];
  await expect.poll(async () => { // the browser takes its time to write
    const texts = await kept(page, "messages");
    return all.filter((text) => !texts.includes(text));
  }, { timeout: 20_000 }).toEqual([]);
  for (const tab of [page, second]) await expect(tab.locator(".message--user .pager__place")).toHaveText(/^[12]\/2$/);
  await second.close();
  await page.reload();
  await expect(chat.answers.first()).toBeVisible();
  const texts = await kept(page, "messages");
  for (const text of all) expect(texts).toContain(text);
});

test("a conversation that another tab deletes takes no more messages, and what was typed stays", async ({ chat, fake, context, page }) => {
  await begin(chat, ["Shared"]);
  const second = await context.newPage();
  const other = new Chat(second, fake.url);
  await second.goto(page.url());
  await expect(other.answers).toHaveCount(1);
  await other.field.fill("half a thought");
  await choose(page, "Shared", "Delete");
  await expect(second.locator(".note")).toContainText("deleted in another tab");
  await expect(other.answers).toHaveCount(0);
  await expect(other.field).toHaveValue("half a thought");
  expect(new URL(second.url()).hash).toBe("");
  await other.field.press("Enter");
  await expect(room(second, "half a thought")).toHaveClass(/room--current/);
  await page.goBack();
  await expect(page.locator(".note").last()).toContainText("That conversation is not in this browser.");
  await expect(chat.answers).toHaveCount(0);
  expect(new URL(page.url()).hash).toBe("");
});

test("an edit that cannot be sent, as another tab's answer is being written, stays", async ({ chat, fake, context, page }) => {
  await begin(chat, ["Shared"]);
  const second = await context.newPage();
  const other = new Chat(second, fake.url);
  await second.goto(page.url());
  await expect(other.answers).toHaveCount(1);
  await page.locator(".message--user").hover();
  await page.getByRole("button", { name: "Edit and run again" }).click();
  const edited = page.getByRole("textbox", { name: "Edit your message" });
  await edited.fill("Shared by all");
  fake.answers = [{ tokens: Array.from({ length: 1000 }, (_, at) => `word${at} `), gap: 10, hold: { after: 60, until: gate().until } }];
  await other.ask("A long one");
  await expect(chat.stop).toBeVisible();
  for (const key of ["Enter", "Escape"]) await composes(edited, key);
  await expect(page.locator(".note")).toHaveCount(0);
  await edited.press("Enter");
  await expect(page.locator(".note")).toContainText("is being written");
  await expect(edited).toHaveValue("Shared by all");
  await chat.stop.click();
  await expect(chat.stop).toBeHidden();
  await edited.press("Enter");
  await expect(page.locator(".message--user").first()).toContainText("Shared by all");
  await expect(edited).toHaveCount(0);
});

test("a second tab shows the answer as the first one writes it, and can stop it", async ({ chat, fake, context, page }) => {
  await begin(chat, ["Shared"]);
  const second = await context.newPage();
  const other = new Chat(second, fake.url);
  await second.goto(page.url());
  await expect(other.answers).toHaveCount(1);
  fake.answers = [{ tokens: Array.from({ length: 1000 }, (_, at) => `word${at} `), gap: 30, hold: { after: 100, until: gate().until } }];
  await chat.ask("A long one");
  await expect(other.answers.last()).toContainText("word30", { timeout: 20_000 });
  await expect(other.field).toBeDisabled();
  await other.stop.click();
  await expect(chat.answers.last()).toContainText("Stopped.");
  await expect(other.answers.last()).toContainText("Stopped.");
  await expect(other.send).toBeVisible();
});

test("a tab takes over the answer of one that was closed; of two that come back one does, and both show it", async ({ chat, fake, context, page }) => {
  await begin(chat, ["Shared"]);
  const second = await context.newPage();
  const other = new Chat(second, fake.url);
  await second.goto(page.url());
  const text = Array.from({ length: 250 }, (_, at) => `word${at}`).join(" ");
  const [first, again] = [gate(), gate()];
  fake.answers = [first, again].map(({ until }) => ({ tokens: words(text), gap: 5, hold: { after: 20, until } }));
  await chat.ask("Go");
  await expect(other.answers.last()).toContainText("word5", { timeout: 20_000 });
  const address = page.url();
  await page.close();
  first.open();
  await expect(other.answers.last().locator(".prose")).toHaveText(text, { timeout: 30_000 });
  await expect(other.send).toBeVisible();
  await other.ask("Again");
  await expect(other.answers.last()).toContainText("word5");
  await expect.poll(() => kept(second, "messages")).toMatch(/"resume":"f+3:/);
  const third = await context.newPage();
  await second.goto("about:blank");
  await Promise.all([second, third].map((tab) => tab.goto(address)));
  again.open();
  for (const tab of [second, third]) {
    const shown = new Chat(tab, fake.url);
    await expect(shown.answers.last().locator(".prose")).toHaveText(text, { timeout: 30_000 });
    await expect(shown.answers.last()).toContainText("250 written");
    await expect(shown.answers.last().locator(".message__notice")).toHaveCount(0);
  }
});

test("without storage the page says so and still chats", async ({ chat, page }) => {
  await page.addInitScript(() => Object.defineProperty(window, "indexedDB", { value: undefined }));
  await chat.open();
  await expect(page.locator(".banner:visible")).toContainText("This browser does not let the page store anything");
  await expect(await chat.converse("Hello")).toHaveText("Hello. How can I help you today?");
});

// Conversations in the browser: what is kept, found, exported, brought back, and shared between tabs.
import { readFile } from "node:fs/promises";
import { longConversation } from "./samples.ts";
import { Chat, expect, kept, test, words, type Page } from "./harness.ts";

function room(page: Page, title: string | RegExp): ReturnType<Page["locator"]> {
  return page.locator(".room").filter({ hasText: title });
}

async function choose(page: Page, title: string, item: string): Promise<void> {
  await room(page, title).hover();
  await room(page, title).getByRole("button", { name: /^More about/ }).click();
  await page.getByRole("menuitem", { name: item }).click();
}

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

test("a conversation is deleted, and Undo brings it back whole", async ({ chat, page }) => {
  await begin(chat, ["About foxes"]);
  await choose(page, "About foxes", "Delete");
  await expect(room(page, "About foxes")).toHaveCount(0);
  await page.getByRole("button", { name: "Undo" }).click();
  await expect(room(page, "About foxes")).toBeVisible();
  await expect(chat.answers).toHaveCount(1);
  await page.reload();
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
  await expect(page.getByText("Nothing found.")).toBeVisible();
  await page.getByRole("searchbox").press("Escape");
  await expect(page.locator(".room")).toHaveCount(2);
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

async function importText(page: Page, text: string): Promise<void> {
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), (async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Import" }).click();
  })()]);
  await chooser.setFiles({ name: "x.json", mimeType: "application/json", buffer: Buffer.from(text) });
}

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

test("two tabs see each other's messages and overwrite nothing", async ({ chat, fake, context, page }) => {
  await begin(chat, ["Shared"]);
  const second = await context.newPage();
  const other = new Chat(second, fake.url);
  await second.goto(page.url());
  await expect(other.answers).toHaveCount(1);
  fake.answers = [{ tokens: words("from one"), gap: 40 }, { tokens: words("from two"), gap: 40 }];
  await Promise.all([chat.ask("in the first tab"), other.ask("in the second tab")]);
  const all = ["in the first tab", "in the second tab", "from one", "from two"];
  await expect.poll(async () => { // the browser takes its time to write
    const texts = await kept(page, "messages");
    return all.filter((text) => !texts.includes(text));
  }, { timeout: 20_000 }).toEqual([]);
  await second.close();
  await page.reload();
  await expect(chat.answers.first()).toBeVisible();
  const texts = await kept(page, "messages");
  for (const text of all) expect(texts).toContain(text);
});

test("without storage the page says so and still chats", async ({ chat, page }) => {
  await page.addInitScript(() => Object.defineProperty(window, "indexedDB", { value: undefined }));
  await chat.open();
  await expect(page.locator(".banner:visible")).toContainText("This browser keeps nothing");
  await expect(await chat.converse("Hello")).toHaveText("Hello. How can I help you today?");
});

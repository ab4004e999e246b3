// Every state that the page can be in, and how to get there.
import { smallModel, words, type FakeServer } from "../browser/fake_server.ts";
import { expect, gate, type Chat, type Page } from "../browser/harness.ts";
import { longCode, markdownAnswer, notes, rightToLeft, sixScripts, tasksAndFormulas, wideTable } from "../browser/samples.ts";
import { minutesOfFigures } from "./figures.ts";

const never = 600_000;

export interface State {
  name: string;
  path?: string;
  /** Not the three widths of all others. */
  sizes?: readonly (readonly [number, number])[];
  /** Before the page is loaded. */
  prepare?: (page: Page) => Promise<unknown>;
  set?: (fake: FakeServer) => void;
  reach: (chat: Chat, page: Page, fake: FakeServer) => Promise<void>;
}

const question = "Which sorting algorithm should I take for a list of a few thousand numbers, and why?";

function answered(name: string, text: string, more: Partial<FakeServer["answers"][number]> = {}): State {
  return {
    name,
    set: (fake) => { fake.answers = [{ tokens: words(text), promptTokens: 1204, gap: 0, ...more }]; },
    reach: async (chat) => { await chat.converse(question); },
  };
}

const sideways = [[640, 320]] as const;
const longName = "Meta-Llama-3.1-405B-Instruct-abliterated-GGUF-Q4_K_M-imatrix-v2";
const longWords = `https://example.org/${"a-path-without-an-end/".repeat(12)} ${"Donaudampfschifffahrtsgesellschaftskapitän".repeat(6)}`;
const topics = ["Why is the sky blue?", "Plan a week in Lisbon", "Explain B-trees to a child", "Regular expression for dates"];

async function talk(chat: Chat, page: Page): Promise<void> {
  for (const text of topics) {
    await chat.converse(text);
    await page.keyboard.press("Control+Shift+O");
  }
  await openSidebar(page);
}

/** Where it is a drawer, it comes over the page. */
async function openSidebar(page: Page): Promise<void> {
  if (await page.locator(".app--folded").count() === 0) return;
  await page.getByRole("button", { name: "Conversations", exact: true }).click();
  await page.waitForTimeout(250);
}

async function openSettings(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.waitForTimeout(300);
}

async function chooseDataset(page: Page): Promise<void> {
  await openSettings(page);
  await page.locator("[data-setting=retrieval]").check();
  await page.locator("[data-setting=retrievalAddress]").fill("longbow://localhost/notes");
  await page.locator("[data-setting=retrievalAddress]").press("Tab");
  await expect(page.locator("[data-setting=retrievalModel]")).toHaveValue("minilm");
  await page.locator("[data-setting=retrievalTexts]").scrollIntoViewIfNeeded();
}

async function giveEncrypted(page: Page, key: string): Promise<void> {
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByText("Keep it, encrypted").click();
  await page.getByLabel("Passphrase", { exact: true }).fill("correct horse battery");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(page.locator(".head__state")).toHaveAttribute("data-state", "connected");
  await page.evaluate(() => sessionStorage.clear());
  await page.reload();
  await expect(page.getByRole("dialog")).toBeVisible();
}

export const states: State[] = [
  { name: "empty", reach: () => Promise.resolve() },
  { name: "no-model", set: (fake) => { fake.models = []; }, reach: async (_, page) => expect(page.getByText("No model yet")).toBeVisible() },
  answered("answer", markdownAnswer),
  { name: "writing", set: (fake) => { fake.answers = [{ tokens: [...words(markdownAnswer).slice(0, 60)], gap: 1 }, { tokens: [...words(markdownAnswer).slice(0, 40), ...Array<string>(400).fill(" and")], gap: 60 }]; },
    reach: async (chat) => { await chat.converse(question); await chat.ask("Go on."); await expect(chat.answers.last()).toContainText("and and"); } },
  { name: "loading", set: (fake) => { fake.answers = [{ tokens: ["x"], loading: never }]; fake.models = [{ ...smallModel, state: "unloaded", memory_usage: 0 }]; },
    reach: async (chat, page) => { await chat.ask(question); await page.waitForTimeout(2600); } },
  { name: "reading", set: (fake) => { fake.answers = [{ tokens: ["x"], reading: never, promptTokens: 2048 }]; }, reach: async (chat, page) => { await chat.ask(question); await page.waitForTimeout(700); } },
  { name: "queued", set: (fake) => { fake.answers = [{ tokens: ["x"], loading: 1, waiting: never, ahead: 3 }]; }, reach: async (chat, page) => { await chat.ask(question); await expect(page.getByText("The server is busy")).toBeVisible(); } },
  answered("cut", markdownAnswer.slice(0, 420), { finish: "length" }),
  answered("context-full", markdownAnswer.slice(0, 300), { finish: "context", promptTokens: 8100 }),
  { name: "stopped", set: (fake) => { fake.answers = [{ tokens: Array<string>(999).fill("and so on "), gap: 5 }]; }, reach: async (chat) => { await chat.ask(question); await expect(chat.answers.last()).toContainText("and so on"); await chat.stop.click(); await expect(chat.send).toBeVisible(); } },
  answered("error", "", { tokens: [], error: { code: "INFERENCE_ERROR", message: "the model's file ended before its last tensor: fetch it again with quarrel pull" } }),
  answered("busy", "", { tokens: [], error: { code: "QUEUE_FULL", message: "the queue is full", retry_after: 12 } }),
  answered("nothing", ""),
  { name: "lost", set: (fake) => { fake.answers = [{ tokens: words(markdownAnswer), gap: 40 }]; }, reach: async (chat, page, fake) => { await chat.ask(question); await expect(chat.answers.last()).toContainText("Three"); fake.fail(); await expect(page.getByRole("button", { name: "Retry now" })).toBeVisible(); } },
  { name: "interrupted", set: (fake) => { fake.answers = [{ tokens: words(markdownAnswer), hold: { after: 40, until: new Promise(() => undefined) } }]; },
    reach: async (chat, _, fake) => { await chat.ask(question); await expect(chat.answers.last()).toContainText("Three"); fake.forget(); await expect(chat.answers.last()).toContainText("interrupted"); } },
  answered("model-gone", "", { tokens: [], error: { code: "MODEL_NOT_FOUND", message: "no such model" } }),
  { name: "key", set: (fake) => { fake.key = "qk_secret"; }, reach: async (_, page) => { await expect(page.getByRole("dialog")).toBeVisible(); await page.getByText("Keep it, encrypted").click(); } },
  { name: "key-plain", prepare: async (page) => page.addInitScript(() => Object.defineProperty(crypto, "subtle", { value: undefined })), set: (fake) => { fake.key = "qk_secret"; }, reach: async (_, page) => { await expect(page.getByRole("dialog")).toBeVisible(); } },
  { name: "key-locked", set: (fake) => { fake.key = "qk_secret"; }, reach: (_, page, fake) => giveEncrypted(page, fake.key ?? "") },
  { name: "storage", prepare: async (page) => page.addInitScript(() => Object.defineProperty(window, "indexedDB", { value: undefined })), reach: async (chat) => { await chat.converse(question); } },
  answered("error-within", markdownAnswer.slice(0, 420), { error: { code: "INFERENCE_ERROR", message: "the model failed: its numbers were not finite" } }),
  answered("long-answer", markdownAnswer.repeat(12)),
  { name: "long-words", set: (fake) => { fake.answers = [{ tokens: words(longWords) }]; }, reach: async (chat) => { await chat.converse(longWords); } },
  answered("one-word", "Yes."), answered("long-code", longCode), answered("wide-table", wideTable), answered("right-to-left", rightToLeft), answered("tasks-formulas", tasksAndFormulas), answered("six-scripts", sixScripts),
  { name: "branches", set: (fake) => { fake.answers = [{ tokens: words("The first answer.") }, { tokens: words("The second answer, which differs.") }]; },
    reach: async (chat, page) => { await chat.converse(question); await page.getByRole("button", { name: "Regenerate" }).click(); await expect(page.locator(".pager__place")).toHaveText("2/2"); } },
  { name: "editing", reach: async (chat, page) => { await chat.converse(question); await page.locator(".message--user").hover(); await page.getByRole("button", { name: "Edit and run again" }).click(); } },
  { name: "sidebar", reach: talk },
  { name: "search", reach: async (chat, page) => { await talk(chat, page); await page.getByRole("searchbox").fill("help"); await expect(page.locator(".room mark").first()).toBeVisible(); } },
  { name: "search-none", reach: async (chat, page) => { await talk(chat, page); await page.getByRole("searchbox").fill("zebra"); await expect(page.getByText("No matches.")).toBeVisible(); } },
  { name: "menu", reach: async (chat, page) => { await talk(chat, page); await page.locator(".room").nth(1).hover(); await page.getByRole("button", { name: /^Actions for/ }).nth(1).click(); } },
  { name: "question", reach: async (chat, page) => { await talk(chat, page); await page.getByRole("button", { name: "All conversations" }).click(); await page.getByRole("menuitem", { name: "Delete all" }).click(); } },
  { name: "deleted", reach: async (chat, page) => {
    await chat.converse("Why is the sky blue?");
    await page.keyboard.press("Control+k");
    await page.locator(".room__open").focus();
    await page.keyboard.press("Delete");
    await expect(page.getByRole("button", { name: "Undo" })).toBeVisible();
  } },
  { name: "settings", reach: async (_, page) => { await openSettings(page); await page.locator("[data-setting=temperature]").fill("0.6"); await page.locator("[data-setting=topP]").focus(); } },
  { ...answered("sources", "It is renewed with `certbot`, every 60 days [1]. If it has expired, stop the proxy first [2].", { sources: [...notes, ...notes, ...notes].map((each, at) => ({ ...each, number: at + 1 })) }),
    reach: async (chat, page) => { await chat.converse("How is the certificate renewed?"); await page.locator(".source__head").nth(1).click(); await page.waitForTimeout(200); } },
  answered("sources-none", "I do not know.", { sources: [] }),
  { name: "sources-error", set: (fake) => { fake.answers = [{ tokens: [], error: { code: "INVALID_REQUEST", reason: "host_not_allowed", message: "no" } }]; },
    reach: async (chat, page) => { await chooseDataset(page); await page.getByRole("button", { name: "Done" }).click(); await chat.converse(question); } },
  { name: "settings-dataset", reach: (_, page) => chooseDataset(page) },
  { name: "settings-end", reach: async (_, page) => { await openSettings(page); await page.locator(".sheet__body").evaluate((node) => { node.scrollTop = node.scrollHeight; }); } },
  { name: "models", reach: async (_, page) => { await page.getByRole("button", { name: /^Model/ }).click(); await expect(page.getByRole("dialog", { name: "Models" })).toBeVisible(); } },
  { name: "models-loading", reach: async (_, page, fake) => {
    fake.loadUntil = gate().until;
    await page.getByRole("button", { name: /^Model/ }).click();
    await page.getByRole("button", { name: "Load minilm" }).click();
    await expect(page.locator(".model__progress")).toContainText("of");
  } },
  { name: "long-names", set: (fake) => { fake.models = [{ ...smallModel, name: longName, parameters: "405B" }, { ...smallModel, name: `${longName}-second`, state: "unloaded", memory_usage: 0 }]; },
    reach: async (_, page) => { await page.getByRole("button", { name: /^Model/ }).click(); } },
  { name: "own-templates", prepare: async (page) => page.addInitScript(() => localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, templates: [{ id: "a", name: "Haiku", text: "Write a haiku about {text}" }, { id: "b", name: "Review of a pull request, as I like it", text: "Read this change line by line and say what you would not merge, and why:\n\n{text}" }] }))),
    reach: async (_, page) => { await page.getByRole("button", { name: "Templates" }).click(); await page.getByRole("menuitem", { name: "Your templates" }).click(); } },
  { name: "templates", reach: async (_, page) => { await page.getByRole("button", { name: "Templates" }).click(); } },
  { name: "shortcuts", reach: async (_, page) => { await page.locator("body").click({ position: { x: 5, y: 300 } }); await page.keyboard.press("?"); await expect(page.getByRole("dialog")).toBeVisible(); } },
  { name: "status", path: "/status", reach: (_, page, fake) => minutesOfFigures(page, fake) },
  { name: "embeddings", path: "/embeddings", reach: async (_, page) => { await page.getByRole("button", { name: "Compare" }).click(); await expect(page.locator(".matrix")).toBeVisible(); } },
  { name: "status-empty", path: "/status", set: (fake) => { fake.models = []; }, reach: () => Promise.resolve() },
  { name: "status-silent", path: "/status", set: (fake) => { fake.broadcastTime = 0; }, reach: async (_, page) => {
    await expect(page.locator(".message__notice")).toBeVisible();
    await page.clock.runFor(100);
  } },
  { name: "benchmark", path: "/status", set: (fake) => { fake.answers = [{ tokens: Array<string>(64).fill("x "), gap: 2 }]; }, reach: async (_, page) => {
    await page.getByRole("button", { name: "Run benchmark" }).click();
    await expect(async () => { await page.clock.runFor(200); await expect(page.getByText("Done.")).toBeVisible({ timeout: 50 }); }).toPass();
    await page.locator(".page").evaluate((node) => { node.scrollTop = node.scrollHeight; });
  } },
  { name: "embeddings-first", path: "/embeddings", reach: () => Promise.resolve() },
  { ...answered("sideways", markdownAnswer), sizes: sideways },
  { name: "sideways-empty", sizes: sideways, reach: () => Promise.resolve() },
  { name: "sideways-settings", sizes: sideways, reach: (_, page) => openSettings(page) },
  { name: "sideways-drawer", sizes: sideways, reach: talk },
];

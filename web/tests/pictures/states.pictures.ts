// Pictures of every state at three widths in both themes, in build/page-pictures. They are for people: nothing is compared
// here but that each state can be reached. STATES=empty,answer takes some of them alone.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Browser, Page } from "@playwright/test";
import { FakeServer, smallModel, words } from "../browser/fake_server.ts";
import { Chat, expect, pageRoot, test } from "../browser/harness.ts";
import { longCode, markdownAnswer, rightToLeft, sixScripts, wideTable } from "../browser/samples.ts";
import { minuteOfFigures } from "./figures.ts";
import { folder, widths } from "./sizes.ts";
import { dashboardMetrics } from "../browser/metrics_sample.ts";

const never = 600_000;

interface State {
  name: string;
  path?: string;
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

const states: State[] = [
  { name: "empty", reach: () => Promise.resolve() },
  { name: "no-model", set: (fake) => { fake.models = []; }, reach: async (_, page) => expect(page.getByText("No model yet")).toBeVisible() },
  answered("answer", markdownAnswer),
  { name: "writing", set: (fake) => { fake.answers = [{ tokens: [...words(markdownAnswer).slice(0, 60)], gap: 1 }, { tokens: [...words(markdownAnswer).slice(0, 40), ...Array<string>(400).fill(" and")], gap: 60 }]; },
    reach: async (chat) => { await chat.converse(question); await chat.ask("Go on."); await expect(chat.answers.last()).toContainText("and and"); } },
  { name: "loading", set: (fake) => { fake.answers = [{ tokens: ["x"], loading: never }]; fake.models = [{ ...smallModel, state: "unloaded", memory_usage: 0 }]; },
    reach: async (chat, page) => { await chat.ask(question); await page.waitForTimeout(2600); } },
  { name: "reading", set: (fake) => { fake.answers = [{ tokens: ["x"], reading: never, promptTokens: 2048 }]; }, reach: async (chat, page) => { await chat.ask(question); await page.waitForTimeout(700); } },
  { name: "queued", set: (fake) => { fake.answers = [{ tokens: ["x"], loading: 1, waiting: never }]; }, reach: async (chat, page) => { await chat.ask(question); await expect(page.getByText("The server is busy")).toBeVisible(); } },
  answered("cut", markdownAnswer.slice(0, 420), { finish: "length" }),
  answered("context-full", markdownAnswer.slice(0, 300), { finish: "context", promptTokens: 8100 }),
  { name: "stopped", set: (fake) => { fake.answers = [{ tokens: Array<string>(999).fill("and so on "), gap: 5 }]; }, reach: async (chat) => { await chat.ask(question); await expect(chat.answers.last()).toContainText("and so on"); await chat.stop.click(); await expect(chat.send).toBeVisible(); } },
  answered("error", "", { tokens: [], error: { code: "INFERENCE_ERROR", message: "the model's file ended before its last tensor: fetch it again with quarrel pull" } }),
  answered("busy", "", { tokens: [], error: { code: "QUEUE_FULL", message: "the queue is full", retry_after: 12 } }),
  { name: "lost", set: (fake) => { fake.answers = [{ tokens: words(markdownAnswer), gap: 40 }]; }, reach: async (chat, page, fake) => { await chat.ask(question); await expect(chat.answers.last()).toContainText("Three"); fake.fail(); await expect(page.getByRole("button", { name: "Retry now" })).toBeVisible(); } },
  { name: "key", set: (fake) => { fake.key = "qk_secret"; }, reach: async (_, page) => { await expect(page.getByRole("dialog")).toBeVisible(); await page.getByText("Keep it, encrypted").click(); } },
  answered("one-word", "Yes."), answered("long-code", longCode), answered("wide-table", wideTable), answered("right-to-left", rightToLeft), answered("six-scripts", sixScripts),
  { name: "branches", set: (fake) => { fake.answers = [{ tokens: words("The first answer.") }, { tokens: words("The second answer, which differs.") }]; },
    reach: async (chat, page) => { await chat.converse(question); await page.getByRole("button", { name: "Regenerate" }).click(); await expect(page.locator(".pager__place")).toHaveText("2/2"); } },
  { name: "editing", reach: async (chat, page) => { await chat.converse(question); await page.locator(".message--user").hover(); await page.getByRole("button", { name: "Edit and run again" }).click(); } },
  { name: "sidebar", reach: async (chat, page) => {
    for (const text of ["Why is the sky blue?", "Plan a week in Lisbon", "Explain B-trees to a child", "Regular expression for dates"]) { await chat.converse(text); await page.keyboard.press("Control+Shift+O"); }
    if (await page.locator(".app--folded").count() > 0) { await page.getByRole("button", { name: "Conversations", exact: true }).click(); await page.waitForTimeout(250); }
  } },
  { name: "deleted", reach: async (chat, page) => {
    await chat.converse("Why is the sky blue?");
    await page.keyboard.press("Control+k");
    await page.locator(".room__open").focus();
    await page.keyboard.press("Delete");
    await expect(page.getByRole("button", { name: "Undo" })).toBeVisible();
  } },
  { name: "settings", reach: async (_, page) => { await page.getByRole("button", { name: "Settings" }).click(); await page.waitForTimeout(300); } },
  { name: "models", reach: async (_, page) => { await page.getByRole("button", { name: /^Model/ }).click(); await expect(page.getByRole("dialog", { name: "Models" })).toBeVisible(); } },
  { name: "templates", reach: async (_, page) => { await page.getByRole("button", { name: "Templates" }).click(); } },
  { name: "shortcuts", reach: async (_, page) => { await page.locator("body").click({ position: { x: 5, y: 300 } }); await page.keyboard.press("?"); await expect(page.getByRole("dialog")).toBeVisible(); } },
  { name: "status", path: "/status", set: (fake) => { fake.metrics = dashboardMetrics(); }, reach: (_, page, fake) => minuteOfFigures(page, fake) },
  { name: "embeddings", path: "/embeddings", reach: async (_, page) => { await page.getByRole("button", { name: "Compare" }).click(); await expect(page.locator(".matrix")).toBeVisible(); } },
];

const chosen = process.env["STATES"]?.split(",");

test.beforeAll(() => mkdir(folder, { recursive: true }));

async function shoot(browser: Browser, state: State, theme: "light" | "dark", [width, height]: readonly [number, number]): Promise<void> {
  const fake = await FakeServer.start(pageRoot);
  fake.models = fake.models.map((model) => ({ ...model }));
  state.set?.(fake);
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", hasTouch: width < 600, permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  const chat = new Chat(page, fake.url);
  if (state.path === "/status") await page.clock.install();
  await page.goto(fake.url + (state.path ?? "/"));
  if (state.name !== "key") await expect(chat.state).toHaveAttribute("data-state", "connected");
  await state.reach(chat, page, fake);
  await page.waitForTimeout(150);
  await page.screenshot({ path: join(folder, `${state.name}-${width}-${theme}.png`) });
  await context.close();
  await fake.stop();
}

for (const state of states) {
  if (chosen && !chosen.includes(state.name)) continue;
  test(`pictures: ${state.name}`, async ({ browser }) => {
    for (const theme of ["light", "dark"] as const) for (const size of widths) await shoot(browser, state, theme, size);
  });
}

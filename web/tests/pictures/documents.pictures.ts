// The pictures of docs/page.md and the README: docs/pictures, where DOCUMENTS=1 asks for them.
import { join } from "node:path";
import type { Browser, Page } from "@playwright/test";
import { FakeServer, words } from "../browser/fake_server.ts";
import { Chat, expect, hasVectors, pageRoot, startServer, test } from "../browser/harness.ts";
import { markdownAnswer } from "../browser/samples.ts";
import { minutesOfFigures } from "./figures.ts";

const folder = join(import.meta.dirname, "../../../docs/pictures");
const titles = ["Regular expression for dates", "Explain B-trees to a child", "Plan a week in Lisbon", "Which sorting algorithm should I take?"];

test.skip(process.env["DOCUMENTS"] !== "1", "DOCUMENTS=1 takes them anew");

async function take(browser: Browser, name: string, options: { width: number; height: number; theme: "light" | "dark"; path?: string }, reach: (chat: Chat, page: Page, fake: FakeServer) => Promise<void>): Promise<void> {
  const fake = await FakeServer.start(pageRoot);
  const phone = options.width < 600;
  const context = await browser.newContext({ viewport: { width: options.width, height: options.height }, colorScheme: options.theme, reducedMotion: "reduce", hasTouch: phone, deviceScaleFactor: phone ? 1.5 : 1 });
  const page = await context.newPage();
  const chat = new Chat(page, fake.url);
  if (options.path === "/status") await page.clock.install();
  await chat.open(options.path);
  await reach(chat, page, fake);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await context.close();
  await fake.stop();
}

async function talk(chat: Chat, page: Page, fake: FakeServer, answer = markdownAnswer): Promise<void> {
  for (const title of titles) {
    await page.keyboard.press("Control+Shift+O");
    fake.answers = [{ tokens: words(answer), gap: title === titles.at(-1) ? 21 : 0, promptTokens: 412 }];
    await chat.converse(title);
  }
}

/** A question and all of its answer, with figures, and another one beside it. */
async function talkTwice(chat: Chat, page: Page, fake: FakeServer): Promise<void> {
  await talk(chat, page, fake, markdownAnswer.slice(0, markdownAnswer.indexOf("> Measure")));
  await page.getByRole("button", { name: "Regenerate" }).click();
  await expect(page.locator(".pager__place")).toHaveText("2/2");
  await expect(chat.send).toBeVisible();
  await page.mouse.move(640, 300);
  await page.waitForTimeout(300);
}

async function talkAndReturn(chat: Chat, page: Page, fake: FakeServer): Promise<void> {
  await talk(chat, page, fake);
  await page.locator(".thread").evaluate((node) => { node.scrollTop = 0; });
  await page.waitForTimeout(300);
}

/** By the model itself: the fake server's vectors count letters. */
async function compare(page: Page): Promise<void> {
  const real = await startServer(["minilm"]);
  try {
    await page.route("**/v1/embeddings", async (route) => {
      const headers = { ...route.request().headers(), origin: real.url };
      await route.fulfill({ response: await route.fetch({ url: `${real.url}/v1/embeddings`, headers }) });
    });
    await page.getByRole("button", { name: "Compare" }).click();
    await expect(page.getByRole("heading", { name: "Vectors of 384 numbers" })).toBeVisible();
  } finally {
    await real.end();
  }
}

test("for the documents", async ({ browser }) => {
  await take(browser, "page-chat", { width: 1280, height: 966, theme: "light" }, talkTwice);
  await take(browser, "page-phone", { width: 390, height: 780, theme: "dark" }, talkAndReturn);
  await take(browser, "page-settings", { width: 1280, height: 800, theme: "dark" }, async (chat, page, fake) => {
    await talkAndReturn(chat, page, fake);
    await page.getByRole("button", { name: "Settings" }).click();
    await page.waitForTimeout(300);
  });
  await take(browser, "page-status", { width: 1280, height: 800, theme: "light", path: "/status" }, (_, page, fake) => minutesOfFigures(page, fake));
  if (hasVectors) await take(browser, "page-embeddings", { width: 1280, height: 800, theme: "light", path: "/embeddings" }, (_, page) => compare(page));
});

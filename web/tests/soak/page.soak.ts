// What must hold of the page's speed: 1000 messages, 500 tokens a second, 10^4 tokens, and the first paint.
import type { CDPSession, Page } from "@playwright/test";
import { Chat, expect, startServer, test, words } from "../browser/harness.ts";
import { longConversation, markdownAnswer } from "../browser/samples.ts";

async function openLong(chat: Chat, page: Page): Promise<void> {
  await chat.open();
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), (async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Import" }).click();
  })()]);
  await chooser.setFiles({ name: "long.json", mimeType: "application/json", buffer: Buffer.from(longConversation(1000)) });
  await page.locator(".room__open").click();
  await expect(page.locator(".message").last()).toBeVisible();
}

test("1000 messages: few are in the document, typing and scrolling stay quick", async ({ chat, page }) => {
  await openLong(chat, page);
  expect(await page.locator(".message").count()).toBeLessThan(20);

  // Typing: from the key to the frame that shows it.
  await chat.field.focus();
  await page.evaluate(() => {
    const state = globalThis as unknown as { delays: number[] };
    state.delays = [];
    document.addEventListener("keydown", (event) => requestAnimationFrame(() => requestAnimationFrame(() => state.delays.push(performance.now() - event.timeStamp))), true);
  });
  await page.keyboard.type("How quickly does this come?", { delay: 60 });
  const delays = await page.evaluate(() => (globalThis as unknown as { delays: number[] }).delays);
  const typing = Math.max(...delays);

  // Scrolling through all of it: the longest time between two frames, and that something is always seen.
  const frames = await page.evaluate(async () => {
    const thread = document.querySelector(".thread");
    if (thread === null) throw new Error("no thread");
    let longest = 0;
    let blank = 0;
    let most = 0;
    let last = performance.now();
    while (thread.scrollTop > 0) {
      thread.scrollTop -= 700;
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      longest = Math.max(longest, now - last);
      last = now;
      most = Math.max(most, document.querySelectorAll(".message").length);
      const box = thread.getBoundingClientRect();
      if (document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)?.closest(".message, .thread__column") === null) blank += 1;
    }
    return { longest, blank, most };
  });
  await expect(page.locator(".message").first()).toContainText("Question 0");
  console.log(`typing ${typing.toFixed(0)} ms at most, longest frame ${frames.longest.toFixed(0)} ms, ${frames.most} messages at most in the document`);
  expect(typing).toBeLessThan(50);
  expect(frames.longest).toBeLessThan(100);
  expect(frames.blank).toBe(0);
  expect(frames.most).toBeLessThan(40);
});

test("500 tokens a second are shown as they come, at most 100 ms behind", async ({ chat, fake, page }) => {
  // Each token says when it was made, by a clock that both sides share.
  await chat.open();
  const tokens = Array.from({ length: 2500 }, (_, at) => (at % 40 === 39 ? "\n\n" : `t${at} `));
  fake.answers = [{ tokens, gap: 2 }];
  await page.evaluate(() => {
    const state = globalThis as unknown as { arrivals: Map<number, number>; behind: number[] };
    state.arrivals = new Map();
    state.behind = [];
    // eslint-disable-next-line @typescript-eslint/unbound-method -- called with `this` below
    const own = Object.getOwnPropertyDescriptor(MessageEvent.prototype, "data")?.get;
    Object.defineProperty(MessageEvent.prototype, "data", { get(this: MessageEvent) {
      const text: unknown = own?.call(this);
      const found = typeof text === "string" ? /"token":"t(\d+) "/.exec(text) : null;
      if (found && !state.arrivals.has(Number(found[1]))) state.arrivals.set(Number(found[1]), performance.now());
      return text;
    } });
    let shown = -1;
    const look = (): void => {
      const all = document.querySelector(".message:last-of-type .prose")?.lastElementChild?.textContent ?? "";
      const newest = Number(/t(\d+) ?$/.exec(all.trimEnd())?.[1] ?? -1);
      for (let at = shown + 1; at <= newest; at += 1) {
        const came = state.arrivals.get(at);
        if (came !== undefined) state.behind.push(performance.now() - came);
      }
      shown = Math.max(shown, newest);
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  await chat.converse("Go");
  const behind = await page.evaluate(() => (globalThis as unknown as { behind: number[] }).behind);
  const most = Math.max(...behind);
  console.log(`${behind.length} tokens seen, ${most.toFixed(0)} ms behind at most, ${(behind.reduce((sum, value) => sum + value, 0) / behind.length).toFixed(0)} ms on average`);
  expect(behind.length).toBeGreaterThan(2000);
  expect(most).toBeLessThan(100);
});

async function heap(session: CDPSession): Promise<number> {
  await session.send("HeapProfiler.collectGarbage");
  const { metrics } = await session.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "JSHeapUsedSize")?.value ?? 0;
}

test("memory is steady over 10000 tokens", async ({ chat, fake, page }) => {
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  await chat.open();
  fake.answers = [{ tokens: words(markdownAnswer.repeat(8)).slice(0, 1000), gap: 1 }];
  const sizes: number[] = [];
  for (let at = 0; at < 10; at += 1) {
    await chat.converse("Go");
    await page.keyboard.press("Control+Shift+O");
    sizes.push(await heap(session));
  }
  console.log(`heap in MB: ${sizes.map((size) => (size / 1e6).toFixed(1)).join(" ")}`);
  const growth = (sizes.at(-1) ?? 0) - (sizes[2] ?? 0);
  expect(growth).toBeLessThan(3e6);
});

test("the first paint comes under 300 ms from the server", async ({ page }) => {
  const server = await startServer(["default"]);
  await page.goto(server.url); // the browser itself is warm; the page is not cached
  const times: number[] = [];
  for (let at = 0; at < 3; at += 1) {
    const session = await page.context().newCDPSession(page);
    await session.send("Network.clearBrowserCache");
    await page.goto("about:blank");
    await page.goto(server.url);
    await expect(page.getByRole("textbox", { name: "Message" })).toBeVisible();
    times.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Infinity));
  }
  await server.end();
  console.log(`first paint in ms: ${times.map((time) => time.toFixed(0)).join(" ")}`);
  expect(Math.min(...times)).toBeLessThan(300);
});

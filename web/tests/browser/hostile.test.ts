// Model text is hostile: 200 texts that try to run something, to fetch something or to look like the page, as answers, as
// an import and as names of models. Nothing runs and nothing is fetched.
import type { Page } from "@playwright/test";
import { expect, importText, test } from "./harness.ts";
import { corpus } from "./hostile_texts.ts";
import { dangerous, watch } from "./hostile_watch.ts";

/** Asks and waits in the page itself, by frame; what the answer shows at its end. */
function ask(page: Page): Promise<string> {
  return page.evaluate(async () => {
    const last = (): HTMLElement | undefined => [...document.querySelectorAll<HTMLElement>(".message--model")].at(-1);
    const field = document.querySelector<HTMLTextAreaElement>(".composer__text");
    if (field === null || field.disabled) throw new Error("there is no field to ask in");
    const before = last()?.dataset["message"];
    field.value = "Go";
    field.dispatchEvent(new InputEvent("input", { bubbles: true }));
    field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    const isOver = (): boolean => last() !== undefined && last()?.dataset["message"] !== before && document.querySelector(".composer__send")?.textContent === "Send";
    const until = performance.now() + 45_000;
    for (let frames = 0; frames < 2; frames = isOver() ? frames + 1 : 0) { // one more, in which all is drawn
      if (performance.now() > until) throw new Error("the answer does not end");
      await new Promise(requestAnimationFrame);
    }
    return last()?.textContent ?? "";
  });
}

async function importFile(page: Page, conversations: readonly unknown[]): Promise<void> {
  await importText(page, JSON.stringify({ format: "quarrel-conversations", version: 1, exportedAt: "", conversations }));
}

/** Each text is in one of them: the page redraws its list at every step, and is slow with all. */
const parts = Array.from({ length: 4 }, (_, part) => ({ part: part + 1, own: corpus.filter((__, at) => at % 4 === part) }));

test("there are 200 hostile texts", () => {
  expect(new Set(parts.flatMap(({ own }) => own)).size).toBeGreaterThanOrEqual(200);
  expect(parts.flatMap(({ own }) => own)).toHaveLength(corpus.length);
});

test("what is dangerous is found, if it is there for a moment", async ({ chat, fake, page }) => {
  await watch(page, fake.url);
  await chat.open();
  await page.evaluate(() => {
    const link = document.createElement("a");
    document.body.append(link, document.createElement("iframe"));
    link.setAttribute("href", "javascript:x");
    setTimeout(() => { link.remove(); document.querySelector("iframe")?.remove(); });
  });
  await expect.poll(() => dangerous(page)).toEqual(["A href=javascript:x", "IFRAME", "A href=javascript:x"]); // added with it, and changed
});

for (const { part, own } of parts) {
  test(`each alone as an answer, part ${part}`, async ({ chat, fake, page }) => {
    test.setTimeout(180_000);
    const wrong = await watch(page, fake.url);
    await chat.open();
    // In pieces, so that half of a tag is rendered too.
    fake.answers = own.map((text) => ({ tokens: text.match(/[^]{1,7}/g) ?? [], gap: 0.2 }));
    for (const text of own) {
      const shown = await ask(page);
      expect([text, await dangerous(page), wrong, /\d written/.test(shown)]).toEqual([text, [], [], true]);
    }
    expect(fake.asked).toHaveLength(own.length);
  });

  test(`ten to an answer, part ${part}`, async ({ chat, fake, page }) => {
    test.setTimeout(180_000);
    const wrong = await watch(page, fake.url);
    await chat.open();
    for (let at = 0; at < own.length; at += 10) {
      const text = own.slice(at, at + 10).join("\n\n");
      fake.answers = [{ tokens: text.match(/[^]{1,7}/g) ?? [], gap: 0.2 }];
      expect([await ask(page), await dangerous(page)]).toEqual([expect.stringMatching(/\d written/), []]);
      await page.keyboard.press("Control+Shift+O");
    }
    expect(wrong).toEqual([]);
  });

  test(`as conversations of an import: title, model, settings, question, answer and its error, part ${part}`, async ({ chat, fake, page }) => {
    test.setTimeout(180_000);
    const wrong = await watch(page, fake.url);
    const one = fake.models[0];
    if (one === undefined) throw new Error("no model");
    fake.models = own.map((text) => ({ ...one, name: text }));
    await chat.open();
    const now = Date.now();
    await importFile(page, own.map((text, at) => {
      const message = (role: string, more: Record<string, unknown>): unknown => ({ id: `${role}-${at}`, role, createdAt: now, text, state: "complete", model: text, settings: null, finishReason: "stop", error: null, statistics: null, ...more });
      return {
        id: `hostile-${at}`, createdAt: now, updatedAt: now - at, title: text, titleIsOwn: true, model: text, settings: { systemPrompt: text, stop: [text] }, selected: {},
        messages: [message("user", { parentId: null }), message("assistant", { parentId: `user-${at}` }), message("user", { id: `next-${at}`, parentId: `assistant-${at}` }), message("assistant", { id: `failed-${at}`, parentId: `next-${at}`, state: "failed", error: { code: text, message: text, retryAfter: null } })],
      };
    }));
    const rooms = page.locator(".room__open");
    await expect(rooms).toHaveCount(own.length);
    expect(await rooms.locator(".room__title").allTextContents()).toEqual(own);
    // Each is opened, and all of it is seen.
    const seen = await page.evaluate(async () => {
      const answers = new Set<string>();
      const told: { model: string; question: string; error: string }[] = [];
      const until = async (holds: () => boolean): Promise<void> => {
        for (let frame = 0; frame < 300 && !holds(); frame += 1) {
          await new Promise(requestAnimationFrame);
          for (const each of document.querySelectorAll<HTMLElement>(".message--model:has(.prose)")) answers.add(each.dataset["message"] ?? "");
        }
      };
      const last = (): HTMLElement | undefined => [...document.querySelectorAll<HTMLElement>(".message--model")].at(-1);
      let before: string | undefined;
      for (let at = 0; at < document.querySelectorAll(".room__open").length; at += 1) {
        document.querySelectorAll<HTMLElement>(".room__open")[at]?.click();
        await until(() => last() !== undefined && last()?.dataset["message"] !== before);
        before = last()?.dataset["message"];
        const error = last()?.querySelector(".message__notice")?.textContent ?? "";
        const thread = document.querySelector(".thread");
        thread?.dispatchEvent(new WheelEvent("wheel", { deltaY: -1 })); // the reader's hand: the end is not followed
        await until(() => {
          thread?.scrollBy(0, -400); // what is far from the view is not in the document
          return thread?.scrollTop === 0;
        });
        await until(() => answers.size === 2 * at + 2 && document.querySelector(".message--user") !== null);
        told.push({ model: document.querySelector(".picker__name")?.textContent ?? "", question: document.querySelector(".message--user .message__text")?.textContent ?? "", error });
      }
      return { told, answers: answers.size };
    });
    expect(seen.answers).toBe(2 * own.length);
    expect(seen.told.map(({ question }) => question)).toEqual(own);
    expect(seen.told.map(({ model }) => model)).toEqual(own);
    expect(seen.told.map(({ error }, at) => error.includes(own[at] ?? "?"))).toEqual(own.map(() => true));
    expect(await dangerous(page)).toEqual([]);
    await page.getByRole("searchbox").fill("pwned");
    await expect(page.locator(".room__found mark").first()).toBeVisible();
    expect(await dangerous(page)).toEqual([]);
    expect(wrong).toEqual([]);
  });
}

test("as texts, names and metadata of sources, from the server and from an import", async ({ chat, fake, page }) => {
  const wrong = await watch(page, fake.url);
  await chat.open();
  const sources = corpus.map((text, at) => ({ number: at + 1, score: 0.5, id: text, text, doc_id: text, source: text, metadata: { [text]: text } }));
  const look = async (texts: readonly string[]): Promise<void> => {
    await page.getByRole("button", { name: /^Show \d+ more source/ }).click();
    const rows = page.locator(".source");
    await expect(rows).toHaveCount(texts.length);
    await rows.evaluateAll((all) => all.forEach((each) => { (each as HTMLDetailsElement).open = true; }));
    await expect(page.locator(".source__text")).toHaveCount(texts.length);
    expect(await page.locator(".source__text").evaluateAll((all) => all.map((each) => each.textContent))).toEqual(texts);
    expect(await page.locator(".source__text *").count()).toBe(0);
    expect(await dangerous(page)).toEqual([]);
  };
  for (let at = 0; at < sources.length; at += 100) {
    fake.answers = [{ tokens: ["Go"], sources: sources.slice(at, at + 100) }];
    await chat.converse("Go");
    await look(corpus.slice(at, at + 100));
    await page.keyboard.press("Control+Shift+O");
  }
  const now = Date.now();
  const message = (id: string, parentId: string | null, role: string, kept: unknown): unknown => ({ id, parentId, role, createdAt: now, text: "x", state: "complete", settings: null, sources: kept });
  const conversation = { id: "hostile-sources", createdAt: now, updatedAt: now, title: "Imported", settings: {}, selected: {}, messages: [message("a", null, "user", "no list"), message("b", "a", "assistant", [null, 7, ...sources.slice(0, 60)])] };
  await importFile(page, [conversation]);
  await page.locator(".room__open").filter({ hasText: "Imported" }).click();
  await look(corpus.slice(0, 60));
  expect(wrong).toEqual([]);
});

test("as names of models", async ({ fake, page }) => {
  const wrong = await watch(page, fake.url);
  const one = fake.models[0];
  if (one === undefined) throw new Error("no model");
  fake.models = corpus.map((text) => ({ ...one, name: text, parameters: text, quantization: text }));
  await page.goto(fake.url);
  await page.getByRole("button", { name: /^Model/ }).click();
  await expect(page.locator(".models .model")).toHaveCount(corpus.length);
  expect(await page.locator(".models .model__name").allTextContents()).toEqual(corpus);
  expect(await dangerous(page)).toEqual([]);
  await page.goto(`${fake.url}/status`);
  await expect(page.locator(".list .model")).toHaveCount(corpus.length);
  expect(await dangerous(page)).toEqual([]);
  await page.goto(`${fake.url}/embeddings`);
  await expect(page.locator("option")).toHaveCount(corpus.length);
  expect(await dangerous(page)).toEqual([]);
  expect(wrong).toEqual([]);
});

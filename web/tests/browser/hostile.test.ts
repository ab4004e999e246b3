// Model text is hostile: 200 texts that try to run something, to fetch something or to look like the page, as answers, as
// an import and as names of models. Nothing runs and nothing is fetched.
import type { Page } from "@playwright/test";
import { expect, test } from "./harness.ts";
import { corpus } from "./hostile_texts.ts";

/** What ran or was fetched. */
async function watch(page: Page, url: string): Promise<string[]> {
  const wrong: string[] = [];
  page.on("dialog", (dialog) => {
    wrong.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith("blob:")) wrong.push(`fetched: ${request.url()}`);
    if (/evil|pwned/.test(request.url())) wrong.push(`fetched: ${request.url()}`);
  });
  page.on("popup", (popup) => wrong.push(`popup: ${popup.url()}`));
  page.on("framenavigated", (frame) => {
    if (frame !== page.mainFrame() || !frame.url().startsWith(url)) wrong.push(`went to ${frame.url()}`);
  });
  await page.exposeFunction("pwned", () => wrong.push("ran"));
  return wrong;
}

/** Nothing in the document that could run, fetch or take the page over. */
function dangerous(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const found: string[] = [];
    for (const node of document.querySelectorAll("body *")) {
      if (/^(script|iframe|object|embed|link|meta|base|style|img|video|audio|source|picture|form|math|portal|frame)$/i.test(node.tagName) && !node.matches(".composer, .form")) found.push(node.tagName);
      for (const { name, value } of node.attributes) {
        if (/^on/i.test(name) || (/^(href|src|action|xlink:href|formaction)$/i.test(name) && /^\s*(javascript|data|vbscript):/i.test(value))) found.push(`${node.tagName} ${name}=${value}`);
      }
      if (node.matches("a[href^='http']") && !/noopener/.test(node.getAttribute("rel") ?? "")) found.push(`link without noopener: ${node.getAttribute("href") ?? ""}`);
    }
    return found;
  });
}

test("there are 200 hostile texts", () => {
  expect(new Set(corpus).size).toBeGreaterThanOrEqual(200);
});

for (let part = 0; part < 4; part += 1) {
  test(`as answers, part ${part + 1}`, async ({ chat, fake, page }) => {
    const wrong = await watch(page, fake.url);
    await chat.open();
    // Several to an answer, and in pieces, so that half of a tag is rendered too.
    const own = corpus.filter((_, at) => at % 4 === part);
    for (let at = 0; at < own.length; at += 10) {
      const text = own.slice(at, at + 10).join("\n\n");
      fake.answers = [{ tokens: text.match(/[^]{1,7}/g) ?? [], gap: 0.2 }];
      await chat.converse("Go");
      expect(await dangerous(page)).toEqual([]);
      await page.keyboard.press("Control+Shift+O");
    }
    expect(wrong).toEqual([]);
  });
}

test("each alone, as the messages of an import, titles too", async ({ chat, fake, page }) => {
  const wrong = await watch(page, fake.url);
  await chat.open();
  const now = Date.now();
  const message = (id: string, parentId: string | null, role: string, text: string): unknown => ({ id, parentId, role, createdAt: now, text, state: "complete", model: text.slice(0, 100), settings: null, finishReason: "stop", error: { code: "INFERENCE_ERROR", message: text, retryAfter: null }, statistics: null });
  const conversations = [0, 1].map((half) => {
    const texts = corpus.filter((_, at) => at % 2 === half);
    return { id: `hostile-${half}`, createdAt: now, updatedAt: now, title: texts[0], titleIsOwn: true, model: texts[1], settings: { systemPrompt: texts[2] }, selected: {}, messages: texts.map((text, at) => message(`m${half}-${at}`, at === 0 ? null : `m${half}-${at - 1}`, at % 2 === 0 ? "user" : "assistant", text)) };
  });
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), (async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Import" }).click();
  })()]);
  await chooser.setFiles({ name: "hostile.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({ format: "quarrel-conversations", version: 1, exportedAt: "", conversations })) });
  await expect(page.locator(".room")).toHaveCount(2);
  for (let half = 0; half < 2; half += 1) {
    await page.locator(".room__open").nth(half).click();
    await expect(page.locator(".message").first()).toBeVisible();
    const thread = page.locator(".thread");
    await thread.evaluate((node) => { node.scrollTop = 0; });
    for (let at = 0; at < 60; at += 1) {
      await page.waitForTimeout(30);
      expect(await dangerous(page)).toEqual([]);
      const ended = await thread.evaluate((node) => {
        node.scrollTop += 1500;
        return node.scrollTop + node.clientHeight >= node.scrollHeight - 2;
      });
      if (ended) break;
    }
  }
  expect(wrong).toEqual([]);
});

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
  const [chooser] = await Promise.all([page.waitForEvent("filechooser"), (async (): Promise<void> => {
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Import" }).click();
  })()]);
  await chooser.setFiles({ name: "hostile.json", mimeType: "application/json", buffer: Buffer.from(JSON.stringify({ format: "quarrel-conversations", version: 1, exportedAt: "", conversations: [conversation] })) });
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
  expect(await dangerous(page)).toEqual([]);
  await page.goto(`${fake.url}/status`);
  await expect(page.locator(".list .model")).toHaveCount(corpus.length);
  expect(await dangerous(page)).toEqual([]);
  await page.goto(`${fake.url}/embeddings`);
  await expect(page.locator("option")).toHaveCount(corpus.length);
  expect(await dangerous(page)).toEqual([]);
  expect(wrong).toEqual([]);
});

// The page as the program serves it, with the default model, the one for vectors, and the toy.
import { readFile } from "node:fs/promises";
import { policy } from "./fake_server.ts";
import { Chat, choose, expect, hasVectors, kept, makeToy, room, test, withoutPauses, withSettings, type Page } from "./harness.ts";

async function set(page: Page, values: Record<string, string>): Promise<void> {
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByRole("radio", { name: "Defaults" }).click();
  for (const [name, value] of Object.entries(values)) {
    await page.locator(`[data-setting="${name}"]`).fill(value);
    await page.locator(`[data-setting="${name}"]`).press("Tab");
  }
  await page.getByRole("button", { name: "Done" }).click();
}

const sure = { temperature: "0", maxTokens: "45", seed: "1" };

test("a chat with the default model: figures, context, regenerate, continue", async ({ page, real }) => {
  const chat = new Chat(page, real.url);
  await chat.open();
  await expect(page.getByRole("button", { name: /^Model: default/ })).toBeVisible();
  await set(page, { ...sure, maxTokens: "12" });
  const answer = await chat.converse("Count from one to twenty in words.");
  await expect(answer).not.toHaveText("");
  await expect(chat.answers.last()).toContainText("Cut at 12 tokens");
  await expect(chat.answers.last().locator(".message__figures")).toContainText("12 written");
  await expect(page.locator(".gauge")).toHaveAttribute("aria-label", /of 8,192 tokens/);
  const first = await answer.textContent() ?? "";
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(chat.send).toBeVisible();
  await expect.poll(async () => (await chat.answers.last().locator(".prose").textContent() ?? "").length).toBeGreaterThan(first.length);
  expect(await chat.answers.last().locator(".prose").textContent()).toContain(first.slice(0, 10));
  await page.getByRole("button", { name: "Regenerate" }).click();
  await expect(page.locator(".pager__place")).toHaveText("2/2");
});

test("Stop ends an answer of the real model", async ({ page, real }) => {
  await page.addInitScript(withSettings, { temperature: 0, seed: 1, maxTokens: 4000 });
  const chat = new Chat(page, real.url);
  await chat.open();
  await chat.ask("Write a very long story about a fox.");
  await expect(chat.answers.last().locator(".prose")).toContainText(/\w+ \w+/);
  await chat.stop.click();
  await expect(chat.answers.last()).toContainText("Stopped.");
});

test("what the real model wrote outlasts a reload: it is exported, deleted, and brought back by Undo", async ({ page, real }) => {
  await page.addInitScript(withSettings, { temperature: 0, seed: 1, maxTokens: 8 });
  const chat = new Chat(page, real.url);
  await chat.open();
  const text = (await (await chat.converse("Name a fox.")).textContent() ?? "").trim();
  expect(text).toMatch(/\w+ \w+/);
  const shown = chat.answers.last().locator(".prose");
  await expect.poll(() => kept(page, "messages")).toContain('"generatedTokens":8');
  await page.reload();
  await expect(shown).toHaveText(text);
  const [file] = await Promise.all([page.waitForEvent("download"), choose(page, "Name a fox.", "Export as JSON")]);
  const { conversations } = JSON.parse(await readFile(await file.path(), "utf8")) as { conversations: { title: string; messages: { role: string; text: string }[] }[] };
  expect(conversations.map(({ title }) => title)).toEqual(["Name a fox."]);
  const [answer, question] = conversations[0]?.messages.toSorted((one, other) => one.role.localeCompare(other.role)) ?? [];
  expect(question).toMatchObject({ role: "user", text: "Name a fox." });
  expect(answer).toMatchObject({ role: "assistant", model: "default", finishReason: "length", statistics: { generatedTokens: 8 } });
  expect(answer?.text.trim()).toBe(text);
  await choose(page, "Name a fox.", "Delete");
  await expect(room(page, "Name a fox.")).toHaveCount(0);
  await expect(chat.answers).toHaveCount(0);
  await expect.poll(() => kept(page, "conversations")).toMatch(/"deletedAt":\d/);
  await page.getByRole("button", { name: "Undo" }).click();
  await expect(shown).toHaveText(text);
  await expect.poll(() => kept(page, "conversations")).toContain('"deletedAt":null');
  await page.reload();
  await expect(shown).toHaveText(text);
});

test("of a long prompt the page tells how much is read", async ({ page, real }) => {
  test.setTimeout(180_000);
  await page.addInitScript(withSettings, { maxTokens: 2 });
  await page.addInitScript(() => {
    const told = new Set<string>();
    Object.assign(globalThis, { told });
    new MutationObserver(() => {
      const waiting = document.querySelector(".waiting");
      if (waiting !== null) told.add(`${waiting.textContent} ${waiting.querySelector("[role=progressbar]")?.getAttribute("aria-valuenow") ?? ""}`);
    }).observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  const chat = new Chat(page, real.url);
  await chat.open();
  await chat.ask("The fox runs through the woods. ".repeat(250));
  await expect(chat.answers.last()).toContainText("2 written", { timeout: 120_000 });
  const told = await page.evaluate(() => [...(globalThis as unknown as { told: Set<string> }).told]);
  const steps = told.map((text) => /^Reading the prompt: ([\d,]+) of ([\d,]+) tokens.* (\d+)$/.exec(text)).filter((found) => found !== null)
    .map((found) => found.slice(1).map((number) => Number(number.replace(",", "")))) as [number, number, number][];
  expect(steps).not.toEqual([]);
  const [, total] = steps[0] ?? [];
  await expect(chat.answers.last().locator(".message__counts")).toHaveText(`${new Intl.NumberFormat("en").format(total ?? 0)} read, 2 written`);
  for (const [at, [read, of, percent]] of steps.entries()) {
    expect(of).toBe(total);
    expect(read).toBeLessThan(of);
    expect(read).toBeGreaterThanOrEqual(steps[at - 1]?.[0] ?? 1);
    expect(percent).toBe(Math.round(read / of * 100));
  }
});

test("the connection is lost at every tenth token: the text is the one without losses", async ({ page, real }) => {
  await page.addInitScript(withoutPauses);
  let cutting = false;
  let cuts = 0;
  await page.routeWebSocket(/\/ws$/, (socket) => {
    const server = socket.connectToServer();
    let tokens = 0;
    server.onMessage((message) => {
      socket.send(message);
      if (!cutting || !String(message).includes('"token"')) return;
      tokens += 1;
      if (tokens !== 10) return;
      cuts += 1;
      void socket.close({ code: 1001 });
    });
  });
  const chat = new Chat(page, real.url);
  await chat.open();
  await set(page, sure);
  const whole = await (await chat.converse("Name the planets and describe each.")).textContent() ?? "";
  expect(whole.length).toBeGreaterThan(80);
  await page.keyboard.press("Control+Shift+O");
  cutting = true;
  await chat.ask("Name the planets and describe each.");
  await expect(chat.answers.last().locator(".prose")).toHaveText(whole, { timeout: 90_000 });
  await expect(chat.send).toBeVisible();
  expect(cuts).toBeGreaterThanOrEqual(3); // of 45 tokens
});

test("without WebSockets the real server is asked by server-sent events", async ({ page, real }) => {
  await page.routeWebSocket(/\/ws$/, (socket) => void socket.close({ code: 1011 }));
  const asked = page.waitForRequest("**/api/stream");
  await page.goto(real.url);
  const chat = new Chat(page, real.url);
  await chat.ask("Say hello.");
  await asked;
  await expect(chat.answers.last().locator(".prose")).toContainText(/\w+/, { timeout: 30_000 });
});

test("models are loaded and unloaded, with what they take", async ({ page, real }) => {
  test.skip(!hasVectors, "minilm is not in the store");
  await page.goto(real.url);
  await page.getByRole("button", { name: /^Model/ }).click();
  const row = page.locator(".models .model").filter({ hasText: "minilm" });
  await expect(row).toBeVisible();
  const load = row.getByRole("button", { name: "Load minilm", exact: true });
  if (await load.count() > 0) await load.click();
  await expect(row).toContainText(/\d+ MB reserved/, { timeout: 30_000 });
  await row.getByRole("button", { name: "Unload minilm" }).click();
  await expect(row).toContainText("not loaded");
});

test("texts are compared by the model for vectors", async ({ page, real }) => {
  test.skip(!hasVectors, "minilm is not in the store");
  await page.goto(`${real.url}/embeddings`);
  await expect(page.getByRole("combobox", { name: "Model" })).toHaveValue("minilm");
  await page.getByRole("button", { name: "Compare" }).click();
  await expect(page.locator(".matrix__cell")).toHaveCount(16, { timeout: 30_000 });
  const values = (await page.locator(".matrix__cell").allTextContents()).map(Number);
  expect(values[1]).toBeGreaterThan(values[2] ?? 1); // the two about the fox; the fox and the bank
  await expect(page.getByRole("heading", { name: "Vectors of 384 numbers" })).toBeVisible();
});

test("the dashboard and a benchmark of the real server", async ({ page, real }) => {
  test.setTimeout(180_000);
  const asked: string[] = [];
  page.on("request", (request) => asked.push(new URL(request.url()).pathname));
  await page.goto(`${real.url}/status`);
  await expect(page.getByText(/requests? since the server was started/)).toBeVisible();
  await page.getByRole("combobox", { name: "Model" }).selectOption("default");
  await page.getByRole("button", { name: "Run benchmark" }).click();
  await expect(page.getByText("Done.")).toBeVisible({ timeout: 120_000 });
  await expect(page.locator(".bars__row")).toHaveCount(4);
  for (const title of ["Tokens per second", "Answers", "Time to first token", "Token gap", "KV cache in use", "Memory", "Cache hits", "Errors"]) {
    const card = page.locator(".card").filter({ has: page.getByRole("heading", { name: title, exact: true }) });
    await expect(card.locator(".card__figure")).toHaveText(/\d/); // the next broadcast
  }
  expect(asked).toContain("/api/models");
  expect(asked).not.toContain("/api/metrics");
});

test("the server's headers: a strict policy, nothing sniffed, nothing referred, names that may be kept", async ({ request, real }) => {
  const answer = await request.get(real.url, { headers: { Accept: "text/html" } });
  const headers = answer.headers();
  expect(headers["content-type"]).toContain("text/html");
  expect(headers["content-security-policy"]).toBe(policy); // the fake server's: all tests run under it
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain("frame-ancestors 'none'");
  expect(policy).not.toMatch(/unsafe-(inline|eval)/);
  expect(headers["x-content-type-options"]).toBe("nosniff");
  expect(headers["referrer-policy"]).toBe("no-referrer");
  const asset = /src="(\/assets\/[^"]+\.js)"/.exec(await answer.text())?.[1] ?? "";
  const script = await request.get(real.url + asset, { headers: { "Accept-Encoding": "gzip" } });
  expect(script.headers()["cache-control"]).toContain("immutable");
  expect(script.headers()["content-encoding"]).toBe("gzip");
  const tag = script.headers()["etag"] ?? "";
  expect((await request.get(real.url + asset, { headers: { "If-None-Match": tag } })).status()).toBe(304);
  for (const path of ["/status", "/embeddings"]) expect((await request.get(real.url + path, { headers: { Accept: "text/html" } })).headers()["content-type"]).toContain("text/html");
  // What the first sight needs is named in the page itself; the languages of code come when code does.
  const html = await answer.text();
  expect(html).toMatch(/<link rel="modulepreload"[^>]+href="\/assets\/purify/);
  expect(html).toMatch(/<link rel="stylesheet"[^>]+href="\/assets\/index-/);
  expect(html).not.toContain("highlight_languages");
  for (const [path, type] of [["/docs", "text/html"], ["/openapi.json", "application/json"]] as const) { // the footer's links
    const linked = await request.get(real.url + path, { headers: { Accept: "text/html" } });
    expect([path, linked.status()]).toEqual([path, 200]);
    expect(linked.headers()["content-type"]).toContain(type);
  }
  const plain = await request.get(real.url, { headers: { Accept: "*/*" } });
  expect(await plain.text()).toBe("Ollama is running");
});

test("the description's page sends what is filled in, and no more", async ({ page, real }) => {
  await page.goto(`${real.url}/docs#ollamaEmbeddings`);
  const form = page.locator("#ollamaEmbeddings form");
  const send = form.getByRole("button", { name: "Send" });
  const priority = async (): Promise<string | undefined> => {
    const [sent] = await Promise.all([page.waitForRequest(/\/api\/embeddings$/), send.click()]);
    return sent.headers()["x-quarrel-priority"];
  };
  expect(await priority()).toBeUndefined();
  await expect(send).toBeEnabled();
  await form.getByLabel("x-quarrel-priority").fill("batch");
  expect(await priority()).toBe("batch");
  await page.goto(`${real.url}/docs#retrieveModel`);
  const one = page.locator("#retrieveModel form");
  await one.getByLabel("id").fill("default");
  await Promise.all([page.waitForRequest(/\/v1\/models\/default$/), one.getByRole("button", { name: "Send" }).click()]);
});

test("a server with a key asks for it, and the page chats with it", async ({ page, start }) => {
  const key = "qk_a-key-of-the-browser-tests";
  const server = await start(["default"], [], { QUARREL_API_KEY: key });
  const chat = new Chat(page, server.url);
  const addresses: string[] = [];
  page.on("request", (request) => addresses.push(request.url()));
  await page.goto(server.url);
  await page.getByLabel("Key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  await set(page, { ...sure, maxTokens: "5" });
  await expect(await chat.converse("Hello")).not.toHaveText("");
  expect(addresses.filter((address) => address.includes("qk_"))).toEqual([]);
});

test("the toy: a model that is quick, says nonsense, and reaches the end of its context", async ({ page, start }, info) => {
  const server = await start([makeToy("chat", info.outputPath("toy.gguf"))]);
  const chat = new Chat(page, server.url);
  await chat.open();
  await set(page, { temperature: "0", maxTokens: "20" });
  for (let at = 0; at < 2; at += 1) await chat.converse("Hello");
  await expect(chat.answers).toHaveCount(2);
  await chat.ask("word ".repeat(3000));
  await expect(chat.answers.last()).toContainText(/context holds 512/);
  await expect(chat.answers.last().getByRole("button", { name: "New chat" })).toBeVisible();
});

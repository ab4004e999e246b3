// The dashboard with its benchmark, and the embeddings view.
import { readFile } from "node:fs/promises";
import type { Locator } from "@playwright/test";
import { expect, gate, test, words, type Page } from "./harness.ts";
import { smallModel, vectorModel } from "./fake_server.ts";
import { dashboardFigures, firstFigures, tell } from "./metrics_sample.ts";

const titles = ["Tokens per second", "Answers", "Time to first token", "Token gap", "KV cache in use", "Memory", "Cache hits", "Errors"];

function cardOf(page: Page, title: string): Locator {
  return page.locator(".card").filter({ has: page.getByRole("heading", { name: title, exact: true }) });
}

test("the dashboard charts what the server broadcasts, and asks for nothing", async ({ chat, fake, page }) => {
  const next = dashboardFigures();
  await page.clock.install();
  await chat.open("/status");
  await expect(page.locator(".list .model")).toHaveCount(2);
  await expect(page.getByText("Quarrel 0.1.0").first()).toBeVisible();
  await tell(page, fake, firstFigures(1180));
  await expect(cardOf(page, "Memory").locator(".card__figure")).toHaveText("896 MB");
  await expect(cardOf(page, "Tokens per second").locator(".card__figure")).toHaveText("none yet"); // of no time before it
  let asked = 0;
  for (let at = 0; at < 12; at += 1) {
    await tell(page, fake, next());
    await page.clock.runFor(4900);
    if (at === 2) asked = fake.paths.length; // what the page begins with has come
  }
  expect(fake.paths.slice(asked)).toEqual([]);
  expect(fake.paths).not.toContain("/api/metrics");
  for (const title of titles) {
    await expect(cardOf(page, title).getByRole("img")).toHaveAttribute("aria-label", new RegExp(`^${title}: `));
    await expect(cardOf(page, title).locator(".card__figure")).toHaveText(/\d/);
    await expect(cardOf(page, title).locator(".chart__line").first()).toBeAttached();
  }
  await expect(cardOf(page, "Tokens per second").locator(".card__figure")).toHaveText("131"); // the last of them: 40 + 160 * (0.5 + 0.5 sin 3)
  await expect(cardOf(page, "Time to first token").locator(".chart__key")).toHaveText(["p50", "p90", "p99"]);
  await expect(page.locator(".list .model").filter({ hasText: "default" })).toContainText("5 running");
  await expect(page.locator(".page__lead").first()).toContainText("1,420 requests since the server was started. 3 connections now.");
});

test("each line of a chart draws its own figure", async ({ chat, fake, page }) => {
  await page.clock.install();
  await chat.open("/status");
  const percentiles = (p50: number, p90: number, p99: number): unknown => ({ count: 9, p50, p90, p99 });
  const figures = { ...firstFigures(1200), running: 3, waiting: 1, memory_bytes: 5e8, process_memory_bytes: 1.5e9, time_to_first_token: percentiles(0.1, 0.3, 0.8), token_gap: percentiles(0.02, 0.05, 0.09) };
  for (const [requests, more] of [[1200, 0], [1220, 1]] as const) await tell(page, fake, { ...figures, requests_total: requests, waiting: figures.waiting + more });
  /** The keys, and at the end of each line the share of the axis. */
  const drawn = (title: string): Promise<[string, number][]> => cardOf(page, title).evaluate((card) => {
    const keys = [...card.querySelectorAll(".chart__key")];
    return [...card.querySelectorAll(".chart__line")].map((line, at) => {
      const y = Number(/([\d.]+)$/.exec(line.getAttribute("d") ?? "")?.[1]);
      const look = /--(one|two|three)/;
      const same = look.exec(line.getAttribute("class") ?? "")?.[1] === look.exec(keys[at]?.className ?? "")?.[1];
      return [same ? keys[at]?.textContent ?? "" : "another key", Math.round((78 - y) / 74 * 100) / 100];
    });
  });
  expect(await drawn("Answers")).toEqual([["running", 0.6], ["waiting", 0.4]]); // of 5
  expect(await drawn("Time to first token")).toEqual([["p50", 0.1], ["p90", 0.3], ["p99", 0.8]]); // of a second
  expect(await drawn("Token gap")).toEqual([["p50", 0.2], ["p90", 0.5], ["p99", 0.9]]); // of 100 ms
  expect(await drawn("Memory")).toEqual([["reserved by models", 0.25], ["process", 0.75]]); // of 2 GB
});

test("what was broadcast before somebody looked is there", async ({ chat, fake, page }) => {
  const next = dashboardFigures();
  await chat.open();
  for (let at = 0; at < 3; at += 1) fake.broadcast("metrics", next());
  await expect(await chat.converse("Hello")).toHaveText("Hello. How can I help you today?"); // came after them
  await page.getByRole("link", { name: "Status" }).click();
  await expect(page.locator(".page__lead").first()).toContainText("1,240 requests");
  await expect(cardOf(page, "Tokens per second").locator(".chart__line")).toHaveAttribute("d", /^M[^L]*L[^L]*L[^L]*$/);
});

test("a connection that is lost is told, and the charts go on with the next", async ({ chat, fake, page }) => {
  const next = dashboardFigures();
  await chat.open("/status");
  for (let at = 0; at < 2; at += 1) fake.broadcast("metrics", next());
  await expect(page.locator(".page__lead").first()).toContainText("1,220 requests");
  fake.fail();
  await expect(page.locator(".message__notice")).toHaveText(/Until the page is connected, no figures come\.$/);
  fake.up();
  await expect(chat.state).toHaveText("Connected", { timeout: 20_000 }); // at the next attempt
  await expect(page.locator(".message__notice")).toBeHidden();
  fake.broadcast("metrics", firstFigures(1230));
  for (let at = 0; at < 2; at += 1) fake.broadcast("metrics", next());
  await expect(page.locator(".page__lead").first()).toContainText("1,260 requests");
  await expect(cardOf(page, "Tokens per second").locator(".chart__line")).toHaveCount(2); // broken where nothing is known
  await expect(cardOf(page, "KV cache in use").locator(".chart__line")).toHaveCount(1);
});

test("who has no right to the figures, or no way to them, sees why", async ({ chat, fake, page }) => {
  const notice = page.locator(".message__notice");
  fake.key = "qk_secret";
  await page.goto(`${chat.url}/status`);
  await expect(notice).toHaveText("The server needs a key. Until the page is connected, no figures come.");
  await expect(cardOf(page, "Memory")).toBeHidden();
  await page.getByLabel("Key", { exact: true }).fill("qk_secret");
  await page.getByRole("button", { name: "Use the key" }).click();
  await expect(chat.state).toHaveText("Connected");
  await expect(notice).toBeHidden();
  fake.broadcast("metrics", firstFigures(20));
  await expect(cardOf(page, "Memory").locator(".card__figure")).toHaveText("896 MB");
  fake.key = null;
  fake.broadcastTime = 0;
  await page.reload();
  await expect(notice).toHaveText("This server broadcasts no figures: its setting websocket.broadcast is 0.");
  fake.withoutSockets = true;
  await page.reload();
  await expect(notice).toHaveText("The figures come over a WebSocket, and WebSockets are blocked here.");
  expect(fake.paths).not.toContain("/api/metrics");
});

test("a benchmark runs from the page, with its picture", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: Array<string>(64).fill("x "), gap: 2 }];
  await chat.open("/status");
  await page.getByRole("button", { name: "Run benchmark" }).click();
  await expect(page.locator(".bars__row")).toHaveCount(4, { timeout: 30_000 });
  await expect(page.locator(".figures tbody tr")).toHaveCount(4);
  await expect(page.getByText("Done.")).toBeVisible();
  expect(fake.asked.length).toBe(1 + 1 + 2 + 4 + 8); // the first warms the model up
});

test("a benchmark is stopped", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("x ".repeat(64)), hold: { after: 8, until: gate().until } }];
  await chat.open("/status");
  await page.getByRole("button", { name: "Run benchmark" }).click();
  await expect(page.getByText("Round 1 of 4")).toBeVisible();
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByText("Stopped.")).toBeVisible();
});

test("the model for vectors is the one that makes some, whatever it is called", async ({ chat, fake, page }) => {
  fake.models = [{ ...smallModel, name: "bert-the-storyteller" }, { ...vectorModel, name: "my-finetune" }];
  await chat.open("/embeddings");
  const model = page.getByRole("combobox", { name: "Model" });
  await expect(model).toHaveValue("my-finetune");
  await model.selectOption("bert-the-storyteller");
  await page.getByRole("link", { name: "Chat", exact: true }).click();
  await page.getByRole("link", { name: "Embeddings", exact: true }).click();
  await expect(model).toHaveValue("bert-the-storyteller");
});

test("texts become a matrix of similarities, and vectors to copy and to save", async ({ chat, page, context }, info) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await chat.open("/embeddings");
  await expect(page.getByRole("combobox", { name: "Model" })).toHaveValue("minilm");
  await page.getByRole("textbox", { name: "Texts" }).fill("abc\nabc\nxyz");
  await page.getByRole("button", { name: "Compare" }).click();
  await expect(page.locator(".matrix__cell")).toHaveText(["1.00", "1.00", "0.00", "1.00", "1.00", "0.00", "0.00", "0.00", "1.00"]);
  const colours = await page.locator(".matrix__cell").evaluateAll((cells) => cells.map((cell) => getComputedStyle(cell).backgroundColor));
  expect(colours[0]).not.toBe(colours[2]);
  await page.getByRole("button", { name: "Copy vector 1" }).click();
  await expect(page.getByText("Vector copied.")).toBeVisible();
  expect((JSON.parse(await page.evaluate(() => navigator.clipboard.readText())) as number[]).length).toBe(26);
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save as JSON" }).click()]);
  await file.saveAs(info.outputPath("vectors.json"));
  expect(JSON.parse(await readFile(info.outputPath("vectors.json"), "utf8"))).toMatchObject([{ text: "abc" }, { text: "abc" }, { text: "xyz" }]);
  const [table] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save as CSV" }).click()]);
  await table.saveAs(info.outputPath("vectors.csv"));
  const lines = (await readFile(info.outputPath("vectors.csv"), "utf8")).trimEnd().split("\n");
  expect(lines.map((line) => line.split(",").length)).toEqual([27, 27, 27]);
  expect(lines[2]).toMatch(/^"xyz",0,/);
});

test("the views have addresses, and Back goes back", async ({ chat, page }) => {
  await chat.open();
  await page.getByRole("link", { name: "Status" }).click();
  await expect(page).toHaveURL(/\/status$/);
  await expect(page.getByRole("heading", { name: "Status", level: 1 })).toBeVisible();
  await page.getByRole("link", { name: "Embeddings" }).click();
  await page.goBack();
  await expect(page.getByRole("heading", { name: "Status", level: 1 })).toBeVisible();
  await page.goBack();
  await expect(chat.field).toBeVisible();
});

// The dashboard with its benchmark, and the embeddings view.
import { readFile } from "node:fs/promises";
import { expect, test, words } from "./harness.ts";
import { dashboardMetrics } from "./metrics_sample.ts";

test("the dashboard charts what the server tells", async ({ chat, fake, page }) => {
  fake.metrics = dashboardMetrics();
  await page.clock.install();
  await chat.open("/status");
  for (let at = 0; at < 6; at += 1) {
    const answered = page.waitForResponse("**/api/metrics");
    await page.clock.runFor(2000);
    await answered;
  }
  fake.broadcast("metrics", { running: 3, requests_total: 120, tokens_total: 4000, connections: 1, tokens_per_sec: 87.5 });
  await page.clock.runFor(2100);
  for (const title of ["Tokens a second", "Answers", "Time to first token", "Token gap", "KV cache in use", "Memory", "Cache hits", "Errors"]) {
    const card = page.locator(".card").filter({ has: page.getByRole("heading", { name: title, exact: true }) });
    await expect(card.getByRole("img")).toHaveAttribute("aria-label", new RegExp(`^${title}: `));
    await expect(card.locator(".chart__line").first()).toBeAttached();
  }
  await expect(page.locator(".card").filter({ hasText: "Memory" }).locator(".card__figure")).toContainText("896 MB");
  await expect(page.locator(".card").filter({ hasText: "Time to first token" }).locator(".chart__key")).toHaveText(["p50", "p90", "p99"]);
  await expect(page.locator(".list .model")).toHaveCount(2);
  await expect(page.locator(".page__lead").first()).toContainText("1 connection now.");
});

test("where the figures cannot be read those that are broadcast are shown", async ({ chat, fake, page }) => {
  fake.isLimited = true;
  await chat.open("/status");
  await expect(page.locator(".message__notice")).toContainText("This key may make 60 requests a minute. Until the figures can be read,");
  for (const rate of [40, 87.5]) fake.broadcast("metrics", { running: 3, requests_total: 120, tokens_total: 4000, connections: 2, tokens_per_sec: rate });
  const card = (title: string): ReturnType<typeof page.locator> => page.locator(".card").filter({ has: page.getByRole("heading", { name: title, exact: true }) });
  await expect(card("Tokens a second").locator(".card__figure")).toHaveText("87.5");
  await expect(card("Answers").locator(".card__figure")).toHaveText("3 running");
  await expect(card("Memory")).toBeHidden();
  await expect(page.locator(".page__lead").first()).toContainText("2 connections now.");
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
  fake.answers = [{ tokens: words("x ".repeat(64)), gap: 100 }];
  await chat.open("/status");
  await page.getByRole("button", { name: "Run benchmark" }).click();
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.getByText("Stopped.")).toBeVisible();
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

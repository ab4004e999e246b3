// Questions that are asked with texts of a dataset: the setting, the request, the sources under the answer, and what goes
// wrong.
import { readFile } from "node:fs/promises";
import findViolations from "./axe.ts";
import { drawn, expect, kept, test, words, type Page } from "./harness.ts";
import { notes } from "./samples.ts";

const setting = (page: Page, name: string): ReturnType<Page["locator"]> => page.locator(`[data-setting="${name}"]`);

async function chooseDataset(page: Page, address: string): Promise<void> {
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await setting(page, "retrieval").check();
  await setting(page, "retrievalAddress").fill(address);
  await setting(page, "retrievalAddress").press("Tab");
  await expect(setting(page, "retrievalModel")).toHaveValue("minilm");
  await page.getByRole("button", { name: "Done" }).click();
}

test("a question goes out with the dataset, and its sources stand under the answer and open", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("Renew it with certbot [1]."), sources: notes }];
  await chat.open();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await expect(setting(page, "retrievalAddress")).toBeHidden();
  await setting(page, "retrieval").check();
  await expect(setting(page, "retrievalModel").locator("option")).toHaveText(["Choose a model", "minilm"]);
  await expect(setting(page, "retrievalModel")).toHaveValue("minilm");
  await setting(page, "retrievalAddress").fill("localhost/notes");
  await setting(page, "retrievalAddress").press("Tab");
  await expect(setting(page, "retrievalAddress")).toHaveValue("longbow://localhost/notes");
  await setting(page, "retrievalTexts").fill("7");
  await setting(page, "retrievalTexts").press("Tab");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("How is the certificate renewed?");
  expect(fake.asked[0]).toMatchObject({ retrieval: { from: "longbow://localhost/notes", model: "minilm", k: 7 } });
  const sources = chat.answers.last().getByRole("region", { name: "Sources" });
  await expect(sources.locator("summary")).toHaveCount(3);
  await expect(sources.locator("summary").nth(0)).toHaveText("1ops.mdscore 0.61");
  await expect(sources.locator("summary").nth(1)).toHaveText("2runbook-7score 0.48");
  await expect(sources.locator("summary").nth(2)).toHaveText("3id 44score 0.41");
  await expect(page.locator(".source__text")).toHaveCount(0);
  await sources.locator("summary").first().click();
  await expect(sources.locator(".source__text")).toHaveText("Certificates are renewed with certbot, every 60 days.");
  await expect(sources).toContainText("only its beginning was read");
  await expect(sources).toContainText('{"offset":0,"bytes":812}');
  await expect.poll(() => kept(page, "messages")).toContain("every 60 days");
  await page.reload();
  await expect(page.locator(".source")).toHaveCount(3);
});

test("by the keyboard: opened with Enter, read, closed again", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("Renew it."), sources: notes }];
  await chat.open();
  await chat.converse("How?");
  await chat.field.focus();
  const second = page.locator(".source__head").nth(1);
  for (let presses = 0; presses < 12 && !(await second.evaluate((node) => node === document.activeElement)); presses += 1) await page.keyboard.press("Shift+Tab");
  await expect(second).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("region", { name: "Text of source 2" })).toBeVisible();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("region", { name: "Text of source 2" })).toBeFocused();
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("region", { name: "Text of source 2" })).toBeHidden();
});

test("opening one keeps the line in its place, though the end was followed", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("A line.\n\n".repeat(60)), sources: [{ number: 1, score: 1, id: 1, text: "long ".repeat(2000) }] }];
  await chat.open();
  await chat.converse("How?");
  const head = page.locator(".source__head");
  await expect.poll(() => page.locator(".thread").evaluate((node) => node.scrollHeight - node.clientHeight - node.scrollTop)).toBeLessThan(2);
  const before = await head.boundingBox();
  await head.click();
  await expect(page.locator(".source__text")).toBeVisible();
  await drawn(page);
  expect((await head.boundingBox())?.y).toBeCloseTo(before?.y ?? 0, 0);
});

test("defaults hold for new chats; one chat can leave them", async ({ chat, fake, page }) => {
  await chat.open();
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await page.getByRole("radio", { name: "Defaults" }).click();
  await setting(page, "retrieval").check();
  await setting(page, "retrievalAddress").fill("longbow://localhost/notes");
  await setting(page, "retrievalAddress").press("Tab");
  await expect(setting(page, "retrievalModel")).toHaveValue("minilm");
  await page.getByRole("radio", { name: "This chat" }).click();
  await expect(setting(page, "retrieval")).toBeChecked();
  await expect(setting(page, "retrievalAddress")).toHaveAttribute("placeholder", "longbow://localhost/notes");
  await setting(page, "retrieval").uncheck();
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Without");
  expect(fake.asked[0]).not.toHaveProperty("retrieval");
  await page.keyboard.press("Control+Shift+O");
  await chat.converse("With");
  expect(fake.asked[1]).toMatchObject({ retrieval: { from: "longbow://localhost/notes", model: "minilm" } });
});

test("without WebSockets it is the same, and more of an answer keeps its sources", async ({ chat, fake, page }) => {
  fake.withoutSockets = true;
  fake.answers = [{ tokens: words("Half of it"), finish: "length", sources: notes }, { tokens: words(" and the rest.") }];
  await page.goto(fake.url);
  await chooseDataset(page, "longbow://localhost/notes");
  await chat.converse("How?");
  expect(fake.asked[0]).toMatchObject({ retrieval: { from: "longbow://localhost/notes", model: "minilm" } });
  await expect(page.locator(".source")).toHaveCount(3);
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Half of it and the rest.");
  expect(fake.asked[1]).toMatchObject({ continue: true });
  expect(fake.asked[1]).not.toHaveProperty("retrieval");
  await expect(page.locator(".source")).toHaveCount(3);
});

for (const transport of ["WebSocket", "server-sent events"]) {
  test(`what goes wrong is said in a sentence, with a way to the setting: ${transport}`, async ({ chat, fake, page }) => {
    fake.withoutSockets = transport !== "WebSocket";
    await page.goto(fake.url);
    await chooseDataset(page, "longbow://other/notes");
    const said = { host_not_allowed: "not allowed to reach longbow://other/notes", dataset_not_found: "no dataset at longbow://other/notes", unsupported: "This server cannot search datasets. No module.", store_failed: "does not answer" };
    fake.answers = Object.keys(said).map((reason) => ({ tokens: [], error: { code: "INVALID_REQUEST", message: "no module", reason } }));
    for (const sentence of Object.values(said)) {
      await chat.converse("How?");
      await expect(chat.answers.last().locator(".message__notice--bad")).toContainText(sentence);
    }
    await chat.answers.last().getByRole("button", { name: "Settings", exact: true }).click();
    await expect(setting(page, "retrievalAddress")).toBeFocused();
    await setting(page, "retrievalAddress").fill("longbow://localhost/notes");
    await setting(page, "retrievalAddress").press("Tab");
    await page.getByRole("button", { name: "Done" }).click();
    fake.answers = [{ tokens: words("Now it is."), sources: [] }];
    await chat.answers.last().getByRole("button", { name: "Retry" }).click();
    await expect(chat.answers.last()).toContainText("No texts were found in the dataset.");
    expect(fake.asked.at(-1)).toMatchObject({ retrieval: { from: "longbow://localhost/notes" } });
  });
}

test("an address that is none is told in the setting, and is not sent", async ({ chat, fake, page }) => {
  await chat.open();
  await chooseDataset(page, "https://localhost/notes");
  await page.getByRole("button", { name: "Settings", exact: true }).click();
  await expect(setting(page, "retrievalAddress")).toHaveAttribute("aria-invalid", "true");
  await expect(page.getByText("An address looks like longbow://host/dataset.")).toBeVisible();
  await page.getByRole("button", { name: "Done" }).click();
  await chat.ask("How?");
  await expect(chat.answers.last()).toContainText("is not the address of a dataset");
  expect(fake.asked).toHaveLength(0);
});

test("many are folded; an export has all of them", async ({ chat, fake, page }) => {
  const many = Array.from({ length: 12 }, (_, at) => ({ number: at + 1, score: 0.5, id: at, text: `text ${at}`, source: `file-${at}.md` }));
  fake.answers = [{ tokens: words("From many."), sources: many }];
  await chat.open();
  await chat.converse("How?");
  await expect(page.locator(".source")).toHaveCount(5);
  await page.getByRole("button", { name: "Show 7 more sources" }).click();
  await expect(page.locator(".source")).toHaveCount(12);
  await expect(page.locator(".source__head").nth(5)).toBeFocused();
  for (const format of ["Markdown", "JSON"]) {
    await page.locator(".room").hover();
    await page.locator(".room").getByRole("button").last().click();
    const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("menuitem", { name: new RegExp(format) }).click()]);
    const text = await readFile(await file.path(), "utf8");
    for (const { source, text: own } of many) {
      expect(text).toContain(source);
      expect(text).toContain(own);
    }
  }
});

for (const scheme of ["light", "dark"] as const) {
  test(`axe finds nothing in sources and their settings, ${scheme}`, async ({ chat, fake, page }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    fake.answers = [{ tokens: words("Renew it."), sources: notes }, { tokens: [], error: { code: "INVALID_REQUEST", message: "no", reason: "host_not_allowed" } }];
    await chat.open();
    await chooseDataset(page, "longbow://localhost/notes");
    await chat.converse("How?");
    await page.locator(".source__head").first().click();
    await expect(page.locator(".source__text")).toBeVisible();
    expect(await findViolations(page)).toEqual([]);
    await chat.converse("And?");
    await page.setViewportSize({ width: 320, height: 640 });
    expect(await findViolations(page)).toEqual([]);
    await chat.answers.last().getByRole("button", { name: "Settings", exact: true }).click();
    await setting(page, "retrievalAddress").fill("http://no");
    await setting(page, "retrievalAddress").press("Tab");
    expect(await findViolations(page)).toEqual([]);
  });
}

// Settings, templates, models and the look: what can be chosen, and that it is sent.
import { expect, test, words, type Page } from "./harness.ts";

const field = (page: Page, name: string): ReturnType<Page["locator"]> => page.locator(`[data-setting="${name}"]`);

async function openSettings(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Settings" }).click();
  await expect(page.locator(".sheet--open")).toBeVisible();
}

test("every setting goes into the request, for this conversation alone", async ({ chat, fake, page }) => {
  await chat.open();
  await openSettings(page);
  const values: Record<string, string> = { temperature: "1.3", topK: "20", topP: "0.5", minP: "0.1", maxTokens: "77", seed: "9" };
  for (const [name, value] of Object.entries(values)) {
    await field(page, name).fill(value);
    await field(page, name).press("Tab");
  }
  await field(page, "stop").fill("END\nSTOP");
  await field(page, "stop").press("Tab");
  await field(page, "systemPrompt").fill("Be brief.");
  await field(page, "systemPrompt").press("Tab");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Hello");
  expect(fake.asked[0]).toMatchObject({ temperature: 1.3, top_k: 20, top_p: 0.5, min_p: 0.1, max_tokens: 77, seed: 9, stop: ["END", "STOP"], messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }] });
  await page.keyboard.press("Control+Shift+O");
  await chat.converse("Hello again");
  expect(fake.asked[1]).not.toHaveProperty("temperature");
  expect(fake.asked[1]).not.toHaveProperty("seed");
});

test("defaults hold for every conversation, and Reset takes them away", async ({ chat, fake, page }) => {
  await chat.open();
  await openSettings(page);
  await page.getByRole("radio", { name: "Defaults" }).click();
  await field(page, "temperature").fill("0.4");
  await field(page, "temperature").press("Tab");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("One");
  expect(fake.asked[0]).toMatchObject({ temperature: 0.4 });
  await page.reload();
  await chat.converse("Two");
  expect(fake.asked[1]).toMatchObject({ temperature: 0.4 });
  await openSettings(page);
  await page.getByRole("radio", { name: "Defaults" }).click();
  await page.getByRole("button", { name: "Reset" }).click();
  await expect(field(page, "temperature")).toHaveValue("");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Three");
  expect(fake.asked[2]).not.toHaveProperty("temperature");
});

test("bounds are kept and the model's own values are shown", async ({ chat, page }) => {
  await chat.open();
  await openSettings(page);
  await expect(page.getByText("Recommended for this model: 0.2")).toBeVisible();
  await expect(page.getByText("Recommended for this model: 0.9")).toBeVisible();
  for (const [name, given, kept] of [["temperature", "7", "2"], ["topK", "0", "1"], ["topK", "500", "100"], ["topP", "1.5", "1"]] as const) {
    await field(page, name).fill(given);
    await field(page, name).press("Tab");
    await expect(field(page, name)).toHaveValue(kept);
  }
  await page.getByRole("slider", { name: "Temperature, slider" }).fill("0.5");
  await expect(field(page, "temperature")).toHaveValue("0.5");
});

test("templates: the four that are there, and one's own", async ({ chat, page }) => {
  await chat.open();
  await chat.field.fill("a long text");
  await page.getByRole("button", { name: "Templates" }).click();
  for (const name of ["Summarize", "Translate", "Code", "Explain"]) await expect(page.getByRole("menuitem", { name: new RegExp(`^${name}`) })).toBeVisible();
  await page.getByRole("menuitem", { name: /^Summarize/ }).click();
  await expect(chat.field).toHaveValue(/^Summarize[^]*a long text$/);
  await page.getByRole("button", { name: "Templates" }).click();
  await page.getByRole("menuitem", { name: "Your templates" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("Haiku");
  await page.getByRole("textbox", { name: "Text" }).fill("Write a haiku about {text}");
  await page.getByRole("button", { name: "Save" }).click();
  await page.keyboard.press("Escape");
  await page.reload();
  await chat.field.fill("rain");
  await page.getByRole("button", { name: "Templates" }).click();
  await page.getByRole("menuitem", { name: /^Haiku/ }).click();
  await expect(chat.field).toHaveValue("Write a haiku about rain");
});

test("the picker shows parameters, quantisation, size, state and memory; a model is loaded and unloaded", async ({ chat, fake, page }) => {
  await chat.open();
  await page.getByRole("button", { name: /^Model: default/ }).click();
  const panel = page.getByRole("dialog", { name: "Models" });
  const row = (name: string): ReturnType<Page["locator"]> => panel.locator(".model").filter({ hasText: name });
  await expect(row("default")).toContainText("135M");
  await expect(row("default")).toContainText("Q4_1");
  await expect(row("default")).toContainText("98.4 MB");
  await expect(row("default")).toContainText("in memory, 896 MB");
  await expect(row("minilm")).toContainText("not loaded");
  await panel.getByRole("button", { name: "Load minilm" }).click();
  await expect(row("minilm").getByRole("progressbar")).toBeVisible();
  await expect(row("minilm")).toContainText("in memory");
  await panel.getByRole("button", { name: "Unload minilm" }).click();
  await expect(row("minilm")).toContainText("not loaded");
  await row("minilm").getByRole("button").first().click();
  await expect(page.getByRole("button", { name: /^Model: minilm/ })).toBeVisible();
  await chat.converse("Hello");
  expect(fake.asked[0]).toMatchObject({ model: "minilm" });
});

test("no model: the page says how to get one", async ({ fake, page }) => {
  fake.models = [];
  await page.goto(fake.url);
  await expect(page.getByRole("heading", { name: "No model yet" })).toBeVisible();
  await expect(page.getByText("quarrel pull default")).toBeVisible();
});

test("light, dark and system, kept over a reload", async ({ chat, page }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  await chat.open();
  const paper = (): Promise<string> => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  expect(await paper()).toBe("rgb(21, 23, 27)");
  await page.getByRole("button", { name: /^Theme: system/ }).click();
  await expect.poll(paper).toBe("rgb(251, 251, 250)");
  await page.reload();
  await expect(page.getByRole("button", { name: /^Theme: light/ })).toBeVisible();
  expect(await paper()).toBe("rgb(251, 251, 250)");
  await page.getByRole("button", { name: /^Theme: light/ }).click();
  await expect.poll(paper).toBe("rgb(21, 23, 27)");
});

test("the user's bubbles are blue, the model's grey and as wide as the column", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Hi");
  const look = (selector: string): Promise<{ colour: string; width: number }> => page.locator(selector).evaluate((node) => ({ colour: getComputedStyle(node).borderTopColor, width: node.getBoundingClientRect().width }));
  const user = await look(".message--user .message__bubble");
  const model = await look(".message--model .message__bubble");
  const [red = 0, , blue = 0] = (user.colour.match(/[\d.]+/g) ?? []).map(Number);
  expect(blue).toBeGreaterThan(red);
  expect(model.width).toBeGreaterThan(700);
  expect(user.width).toBeLessThan(200);
});

test("header, footer, links and a sidebar that collapses", async ({ chat, page }) => {
  await chat.open();
  await expect(page.getByText("Quarrel 0.1.0").first()).toBeVisible();
  await expect(page.getByRole("link", { name: "Docs" }).first()).toHaveAttribute("href", "/docs");
  await expect(page.getByRole("link", { name: "API" }).first()).toHaveAttribute("href", "/openapi.json");
  await page.getByRole("button", { name: "Conversations", exact: true }).click();
  await expect(page.getByRole("searchbox")).toBeHidden();
  await page.reload();
  await expect(page.getByRole("searchbox")).toBeHidden();
  await expect(page.getByRole("button", { name: "New chat" })).toBeVisible();
});

test("phones: nothing is wider than the screen, targets have 44 px, the composer stays in view", async ({ browser, fake }) => {
  fake.answers = [{ tokens: words("A word_that_is_very_long_".repeat(20)) }];
  for (const viewport of [{ width: 320, height: 640 }, { width: 640, height: 320 }]) {
    const context = await browser.newContext({ viewport, hasTouch: true, isMobile: true });
    const page = await context.newPage();
    await page.goto(fake.url);
    await page.getByRole("textbox", { name: "Message" }).fill("Hello");
    await page.getByRole("button", { name: "Send" }).tap();
    await expect(page.locator(".message--model")).toContainText("very_long");
    await expect(page.getByRole("button", { name: "Send" })).toBeInViewport({ ratio: 1 });
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(viewport.width);
    const small = await page.locator("button:visible, .nav__link:visible, .foot a:visible").evaluateAll((nodes) => nodes.filter((node) => node.getBoundingClientRect().height < 43.5).map((node) => node.textContent));
    expect(small).toEqual([]);
    await context.close();
  }
});

test("with reduced motion nothing moves", async ({ chat, fake, page }) => {
  await page.emulateMedia({ reducedMotion: "reduce" });
  fake.answers = [{ tokens: ["x"], reading: 1500 }];
  await chat.open();
  await chat.ask("Go");
  await expect(page.locator(".typing")).toBeVisible();
  expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
});

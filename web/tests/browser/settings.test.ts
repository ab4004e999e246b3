// Settings, templates and models: what can be chosen, and that it is sent.
import { composes, expect, gate, kept, openSettings, settingField as field, test, type Page } from "./harness.ts";

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

test("what is typed in a field is the conversation's that was shown then, and an input method's keys are its own", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("First");
  await page.keyboard.press("Control+Shift+O");
  await chat.field.fill("Second");
  await composes(chat.field, "Enter");
  await expect(chat.field).toHaveValue("Second");
  await chat.converse("Second");
  await openSettings(page);
  await field(page, "systemPrompt").fill("Be brief.");
  await composes(field(page, "systemPrompt"), "Escape");
  await expect(page.locator(".sheet--open")).toBeVisible();
  await page.keyboard.press("Alt+ArrowDown");
  await expect(page.locator(".message--user")).toContainText("First");
  await expect(field(page, "systemPrompt")).toHaveValue("");
  await page.keyboard.press("Alt+ArrowUp");
  await expect(page.locator(".message--user")).toContainText("Second");
  await expect(field(page, "systemPrompt")).toHaveValue("Be brief.");
});

test("Reset takes a conversation's own settings back to the defaults", async ({ chat, fake, page }) => {
  await chat.open();
  await openSettings(page);
  await field(page, "temperature").fill("1.3");
  await field(page, "systemPrompt").fill("Be brief.");
  await field(page, "systemPrompt").press("Tab");
  await page.getByRole("button", { name: "Reset" }).click();
  await expect(field(page, "temperature")).toHaveValue("");
  await expect(field(page, "systemPrompt")).toHaveValue("");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Hello");
  expect(fake.asked[0]).not.toHaveProperty("temperature");
  expect(fake.asked[0]).toMatchObject({ messages: [{ role: "user" }] });
});

test("an emptied field leaves the choice to the defaults, as the panel says", async ({ chat, fake, page }) => {
  await chat.open();
  await openSettings(page);
  await page.getByRole("radio", { name: "Defaults" }).click();
  const set = async (name: string, value: string): Promise<void> => {
    await field(page, name).fill(value);
    await field(page, name).press("Tab");
  };
  const defaults = { temperature: "0.4", maxTokens: "5", stop: "END", systemPrompt: "You are a pirate." };
  for (const [name, value] of Object.entries(defaults)) await set(name, value);
  await page.getByRole("radio", { name: "This chat" }).click();
  for (const [name, value] of Object.entries({ temperature: "1.3", maxTokens: "6", stop: "x", systemPrompt: "x" })) {
    await set(name, value);
    await set(name, "");
  }
  await expect(field(page, "temperature")).toHaveAttribute("placeholder", "0.4");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Hello");
  expect(fake.asked[0]).toMatchObject({ temperature: 0.4, max_tokens: 5, stop: ["END"], messages: [{ role: "system", content: "You are a pirate." }, { role: "user" }] });
});

test("a number beyond its bounds is shown as it counts", async ({ chat, page }) => {
  await chat.open();
  await openSettings(page);
  await field(page, "temperature").fill("7");
  await field(page, "temperature").press("Enter");
  await expect(field(page, "temperature")).toHaveValue("2");
});

test("while an answer is written its settings are disabled too", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: Array<string>(500).fill("x "), gap: 10, hold: { after: 50, until: gate().until } }];
  await chat.open();
  await openSettings(page);
  await expect(field(page, "temperature")).toBeEnabled();
  await chat.ask("Go");
  for (const name of ["temperature", "seed", "stop", "systemPrompt"]) await expect(field(page, name)).toBeDisabled();
  await chat.stop.press("Enter"); // the settings lie over it
  await expect(field(page, "temperature")).toBeEnabled();
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
  await expect.poll(() => kept(page, "messages")).toContain('"complete"');
  await page.reload();
  await expect(chat.answers).toHaveCount(1);
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
  for (const [name, given, kept] of [["temperature", "7", "2"], ["topK", "0", "1"], ["topK", "500", "100"], ["topP", "1.5", "1"], ["minP", "-1", "0"], ["maxTokens", "0", "1"], ["seed", "-4", "0"]] as const) {
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
  await page.getByRole("button", { name: "Templates" }).click();
  await page.getByRole("menuitem", { name: "Your templates" }).click();
  await page.getByRole("button", { name: "Edit Haiku" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("Sonnet");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("button", { name: "Edit Haiku" })).toHaveCount(0);
  await page.getByRole("button", { name: "Remove Sonnet" }).click();
  await expect(page.getByText("You have no templates yet.")).toBeVisible();
  await page.getByRole("button", { name: "Undo" }).click(); // over the dialog, which lets nothing else be pressed
  await page.getByRole("button", { name: "Remove Sonnet" }).click();
  await expect(page.getByText("You have no templates yet.")).toBeVisible();
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Templates" }).click();
  await expect(page.getByRole("menuitem", { name: /^Sonnet/ })).toHaveCount(0);
});

test("the picker shows parameters, quantisation, size, state and memory; a model is loaded and unloaded", async ({ chat, fake, page }) => {
  await chat.open();
  await page.getByRole("button", { name: /^Model: default/ }).click();
  const panel = page.getByRole("dialog", { name: "Models" });
  const row = (name: string): ReturnType<Page["locator"]> => panel.locator(".model").filter({ hasText: name });
  await expect(row("default")).toContainText("135M");
  await expect(row("default")).toContainText("Q4_1");
  await expect(row("default")).toContainText("98.4 MB");
  await expect(row("default")).toContainText("896 MB reserved");
  await expect(row("minilm")).toContainText("not loaded");
  const loaded = gate();
  fake.loadUntil = loaded.until;
  await panel.getByRole("button", { name: "Load minilm" }).click();
  await expect(row("minilm").getByRole("progressbar")).toHaveAttribute("aria-valuenow", "50");
  await expect(row("minilm").getByRole("progressbar")).toBeVisible();
  await expect(row("minilm")).toContainText("45.3 MB of 90.5 MB");
  await expect(row("minilm")).not.toContainText("reserved");
  loaded.open();
  await expect(row("minilm")).toContainText("362 MB reserved");
  await expect(row("minilm").getByRole("progressbar")).toHaveCount(0);
  await panel.getByRole("button", { name: "Unload minilm" }).click();
  await expect(row("minilm")).toContainText("not loaded");
  await row("minilm").getByRole("button").first().click();
  await expect(page.getByRole("button", { name: /^Model: minilm/ })).toBeVisible();
  await chat.converse("Hello");
  expect(fake.asked[0]).toMatchObject({ model: "minilm" });
});

test("a key that may not load models is not offered it", async ({ chat, fake, page }) => {
  fake.isAdmin = false;
  const version = page.waitForResponse(/\/version$/);
  await chat.open();
  await version;
  await page.getByRole("button", { name: /^Model: default/ }).click();
  const panel = page.getByRole("dialog", { name: "Models" });
  await expect(panel.locator(".model").filter({ hasText: "minilm" })).toContainText("not loaded");
  await expect(panel.getByRole("button", { name: /^(Load|Unload) / })).toHaveCount(0);
});

test("a key that may load models no more is told so, and is offered it no more", async ({ chat, fake, page }) => {
  await chat.open();
  await page.getByRole("button", { name: /^Model: default/ }).click();
  const panel = page.getByRole("dialog", { name: "Models" });
  await expect(panel.getByRole("button", { name: "Load minilm" })).toBeVisible();
  fake.isAdmin = false;
  await panel.getByRole("button", { name: "Load minilm" }).click();
  await expect(page.locator(".note")).toContainText("This key may not");
  await expect(panel.getByRole("button", { name: /^(Load|Unload) / })).toHaveCount(0);
  await expect(panel.locator(".model").filter({ hasText: "minilm" })).toContainText("not loaded");
});

test("no model: the page says how to get one", async ({ fake, page }) => {
  fake.models = [];
  await page.goto(fake.url);
  await expect(page.getByRole("heading", { name: "No model yet" })).toBeVisible();
  await expect(page.getByText("quarrel pull default")).toBeVisible();
});

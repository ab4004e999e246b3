// What comes late, as it does from a slow server or on a busy machine: the list of models, a model's details. The page is in use
// meanwhile, and what it shows is right in the end.
import { drawn, settingField, expect, gate, kept, openSettings, room, test, words, type Page } from "./harness.ts";

/** The list and details are held back until the gate opens; what has been asked for before is there. */
function holdModels(fake: { modelsUntil: Promise<unknown> }): { open: () => void } {
  const told = gate();
  fake.modelsUntil = told.until;
  return told;
}

/** The button goes down, the page draws what comes meanwhile, and it goes up again. */
async function pressDuring(page: Page, name: string | RegExp, meanwhile: () => Promise<void>): Promise<void> {
  const box = await page.getByRole("button", { name }).boundingBox();
  if (box === null) throw new Error("the button cannot be seen");
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await meanwhile();
  await drawn(page);
  await page.mouse.up();
}

test("settings that are opened before the models are known show what is recommended as soon as it comes, and what is typed stays", async ({ chat, fake, page }) => {
  const models = holdModels(fake);
  await chat.open();
  await openSettings(page);
  await expect(page.locator(".sheet")).toContainText("Server default: 0.7");
  await settingField(page, "topK").fill("7");
  models.open();
  await expect(page.getByText("Recommended for this model: 0.2")).toBeVisible();
  await expect(page.getByText("Recommended for this model: 0.9")).toBeVisible();
  await expect(settingField(page, "topK")).toHaveValue("7");
  await settingField(page, "topK").press("Tab");
  await page.getByRole("button", { name: "Done" }).click();
  await chat.converse("Hello");
  expect(fake.asked[0]).toMatchObject({ top_k: 7 });
});

test("a model's details that did not come once are asked for again", async ({ chat, fake, page }) => {
  fake.failingDetails = 2;
  await chat.open();
  await openSettings(page);
  await expect(page.getByText("Recommended for this model: 0.2")).toBeVisible();
});

test("an answer to a question that was sent before the models were known has its model's name in the end", async ({ chat, fake, page }) => {
  const models = holdModels(fake);
  await chat.open();
  await chat.converse("Before");
  expect(fake.asked[0]).not.toHaveProperty("model");
  await expect(chat.answers.last()).toHaveAttribute("aria-label", "Answer from the model");
  models.open();
  await expect(chat.answers.last()).toHaveAttribute("aria-label", "Answer from default");
  await expect.poll(() => kept(page, "messages")).toContain('"model":"default"');
});

test("how far a model is that is loaded for a question is told, although the models become known after it", async ({ chat, fake }) => {
  const [models, loaded] = [holdModels(fake), gate()];
  const [model] = fake.models;
  if (model === undefined) throw new Error("no model");
  Object.assign(model, { state: "loading", completed: 24_500_000, total: 98_000_000 });
  fake.answers = [{ tokens: words("Done."), loading: loaded.until }];
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last()).toContainText("Loading the model");
  models.open();
  await expect(chat.answers.last()).toContainText("Loading the model: 24.5 MB of 98.0 MB");
  loaded.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Done.");
});

test("a button that is pressed while its list is drawn again is pressed: of a model, and of a conversation", async ({ chat, fake, page }) => {
  const rest = gate();
  fake.answers = [{ tokens: words("One.") }, { tokens: words("Two three"), hold: { after: 1, until: rest.until } }];
  await chat.open();
  await chat.converse("First");
  await page.keyboard.press("Control+Shift+O");
  await chat.ask("Second");
  await expect(chat.answers.last()).toContainText("Two");
  await pressDuring(page, /^First$/, async () => {
    rest.open();
    await expect(room(page, "Second").locator(".room__running")).toHaveCount(0);
  });
  await expect(page.locator(".message--user")).toContainText("First");
  const models = holdModels(fake);
  const listed = page.waitForResponse("**/api/models");
  await page.getByRole("button", { name: /^Model: default/ }).click();
  await pressDuring(page, "Load minilm", async () => {
    models.open();
    await (await listed).finished();
  });
  await expect(page.getByRole("button", { name: "Unload minilm" })).toBeVisible();
});

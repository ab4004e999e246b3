// axe finds nothing in states that pass or have to be reached: an answer that is written, an editor, a title that is typed,
// matches of a search, a model that loads, figures on the dashboard.
import findViolations from "./axe.ts";
import { choose, expect, gate, room, test, words } from "./harness.ts";
import { dashboardFigures, tell } from "./metrics_sample.ts";
import { markdownAnswer } from "./samples.ts";

for (const scheme of ["light", "dark"] as const) {
  test(`axe finds nothing while an answer is loaded, read, written and changed, ${scheme}`, async ({ chat, fake, page }) => {
    const [loaded, begun, read, rest] = [gate(), gate(), gate(), gate()];
    const clean = async (): Promise<void> => { expect(await findViolations(page)).toEqual([]); };
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    fake.models = fake.models.map((model) => ({ ...model, state: "loading", completed: model.size / 2, total: model.size }));
    fake.answers = [{ tokens: words(markdownAnswer), loading: loaded.until, waiting: begun.until, ahead: 2, reading: read.until, promptTokens: 2048, hold: { after: 90, until: rest.until } }];
    await chat.open();
    await expect(page.locator(".picker")).toContainText("·"); // the models may come after the connection
    await chat.ask("Which sorting algorithm?");
    await expect(chat.answers.last()).toContainText(/Loading the model: .* of/);
    await clean();
    loaded.open();
    await expect(chat.answers.last()).toContainText("2 requests before this one");
    await clean();
    begun.open();
    await expect(chat.answers.last()).toContainText("1,024 of 2,048");
    await clean();
    read.open();
    await expect(chat.answers.last().getByRole("cell").first()).toBeVisible();
    await expect(chat.field).toBeDisabled();
    await clean();
    await page.getByRole("button", { name: "Settings" }).click();
    await expect(page.locator("[data-setting=temperature]")).toBeDisabled();
    await clean();
    await page.getByRole("button", { name: "Done" }).click();
    rest.open();
    await expect(chat.send).toBeVisible();
    await page.getByRole("button", { name: "Edit and run again" }).click();
    await expect(page.getByRole("textbox", { name: "Edit your message" })).toBeFocused();
    await clean();
    await page.keyboard.press("Escape");
    await choose(page, "Which sorting", "Rename");
    await expect(page.getByRole("textbox", { name: "Title" })).toBeFocused();
    await clean();
    await page.keyboard.press("Escape");
    await page.getByRole("searchbox").fill("quicksort");
    await expect(page.locator(".room mark").first()).toBeVisible();
    await room(page, "Which sorting").getByRole("button").first().click();
    await expect(page.locator(".message--found")).toBeVisible();
    await clean();
    await page.getByRole("searchbox").fill("zebra");
    await expect(page.getByText("No matches.")).toBeVisible();
    await clean();
  });

  test(`axe finds nothing in the list while a model is loaded, and in a dashboard with figures, ${scheme}`, async ({ chat, fake, page }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await page.clock.install();
    fake.loadUntil = gate().until;
    await chat.open();
    await page.getByRole("button", { name: /^Model/ }).click();
    await page.getByRole("button", { name: "Load minilm" }).click();
    await expect(page.locator(".models").getByRole("progressbar")).toBeVisible();
    expect(await findViolations(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: "Status" }).click();
    const next = dashboardFigures();
    for (let at = 0; at < 6; at += 1) await tell(page, fake, next());
    await expect(page.locator(".chart__line").first()).toBeAttached();
    await expect(page.locator(".list").getByRole("progressbar")).toBeVisible();
    expect(await findViolations(page)).toEqual([]);
  });
}

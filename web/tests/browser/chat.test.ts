// The chat itself: what a reader sees while an answer comes, and everything that can be done with one.
import { drawn, expect, gate, test, words } from "./harness.ts";
import { markdownAnswer } from "./samples.ts";

test("an answer streams in over a WebSocket, with its figures", async ({ chat, fake }) => {
  const rest = gate();
  fake.answers = [{ tokens: words("One two three four five six seven eight."), gap: 60, promptTokens: 17, hold: { after: 3, until: rest.until } }];
  await chat.open();
  await chat.ask("Count");
  await expect(chat.answers.last().locator(".prose")).toHaveText("One two three");
  await expect(chat.answers.last().locator(".message__figures")).toContainText("tokens/s");
  rest.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText("One two three four five six seven eight.");
  await expect(chat.answers.last().locator(".message__figures")).toContainText(/first token after \d+ ms|first token after [\d.]+ s/);
  await expect(chat.answers.last().locator(".message__figures")).toContainText("17 read, 8 written");
  await expect(chat.page.getByRole("img", { name: "25 of 8,192 tokens of context in use" })).toBeVisible();
  expect(fake.asked[0]).toMatchObject({ messages: [{ role: "user", content: "Count" }], resume: true });
  expect(fake.paths).not.toContain("/api/stream");
});

test("Markdown: headings, tables and code with highlighting, language and a copy button", async ({ chat, fake, context }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  fake.answers = [{ tokens: words(markdownAnswer) }];
  await chat.open();
  const answer = await chat.converse("Tell me about sorting");
  await expect(answer.getByRole("heading", { name: "Sorting in a nutshell" })).toBeVisible();
  await expect(answer.getByRole("cell", { name: "Quicksort" })).toBeVisible();
  await expect(answer.getByRole("cell", { name: "n²" })).toHaveCSS("text-align", "right");
  await expect(answer.locator(".md-code__language")).toHaveText("python");
  await expect(answer.locator(".hljs-keyword").first()).toHaveText("def");
  await expect(answer.getByRole("link", { name: "documentation" })).toHaveAttribute("rel", /noopener/);
  await answer.getByRole("button", { name: /copy/i }).click();
  await expect(chat.page.getByText("Code copied.")).toBeVisible();
  expect(await chat.page.evaluate(() => navigator.clipboard.readText())).toContain("def quicksort");
});

test("only the last block is rendered again", async ({ chat, fake }) => {
  const rest = gate();
  fake.answers = [{ tokens: words("First paragraph stays.\n\nSecond one grows and grows and grows and grows and grows."), gap: 20, hold: { after: 5, until: rest.until } }];
  await chat.open();
  await chat.ask("Write");
  await expect(chat.answers.last().locator(".prose p")).toHaveText(["First paragraph stays.", "Second one"]);
  const first = await chat.answers.last().locator(".prose p").first().elementHandle();
  rest.open();
  await expect(chat.answers.last().locator(".prose p")).toHaveText(["First paragraph stays.", "Second one grows and grows and grows and grows and grows."]);
  await expect(chat.send).toBeVisible();
  expect(await first?.evaluate((node) => node.isConnected)).toBe(true);
});

test("a typing indicator, progress while the prompt is read, and the inputs disabled until the end", async ({ chat, fake }) => {
  const read = gate();
  fake.answers = [{ tokens: words("Done."), reading: read.until, promptTokens: 2048 }];
  await chat.open();
  await chat.ask("Read this");
  await expect(chat.answers.last().locator(".typing")).toBeVisible();
  await expect(chat.answers.last()).toContainText("Reading the prompt: 1,024 of 2,048 tokens");
  await expect(chat.answers.last().getByRole("progressbar")).toBeVisible();
  await expect(chat.field).toBeDisabled();
  await expect(chat.stop).toBeVisible();
  const stop = await chat.stop.boundingBox();
  read.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Done.");
  await expect(chat.field).toBeEnabled();
  const send = await chat.send.boundingBox();
  expect(send).toEqual(stop); // the same place and size
});

test("while the model is loaded: a spinner, and how much of it is read", async ({ chat, fake }) => {
  const loaded = gate();
  const [model] = fake.models;
  if (model === undefined) throw new Error("no model");
  Object.assign(model, { state: "loading", completed: 24_500_000, total: 98_000_000 });
  fake.answers = [{ tokens: words("Done."), loading: loaded.until }];
  await chat.open();
  await expect(chat.page.locator(".picker")).toContainText("·"); // the models may come after the connection
  await chat.ask("Go");
  const answer = chat.answers.last();
  await expect(answer.locator(".spinner")).toBeVisible();
  await expect(answer.locator(".typing")).toBeHidden();
  await expect(answer).toContainText("Loading the model: 24.5 MB of 98.0 MB");
  await expect(answer.getByRole("progressbar")).toHaveAttribute("aria-valuenow", "25");
  model.completed = 73_500_000;
  await expect(answer).toContainText("Loading the model: 73.5 MB of 98.0 MB");
  await expect(answer.getByRole("progressbar")).toHaveAttribute("aria-valuenow", "75");
  model.state = "loaded";
  loaded.open();
  await expect(answer.locator(".prose")).toHaveText("Done.");
  await expect(answer.locator(".waiting")).toHaveCount(0);
});

test("a busy server: the place in the queue", async ({ chat, fake }) => {
  const begun = gate();
  fake.answers = [{ tokens: words("At last."), waiting: begun.until, ahead: 3 }];
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last()).toContainText("The server is busy: 3 requests before this one");
  begun.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText("At last.");
});

test("the end is followed until the reader scrolls up", async ({ chat, fake }) => {
  const rest = gate();
  const lines = Array.from({ length: 300 }, (_, at) => `Line ${at} of the answer.`).join("\n\n");
  fake.answers = [{ tokens: words(lines), gap: 1, hold: { after: 600, until: rest.until } }];
  await chat.open();
  const thread = chat.page.locator(".thread");
  const left = (): Promise<number> => thread.evaluate((node) => node.scrollHeight - node.clientHeight - node.scrollTop);
  await chat.ask("Go");
  await expect.poll(() => thread.evaluate((node) => node.scrollTop)).toBeGreaterThan(300);
  expect(await left()).toBeLessThan(60);
  await chat.shows("Line 119 of the answer.");
  await expect.poll(left).toBeLessThan(5);
  await thread.hover();
  await chat.page.mouse.wheel(0, -250);
  await expect(chat.page.getByRole("button", { name: "Latest" })).toBeVisible();
  const top = await thread.evaluate((node) => node.scrollTop);
  rest.open();
  await chat.shows("Line 299 of the answer.");
  await expect(chat.send).toBeVisible({ timeout: 30_000 });
  expect(Math.abs(await thread.evaluate((node) => node.scrollTop) - top)).toBeLessThan(400);
  expect(await left()).toBeGreaterThan(400);
  await chat.page.getByRole("button", { name: "Latest" }).click();
  await expect.poll(left).toBeLessThan(5);
});

test("Stop ends an answer, Continue goes on with it", async ({ chat, fake }) => {
  fake.answers = [{ tokens: Array<string>(500).fill("and "), gap: 10, hold: { after: 50, until: gate().until } }, { tokens: words("then the end.") }];
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last()).toContainText("and and");
  await chat.stop.click();
  await expect(chat.answers.last()).toContainText("Stopped.");
  await chat.page.getByRole("button", { name: "Continue" }).click();
  await expect(chat.answers.last()).toContainText("then the end.");
  await expect(chat.answers).toHaveCount(1);
  await expect(chat.answers.last()).toContainText("and and");
});

test("an answer that was cut by its length says so and can go on", async ({ chat, fake }) => {
  fake.answers = [{ tokens: words("The first half,"), finish: "length" }, { tokens: words(" and the second.") }];
  await chat.open();
  await chat.converse("Go");
  await expect(chat.answers.last()).toContainText("Cut at 3 tokens");
  await chat.page.getByRole("button", { name: "Continue" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("The first half, and the second.");
});

test("Regenerate makes a branch; ‹ and › walk between them", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: ["First"] }, { tokens: ["Second"] }, { tokens: ["Third"] }];
  await chat.open();
  await chat.converse("Go");
  for (const text of ["Second", "Third"]) {
    await page.getByRole("button", { name: "Regenerate" }).click();
    await expect(chat.answers.last().locator(".prose")).toHaveText(text);
    await expect(chat.send).toBeVisible();
  }
  await expect(page.locator(".pager__place")).toHaveText("3/3");
  await page.getByRole("button", { name: "Previous branch" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Second");
  await expect(page.locator(".pager__place")).toHaveText("2/3");
  await page.getByRole("button", { name: "Next branch" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Third");
});

test("a message is edited and run again, as a branch", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: ["Paris"] }, { tokens: ["Rome"] }];
  await chat.open();
  await chat.converse("Capital of France?");
  await page.locator(".message--user").hover();
  await page.getByRole("button", { name: "Edit and run again" }).click();
  const editor = page.getByRole("textbox", { name: "Edit your message" });
  await expect(editor).toHaveValue("Capital of France?");
  await editor.fill("Capital of Italy?");
  await editor.press("Enter");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Rome");
  await expect(page.locator(".message--user .pager__place")).toHaveText("2/2");
  await page.getByRole("button", { name: "Previous branch" }).click();
  await expect(page.locator(".message--user .message__text")).toHaveText("Capital of France?");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Paris");
});

test("an answer is edited, and Escape leaves everything as it was", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Hello");
  await page.getByRole("button", { name: "Edit the answer" }).click();
  await page.getByRole("textbox", { name: "Edit the answer" }).press("Escape");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Hello. How can I help you today?");
  await page.getByRole("button", { name: "Edit the answer" }).click();
  await page.getByRole("textbox", { name: "Edit the answer" }).fill("Good day.");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Good day.");
  await expect(page.locator(".pager__place")).toHaveText("2/2");
});

test("an error is a message with a retry, never a blank", async ({ chat, fake }) => {
  fake.answers = [{ tokens: [], error: { code: "QUEUE_FULL", message: "the queue is full", retry_after: 3 } }, { tokens: ["Better"] }];
  await chat.open();
  await chat.converse("Go");
  await expect(chat.answers.last()).toContainText("The queue is full. Try again in 3 seconds.");
  await chat.page.getByRole("button", { name: "Retry" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Better");
  await expect(chat.answers).toHaveCount(1);
});

test("an answer without a word says so, and can be asked for again in its place", async ({ chat, fake }) => {
  fake.answers = [{ tokens: [] }, { tokens: ["Better"] }];
  await chat.open();
  await chat.converse("Go");
  await expect(chat.answers.last()).toContainText("The model answered with nothing.");
  await chat.page.getByRole("button", { name: "Retry" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Better");
  await expect(chat.answers.last().locator(".message__notice")).toHaveCount(0);
  await expect(chat.answers).toHaveCount(1);
});

test("an error in the middle keeps what had come, and Retry begins anew beside it", async ({ chat, fake }) => {
  fake.answers = [{ tokens: words("The first half"), error: { code: "INFERENCE_ERROR", message: "the model failed" } }, { tokens: ["Whole"] }];
  await chat.open();
  await expect(await chat.converse("Go")).toHaveText("The first half");
  await expect(chat.answers.last()).toContainText("The model failed.");
  await chat.page.getByRole("button", { name: "Retry" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Whole");
  await chat.page.getByRole("button", { name: "Previous branch" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("The first half");
});

test("a model that is gone: the default answers new chats, and an error leads to the list", async ({ chat, fake, page }) => {
  await page.addInitScript(() => localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, lastModel: "my-old-model" })));
  await chat.open();
  await expect(page.getByRole("button", { name: /^Model: default/ })).toBeVisible();
  await chat.converse("Go");
  expect(fake.asked[0]).toMatchObject({ model: "default" });
  fake.answers = [{ tokens: [], error: { code: "MODEL_NOT_FOUND", message: "GET /v1/models lists those that are" } }, { tokens: ["Here"] }];
  await chat.converse("Go on");
  await expect(chat.answers.last()).toContainText("The server does not offer the model “default”.");
  await expect(chat.answers.last()).not.toContainText("/v1/");
  await chat.page.getByRole("button", { name: "Choose a model" }).click();
  await page.getByRole("dialog", { name: "Models" }).getByRole("button", { name: /^minilm/ }).click();
  await page.getByRole("button", { name: "Retry" }).click();
  await expect(chat.answers.last().locator(".prose")).toHaveText("Here");
  expect(fake.asked.at(-1)).toMatchObject({ model: "minilm" });
});

test("the figures of a running answer: none of one token, and those before a Continue count", async ({ chat, fake, page }) => {
  const rest = gate();
  fake.answers = [{ tokens: words("one two three four"), gap: 20, finish: "length" }];
  await chat.open();
  await chat.converse("Go");
  fake.answers = [{ tokens: words(" five six seven"), gap: 20, hold: { after: 2, until: rest.until } }];
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(chat.answers.last().locator(".message__counts")).toHaveText(/^[56] tokens$/);
  rest.open();
  await expect(chat.answers.last().locator(".message__counts")).toHaveText("27 read, 7 written");
  const second = gate();
  fake.answers = [{ tokens: words("Yes indeed"), gap: 0, hold: { after: 1, until: second.until } }];
  const seen = await page.evaluate(() => {
    const texts: string[] = [];
    new MutationObserver(() => texts.push(document.querySelector(".message--last .message__figures")?.textContent ?? "")).observe(document.body, { subtree: true, childList: true, characterData: true });
    return (globalThis as unknown as { seen: string[] }).seen = texts;
  });
  expect(seen).toEqual([]);
  await chat.ask("Again");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Yes");
  await expect(chat.answers.last().locator(".message__figures")).toHaveText("");
  second.open();
  await expect(chat.answers.last().locator(".message__counts")).toHaveText("31 read, 2 written");
  expect((await page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen)).filter((text) => text.includes("0.00"))).toEqual([]);
});

test("the field takes the direction of what is typed", async ({ chat }) => {
  await chat.open();
  await chat.field.fill("שלום");
  await expect(chat.field).toHaveCSS("direction", "rtl");
  await chat.field.fill("Hello שלום");
  await expect(chat.field).toHaveCSS("direction", "ltr");
  await expect(chat.field).toHaveAttribute("dir", "ltr"); // not auto, which reads all of it at every key
  await chat.field.fill("word ".repeat(5000));
  expect((await chat.field.boundingBox())?.height).toBe(232);
});

test("nothing jumps while an answer comes", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words(markdownAnswer), gap: 8, loading: 900, reading: 700, promptTokens: 2048 }];
  await chat.open();
  await expect(page.locator(".picker")).toContainText("·"); // the models may come after the connection
  await page.evaluate(() => {
    const moved: string[] = [];
    const look = (entries: readonly PerformanceEntry[]): void => {
      for (const entry of entries as (PerformanceEntry & { hadRecentInput: boolean; sources: { node: Node | null }[] })[]) {
        const nodes = entry.hadRecentInput ? [] : entry.sources.map(({ node }) => (node instanceof Element ? node : node?.parentElement ?? null));
        // The text itself grows, and what stands under it goes down with it; everything else stays.
        for (const node of nodes) if (node !== null && node.closest(".prose") === null && node.className !== "message__under") moved.push(`${node.tagName} ${node.className} ${node.textContent}`);
      }
    };
    const observer = new PerformanceObserver((list) => look(list.getEntries()));
    observer.observe({ type: "layout-shift" });
    Object.assign(globalThis, { whatMoved: () => { look(observer.takeRecords()); return moved; } });
  });
  await chat.converse("Go");
  await drawn(page);
  expect(await page.evaluate(() => (globalThis as unknown as { whatMoved: () => string[] }).whatMoved())).toEqual([]);
});

test("a full context is said, with a way on", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("So far"), finish: "context", promptTokens: 8190 }];
  await chat.open();
  await chat.converse("Go");
  await expect(chat.answers.last()).toContainText("The context is full");
  await expect(page.locator(".gauge--full")).toBeVisible();
  await chat.answers.last().getByRole("button", { name: "New chat" }).click();
  await expect(page.getByRole("heading", { name: "What shall we work on?" })).toBeVisible();
});

test("the composer grows to eight lines, Enter sends and Shift+Enter breaks", async ({ chat, fake }) => {
  await chat.open();
  const height = async (): Promise<number> => (await chat.field.boundingBox())?.height ?? 0;
  const one = await height();
  await chat.field.fill("a");
  await chat.field.press("Shift+Enter");
  await chat.field.pressSequentially("b");
  expect(await height()).toBeGreaterThan(one + 20);
  await chat.field.fill(Array.from({ length: 40 }, String).join("\n"));
  expect(await height()).toBeLessThan(one + 26 * 8);
  await chat.field.fill("a\nb");
  await chat.field.press("Enter");
  await expect.poll(() => fake.asked.length).toBe(1);
  expect(fake.asked[0]).toMatchObject({ messages: [{ role: "user", content: "a\nb" }] });
});

test("examples begin a conversation", async ({ chat, page }) => {
  await chat.open();
  await page.getByRole("button", { name: /^Explain/ }).click();
  await expect(chat.field).toHaveValue(/sky/);
});

// For everybody: axe finds nothing in any view or panel, every function has its key, and screen readers are told.
import findViolations from "./axe.ts";
import { smallModel } from "./fake_server.ts";
import { expect, gate, room, test, words, type Page } from "./harness.ts";
import { markdownAnswer } from "./samples.ts";

async function clean(page: Page): Promise<void> {
  expect(await findViolations(page)).toEqual([]);
}

/** What screen readers are told alone. */
function voice(page: Page): ReturnType<Page["locator"]> {
  return page.locator(".unseen[aria-live=polite]");
}

for (const scheme of ["light", "dark"] as const) {
  test(`axe finds nothing, ${scheme}`, async ({ chat, fake, page }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    fake.answers = [{ tokens: words(markdownAnswer) }, { tokens: words("Cut here"), finish: "length" }, { tokens: [], error: { code: "INFERENCE_ERROR", message: "it failed" } }];
    await chat.open();
    await clean(page);
    for (const text of ["One", "Two", "Three"]) await chat.converse(text);
    await clean(page);
    await page.getByRole("button", { name: "Settings" }).click();
    await expect(page.locator(".sheet--open")).toBeVisible();
    await clean(page);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: /^Model: default/ }).click();
    await clean(page);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Templates" }).click();
    await clean(page);
    await page.keyboard.press("Escape");
    await page.locator(".thread").focus();
    await page.keyboard.press("?");
    await expect(page.getByRole("dialog", { name: "Shortcuts" })).toBeVisible();
    await clean(page);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "All conversations" }).click();
    await page.getByRole("menuitem", { name: "Delete all" }).click();
    await clean(page);
    await page.keyboard.press("Escape");
    fake.fail();
    await expect(page.locator(".banner--bad")).toBeVisible();
    await clean(page);
  });

  test(`axe finds nothing on a phone, ${scheme}`, async ({ chat, fake, page }) => {
    await page.setViewportSize({ width: 320, height: 640 });
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    fake.answers = [{ tokens: words(markdownAnswer) }];
    await chat.open();
    await chat.converse("One");
    await clean(page);
    await page.getByRole("button", { name: "Settings" }).click();
    await clean(page);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByRole("button", { name: "Templates" }).click();
    await page.getByRole("menuitem", { name: "Your templates" }).click();
    await clean(page);
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Conversations", exact: true }).click();
    await clean(page);
    await page.locator(".room__open").press("Delete");
    await expect(page.getByRole("button", { name: "Undo" })).toBeVisible();
    await clean(page);
    for (const path of ["/status", "/embeddings"]) {
      await chat.open(path);
      await clean(page);
    }
  });

  test(`axe finds nothing on the other views, ${scheme}`, async ({ chat, fake, page }) => {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await chat.open("/status");
    await clean(page);
    await chat.open("/embeddings");
    await page.getByRole("button", { name: "Compare" }).click();
    await expect(page.locator(".matrix")).toBeVisible();
    await clean(page);
    fake.key = "qk_x";
    await page.goto(fake.url);
    await expect(page.getByRole("dialog")).toBeVisible();
    await clean(page);
  });
}

test("every function by its key", async ({ chat, context, fake, page }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  fake.answers = [{ tokens: ["First"] }, { tokens: ["Second"] }, { tokens: words("x x x"), hold: { after: 2, until: gate().until } }];
  await chat.open();
  await page.locator(".thread").focus();
  await page.keyboard.press("/");
  await expect(chat.field).toBeFocused();
  await page.keyboard.type("Hello");
  await page.keyboard.press("Enter");
  await expect(chat.answers.last().locator(".prose")).toHaveText("First");
  await expect(chat.field).toBeFocused();
  await page.keyboard.press("Control+Shift+Enter");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Second");
  await expect(chat.send).toBeVisible();
  await page.keyboard.press("Control+b");
  await expect(page.locator(".app--folded")).toHaveCount(1);
  await page.keyboard.press("Control+b");
  await page.keyboard.press("Control+,");
  await expect(page.locator(".sheet--open")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.locator(".sheet--open")).toHaveCount(0);
  await page.keyboard.press("Control+k");
  await expect(page.getByRole("searchbox")).toBeFocused();
  await page.keyboard.press("Control+Shift+O");
  await expect(page.getByRole("heading", { name: "What shall we work on?" })).toBeVisible();
  await page.keyboard.type("Long");
  await page.keyboard.press("Enter");
  await expect(chat.answers.last()).toContainText("x x");
  await page.keyboard.press("Escape");
  await expect(chat.answers.last()).toContainText("Stopped.");
  await page.keyboard.press("Alt+ArrowDown");
  await expect(page.locator(".message--user")).toContainText("Hello");
  await page.keyboard.press("Control+Shift+C");
  await expect(page.getByText("Answer copied.")).toBeVisible();
  expect(await page.evaluate(() => navigator.clipboard.readText())).toBe("Second");
  await page.keyboard.press("Alt+ArrowUp");
  await expect(page.locator(".message--user")).toContainText("Long");
  const room = page.locator(".room__open").first();
  await room.press("F2");
  await page.getByRole("textbox", { name: "Title" }).fill("Renamed");
  await page.keyboard.press("Enter");
  await expect(room).toHaveText("Renamed");
  await expect(room).toBeFocused();
  await room.press("Delete");
  await expect(page.locator(".room")).toHaveCount(1);
});

test("a message is edited, branched and sent without a mouse", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: ["Paris"] }, { tokens: ["Rome"] }];
  await chat.open();
  await chat.converse("Capital of France?");
  await page.locator(".thread").focus();
  await page.keyboard.press("Tab"); // Copy
  await page.keyboard.press("Tab");
  await expect(page.getByRole("button", { name: "Edit and run again" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("textbox", { name: "Edit your message" })).toBeFocused();
  await page.keyboard.type(" And of Italy?");
  await page.keyboard.press("Enter");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Rome");
  await expect(page.locator(".pager__place")).toHaveText("2/2");
  await page.getByRole("button", { name: "Previous branch" }).press("Enter");
  await expect(chat.answers.last().locator(".prose")).toHaveText("Paris");
});

test("the focus stays with what is done: Stop while an answer comes, then the composer; branches keep it", async ({ chat, fake, page }) => {
  let goOn = (): void => undefined;
  const next = (): void => {
    fake.answers = [{ tokens: words("Some words"), hold: { after: 1, until: new Promise<void>((go) => { goOn = go; }) }, finish: "length" }];
  };
  const through = async (): Promise<void> => {
    await expect(chat.stop).toBeFocused();
    goOn();
    await expect(chat.field).toBeFocused();
    next();
  };
  next();
  await chat.open();
  await chat.field.fill("Go");
  await page.keyboard.press("Enter");
  await through();
  await page.getByRole("button", { name: "Continue" }).press("Enter");
  await through();
  await page.getByRole("button", { name: "Regenerate" }).press("Enter");
  await through();
  await page.getByRole("button", { name: "Edit and run again" }).press("Enter");
  await expect(page.getByRole("textbox", { name: "Edit your message" })).toBeFocused();
  await page.keyboard.press("Enter");
  await through();
  await page.getByRole("button", { name: "Previous branch" }).first().press("Enter");
  await expect(page.locator(".message--user .pager__place")).toHaveText("1/2");
  await expect(page.locator(".message--user").getByRole("button", { name: "Next branch" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator(".message--user .pager__place")).toHaveText("2/2");
  await expect(page.locator(".message--user").getByRole("button", { name: "Previous branch" })).toBeFocused();
  await page.getByRole("button", { name: "Edit the answer" }).press("Enter");
  await page.keyboard.type(" by hand");
  await page.keyboard.press("Control+Enter");
  await expect(chat.answers.last()).toContainText("by hand");
  await expect(page.getByRole("button", { name: "Edit the answer" })).toBeFocused();
});

test("of buttons that are one choice arrows take the next, and Tab passes by", async ({ chat, page }) => {
  await chat.open();
  await page.keyboard.press("Control+,");
  await expect(page.getByRole("radio", { name: "This chat" })).toBeFocused();
  await page.keyboard.press("ArrowRight");
  await expect(page.getByRole("radio", { name: "Defaults" })).toBeFocused();
  await expect(page.getByRole("radio", { name: "Defaults" })).toBeChecked();
  await page.keyboard.press("Tab");
  await expect(page.locator("[data-setting=temperature]")).toBeFocused();
  await page.getByRole("radio", { name: "System" }).focus();
  await page.keyboard.press("ArrowLeft");
  await expect(page.getByRole("radio", { name: "Dark" })).toBeChecked();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});

test("what has the focus by keyboard has a ring", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Hello");
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  for (let at = 0; at < 24; at += 1) {
    await page.keyboard.press("Tab");
    const ring = await page.evaluate(() => {
      const node = document.activeElement;
      if (node === null || node === document.body) return "none has it";
      const drawn = node.matches(".composer__text") ? node.closest(".composer") ?? node : node;
      const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(drawn);
      return (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2) || boxShadow !== "none" ? "" : `${node.className} ${node.textContent.slice(0, 40)}`;
    });
    if (ring === "none has it") break;
    expect(ring).toBe("");
  }
});

test("a menu is walked with arrows and gives the focus back", async ({ chat, page }) => {
  await chat.open();
  const templates = page.getByRole("button", { name: "Templates" });
  await templates.focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("menuitem", { name: /^Summarize/ })).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(page.getByRole("menuitem", { name: /^Translate/ })).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(templates).toBeFocused();
});

test("an answer is read out paragraph by paragraph, and its end is told", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("The first paragraph.\n\nThe second one.") }];
  await chat.open();
  await chat.converse("Hello");
  const live = voice(page);
  await expect(live).toContainText("The first paragraph.");
  await expect(live).toContainText("The second one.");
  await expect(live).toContainText("End of the answer.");
});

test("what is read out has no marks, and code is told by its language and length", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("## A *title*\n\nWith **bold** words and `code`.\n\n```python\na = 1\nb = 2\nprint(a + b)\n```\n\n- one\n- two") }];
  await chat.open();
  await chat.converse("Hello");
  const live = voice(page);
  await expect(live).toContainText("End of the answer.");
  const said = await live.textContent() ?? "";
  expect(said).not.toMatch(/[*#`]|- one|print/);
  for (const part of ["A title", "With bold words and code.", "Python code, 3 lines.", "one", "two"]) expect(said).toContain(part);
});

test("how an answer ended is told, also where it is all that came of it", async ({ chat, fake, page }) => {
  fake.models = [];
  await chat.open();
  await chat.ask("Hello");
  await expect(voice(page)).toHaveText(/^There is no model\./);
  fake.models = [smallModel];
  fake.answers = [
    { tokens: words("Cut here"), finish: "length" }, { tokens: [], error: { code: "QUEUE_FULL", message: "too many requests wait", retry_after: 3 } },
    { tokens: words("One two three"), hold: { after: 2, until: gate().until } },
  ];
  await chat.open();
  await chat.converse("Hello");
  await expect(voice(page)).toContainText("Cut at 2 tokens, the limit in the settings.");
  await chat.converse("Hello");
  await expect(voice(page)).toContainText("Too many requests wait. Try again in 3 seconds.");
  await chat.ask("Hello");
  await expect(chat.answers.last().locator(".prose")).toHaveText("One two");
  await page.keyboard.press("Escape");
  await expect(voice(page)).toContainText("Stopped.");
  await expect(voice(page)).not.toContainText("End of the answer.");
});

test("a lost connection is told once, whatever the seconds and the attempts", async ({ chat, fake, page }) => {
  await chat.open();
  fake.fail();
  const banner = page.locator(".banner--bad");
  await expect(banner).toContainText("The server cannot be reached. Trying again in");
  const heard = await banner.evaluate(async (node) => {
    const said = (): string => {
      const copy = node.cloneNode(true) as Element;
      for (const hidden of copy.querySelectorAll("[aria-hidden=true]")) hidden.remove();
      return copy.textContent;
    };
    const seen = new Set<string>();
    const shown = new Set<string>();
    const look = (): void => {
      seen.add(said());
      shown.add(node.textContent);
    };
    const observer = new MutationObserver(look);
    observer.observe(node, { subtree: true, childList: true, characterData: true, attributes: true });
    look();
    while (shown.size < 4) await new Promise((go) => setTimeout(go, 50));
    return [...seen];
  });
  expect(heard).toEqual(["The server cannot be reached. Trying again.Retry now"]);
});

test("Ctrl+Z brings back what was deleted, but in a field with text it is the field's", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: ["First"] }];
  await chat.open();
  await chat.converse("About foxes");
  await page.locator(".thread").focus();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Shortcuts" })).toContainText("Undo, while it is offered");
  await page.keyboard.press("Escape");
  await room(page, "About foxes").locator(".room__open").press("Delete");
  await expect(page.locator(".room")).toHaveCount(0);
  await page.keyboard.press("Control+z");
  await expect(room(page, "About foxes")).toBeVisible();
  await expect(chat.answers.last().locator(".prose")).toHaveText("First");
  await expect(page.getByRole("button", { name: "Undo" })).toHaveCount(0);
  await page.keyboard.press("Control+z");
  await room(page, "About foxes").locator(".room__open").press("Delete");
  await expect(page.locator(".room")).toHaveCount(0);
  await chat.field.pressSequentially("abc");
  await page.keyboard.press("Control+z");
  await expect(chat.field).not.toHaveValue("abc");
  await expect(page.locator(".room")).toHaveCount(0);
  await page.locator(".thread").focus();
  await page.keyboard.press("Control+z");
  await expect(room(page, "About foxes")).toBeVisible();
});

test("a removed template comes back by Ctrl+Z over its dialog, where notifications are heard too", async ({ chat, page }) => {
  await page.addInitScript(() => localStorage.setItem("quarrel.settings", JSON.stringify({ version: 1, templates: [{ id: "a", name: "Haiku", text: "A haiku" }] })));
  await chat.open();
  await expect(page.locator("body > .notes[aria-live=polite]")).toBeAttached(); // before there is one
  await page.getByRole("button", { name: "Templates" }).click();
  await page.getByRole("menuitem", { name: "Your templates" }).click();
  await page.getByRole("button", { name: "Remove Haiku" }).click();
  await expect(page.locator("dialog .notes .note")).toContainText("Template “Haiku” removed.");
  await page.keyboard.press("Control+z");
  await expect(page.getByRole("button", { name: "Remove Haiku" })).toBeVisible();
  await expect(page.locator(".note")).toHaveCount(0);
  await page.keyboard.press("Escape");
  await expect(page.locator("body > .notes")).toBeAttached();
});

test("a notification stays while it has the pointer or the focus, but Undo goes when nothing can be undone any more", async ({ chat, page }) => {
  await page.clock.install();
  await chat.open();
  const told = page.locator(".note");
  await page.evaluate(() => { location.hash = "#c=of-another-browser"; });
  await expect(told).toContainText("not in this browser");
  await told.hover();
  await page.clock.runFor(30_000);
  await told.getByRole("button", { name: "Dismiss" }).focus();
  await page.mouse.move(600, 200);
  await page.clock.runFor(30_000);
  await expect(told).toBeVisible();
  await told.getByRole("button", { name: "Dismiss" }).blur();
  await page.clock.runFor(4500);
  await expect(told).toHaveCount(0);
  await chat.converse("About foxes");
  await room(page, "About foxes").locator(".room__open").press("Delete");
  const undo = page.getByRole("button", { name: "Undo" });
  await undo.hover();
  await undo.focus();
  await page.clock.runFor(12_000); // the clock goes on by itself too
  await expect(undo).toBeFocused();
  await page.clock.runFor(9000);
  await expect(undo).toHaveCount(0);
  await page.keyboard.press("Control+z");
  await expect(room(page, "About foxes")).toHaveCount(0);
});

test("what can be undone is offered for its time, however many notifications come after it", async ({ chat, page }) => {
  await page.clock.install();
  await chat.open();
  for (const text of ["About foxes", "About cats", "About dogs", "About owls"]) {
    await chat.converse(text);
    await page.keyboard.press("Control+Shift+O");
  }
  const notes = page.locator(".note");
  await page.clock.pauseAt(await page.evaluate(() => Date.now() + 1000)); // however slow the machine is
  await room(page, "About foxes").locator(".room__open").press("Delete");
  await page.clock.runFor(100);
  await expect(notes).toHaveCount(1);
  for (let at = 0; at < 4; at += 1) {
    await page.evaluate((name) => { location.hash = `#c=of-another-browser-${name}`; }, at);
    await page.clock.runFor(100);
    await expect(notes).toHaveCount(Math.min(3, at + 2));
    await expect(notes.last()).toContainText("not in this browser");
  }
  await expect(notes.first()).toContainText("Undo");
  for (const title of ["About cats", "About dogs", "About owls"]) {
    await room(page, title).locator(".room__open").press("Delete");
    await page.clock.runFor(100);
  }
  await expect(page.getByRole("button", { name: "Undo" })).toHaveCount(4);
  await expect(notes).toHaveCount(4);
  await expect(notes.last()).toBeInViewport();
  await notes.first().getByRole("button", { name: "Undo" }).click();
  await page.clock.runFor(100);
  await expect(room(page, "About foxes")).toBeVisible();
  await page.clock.runFor(20_500);
  await expect(notes).toHaveCount(0);
});

test("the order of the focus follows the page", async ({ chat, page }) => {
  await chat.open();
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to the conversation" })).toBeFocused();
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Quarrel", exact: true })).toBeFocused();
});

// The look: themes, sizes and places at every width, phones with their keyboard and safe areas, and motion.
import { Chat, drawn, expect, gate, test, words, type Page } from "./harness.ts";
import { firstFigures } from "./metrics_sample.ts";

type Box = { x: number; y: number; width: number; height: number };

async function box(page: Page, selector: string): Promise<Box> {
  return await page.locator(selector).boundingBox() ?? { x: 0, y: 0, width: 0, height: 0 };
}

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

test("the theme changes smoothly, and at once for who asked for less motion", async ({ chat, page }) => {
  await chat.open();
  const changes = (): Promise<{ before: string; moving: number }> => page.evaluate(() => {
    // All in one task, in which no frame can be late: the style before is made, and getAnimations makes the one after.
    const before = getComputedStyle(document.body).backgroundColor;
    document.querySelector<HTMLElement>(".head__theme")?.click();
    return { before, moving: document.body.getAnimations().filter((each) => each instanceof CSSTransition && each.transitionProperty === "background-color").length };
  });
  await page.emulateMedia({ colorScheme: "dark" });
  expect(await changes()).toEqual({ before: "rgb(21, 23, 27)", moving: 1 }); // from the system's dark to light
  await expect.poll(() => page.evaluate(() => document.getAnimations().length)).toBe(0);
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
  expect((await changes()).moving).toBe(0);
});

test("the user's bubbles are blue, the model's grey and as wide as the column", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Hi");
  const look = (selector: string): Promise<{ colour: string; ground: string; width: number }> => page.locator(selector).evaluate((node) => ({ colour: getComputedStyle(node).borderTopColor, ground: getComputedStyle(node).backgroundColor, width: node.getBoundingClientRect().width }));
  const user = await look(".message--user .message__bubble");
  const model = await look(".message--model .message__bubble");
  const parts = (colour: string): number[] => (colour.match(/[\d.]+/g) ?? []).map(Number);
  for (const colour of [user.colour, user.ground]) expect(parts(colour)[2]).toBeGreaterThan((parts(colour)[0] ?? 0) + 0.05);
  const [red = 0, green = 0, blue = 0] = parts(model.ground);
  expect(Math.max(red, green, blue) - Math.min(red, green, blue)).toBeLessThan(8); // grey
  expect(model.ground).not.toBe(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
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

test("wide: sidebar of 280, a column of 760 at most, settings of 360 over the right edge that move nothing", async ({ chat, page }) => {
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.emulateMedia({ reducedMotion: "reduce" });
  await chat.open();
  await chat.converse("Hello");
  expect((await box(page, ".side")).width).toBe(280);
  const bubble = await box(page, ".message--model .message__bubble");
  expect(bubble.width).toBeLessThanOrEqual(760);
  expect(Math.abs(bubble.x + bubble.width / 2 - (280 + 1160 / 2))).toBeLessThan(2); // centred
  const composer = await box(page, ".composer");
  expect([composer.x, composer.width]).toEqual([bubble.x, bubble.width]);
  await page.getByRole("button", { name: "Settings" }).click();
  expect(await box(page, ".sheet")).toEqual({ x: 1080, y: 0, width: 360, height: 900 });
  expect(await box(page, ".message--model .message__bubble")).toEqual(bubble);
});

test("middle: the sidebar is a drawer over the page, and what it covers cannot be reached", async ({ chat, page }) => {
  await page.setViewportSize({ width: 768, height: 960 });
  await page.emulateMedia({ reducedMotion: "reduce" });
  await chat.open();
  const before = await box(page, ".stage");
  expect(before.width).toBe(768);
  await expect(page.getByRole("searchbox")).toBeHidden();
  await page.getByRole("button", { name: "Conversations", exact: true }).click();
  await expect(page.getByRole("searchbox")).toBeVisible();
  expect(await box(page, ".stage")).toEqual(before);
  for (let at = 0; at < 20; at += 1) {
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.closest(".stage") === null)).toBe(true);
  }
  await page.keyboard.press("Escape");
  await expect(page.getByRole("searchbox")).toBeHidden();
  await expect(page.getByRole("button", { name: "Conversations", exact: true })).toBeFocused();
});

test("phone: a header of 48, the composer at the bottom, settings that fill the screen", async ({ chat, page }) => {
  await page.setViewportSize({ width: 320, height: 640 });
  await page.emulateMedia({ reducedMotion: "reduce" });
  await chat.open();
  expect((await box(page, ".head")).height).toBe(48);
  const composer = await box(page, ".composer");
  expect(composer.y + composer.height).toBeGreaterThan(640 - 16);
  await page.getByRole("button", { name: "Settings" }).click();
  expect(await box(page, ".sheet")).toEqual({ x: 0, y: 0, width: 320, height: 640 });
  for (let at = 0; at < 30; at += 1) {
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.closest("#app") === null)).toBe(true);
  }
  await page.getByRole("button", { name: "Done" }).click();
  await expect(page.getByRole("button", { name: "Settings" })).toBeFocused();
});

/** What of a phone's page is wider than the screen, or too small for a finger. */
async function misfits(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const found: string[] = [];
    if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
    const targets = "button, input, select, .nav__link, .foot a, .side__links a, .side__brand, summary";
    for (const node of document.querySelectorAll<HTMLElement>(targets)) {
      const { width, height, left, right } = (node.closest(".choice") ?? node).getBoundingClientRect();
      if (!node.checkVisibility({ visibilityProperty: true, opacityProperty: false }) || width === 0 || node.closest("[inert]") !== null) continue;
      if (height < 43.5 || width < 43.5) found.push(`${node.className || node.tagName} ${node.textContent} ${width}×${height}`);
      if ((left < -0.5 || right > innerWidth + 0.5) && node.closest(".md-table, .figures-frame") === null) found.push(`${node.className} is outside`);
    }
    return found;
  });
}

async function everywhereOnPhone(page: Page, look: (where: string) => Promise<void>): Promise<void> {
  const dialog = page.getByRole("dialog");
  await look("chat");
  await page.getByRole("button", { name: "Templates" }).tap();
  await expect(page.getByRole("menu")).toBeVisible();
  await look("templates");
  await page.getByRole("menuitem", { name: "Your templates" }).tap();
  await expect(dialog).toBeVisible();
  await look("own templates");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: /^Model/ }).tap();
  await expect(dialog).toBeVisible();
  await look("models");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Settings" }).tap();
  await expect(page.locator(".sheet--open")).toBeVisible();
  await look("settings");
  await page.getByRole("button", { name: "Done" }).tap();
  await page.getByRole("button", { name: "Conversations", exact: true }).tap();
  await expect(page.getByRole("searchbox")).toBeVisible();
  await look("drawer");
  await page.getByRole("button", { name: "All conversations" }).tap();
  await expect(page.getByRole("menu")).toBeVisible();
  await look("menu");
  await page.getByRole("menuitem", { name: "Delete all" }).tap();
  await expect(dialog).toBeVisible();
  await look("question");
  await page.keyboard.press("Escape");
  for (const view of ["Status", "Embeddings"]) {
    if (await page.getByRole("link", { name: view }).isHidden()) await page.getByRole("button", { name: "Conversations", exact: true }).tap();
    await page.getByRole("link", { name: view }).tap();
    await expect(page.getByRole("heading", { name: view, level: 1 })).toBeVisible();
    await look(view);
  }
}

test("phones, upright and on their side: nothing is wider than the screen, targets have 44 px, the composer stays in view", async ({ browser, fake }) => {
  fake.models = fake.models.map((model) => ({ ...model }));
  for (const viewport of [{ width: 320, height: 640 }, { width: 640, height: 320 }]) {
    fake.answers = [{ tokens: words("A word_that_is_very_long_".repeat(20)) }];
    const context = await browser.newContext({ viewport, hasTouch: true, isMobile: true, reducedMotion: "reduce" });
    const page = await context.newPage();
    await page.goto(fake.url);
    await page.getByRole("textbox", { name: "Message" }).fill("Hello");
    await page.getByRole("button", { name: "Send" }).tap();
    await expect(page.locator(".message--model")).toContainText("very_long");
    await expect(page.getByRole("button", { name: "Send" })).toBeInViewport({ ratio: 1 });
    await everywhereOnPhone(page, async (where) => {
      expect({ where, misfits: await misfits(page) }).toEqual({ where, misfits: [] });
    });
    await context.close();
  }
});

test("a phone's sidebar: version and links stay within its padding, each with room for a finger", async ({ browser, fake }) => {
  const context = await browser.newContext({ viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true, reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto(fake.url);
  await page.getByRole("button", { name: "Conversations", exact: true }).tap();
  const side = await page.locator(".side__foot").boundingBox();
  const last = await page.locator(".side__links .link").boundingBox();
  if (side === null || last === null) throw new Error("the sidebar is not open");
  expect(last.x + last.width).toBeLessThanOrEqual(side.x + side.width - 12);
  for (const link of await page.locator(".side__links a, .side__links .link").all()) expect((await link.boundingBox())?.width).toBeGreaterThanOrEqual(44);
  await context.close();
});

test("a keyboard that lies over the page: the composer stays above it", async ({ browser, fake }) => {
  const context = await browser.newContext({ viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true });
  const page = await context.newPage();
  await page.goto(fake.url);
  await expect(page.getByRole("textbox", { name: "Message" })).toBeVisible();
  // Chromium takes the keyboard off the page itself; Safari tells its height by the visual viewport alone.
  const keyboard = (height: number): Promise<void> => page.evaluate((left) => {
    Object.defineProperty(visualViewport, "height", { configurable: true, get: () => left });
    visualViewport?.dispatchEvent(new Event("resize"));
  }, 640 - height);
  await keyboard(260);
  const composer = await box(page, ".composer");
  expect(composer.y + composer.height).toBeLessThanOrEqual(380);
  await expect(page.locator(".head")).toBeInViewport();
  await keyboard(0);
  expect((await box(page, ".composer")).y).toBeGreaterThan(400);
  await context.close();
});

test("safe areas: what can be pressed stays off the phone's edges", async ({ browser, fake }) => {
  for (const [viewport, insets] of [[{ width: 390, height: 780 }, { top: 47, bottom: 34, left: 0, right: 0 }], [{ width: 780, height: 390 }, { top: 0, bottom: 21, left: 47, right: 47 }]] as const) {
    const context = await browser.newContext({ viewport, hasTouch: true, isMobile: true, reducedMotion: "reduce" });
    const page = await context.newPage();
    const session = await context.newCDPSession(page);
    await session.send("Emulation.setSafeAreaInsetsOverride" as "Page.enable", { insets } as never);
    const chat = new Chat(page, fake.url);
    await chat.open();
    await chat.converse("Hello");
    const outside = async (scope: string): Promise<string[]> => page.evaluate(({ within, edges }) => [...document.querySelectorAll<HTMLElement>(`:is(${within}) :is(button, textarea, a, .message__bubble)`)]
      .filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.closest("[inert]") === null)
      .filter((node) => {
        const { left, right, top, bottom, width } = node.getBoundingClientRect();
        let scroller = node.parentElement; // what scrolls up and down comes into sight
        while (scroller !== null && getComputedStyle(scroller).overflowY !== "auto") scroller = scroller.parentElement;
        const scrolled = scroller !== null;
        return width > 0 && (left < edges.left || right > innerWidth - edges.right || (!scrolled && (top < edges.top || bottom > innerHeight - edges.bottom)));
      }).map((node) => `${node.className} ${node.textContent.slice(0, 40)}`), { within: scope, edges: insets });
    expect(await outside(".stage")).toEqual([]);
    await page.getByRole("button", { name: "Settings" }).tap();
    await expect(page.locator(".sheet--open")).toBeVisible();
    expect(await outside(".sheet")).toEqual([]);
    await page.getByRole("button", { name: "Done" }).tap();
    await page.getByRole("button", { name: "Conversations", exact: true }).tap();
    await expect(page.getByRole("searchbox")).toBeVisible();
    expect(await outside(".side")).toEqual([]);
    await context.close();
  }
});

test("a spinner while a model is loaded", async ({ chat, fake, page }) => {
  const loaded = gate();
  fake.answers = [{ tokens: ["x"], loading: loaded.until }];
  await chat.open();
  await chat.ask("Go");
  await expect(chat.answers.last().locator(".spinner")).toBeVisible();
  await expect(chat.answers.last()).toContainText("Loading the model");
  expect(await page.locator(".message .spinner").evaluate((node) => node.getAnimations().length)).toBe(1);
  loaded.open();
  await expect(chat.answers.last().locator(".prose")).toHaveText("x");
  await expect(page.locator(".message .spinner")).toHaveCount(0);
});

/** Keeps what begins to move, by its name and what it is of. */
function watchMotion(): void {
  const seen = new Set<string>();
  Object.assign(globalThis, { seen });
  const nameOf = (node: EventTarget | null): string => (node instanceof Element ? node.closest(".prose") === null ? node.classList.item(0) ?? node.tagName : "prose" : "");
  addEventListener("animationstart", ({ animationName, target, pseudoElement }) => seen.add(`${animationName} ${nameOf(target)}${pseudoElement}`), true);
  addEventListener("transitionrun", ({ propertyName, target }) => seen.add(`${propertyName} ${nameOf(target)}`), true);
}

for (const reducedMotion of ["no-preference", "reduce"] as const) {
  test(`messages fade in, dots are typed, a caret blinks, what is under the pointer shows: ${reducedMotion === "reduce" ? "with reduced motion all without moving" : "each moves"}`, async ({ chat, fake, page }) => {
    const moved = (): Promise<string[]> => page.evaluate(() => [...(globalThis as unknown as { seen: Set<string> }).seen]);
    const [read, rest] = [gate(), gate()];
    await page.emulateMedia({ reducedMotion });
    await page.addInitScript(watchMotion);
    fake.answers = [{ tokens: words("Some words"), reading: read.until, hold: { after: 1, until: rest.until } }];
    await chat.open();
    await chat.ask("Go");
    await expect(chat.answers.last().locator(".typing span")).toHaveCount(3);
    await expect(chat.answers.last().locator(".typing")).toBeVisible();
    expect(await page.locator(".typing span").evaluateAll((dots) => dots.map((dot) => dot.getAnimations().length))).toEqual(Array(3).fill(reducedMotion === "reduce" ? 0 : 1));
    read.open();
    await expect(chat.answers.last().locator(".prose")).toHaveText("Some");
    const caret = await page.locator(".prose p").evaluate((node) => {
      const { content, width, backgroundColor } = getComputedStyle(node, "::after");
      return { content, width, backgroundColor };
    });
    expect(caret).toMatchObject({ content: '""', width: "8px" });
    expect(caret.backgroundColor).not.toBe("rgba(0, 0, 0, 0)");
    if (reducedMotion === "no-preference") await expect.poll(moved).toEqual(expect.arrayContaining(["appear message", "blink prose::after"]));
    rest.open();
    await expect(chat.send).toBeVisible();
    expect(await page.locator(".prose p").evaluate((node) => getComputedStyle(node, "::after").content)).toBe("none");
    const tools = page.locator(".message--user .message__actions");
    await page.mouse.move(0, 0);
    await expect(tools).toHaveCSS("opacity", "0");
    await page.locator(".message--user").hover();
    await expect(tools).toHaveCSS("opacity", "1");
    const room = page.locator(".room");
    await room.hover();
    await expect(tools).toHaveCSS("opacity", "0");
    const ground = (): Promise<string> => page.getByRole("button", { name: "New chat" }).first().evaluate((node) => getComputedStyle(node).backgroundColor);
    const before = await ground();
    await page.getByRole("button", { name: "New chat" }).first().hover();
    await expect.poll(ground).not.toBe(before);
    if (reducedMotion === "reduce") expect([await moved(), await page.evaluate(() => document.getAnimations().length)]).toEqual([[], 0]);
    else await expect.poll(moved).toEqual(expect.arrayContaining(["opacity message__actions", "background-color button"]));
  });
}

test("a note stands above the composer and covers nothing that is in use", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Hello");
  await page.getByRole("button", { name: "Copy the text" }).last().click();
  const note = await box(page, ".note");
  const composer = await box(page, ".composer");
  expect(note.y + note.height).toBeLessThanOrEqual(composer.y);
  expect(note.y).toBeGreaterThan(composer.y - 150);
  await page.getByRole("button", { name: /^Model/ }).click();
  const layers = await page.evaluate(() => [".notes", ".menu", ".sheet"].map((name) => Number(getComputedStyle(document.querySelector(name) ?? document.body).zIndex)));
  expect(layers[0]).toBeLessThan(Math.min(layers[1] ?? 0, layers[2] ?? 0));
});

test("charts side by side stand in line, whatever their titles and figures", async ({ chat, fake, page }) => {
  await chat.open("/status");
  fake.broadcast("metrics", firstFigures(20));
  await expect(page.locator(".card").filter({ hasText: "Memory" }).locator(".card__figure")).toHaveText("896 MB");
  for (const [width, columns] of [[1280, 4], [800, 2]] as const) {
    await page.setViewportSize({ width, height: 900 });
    await drawn(page);
    const tops = await page.locator(".chart__plot").evaluateAll((plots) => plots.map((plot) => Math.round(plot.getBoundingClientRect().top)));
    expect(tops).toHaveLength(8);
    tops.forEach((top, at) => { expect([width, at, top]).toEqual([width, at, tops[at - at % columns]]); });
  }
  for (const model of ["Unload default", "Load minilm"]) await expect(page.getByRole("button", { name: model, exact: true })).toHaveCSS("font-weight", "550");
});

test("the thread fades out above the composer, and nothing of its end lies in the fade", async ({ chat, fake, page }) => {
  fake.answers = [{ tokens: words("A long line.\n\n".repeat(60)) }];
  await chat.open();
  await chat.converse("Go on");
  const fade = await page.locator(".thread").evaluate((node) => {
    const { position, height, bottom, pointerEvents } = getComputedStyle(node, "::after");
    return { position, bottom, pointerEvents, height: Number.parseFloat(height), room: node.getBoundingClientRect().bottom - (node.querySelector(".message--last .message__under")?.getBoundingClientRect().bottom ?? 0) };
  });
  expect(fade).toMatchObject({ position: "sticky", bottom: "0px", pointerEvents: "none" });
  expect(fade.height).toBeGreaterThanOrEqual(16);
  expect(fade.height).toBeLessThanOrEqual(24);
  expect(fade.room).toBeGreaterThanOrEqual(fade.height);
});

test("on a phone, Latest stands in the composer's row and covers nothing", async ({ browser, fake }) => {
  fake.answers = [{ tokens: words("A long line.\n\n".repeat(60)) }];
  const context = await browser.newContext({ viewport: { width: 320, height: 640 }, hasTouch: true, isMobile: true, reducedMotion: "reduce" });
  const page = await context.newPage();
  const chat = new Chat(page, fake.url);
  await chat.open();
  await chat.converse("Go on");
  await page.locator(".thread").evaluate((node) => { node.scrollTop = 0; });
  const latest = page.getByRole("button", { name: "Latest" });
  await expect(latest).toBeVisible();
  const own = await box(page, ".jump");
  for (const other of [".thread", ".composer__text", ".composer__templates", ".gauge", ".composer__send"]) {
    const { x, y, width, height } = await box(page, other);
    const apart = own.x >= x + width || x >= own.x + own.width || own.y >= y + height || y >= own.y + own.height;
    expect([other, apart]).toEqual([other, true]);
  }
  await latest.tap();
  await expect(latest).toBeHidden();
  await context.close();
});

test("the composer has a thin edge while it has the focus, and a ring for who comes with the keyboard", async ({ chat, page }) => {
  await chat.open();
  const composer = page.locator(".composer");
  await chat.field.click();
  await expect(composer).toHaveCSS("border-top-color", "rgb(36, 89, 211)");
  await expect(composer).toHaveCSS("box-shadow", "none");
  await page.keyboard.press("Tab");
  await expect(chat.field).not.toBeFocused();
  await page.keyboard.press("Shift+Tab");
  await expect(chat.field).toBeFocused();
  await expect(composer).toHaveCSS("box-shadow", "rgb(36, 89, 211) 0px 0px 0px 1px");
  await chat.field.blur();
  await expect(composer).toHaveCSS("box-shadow", "none");
});

test("a title in the sidebar has all the room until its menu shows", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("A question with a title that is longer than the sidebar is wide");
  const room = await box(page, ".room");
  const gap = async (): Promise<number> => {
    const title = await box(page, ".room__title");
    return room.x + room.width - title.x - title.width;
  };
  await page.mouse.move(700, 300);
  expect(await gap()).toBeLessThanOrEqual(12);
  await page.locator(".room").hover();
  const more = await box(page, ".room__more");
  expect(await gap()).toBeGreaterThanOrEqual(more.width);
  await expect(page.locator(".room__more")).toHaveCSS("opacity", "1");
});

test("words and rings stand together, and buttons have one size", async ({ chat, page }) => {
  await chat.open();
  await chat.converse("Hello");
  const ends = await page.locator(".gauge").evaluate((gauge) => {
    const range = document.createRange();
    range.selectNodeContents(gauge.querySelector(".gauge__words") ?? gauge);
    return [range.getBoundingClientRect().right, gauge.querySelector(".gauge__ring")?.getBoundingClientRect().left ?? 0];
  });
  expect((ends[1] ?? 0) - (ends[0] ?? 0)).toBeLessThanOrEqual(12);
  const speed = await page.locator(".message__speed").evaluate((node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return node.getBoundingClientRect().width - range.getBoundingClientRect().width;
  });
  expect(speed).toBeLessThan(20);
  await page.getByRole("button", { name: "Edit and run again" }).click();
  for (const label of ["Cancel", "Send"]) await expect(page.locator(".editor").getByRole("button", { name: label })).toHaveCSS("font-size", "14px");
});

test("a phone on its side: the button of the key's dialog is in sight", async ({ fake, page }) => {
  fake.key = "qk_needed";
  await page.setViewportSize({ width: 640, height: 320 });
  await page.goto(fake.url);
  await page.getByText("Keep it, encrypted").click();
  const button = await box(page, ".dialog .button--main");
  expect(button.y + button.height).toBeLessThanOrEqual(320 - 16);
});

// Pictures of every state at three widths in both themes, in build/page-pictures. They are for people: nothing is compared
// here but that each state can be reached. STATES=empty,answer takes some of them alone.
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import type { Browser } from "@playwright/test";
import { FakeServer } from "../browser/fake_server.ts";
import { Chat, expect, pageRoot, test } from "../browser/harness.ts";
import { folder, widths } from "./sizes.ts";
import { states, type State } from "./states.ts";

const chosen = process.env["STATES"]?.split(",");

test.beforeAll(() => mkdir(folder, { recursive: true }));

async function shoot(browser: Browser, state: State, theme: "light" | "dark", [width, height]: readonly [number, number]): Promise<void> {
  const fake = await FakeServer.start(pageRoot);
  fake.models = fake.models.map((model) => ({ ...model }));
  state.set?.(fake);
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: "reduce", hasTouch: width < 700, permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  const chat = new Chat(page, fake.url);
  if (state.path === "/status") await page.clock.install();
  await state.prepare?.(page);
  await page.goto(fake.url + (state.path ?? "/"));
  if (!state.name.startsWith("key")) await expect(chat.state).toHaveAttribute("data-state", "connected");
  await state.reach(chat, page, fake);
  await page.waitForTimeout(150);
  await page.screenshot({ path: join(folder, `${state.name}-${width}-${theme}.png`) });
  await context.close();
  await fake.stop();
}

for (const state of states) {
  if (chosen && !chosen.includes(state.name)) continue;
  test(`pictures: ${state.name}`, async ({ browser }) => {
    for (const theme of ["light", "dark"] as const) for (const size of state.sizes ?? widths) await shoot(browser, state, theme, size);
  });
}

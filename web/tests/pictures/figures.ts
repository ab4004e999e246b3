// Lets the page's own clock run on the dashboard, so that a minute and more of samples comes in seconds.
import type { Page } from "@playwright/test";
import type { FakeServer } from "../browser/fake_server.ts";

export async function minuteOfFigures(page: Page, fake: FakeServer): Promise<void> {
  for (let at = 0; at < 40; at += 1) {
    const load = 0.5 + 0.5 * Math.sin(at / 4);
    fake.broadcast("metrics", { running: Math.round(load * 8), requests_total: 1180 + at * 20, tokens_total: 40_000 + at * 300, connections: 3, tokens_per_sec: 30 + 160 * load });
    const answered = page.waitForResponse("**/api/metrics");
    await page.clock.runFor(2000);
    await answered;
  }
  await page.clock.runFor(100);
}

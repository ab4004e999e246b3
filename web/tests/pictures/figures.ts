// Lets the page's own clock run on the dashboard, so that minutes of figures come in seconds.
import type { Page } from "@playwright/test";
import type { FakeServer } from "../browser/fake_server.ts";
import { dashboardFigures, tell } from "../browser/metrics_sample.ts";

export async function minutesOfFigures(page: Page, fake: FakeServer): Promise<void> {
  const next = dashboardFigures();
  for (let at = 0; at < 40; at += 1) {
    await tell(page, fake, next());
    await page.clock.runFor(4900);
  }
}

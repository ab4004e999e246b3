// What a server under a load that comes and goes broadcasts of its figures, further on at each call.
import { expect, type Page } from "@playwright/test";
import type { FakeServer } from "./fake_server.ts";

export interface Figures extends Record<string, unknown> {
  requests_total: number;
}

function percentiles(least: number, most: number): unknown {
  return { count: 20, p50: least + 0.5 * (most - least), p90: least + 0.9 * (most - least), p99: most };
}

const unknown = { count: 0, p50: null, p90: null, p99: null };

/** As a connection's first message has them: of no time before it. */
export function firstFigures(requests: number): Figures {
  return {
    running: 1, waiting: 0, requests_total: requests, tokens_total: 4000, errors_total: 0, kv_usage: 0.125, memory_bytes: 895_979_904, process_memory_bytes: 1_049_741_568,
    models: [{ name: "default", running: 1, waiting: 0, kv_usage: 0.125, memory_bytes: 895_979_904 }],
    interval: null, tokens_per_sec: null, time_to_first_token: unknown, token_gap: unknown, cache_hits: null,
    connections: 3, own: { running: 1, requests_total: 4, tokens_total: 900 },
  };
}

export function dashboardFigures(): () => Figures {
  let call = 0;
  let tokens = 40_000;
  return () => {
    call += 1;
    const load = 0.5 + 0.5 * Math.sin(call / 4);
    tokens += Math.round(200 + 800 * load);
    const running = Math.round(load * 8);
    const waiting = Math.round(Math.max(0, load - 0.6) * 10);
    const kv = 0.1 + 0.5 * load;
    return {
      ...firstFigures(1180 + call * 20),
      running, waiting, tokens_total: tokens, errors_total: Math.floor(call / 20), kv_usage: kv,
      models: [{ name: "default", running, waiting, kv_usage: kv, memory_bytes: 895_979_904 }],
      interval: 5, tokens_per_sec: 40 + 160 * load,
      time_to_first_token: percentiles(0.08, 0.1 + 0.3 * load), token_gap: percentiles(0.012, 0.014 + 0.02 * load), cache_hits: 0.6 + 0.2 * load,
    };
  };
}

/** Broadcasts them, and lets the page's own clock run until they are drawn. */
export async function tell(page: Page, fake: FakeServer, figures: Figures): Promise<void> {
  fake.broadcast("metrics", figures);
  const drawn = `${new Intl.NumberFormat("en").format(figures.requests_total)} requests since the server was started.`;
  await expect(async () => {
    await page.clock.runFor(50);
    await expect(page.locator(".page__lead").first()).toContainText(drawn, { timeout: 50 });
  }).toPass();
}

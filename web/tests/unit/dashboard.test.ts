import assert from "node:assert/strict";
import { test } from "node:test";
import { createDashboard, percentilesBetween, readFigures, sampleBetween } from "../../src/core/dashboard.ts";
import { Failure } from "../../src/core/failure.ts";
import { Cell } from "../../src/core/observable.ts";
import type { ActivityMetrics } from "../../src/core/types.ts";

function histogram(name: string, counts: readonly number[]): unknown {
  const bounds = [0.1, 0.2, 0.4];
  return { name, metrics: [{ labels: { model: "toy" }, count: counts.at(-1), sum: 0, buckets: bounds.map((le, index) => ({ le, count: counts[index] })) }] };
}

function metrics(tokens: number, running: number, firsts: readonly number[]): unknown {
  return {
    metrics: [
      { name: "quarrel_requests_running", metrics: [{ labels: { model: "a" }, value: running }, { labels: { model: "b" }, value: 1 }] },
      { name: "quarrel_requests_waiting", metrics: [] },
      { name: "quarrel_webui_tokens_total", metrics: [{ labels: { type: "generated" }, value: tokens }, { labels: { type: "prompt" }, value: 9 * tokens }] },
      { name: "quarrel_kv_cache_usage_ratio", metrics: [{ value: 0.25 }, { value: 0.5 }] },
      { name: "quarrel_prefix_cache_hit_tokens_total", metrics: [{ value: tokens }] },
      { name: "quarrel_prefix_cache_miss_tokens_total", metrics: [{ value: tokens }] },
      histogram("quarrel_time_to_first_token_seconds", firsts),
      { name: 7 }, "nonsense",
    ],
  };
}

test("a sample is what happened between two readings", () => {
  const before = readFigures(metrics(100, 3, [0, 0, 0, 0]), 1000);
  const after = readFigures(metrics(300, 4, [10, 10, 20, 20]), 3000);
  const sample = sampleBetween(before, after);
  assert.deepEqual([sample.running, sample.waiting, sample.tokensPerSecond, sample.kvUse, sample.cacheHits], [5, 0, 100, 0.5, 0.5]);
  assert.ok(Math.abs((sample.timeToFirstToken.p50 ?? 0) - 0.1) < 1e-9);
  assert.ok(Math.abs((sample.timeToFirstToken.p90 ?? 0) - 0.36) < 1e-9, "within a bucket evenly");
  assert.deepEqual(sample.tokenGap, { p50: null, p90: null, p99: null });
});

test("counters that begin anew are not negative", () => {
  const sample = sampleBetween(readFigures(metrics(500, 0, [5, 5, 5, 5]), 0), readFigures(metrics(20, 0, [0, 0, 0, 0]), 1000));
  assert.equal(sample.tokensPerSecond, 20);
  assert.equal(sample.timeToFirstToken.p50, null);
});

test("what lies beyond the last bucket is told as its bound", () => {
  const none = { buckets: new Map<number, number>(), count: 0 };
  assert.equal(percentilesBetween(none, { buckets: new Map([[0.5, 0]]), count: 4 }).p50, 0.5);
});

test("where the figures cannot be read what is broadcast is shown, and no made-up zeros", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const activity = new Cell<ActivityMetrics | null>(null);
  let asked = 0;
  const dashboard = createDashboard({ json: () => {
    asked += 1;
    return Promise.reject(new Failure("RATE_LIMITED", "Too many requests.", asked === 1 ? 20 : null));
  } }, activity);
  const end = dashboard.watch();
  await new Promise(setImmediate);
  assert.equal(dashboard.error.get()?.code, "RATE_LIMITED");
  activity.set({ connections: 2, running: 3, requestsTotal: 40, tokensTotal: 900, tokensPerSecond: 87.5 });
  const [sample] = dashboard.samples.get();
  assert.deepEqual([sample?.running, sample?.tokensPerSecond, sample?.requestsTotal, sample?.memory, sample?.kvUse, sample?.errorsTotal], [3, 87.5, 40, null, null, null]);
  context.mock.timers.tick(19_000);
  assert.equal(asked, 1, "the server named a time");
  context.mock.timers.tick(1000);
  assert.equal(asked, 2);
  end();
  activity.set({ connections: 1, running: 0, requestsTotal: 41, tokensTotal: 901, tokensPerSecond: 0 });
  assert.equal(dashboard.samples.get().length, 1, "nobody watches");
});

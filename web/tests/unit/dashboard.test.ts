import assert from "node:assert/strict";
import { test } from "node:test";
import { createDashboard, readSample } from "../../src/core/dashboard.ts";
import { Cell, Emitter } from "../../src/core/observable.ts";
import type { ConnectionStatus } from "../../src/core/types.ts";

const connected: ConnectionStatus = { state: "connected", transport: "websocket", retryAt: null, attempt: 0, reason: "" };

function broadcasts(): { status: Cell<ConnectionStatus>; serverStatus: Emitter<unknown>; metrics: Emitter<unknown> } {
  return { status: new Cell(connected), serverStatus: new Emitter<unknown>(), metrics: new Emitter<unknown>() };
}

test("a sample is what a broadcast tells", () => {
  const sample = readSample({
    running: 5, waiting: 1, requests_total: 40, tokens_total: 900, errors_total: 2, kv_usage: 0.5, memory_bytes: 1000, process_memory_bytes: 2000,
    models: [{ name: "toy", running: 5, waiting: 1, kv_usage: null, memory_bytes: 1000 }],
    interval: 5, tokens_per_sec: 87.5, time_to_first_token: { count: 3, p50: 0.1, p90: 0.36, p99: 0.4 }, token_gap: { count: 0, p50: null, p90: null, p99: null },
    cache_hits: 0.25, connections: 2, own: { running: 1 },
  }, 7000);
  assert.deepEqual(sample, {
    at: 7000, running: 5, waiting: 1, tokensPerSecond: 87.5, timeToFirstToken: { p50: 0.1, p90: 0.36, p99: 0.4 }, tokenGap: { p50: null, p90: null, p99: null },
    kvUse: 0.5, memory: 1000, processMemory: 2000, cacheHits: 0.25, errorsTotal: 2, requestsTotal: 40, connections: 2,
    models: [{ name: "toy", running: 5, waiting: 1, kvUse: null }],
  });
});

test("nothing is made up where a broadcast tells nothing, or nonsense", () => {
  for (const payload of [null, 7, {}, { running: "many", models: 7, token_gap: [] }]) {
    const { at, models, timeToFirstToken, tokenGap, ...figures } = readSample(payload, 1);
    assert.deepEqual([at, models, timeToFirstToken, tokenGap], [1, [], { p50: null, p90: null, p99: null }, { p50: null, p90: null, p99: null }]);
    assert.ok(Object.values(figures).every((value) => value === null), JSON.stringify(figures));
  }
});

test("samples are kept whether somebody looks or not, the last 720", () => {
  const source = broadcasts();
  const dashboard = createDashboard(source);
  for (let at = 1; at <= 800; at += 1) source.metrics.emit({ requests_total: at });
  const kept = dashboard.samples.get().map(({ requestsTotal }) => requestsTotal);
  assert.deepEqual([kept.length, kept[0], kept.at(-1)], [720, 81, 800]);
});

test("why no figures come is said, and not of a connection that comes back at once", () => {
  const source = broadcasts();
  const { problem } = createDashboard(source);
  const lost: ConnectionStatus = { ...connected, state: "disconnected", retryAt: 1000, attempt: 1, reason: "The connection was lost." };
  source.status.set(lost);
  assert.equal(problem.get(), "");
  source.status.set({ ...lost, attempt: 2 });
  assert.match(problem.get(), /^The connection was lost\. Until the page is connected, no figures come\.$/);
  source.status.set({ ...lost, state: "connecting", attempt: 2, reason: "" });
  assert.match(problem.get(), /^The connection was lost\./, "it does not come and go with each attempt");
  source.status.set(connected);
  assert.equal(problem.get(), "");
  source.status.set({ ...lost, retryAt: null, reason: "The server needs a key." });
  assert.match(problem.get(), /^The server needs a key\./);
  source.status.set({ ...connected, transport: "sse" });
  assert.match(problem.get(), /WebSockets are blocked/);
  source.status.set(connected);
  source.serverStatus.emit({ models: [], broadcast: 0 });
  assert.match(problem.get(), /websocket\.broadcast is 0/);
  source.serverStatus.emit({ models: [], broadcast: 5 });
  assert.equal(problem.get(), "");
});

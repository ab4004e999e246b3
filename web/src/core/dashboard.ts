// Figures over time from the server's metrics: read while somebody watches, kept for an hour. The server broadcasts the
// most important ones, which serve where the others cannot be read: a key may ask only so often.
import type { Api } from "./api.ts";
import { asFailure } from "./failure.ts";
import { field, listOr, numberOr, textOr } from "./json.ts";
import { Cell } from "./observable.ts";
import type { ActivityMetrics, Dashboard, DashboardSample, Percentiles, Readable, RequestError } from "./types.ts";

const sampleEvery = 2000;
/** Whoever is refused asks again after that, where the server names no time. */
const refusedEvery = 30_000;
const keptFor = 3_600_000;

interface Histogram {
  /** Upper bound of each bucket, and how many are at most that. */
  buckets: ReadonlyMap<number, number>;
  count: number;
}

export interface Figures {
  at: number;
  running: number;
  waiting: number;
  tokens: number;
  requests: number;
  errors: number;
  hits: number;
  misses: number;
  kvUse: number;
  memory: number;
  processMemory: number;
  firstToken: Histogram;
  gap: Histogram;
}

type Families = ReadonlyMap<string, readonly unknown[]>;

function values(families: Families, name: string): number[] {
  return (families.get(name) ?? []).map((member) => numberOr(field(member, "value"), 0));
}

function sum(families: Families, name: string): number {
  return values(families, name).reduce((total, value) => total + value, 0);
}

/** Of the prompts' tokens and the answers' the latter. */
function generatedTokens(families: Families): number {
  const members = (families.get("quarrel_webui_tokens_total") ?? []).filter((member) => field(field(member, "labels"), "type") === "generated");
  return members.reduce<number>((total, member) => total + numberOr(field(member, "value"), 0), 0);
}

/** Of all models together. */
function histogram(families: Families, name: string): Histogram {
  const buckets = new Map<number, number>();
  let count = 0;
  for (const member of families.get(name) ?? []) {
    count += numberOr(field(member, "count"), 0);
    for (const bucket of listOr(field(member, "buckets"))) {
      const bound = numberOr(field(bucket, "le"), Number.POSITIVE_INFINITY);
      buckets.set(bound, (buckets.get(bound) ?? 0) + numberOr(field(bucket, "count"), 0));
    }
  }
  return { buckets, count };
}

export function readFigures(json: unknown, at: number): Figures {
  const families = new Map(listOr(field(json, "metrics")).map((family) => [textOr(field(family, "name"), ""), listOr(field(family, "metrics"))]));
  return {
    at,
    running: sum(families, "quarrel_requests_running"),
    waiting: sum(families, "quarrel_requests_waiting"),
    tokens: generatedTokens(families),
    requests: sum(families, "quarrel_webui_requests_total"),
    errors: sum(families, "quarrel_webui_errors_total"),
    hits: sum(families, "quarrel_prefix_cache_hit_tokens_total"),
    misses: sum(families, "quarrel_prefix_cache_miss_tokens_total"),
    kvUse: Math.max(0, ...values(families, "quarrel_kv_cache_usage_ratio")),
    memory: sum(families, "quarrel_model_memory_bytes"),
    processMemory: sum(families, "process_resident_memory_bytes"),
    firstToken: histogram(families, "quarrel_time_to_first_token_seconds"),
    gap: histogram(families, "quarrel_inter_token_latency_seconds"),
  };
}

/** Of what came between the two; within a bucket evenly. */
function percentile(before: Histogram, after: Histogram, share: number): number | null {
  const count = after.count - before.count;
  if (count <= 0) return null;
  const wanted = count * share;
  let lower = 0;
  let below = 0;
  for (const bound of [...after.buckets.keys()].sort((a, b) => a - b)) {
    const upTo = (after.buckets.get(bound) ?? 0) - (before.buckets.get(bound) ?? 0);
    if (upTo >= wanted && upTo > below) return Number.isFinite(bound) ? lower + (bound - lower) * ((wanted - below) / (upTo - below)) : lower;
    if (Number.isFinite(bound)) lower = bound;
    below = Math.max(below, upTo);
  }
  return lower;
}

export function percentilesBetween(before: Histogram, after: Histogram): Percentiles {
  return { p50: percentile(before, after, 0.5), p90: percentile(before, after, 0.9), p99: percentile(before, after, 0.99) };
}

/** Counters begin anew when the server does, or a model is unloaded. */
function grown(before: number, after: number): number {
  return after >= before ? after - before : after;
}

export function sampleBetween(before: Figures, after: Figures): DashboardSample {
  const seconds = Math.max(0.001, (after.at - before.at) / 1000);
  const hits = grown(before.hits, after.hits);
  const read = hits + grown(before.misses, after.misses);
  return {
    at: after.at, running: after.running, waiting: after.waiting,
    tokensPerSecond: grown(before.tokens, after.tokens) / seconds,
    timeToFirstToken: percentilesBetween(before.firstToken, after.firstToken),
    tokenGap: percentilesBetween(before.gap, after.gap),
    kvUse: after.kvUse, memory: after.memory, processMemory: after.processMemory,
    cacheHits: read > 0 ? hits / read : null,
    errorsTotal: after.errors, requestsTotal: after.requests,
  };
}

const unknown: Percentiles = { p50: null, p90: null, p99: null };

/** What a broadcast tells, which is less. */
export function sampleOfBroadcast(activity: ActivityMetrics, at: number): DashboardSample {
  const { running, tokensPerSecond, requestsTotal } = activity;
  return {
    at, running, tokensPerSecond, requestsTotal, waiting: null, timeToFirstToken: unknown, tokenGap: unknown,
    kvUse: null, memory: null, processMemory: null, cacheHits: null, errorsTotal: null,
  };
}

export function createDashboard(api: Pick<Api, "json">, activity: Readable<ActivityMetrics | null>): Dashboard {
  const samples = new Cell<readonly DashboardSample[]>([]);
  const error = new Cell<RequestError | null>(null);
  let watchers = 0;
  let before: Figures | null = null;
  let timer: ReturnType<typeof setTimeout> | null = null;

  const add = (sample: DashboardSample): void => samples.set([...samples.get().filter(({ at }) => at > sample.at - keptFor), sample]);
  const wait = (): number => {
    const now = error.get();
    if (now === null || now.code === "CONNECTION_LOST") return sampleEvery;
    return now.retryAfter === null ? refusedEvery : Math.max(sampleEvery, now.retryAfter * 1000);
  };
  const read = async (): Promise<void> => {
    try {
      const now = readFigures(await api.json("/api/metrics"), Date.now());
      if (before !== null) add(sampleBetween(before, now));
      before = now;
      error.set(null);
    } catch (thrown) {
      error.set(asFailure(thrown).error);
    }
    if (watchers > 0) timer = setTimeout(() => void read(), wait());
  };
  activity.subscribe((told) => {
    if (told !== null && watchers > 0 && error.get() !== null) add(sampleOfBroadcast(told, Date.now()));
  });
  return {
    samples, error,
    watch: () => {
      watchers += 1;
      if (watchers === 1) void read();
      let over = false;
      return () => {
        if (over) return;
        over = true;
        watchers -= 1;
        if (watchers === 0 && timer !== null) clearTimeout(timer);
        if (watchers === 0) before = null;
      };
    },
  };
}

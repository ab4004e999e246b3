// Figures over time, as the server broadcasts them on the page's own connection. Nothing is asked for; they are kept
// whether somebody looks or not, so that whoever looks sees the minutes before, too.
import { field, listOr, numberOr, textOr } from "./json.ts";
import { Cell } from "./observable.ts";
import type { ConnectionStatus, Dashboard, DashboardSample, Events, ModelActivity, Percentiles, Readable } from "./types.ts";

/** An hour, where the server broadcasts every five seconds. */
const mostSamples = 720;

/** What a connection tells of the server. */
export interface Broadcasts {
  readonly status: Readable<ConnectionStatus>;
  /** Payloads, as they came. */
  readonly serverStatus: Events<unknown>;
  readonly metrics: Events<unknown>;
}

function readPercentiles(value: unknown): Percentiles {
  return { p50: numberOr(field(value, "p50"), null), p90: numberOr(field(value, "p90"), null), p99: numberOr(field(value, "p99"), null) };
}

function readModel(value: unknown): ModelActivity {
  return {
    name: textOr(field(value, "name"), ""),
    running: numberOr(field(value, "running"), 0),
    waiting: numberOr(field(value, "waiting"), 0),
    kvUse: numberOr(field(value, "kv_usage"), null),
  };
}

/** What is not told is not known: no zero is made up. */
export function readSample(payload: unknown, at: number): DashboardSample {
  const figure = (name: string): number | null => numberOr(field(payload, name), null);
  return {
    at,
    running: figure("running"), waiting: figure("waiting"),
    tokensPerSecond: figure("tokens_per_sec"),
    timeToFirstToken: readPercentiles(field(payload, "time_to_first_token")),
    tokenGap: readPercentiles(field(payload, "token_gap")),
    kvUse: figure("kv_usage"), memory: figure("memory_bytes"), processMemory: figure("process_memory_bytes"),
    cacheHits: figure("cache_hits"),
    errorsTotal: figure("errors_total"), requestsTotal: figure("requests_total"), connections: figure("connections"),
    models: listOr(field(payload, "models")).map(readModel),
  };
}

function problemOf(status: ConnectionStatus, broadcasts: boolean): string {
  // A connection that comes back at the first attempt is not worth a line.
  const lost = status.state === "disconnected" && (status.retryAt === null || status.attempt > 1);
  if (lost) return `${status.reason} Until the page is connected, no figures come.`;
  if (status.state === "disconnected") return "";
  if (status.transport === "sse") return "The figures come over a WebSocket, and WebSockets are blocked here.";
  return broadcasts ? "" : "This server broadcasts no figures: its setting websocket.broadcast is 0.";
}

export function createDashboard(source: Broadcasts): Dashboard {
  const samples = new Cell<readonly DashboardSample[]>([]);
  const problem = new Cell("");
  let broadcasts = true;
  const explain = (): void => {
    const status = source.status.get();
    if (status.state !== "connecting") problem.set(problemOf(status, broadcasts)); // else it is what it was
  };
  source.metrics.on((payload) => samples.set([...samples.get().slice(1 - mostSamples), readSample(payload, Date.now())]));
  source.serverStatus.on((status) => {
    broadcasts = numberOr(field(status, "broadcast"), null) !== 0;
    explain();
  });
  source.status.subscribe(explain);
  return { samples, problem };
}

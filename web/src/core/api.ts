// Calls to the server over HTTP: with the key as a header, never in a URL, and errors as failures.
import { asFailure, failureOfStatus } from "./failure.ts";
import { parseJson } from "./json.ts";

export interface KeySource {
  /** null: none. */
  current(): string | null;
  /** The server asked for a key, or for another one; `used`: what was sent. */
  refuse(used: string | null): void;
}

export interface CallOptions {
  method?: "GET" | "POST" | "DELETE";
  body?: unknown;
  signal?: AbortSignal;
  headers?: Readonly<Record<string, string>>;
}

export type Fetch = (url: string, options: RequestInit) => Promise<Response>;

function retryAfterOf(response: Response): number | null {
  const seconds = Number(response.headers.get("Retry-After") ?? Number.NaN);
  return Number.isFinite(seconds) ? seconds : null;
}

export class Api {
  /** Answers that come as streams now; each takes one of the browser's connections. */
  streams = 0;
  private readonly keys: KeySource;
  private readonly fetch: Fetch;

  constructor(keys: KeySource, fetch: Fetch) {
    this.keys = keys;
    this.fetch = fetch;
  }

  /** An answer with a status of success; rejects with a Failure. */
  async call(path: string, options: CallOptions = {}): Promise<Response> {
    const key = this.keys.current();
    const headers: Record<string, string> = { ...options.headers };
    if (key !== null) headers["Authorization"] = `Bearer ${key}`;
    if (options.body !== undefined) headers["Content-Type"] = "application/json";
    const init: RequestInit = {
      method: options.method ?? "GET", headers, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    };
    if (options.body !== undefined) init.body = JSON.stringify(options.body);
    if (options.signal !== undefined) init.signal = options.signal;
    let response: Response;
    try {
      response = await this.fetch(path, init);
    } catch (error) {
      throw asFailure(error);
    }
    if (response.ok) return response;
    if (response.status === 401) this.keys.refuse(key);
    throw failureOfStatus(response.status, parseJson(await response.text().catch(() => "")), retryAfterOf(response));
  }

  async json(path: string, options: CallOptions = {}): Promise<unknown> {
    const response = await this.call(path, options);
    try {
      return parseJson(await response.text());
    } catch (error) {
      throw asFailure(error);
    }
  }
}

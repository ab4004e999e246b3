// A server that says what a test tells it to: the built page, the models, and answers whose every token, pause, error
// and lost connection is written down beforehand. It speaks /ws, /api/stream and resume as docs/server.md has them.
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { extname, join, normalize } from "node:path";
import type { AddressInfo } from "node:net";
import { WebSocketServer, type WebSocket } from "ws";

/** Milliseconds, or until that. */
export type Span = number | Promise<unknown>;

export interface Answer {
  tokens: readonly string[];
  /** Milliseconds between two tokens; 0: all at once. */
  gap?: number;
  /** Before the first, one after the other: the model is loaded, others are answered, the prompt is read. */
  loading?: Span;
  waiting?: Span;
  reading?: Span;
  ahead?: number; // of waiting: what is told
  /** After so many tokens it waits for that, or to be stopped. */
  hold?: { after: number; until: Promise<unknown> };
  finish?: string;
  promptTokens?: number;
  error?: { code: string; message: string; reason?: string; retry_after?: number };
  /** What the last event tells of a question with `retrieval`. */
  sources?: readonly unknown[];
  /** The connection is cut after every so many tokens, and the next one waits until somebody listens again. */
  cutEvery?: number;
  /** The cut waits for that, in which the test sees that the page has what was written: a browser drops what a broken stream
   * has brought and nobody has read, and asks again by itself where not even a head came. */
  beforeCut?: (written: number) => Promise<unknown>;
  /** Filled in: when each token was written, in milliseconds of the machine's clock. */
  times?: number[];
}

export interface FakeModel {
  name: string;
  state: string;
  parameters: string;
  quantization: string;
  size: number;
  memory_usage: number;
  context_length: number | null;
  settings: Record<string, number>;
  /** Bytes, while it is loaded. */
  completed?: number;
  total?: number;
  /** Told of one model alone, not in the list. */
  capabilities?: readonly string[];
}

interface Running {
  id: string;
  answer: Answer;
  events: string[]; // payloads, without their place
  over: boolean;
  stopped: boolean;
  /** When it is stopped. */
  stopping: Promise<void>;
  stop: () => void;
  told: ((event: number) => void) | null;
  /** What it does before the first token. */
  news: ((status: Record<string, unknown>) => void) | null;
  /** Whether a connection that is open carries it. */
  isHeard: () => boolean;
}

const types: Record<string, string> = { ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml" };
/** As the program sends it: real.test.ts compares. */
export const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

export const smallModel: FakeModel = { name: "default", state: "loaded", parameters: "135M", quantization: "Q4_1", size: 98_362_432, memory_usage: 895_979_904, context_length: 8192, capabilities: ["completion"], settings: { temperature: Math.fround(0.2), top_p: Math.fround(0.9) } };
export const vectorModel: FakeModel = { name: "minilm", state: "unloaded", parameters: "22M", quantization: "F32", size: 90_504_864, memory_usage: 0, context_length: null, capabilities: ["embedding"], settings: {} };

/** What something waits for until a test opens it. */
export interface Gate {
  until: Promise<void>;
  open: () => void;
}

export function gate(): Gate {
  let open = (): void => undefined;
  const until = new Promise<void>((opened) => { open = opened; });
  return { until, open };
}

export function words(text: string): string[] {
  return text.match(/\s*\S+|\s+$/g) ?? [];
}

export class FakeServer {
  models: FakeModel[] = [{ ...smallModel }, { ...vectorModel }];
  /** The next answers, in order; the last one is given again and again. */
  answers: Answer[] = [{ tokens: words("Hello. How can I help you today?") }];
  /** Every question's body. */
  readonly asked: Record<string, unknown>[] = [];
  /** Paths that were asked for, with their query. */
  readonly paths: string[] = [];
  key: string | null = null;
  /** Whether the key may load models. */
  isAdmin = true;
  /** Seconds between two broadcasts, as the status tells them; `broadcast` sends one. 0: the server sends none. */
  broadcastTime = 5;
  /** What a model that is loaded by its button waits for, half of it read. */
  loadUntil: Promise<unknown> = Promise.resolve();
  /** What the list of models and each model's details wait for, before they are told. */
  modelsUntil: Promise<unknown> = Promise.resolve();
  /** So many requests for a model's details fail. */
  failingDetails = 0;
  /** How often `cutEvery` has cut an answer that was being heard. */
  cuts = 0;
  /** WebSockets are refused: the page has to take server-sent events. */
  withoutSockets = false;
  url = "";
  private readonly server: Server;
  private readonly sockets = new WebSocketServer({ noServer: true, handleProtocols: () => "quarrel.v1", maxPayload: 1 << 20 });
  private readonly open = new Set<WebSocket>();
  private readonly streams = new Set<ServerResponse>();
  private readonly running = new Map<string, Running>();
  private readonly root: string;
  private made = 0;
  private down = false;
  private ended = false;
  port = 0;

  constructor(root: string) {
    this.root = root;
    this.server = createServer((request, response) => void this.respond(request, response).catch(() => response.destroy()));
    this.server.on("upgrade", (request, socket, head) => {
      if (this.withoutSockets || this.down || !this.admitted(request)) socket.destroy();
      else this.sockets.handleUpgrade(request, socket, head, (made) => this.greet(made));
    });
  }

  static async start(root: string): Promise<FakeServer> {
    const made = new FakeServer(root);
    await made.listen(0);
    return made;
  }

  private listen(port: number): Promise<void> {
    return new Promise((ready) => this.server.listen(port, "127.0.0.1", () => {
      this.port = (this.server.address() as AddressInfo).port;
      this.url = `http://127.0.0.1:${this.port}`;
      ready();
    }));
  }

  /** Cuts every connection; answers go on, as they do in the server. */
  cut(): void {
    for (const socket of this.open) socket.terminate();
    this.open.clear();
    for (const stream of this.streams) stream.destroy();
    this.streams.clear();
  }

  /** As a server that was restarted: it knows nothing of the answers before. */
  forget(): void {
    for (const running of this.running.values()) running.stop();
    this.running.clear();
    this.cut();
  }

  /** Nothing gets through until `up`. */
  fail(): void {
    this.down = true;
    this.cut();
  }

  up(): void {
    this.down = false;
  }

  broadcast(type: string, payload: unknown): void {
    for (const socket of this.open) socket.send(JSON.stringify({ type, payload }));
  }

  async stop(): Promise<void> {
    this.ended = true;
    this.cut();
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  private admitted(request: IncomingMessage): boolean {
    if (this.key === null) return true;
    if (request.headers.authorization === `Bearer ${this.key}`) return true;
    const offered = (request.headers["sec-websocket-protocol"] ?? "").split(",").map((each) => each.trim());
    return offered.includes(`quarrel.key.${Buffer.from(this.key).toString("base64url")}`);
  }

  private async respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.down) return void response.destroy();
    const address = new URL(request.url ?? "/", this.url);
    this.paths.push(address.pathname + address.search);
    if (await this.page(address.pathname, response)) return;
    if (address.pathname === "/healthz") { json(response, 200, { status: "ok" }); return; }
    if (!this.admitted(request)) { json(response, 401, { error: "a key is needed" }); return; }
    if (address.pathname === "/version") { json(response, 200, { version: "0.1.0", role: this.isAdmin ? "admin" : "use" }); return; }
    let body = "";
    for await (const chunk of request) body += String(chunk);
    this.call(address.pathname, body, request, response);
  }

  private async page(path: string, response: ServerResponse): Promise<boolean> {
    const file = ["/", "/status", "/embeddings"].includes(path) ? "/index.html" : path;
    if (file !== "/index.html" && !file.startsWith("/assets/")) return false;
    const text = await readFile(join(this.root, normalize(file))).catch(() => null);
    if (text === null) return false;
    response.writeHead(200, { "Content-Type": types[extname(file)] ?? "application/octet-stream", "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer" });
    response.end(text);
    return true;
  }

  private call(path: string, body: string, request: IncomingMessage, response: ServerResponse): void {
    if (path === "/api/models") return void this.modelsUntil.then(() => json(response, 200, this.models.map(({ capabilities: _, ...model }) => ({ ...model, loaded: model.state === "loaded" }))));
    const named = /^\/api\/models\/([^/]+)(\/load|\/unload)?$/.exec(path);
    if (!this.isAdmin && named?.[2] !== undefined) return json(response, 403, { error: "this key may not do that: it has not the role" });
    if (named) { void this.model(decodeURIComponent(named[1] ?? ""), named[2] ?? "", response); return; }
    if (path === "/api/stream") return this.stream(body, request, response);
    if (path === "/v1/embeddings") return embed(body, response);
    json(response, 404, { error: "no such path" });
  }

  private async model(name: string, verb: string, response: ServerResponse): Promise<void> {
    const model = this.models.find((each) => each.name === name);
    if (model === undefined) { json(response, 404, { error: `no model ${name}` }); return; }
    if (verb === "") await this.modelsUntil;
    if (verb === "" && this.failingDetails-- > 0) { json(response, 500, { error: "the file cannot be read now" }); return; }
    if (verb === "") { json(response, 200, { ...model, loaded: model.state === "loaded", family: "llama", parameter_count: 134_515_008, system: null }); return; }
    const loads = verb === "/load";
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    if (loads) {
      model.state = "loading";
      response.write(`${JSON.stringify({ status: "loading", completed: model.size / 2, total: model.size })}\n`);
      await this.loadUntil;
    }
    model.state = loads ? "loaded" : "unloaded";
    model.memory_usage = loads ? model.size * 4 : 0;
    response.end(`${JSON.stringify({ status: loads ? "ready" : "unloaded", model: name, context_length: 8192 })}\n`);
  }

  // ---- Answers ----

  private begin(body: Record<string, unknown>): Running {
    this.asked.push(body);
    const answer = (this.answers.length > 1 ? this.answers.shift() : this.answers[0]) ?? { tokens: [] };
    this.made += 1;
    const { until: stopping, open } = gate();
    const running: Running = { id: `${this.made}`.padStart(32, "f"), answer, events: [], over: false, stopped: false, stopping, stop: () => undefined, told: null, news: null, isHeard: () => false };
    running.stop = () => {
      running.stopped = true;
      open();
    };
    this.running.set(running.id, running);
    void this.write(running);
    return running;
  }

  /** Makes the answer's events, whether anybody listens or not. */
  private async write(running: Running): Promise<void> {
    const { answer } = running;
    await this.prepare(running);
    const started = performance.now();
    let next = performance.now();
    let written = 0;
    for (const token of answer.tokens) {
      if (written === answer.hold?.after) {
        await Promise.race([answer.hold.until, running.stopping]);
        next = performance.now();
      }
      if (running.stopped) break;
      if (answer.gap) {
        next += answer.gap;
        if (next > performance.now() + 2) await pause(Math.max(1, next - performance.now()));
      }
      written += 1;
      const seconds = (performance.now() - started) / 1000;
      answer.times?.push(performance.timeOrigin + performance.now());
      this.add(running, { token, token_id: written, stream: true, complete: false, tokens_per_sec: answer.gap ? Math.round(written / seconds * 100) / 100 : 0 });
      if (answer.cutEvery && written % answer.cutEvery === 0) {
        await this.cutAnswer(running, written);
        next = performance.now(); // the next tokens come at their pace, not all at once for the time that was lost
      }
    }
    const seconds = Math.max(0.001, (performance.now() - started) / 1000);
    running.over = true;
    if (answer.error && !running.stopped) this.add(running, { error: answer.error });
    else this.add(running, { token: "", token_id: -1, stream: true, complete: true, tokens_per_sec: written / seconds, finish_reason: running.stopped ? "cancelled" : answer.finish ?? "stop", tokens_generated: written, prompt_tokens: answer.promptTokens ?? 31, ...(answer.sources === undefined ? {} : { sources: answer.sources }) });
  }

  /** Tells what it waits for before the first token. */
  private async prepare(running: Running): Promise<void> {
    const { loading = 0, waiting = 0, reading = 0, ahead, promptTokens = 31 } = running.answer;
    const spend = (span: Span): Promise<unknown> => Promise.race([typeof span === "number" ? pause(span) : span, running.stopping]);
    await spend(loading);
    running.news?.({ state: "generating", resume: `${running.id}:0` });
    if (ahead !== undefined) running.news?.({ state: "queued", ahead });
    await spend(waiting);
    if (reading === 0) return;
    running.news?.({ state: "reading", prompt_tokens: promptTokens, prompt_tokens_read: 0 });
    const half = setTimeout(() => running.news?.({ state: "reading", prompt_tokens: promptTokens, prompt_tokens_read: promptTokens >> 1 }), 300);
    await spend(reading);
    clearTimeout(half);
  }

  private async cutAnswer(running: Running, written: number): Promise<void> {
    await this.heard(running);
    await running.answer.beforeCut?.(written).catch(() => undefined); // the page may be gone
    if (running.isHeard()) this.cuts += 1;
    this.cut();
    await this.heard(running);
  }

  private async heard(running: Running): Promise<void> {
    while (!running.isHeard() && !running.stopped && !this.ended) await pause(2);
  }

  private add(running: Running, payload: unknown): void {
    running.events.push(JSON.stringify(payload));
    running.told?.(running.events.length);
  }

  // ---- WebSocket ----

  private greet(socket: WebSocket): void {
    this.open.add(socket);
    const ids = new Map<string, Running>();
    socket.on("close", () => this.open.delete(socket));
    socket.on("message", (data: Buffer) => this.message(socket, ids, JSON.parse(data.toString()) as { type: string; id?: string; payload?: Record<string, unknown> }));
  }

  private message(socket: WebSocket, ids: Map<string, Running>, message: { type: string; id?: string; payload?: Record<string, unknown> }): void {
    const id = message.id ?? "answer";
    const send = (type: string, payload: unknown): void => socket.send(JSON.stringify({ type, id, payload }));
    if (message.type === "inference") return this.inference(socket, ids, id, message.payload ?? {}, send);
    if (message.type === "stop") {
      const running = ids.get(id);
      running?.stop();
      return send("status", { state: "stopping", stopped: running ? [id] : [] });
    }
    send("status", { connected: true, ready: true, broadcast: this.broadcastTime, running: [...ids.keys()], models: this.models.map(({ name, state }) => ({ name, state })) });
  }

  private inference(socket: WebSocket, ids: Map<string, Running>, id: string, payload: Record<string, unknown>, send: (type: string, payload: unknown) => void): void {
    const [place, event] = typeof payload["resume"] === "string" ? payload["resume"].split(":") : [];
    const running = place === undefined ? this.begin(payload) : this.running.get(place);
    if (running === undefined) return send("error", { code: "CONNECTION_LOST", reason: "answer_not_found", message: "there is no answer to take up at that place" });
    ids.set(id, running);
    let next = Number(event ?? 0);
    if (place === undefined) {
      send("status", { state: "loading", resume: `${running.id}:0` });
      running.news = (status) => send("status", status);
    }
    const flush = (): void => {
      for (; next < running.events.length && socket.readyState === socket.OPEN; next += 1) {
        const text = running.events[next] ?? "{}";
        const error = (JSON.parse(text) as { error?: unknown }).error;
        if (error !== undefined) send("error", error);
        else socket.send(`{"type":"inference","id":"${id}","payload":${text.slice(0, -1)},"resume":"${running.id}:${next + 1}"}}`);
      }
    };
    running.told = flush;
    running.isHeard = () => socket.readyState === socket.OPEN;
    flush();
  }

  // ---- Server-sent events ----

  private stream(body: string, request: IncomingMessage, response: ServerResponse): void {
    const last = request.headers["last-event-id"];
    const [place, event] = typeof last === "string" ? last.split(":") : [];
    if (request.method === "DELETE") {
      const unwanted = this.running.get(place ?? "");
      unwanted?.stop();
      return json(response, 200, { status: "stopped" });
    }
    const running = place === undefined ? this.begin(JSON.parse(body) as Record<string, unknown>) : this.running.get(place);
    if (running === undefined) return json(response, 404, { error: "there is no answer to take up at that place", code: "answer_not_found" });
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    let next = Number(event ?? 0);
    if (place === undefined) response.write(`id: ${running.id}:0\n\n`);
    const flush = (): void => {
      for (; next < running.events.length && !response.destroyed; next += 1) response.write(eventText(`${running.id}:${next + 1}`, running.events[next] ?? "{}"));
      if (running.over) response.end();
    };
    this.streams.add(response);
    response.on("close", () => {
      this.streams.delete(response);
      if (!running.over && running.told === flush && place === undefined && !body.includes('"resume":true')) running.stop();
    });
    running.told = flush;
    running.isHeard = () => !response.destroyed;
    flush();
  }
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((done) => setTimeout(done, milliseconds));
}

function eventText(id: string, payload: string): string {
  const { error } = JSON.parse(payload) as Pick<Answer, "error">;
  return error === undefined ? `id: ${id}\ndata: ${payload}\n\n` : `event: error\ndata: ${JSON.stringify({ error: error.message, code: error.reason })}\n\n`;
}

function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(JSON.stringify(body));
}

/** Vectors that are alike where texts share letters. */
function embed(body: string, response: ServerResponse): void {
  const { input, encoding_format: form } = JSON.parse(body) as { input: string[]; encoding_format?: string };
  const data = input.map((text, index) => {
    const vector = Array.from({ length: 26 }, (_, letter) => text.toLowerCase().split(String.fromCharCode(97 + letter)).length - 1);
    const length = Math.hypot(...vector) || 1;
    const unit = vector.map((value) => value / length);
    return { object: "embedding", index, embedding: form === "base64" ? Buffer.from(Float32Array.from(unit).buffer).toString("base64") : unit };
  });
  json(response, 200, { object: "list", data, model: "minilm", usage: { prompt_tokens: 1, total_tokens: 1 } });
}

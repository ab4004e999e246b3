// The connection to the server: one WebSocket that is opened again whenever it is lost, with a heartbeat and growing pauses,
// and server-sent events where WebSockets do not get through. Answers that run are taken up where they were.
import type { AnswerHandle, AnswerReceiver } from "./answer.ts";
import type { Api } from "./api.ts";
import { waitBefore } from "./backoff.ts";
import { streamAnswer } from "./event_stream.ts";
import { asFailure, Failure } from "./failure.ts";
import { field, parseJson, textOr } from "./json.ts";
import type { Keys } from "./keys.ts";
import { Cell, Emitter } from "./observable.ts";
import { SocketAnswers } from "./socket_answers.ts";
import type { Envelope } from "./socket_answers.ts";
import type { Connection, ConnectionStatus } from "./types.ts";

/** Silence after which the server is asked for a sign of life, and the time that it has for it. */
const quietTime = 15_000;
const answerTime = 10_000;
/** An attempt that takes longer has failed. */
const openTime = 10_000;
/** Longer prompts go by HTTP, which takes more than a message may have. In bytes, as the server counts. */
const longestMessage = 900_000;
/** How a server closes that was sent more than it takes. */
const tooBig = 1009;
/** So many attempts fail, although the server answers by HTTP, before events come in the socket's place. */
const socketAttempts = 2;
const eventsProbeEvery = 15_000;

export interface SocketLike {
  readonly readyState: number;
  send(text: string): void;
  close(): void;
  onopen: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
}

export type OpenSocket = (protocols: string[]) => SocketLike;

function isLong(body: unknown): boolean {
  const text = JSON.stringify(body);
  if (text.length > longestMessage || text.length * 3 <= longestMessage) return text.length > longestMessage;
  return new TextEncoder().encode(text).length > longestMessage;
}

function toBase64Url(text: string): string {
  const bytes = new TextEncoder().encode(text);
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** A browser's WebSocket has no headers of ours: the key is a subprotocol, which no log keeps. */
export function protocolsFor(key: string | null): string[] {
  return key === null ? ["quarrel.v1"] : ["quarrel.v1", `quarrel.key.${toBase64Url(key)}`];
}

function keyNeeded(): Failure {
  return new Failure("KEY_NEEDED", "The server needs a key.");
}

const beginning: ConnectionStatus = { state: "connecting", transport: "websocket", retryAt: null, attempt: 0, reason: "" };

export class ServerConnection implements Connection {
  readonly status = new Cell<ConnectionStatus>(beginning);
  /** What is loaded has changed, or a connection was made. */
  readonly serverStatus = new Emitter<unknown>();
  /** What the server broadcasts of its figures. */
  readonly metrics = new Emitter<unknown>();
  private readonly api: Api;
  private readonly keys: Keys;
  private readonly openSocket: OpenSocket;
  private readonly answers: SocketAnswers;
  private socket: SocketLike | null = null;
  private opened = false;
  private heard = false; // since it was opened
  private attempt = 0; // since the server last said something
  private connects = 0; // the number of the newest attempt
  private withoutKey = false; // it wants a key and has none: there is no use in trying
  private refusedSockets = 0; // and those on which nothing was ever heard
  private byEvents = 0; // answers that run by server-sent events
  private retryTimer: ReturnType<typeof setTimeout> | null = null;
  private quietTimer: ReturnType<typeof setTimeout> | null = null;

  constructor(api: Api, keys: Keys, openSocket: OpenSocket) {
    this.api = api;
    this.keys = keys;
    this.openSocket = openSocket;
    this.answers = new SocketAnswers((message) => this.send(message), () => this.showAnswers());
    keys.changed.on(() => this.restart());
  }

  start(): void {
    this.connect();
  }

  retry(): void {
    if (this.socket !== null || this.status.get().transport === "sse") return;
    this.clearRetry();
    this.connect();
  }

  ask(body: Record<string, unknown>, receiver: AnswerReceiver, resume: string | null): AnswerHandle {
    const resumable = { ...body, resume: true };
    // One that runs in the server already waits for the key.
    if (this.withoutKey && resume === null) {
      queueMicrotask(() => receiver.failed(keyNeeded()));
      return { stop: () => undefined, leave: () => undefined };
    }
    const long = resume === null && isLong(resumable);
    if (!long && this.status.get().transport === "websocket") return this.answers.ask(resumable, receiver, resume);
    return this.askByEvents(resumable, receiver, resume);
  }

  private askByEvents(body: unknown, receiver: AnswerReceiver, resume: string | null): AnswerHandle {
    this.byEvents += 1;
    this.showAnswers();
    let isOver = false;
    const over = (): void => {
      if (isOver) return;
      isOver = true;
      this.byEvents -= 1;
      this.showAnswers();
    };
    const handle = streamAnswer(this.api, body, {
      news: (news) => receiver.news(news),
      piece: (piece) => receiver.piece(piece),
      lost: () => receiver.lost(),
      end: (end) => { over(); receiver.end(end); },
      failed: (failure) => { over(); receiver.failed(failure); },
    }, resume);
    return { stop: () => handle.stop(), leave: () => { over(); handle.leave(); } };
  }

  // ---- Attempts ----

  private connect(): void {
    const number = ++this.connects;
    this.withoutKey = false;
    this.closeSocket();
    this.show({ state: "connecting", retryAt: null, reason: "" });
    let socket: SocketLike;
    const key = this.keys.current();
    try {
      socket = this.openSocket(protocolsFor(key));
    } catch {
      void this.attemptFailed(number);
      return;
    }
    this.socket = socket;
    this.opened = false;
    this.heard = false;
    this.expect(openTime, () => this.drop(socket));
    socket.onopen = () => this.socketOpened(socket, key);
    socket.onmessage = (event: MessageEvent<unknown>) => this.socketMessage(socket, event.data);
    socket.onclose = (event: CloseEvent) => this.socketClosed(socket, event.code);
    socket.onerror = () => undefined; // onclose follows
  }

  private socketOpened(socket: SocketLike, key: string | null): void {
    if (socket !== this.socket) return;
    this.opened = true;
    this.keys.accept(key);
    this.listen(socket);
    this.show({ state: "connected", transport: "websocket", attempt: 0, retryAt: null, reason: "" });
    this.answers.connected();
    this.showAnswers();
    this.send({ type: "status", id: "page-status" });
  }

  private socketClosed(socket: SocketLike, code = 0): void {
    if (socket !== this.socket) return;
    this.socket = null;
    this.clearQuiet();
    // Sent again, it would end the next connection too, and every other answer with it.
    if (code === tooBig) this.answers.moveUnheard((...answer) => this.askByEvents(...answer));
    this.answers.disconnected();
    if (!this.opened) return void this.attemptFailed(this.connects);
    // A proxy may open sockets and let nothing through. One may have been the server's end; of two HTTP has to tell.
    const isSilent = !this.heard && code !== tooBig;
    if (isSilent && this.refusedSockets > 0) {
      this.show({ state: "connecting", retryAt: null, reason: "" });
      return void this.attemptFailed(this.connects);
    }
    if (isSilent) this.refusedSockets += 1;
    this.waitForRetry("The connection was lost.");
  }

  /** Why a socket could not be opened, or is of no use, the browser does not say: an ordinary request tells. */
  private async attemptFailed(number: number): Promise<void> {
    const key = this.keys.current();
    try {
      await this.probe();
      this.keys.accept(key);
      if (number !== this.connects) return; // a newer attempt knows better
    } catch (error) {
      if (number !== this.connects) return;
      const { code, message, retryAfter } = asFailure(error).error;
      if (code === "KEY_NEEDED") {
        this.withoutKey = true;
        this.answers.failUnheard(keyNeeded());
        this.show({ state: "disconnected", retryAt: null, reason: "The server needs a key." }); return;
      }
      this.waitForRetry(code === "CONNECTION_LOST" ? "The server cannot be reached." : message, retryAfter); return;
    }
    this.refusedSockets += 1;
    if (this.refusedSockets < socketAttempts) { this.waitForRetry("WebSockets are blocked."); return; }
    this.useEvents();
  }

  /** Whether the server answers by HTTP, within the time of an attempt. */
  private async probe(): Promise<void> {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), openTime);
    try {
      await this.api.json("/api/models", { signal: abort.signal });
    } finally {
      clearTimeout(timer);
    }
  }

  private waitForRetry(reason: string, retryAfter: number | null = null): void {
    const wait = Math.max(waitBefore(this.attempt), (retryAfter ?? 0) * 1000);
    this.attempt += 1;
    this.clearRetry();
    this.retryTimer = setTimeout(() => { this.retryTimer = null; this.connect(); }, wait);
    this.show({ state: "disconnected", retryAt: Date.now() + wait, attempt: this.attempt, reason });
  }

  private restart(): void {
    this.clearRetry();
    this.attempt = 0;
    this.connect();
  }

  /** Another one takes its place. */
  private closeSocket(): void {
    const { socket } = this;
    if (socket === null) return;
    this.socket = null;
    this.clearQuiet();
    socket.close();
    this.answers.disconnected();
  }

  // ---- Server-sent events in the socket's place ----

  private useEvents(): void {
    this.attempt = 0;
    this.show({ state: "connected", transport: "sse", retryAt: null, attempt: 0, reason: "" });
    this.answers.moveAll((...answer) => this.askByEvents(...answer));
    this.serverStatus.emit(null);
    this.probeEvents();
  }

  private probeEvents(): void {
    this.clearRetry();
    const number = this.connects;
    this.retryTimer = setTimeout(() => {
      this.probe().then(() => {
        if (number !== this.connects) return;
        this.show({ state: "connected", reason: "" });
        this.showAnswers();
        this.probeEvents();
      }, (error: unknown) => {
        if (number !== this.connects) return;
        // Perhaps WebSockets get through when the server is back.
        this.refusedSockets = 0;
        this.show({ transport: "websocket" });
        this.waitForRetry(asFailure(error).message);
      });
    }, eventsProbeEvery);
  }

  // ---- Messages and the heartbeat ----

  private socketMessage(socket: SocketLike, data: unknown): void {
    if (socket !== this.socket || typeof data !== "string") return;
    this.listen(socket);
    this.attempt = 0;
    this.heard = true;
    this.refusedSockets = 0;
    const message = parseJson(data);
    const id = textOr(field(message, "id"), "");
    const payload = field(message, "payload");
    switch (field(message, "type")) {
      case "inference": return this.answers.inference(id, payload);
      case "error": return this.answers.error(id, payload);
      case "metrics": return this.metrics.emit(payload);
      case "status":
        if (Array.isArray(field(payload, "models"))) this.serverStatus.emit(payload);
        return this.answers.status(id, payload);
      default: return; // a newer server's
    }
  }

  private listen(socket: SocketLike): void {
    this.expect(quietTime, () => {
      this.send({ type: "ping", id: "page-ping" });
      this.expect(answerTime, () => this.drop(socket));
    });
  }

  /** A connection that is half gone may take minutes to say so. */
  private drop(socket: SocketLike): void {
    socket.onclose = null;
    socket.close();
    this.socketClosed(socket);
  }

  private expect(time: number, otherwise: () => void): void {
    this.clearQuiet();
    this.quietTimer = setTimeout(otherwise, time);
  }

  private send(message: Envelope): boolean {
    if (this.socket?.readyState !== 1) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  private showAnswers(): void {
    const { state } = this.status.get();
    if (state !== "connected" && state !== "generating") return;
    this.show({ state: this.answers.size + this.byEvents > 0 ? "generating" : "connected" });
  }

  private show(patch: Partial<ConnectionStatus>): void {
    const before = this.status.get();
    const after = { ...before, ...patch };
    if ((Object.keys(after) as (keyof ConnectionStatus)[]).some((name) => after[name] !== before[name])) this.status.set(after);
  }

  private clearRetry(): void {
    if (this.retryTimer !== null) clearTimeout(this.retryTimer);
    this.retryTimer = null;
  }

  private clearQuiet(): void {
    if (this.quietTimer !== null) clearTimeout(this.quietTimer);
    this.quietTimer = null;
  }
}

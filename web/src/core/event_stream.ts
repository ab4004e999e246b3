// Answers by server-sent events: where WebSockets do not get through, and for prompts too long for one message. A stream
// that breaks off is taken up behind the last event that came.
import { eventNumber, readEnd, readNews, readPiece } from "./answer.ts";
import type { AnswerHandle, AnswerReceiver } from "./answer.ts";
import type { Api } from "./api.ts";
import { waitBefore } from "./backoff.ts";
import { asFailure, Failure, failureOfStatus } from "./failure.ts";
import { parseJson } from "./json.ts";

export interface ServerEvent {
  id: string | null;
  event: string;
  data: string | null;
}

/** Lines to events; what is cut in two between chunks is put together. */
export class EventParser {
  /** How many comments have come, which keep the connection alive. */
  comments = 0;
  private rest = "";
  private id: string | null = null;
  private event = "";
  private data: string[] = [];

  feed(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") this.finish(events);
      else this.take(line);
    }
    return events;
  }

  private take(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) {
      this.comments += 1;
      return;
    }
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") this.id = value;
    else if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
  }

  private finish(events: ServerEvent[]): void {
    if (this.id !== null || this.data.length > 0) {
      events.push({ id: this.id, event: this.event, data: this.data.length > 0 ? this.data.join("\n") : null });
    }
    this.id = null;
    this.event = "";
    this.data = [];
  }
}

const mostAttempts = 8;
/** However long a server wants to be left alone: it does not keep an answer for ever. */
const longestWait = 300_000;
/** The server fills silence with comments, every five seconds if its settings say nothing else: where comments have come, a
 * stream that brings nothing for three of them is half gone, which TCP may take many minutes to notice. */
const silenceTime = 16_000;
const silentComments = 3.2;
/** Before a stream begins, while a model is loaded, there are no comments, and none later where the server's settings say so:
 * whether it is there is asked so often, and it has so long to say so. */
const askEvery = 15_000;
const askTime = 10_000;
/** So many connections a browser has to a server (HTTP/1.1): with as many streams a question waits for one of them to end, and
 * says nothing of the server. */
const mostConnections = 6;
/** The longest pause between two comments that is believed: a machine that slept says nothing of its server. */
const longestRhythm = 60_000;
/** A stream that has not begun after so long waits for its model. */
const loadTime = 1000;

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}

/** Calls `then` when nobody has been heard for so long. */
class Silence {
  /** Another one at every call: what was asked before it does not count any more. */
  turn = 0;
  private timer: ReturnType<typeof setTimeout> | null = null;

  watch(time: number, then: () => void): void {
    this.end();
    this.timer = setTimeout(then, time);
  }

  end(): void {
    this.turn += 1;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}

class EventStreamAnswer {
  private readonly api: Api;
  private readonly body: unknown;
  private readonly receiver: AnswerReceiver;
  private readonly abort = new AbortController();
  private place: string | null;
  private last: number;
  private over = false;
  private attempt = 0;
  private longestPause = 0; // before a comment

  constructor(api: Api, body: unknown, receiver: AnswerReceiver, resume: string | null) {
    this.api = api;
    this.body = body;
    this.receiver = receiver;
    this.place = resume;
    this.last = eventNumber(resume);
  }

  stop(): void {
    if (this.over) return;
    this.over = true;
    this.abort.abort();
    if (this.place !== null) {
      const headers = { "Last-Event-ID": this.place };
      // The answer outlives its connection: it has to be told.
      void this.api.call("/api/stream", { method: "DELETE", headers }).catch(() => undefined);
    }
    this.receiver.end({ reason: "cancelled", generatedTokens: 0, promptTokens: 0, tokensPerSecond: 0 });
  }

  leave(): void {
    this.over = true;
    this.abort.abort();
  }

  async run(): Promise<void> {
    while (!this.over) {
      try {
        await this.read();
        if (this.ended()) return;
        throw new Failure("CONNECTION_LOST", "The connection broke off.");
      } catch (error) {
        const failure = this.asLost(asFailure(error));
        if (this.ended()) return;
        const wait = Math.max(waitBefore(this.attempt), (failure.error.retryAfter ?? 0) * 1000);
        this.attempt += 1;
        if (failure.error.code !== "CONNECTION_LOST" || this.attempt > mostAttempts || wait > longestWait) { this.fail(failure); return; }
        this.receiver.lost();
        await pause(wait, this.abort.signal);
      }
    }
  }

  /** An answer that has begun goes on in a server that has no time for the request that would take it up. */
  private asLost(failure: Failure): Failure {
    if (!failure.isBusy || this.place === null) return failure;
    return new Failure("CONNECTION_LOST", failure.message, failure.error.retryAfter);
  }

  private ended(): boolean {
    return this.over;
  }

  private async read(): Promise<void> {
    const connection = new AbortController();
    const silence = new Silence();
    const end = (): void => connection.abort();
    this.abort.signal.addEventListener("abort", end);
    this.api.streams += 1;
    try {
      const response = await this.begin(connection, silence);
      if (response.status === 204) { this.complete(); return; }
      this.receiver.news({ state: "generating", promptTokens: null, readTokens: null, ahead: null, resume: this.place });
      await this.follow(response, connection, silence);
    } finally {
      this.api.streams -= 1;
      silence.end();
      this.abort.signal.removeEventListener("abort", end);
    }
  }

  private async begin(connection: AbortController, silence: Silence): Promise<Response> {
    const headers: Record<string, string> = this.place === null ? {} : { "Last-Event-ID": this.place };
    const body = this.place === null ? { body: this.body } : {};
    const loading = this.place !== null ? null : setTimeout(() => {
      this.receiver.news({ state: "loading", promptTokens: null, readTokens: null, ahead: null, resume: null });
    }, loadTime);
    this.askAfterSilence(connection, silence);
    try {
      return await this.api.call("/api/stream", { method: "POST", ...body, headers, signal: connection.signal });
    } finally {
      silence.end();
      if (loading !== null) clearTimeout(loading);
    }
  }

  /** Gives the connection up where the server is not there, and asks again and again where it is. */
  private askAfterSilence(connection: AbortController, silence: Silence): void {
    silence.watch(askEvery, () => {
      if (this.api.streams >= mostConnections) return this.askAfterSilence(connection, silence);
      silence.watch(askTime, () => connection.abort());
      const { turn } = silence;
      this.api.call("/healthz", { signal: connection.signal }).then(
        () => { if (turn === silence.turn) this.askAfterSilence(connection, silence); },
        () => { if (turn === silence.turn) connection.abort(); },
      );
    });
  }

  /** Reads to the end. */
  private async follow(response: Response, connection: AbortController, silence: Silence): Promise<void> {
    const parser = new EventParser();
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let heardAt = Date.now(); !this.over; heardAt = Date.now()) {
      if (parser.comments === 0) this.askAfterSilence(connection, silence);
      else this.endAfterSilence(connection, silence);
      const part = await reader?.read();
      if (part === undefined || part.done) return;
      const { comments } = parser;
      for (const event of parser.feed(part.value)) this.take(event);
      if (parser.comments > comments) this.longestPause = Math.max(this.longestPause, Math.min(longestRhythm, Date.now() - heardAt));
    }
  }

  private endAfterSilence(connection: AbortController, silence: Silence): void {
    silence.watch(Math.max(silenceTime, silentComments * this.longestPause), () => {
      this.attempt = 0; // the server was there: this is no attempt that failed
      connection.abort();
    });
  }

  private take(event: ServerEvent): void {
    if (this.over) return;
    if (event.id !== null) {
      const number = eventNumber(event.id);
      if (event.data !== null && number <= this.last) return; // it came before
      this.place = event.id;
      this.last = number;
    }
    if (event.data === null) return;
    const payload = parseJson(event.data);
    if (event.event === "error") return this.fail(failureOfStatus(500, payload, null));
    this.attempt = 0;
    if (event.event === "status") return this.tell(payload);
    const piece = readPiece(payload, this.place);
    if (piece !== null && piece.text !== "") this.receiver.piece(piece);
    else if (piece?.isToken === true) this.receiver.piece(piece);
    const end = readEnd(payload);
    if (end === null) return;
    this.over = true;
    this.receiver.end(end);
  }

  private tell(payload: unknown): void {
    const news = readNews(payload);
    if (news !== null) this.receiver.news(news);
  }

  /** All of it had come, but for the news that it was all. */
  private complete(): void {
    this.over = true;
    this.receiver.end({ reason: "stop", generatedTokens: 0, promptTokens: 0, tokensPerSecond: 0 });
  }

  private fail(failure: Failure): void {
    this.over = true;
    this.receiver.failed(failure);
  }
}

/** `resume`: takes up the answer behind that place; the body does not count then. */
export function streamAnswer(api: Api, body: unknown, receiver: AnswerReceiver, resume: string | null): AnswerHandle {
  const answer = new EventStreamAnswer(api, body, receiver, resume);
  void answer.run();
  return { stop: () => answer.stop(), leave: () => answer.leave() };
}

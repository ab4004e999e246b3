// The answers that run over a WebSocket, across the connections that carry them: every event once, in order, whichever
// connection brings it. Knows nothing of sockets themselves; connection.ts sends what it gives and tells it what came.
import { eventNumber, readEnd, readNews, readPiece } from "./answer.ts";
import type { AnswerHandle, AnswerReceiver } from "./answer.ts";
import { failureOfSocket } from "./failure.ts";
import type { Failure } from "./failure.ts";
import { field, textOr } from "./json.ts";

interface Running {
  id: string; // on this connection
  body: unknown;
  receiver: AnswerReceiver;
  place: string | null;
  last: number;
  /** It is ended at every connection again: the one that it was first said to may have been gone already. */
  stopped: boolean;
  /** It goes on by another way. */
  moved: AnswerHandle | null;
}

export type OtherWay = (body: unknown, receiver: AnswerReceiver, resume: string | null) => AnswerHandle;

export interface Envelope {
  type: string;
  id: string;
  payload?: unknown;
}

const silent: AnswerReceiver = { news: () => undefined, piece: () => undefined, end: () => undefined, failed: () => undefined, lost: () => undefined };

export class SocketAnswers {
  private readonly byId = new Map<string, Running>();
  private readonly send: (message: Envelope) => boolean;
  private readonly changed: () => void;
  private made = 0;

  /** `send` answers false where there is no connection; `changed`: the number of answers is another. */
  constructor(send: (message: Envelope) => boolean, changed: () => void) {
    this.send = send;
    this.changed = changed;
  }

  get size(): number {
    return this.byId.size;
  }

  ask(body: unknown, receiver: AnswerReceiver, resume: string | null): AnswerHandle {
    const running: Running = { id: this.newId(), body, receiver, place: resume, last: eventNumber(resume), stopped: false, moved: null };
    this.byId.set(running.id, running);
    this.begin(running);
    this.changed();
    return { stop: () => this.stop(running), leave: () => this.leave(running) };
  }

  /** A new connection: what runs is taken up there, what was not heard of is asked again. */
  connected(): void {
    const all = [...this.byId.values()];
    this.byId.clear();
    for (const running of all) {
      running.id = this.newId();
      this.byId.set(running.id, running);
      this.begin(running);
    }
  }

  disconnected(): void {
    for (const running of [...this.byId.values()]) running.receiver.lost();
  }

  /** What the server has not answered to fails; the rest can still be taken up. */
  failUnheard(failure: Failure): void {
    for (const running of [...this.byId.values()]) if (running.place === null) this.finish(running, () => running.receiver.failed(failure));
  }

  /** All that runs goes on by another way. */
  moveAll(way: OtherWay): void {
    for (const running of [...this.byId.values()]) this.move(running, way);
  }

  /** What the server has not answered to goes another way. */
  moveUnheard(way: OtherWay): void {
    for (const running of [...this.byId.values()]) if (running.place === null) this.move(running, way);
  }

  status(id: string, payload: unknown): void {
    const running = this.byId.get(id);
    if (running === undefined) return;
    if (field(payload, "state") === "complete") {
      // All of it had come, but for the news that it was all.
      return this.finish(running, () => running.receiver.end({ reason: "stop", generatedTokens: 0, promptTokens: 0, tokensPerSecond: 0 }));
    }
    const news = readNews(payload);
    if (news === null) return;
    if (news.resume !== null && running.place === null) {
      running.place = news.resume;
      running.last = eventNumber(news.resume);
    }
    running.receiver.news(news);
  }

  inference(id: string, payload: unknown): void {
    const running = this.byId.get(id);
    if (running === undefined) return;
    const place = textOr(field(payload, "resume"), null);
    const number = eventNumber(place);
    if (place !== null) {
      if (number <= running.last) return; // it came before
      running.place = place;
      running.last = number;
    }
    const piece = readPiece(payload, running.place);
    if (piece !== null && (piece.text !== "" || piece.isToken)) running.receiver.piece(piece);
    const end = readEnd(payload);
    if (end !== null) this.finish(running, () => running.receiver.end(end));
  }

  error(id: string, payload: unknown): void {
    const running = this.byId.get(id);
    if (running !== undefined) this.finish(running, () => running.receiver.failed(failureOfSocket(payload)));
  }

  private move(running: Running, way: OtherWay): void {
    this.byId.delete(running.id);
    running.moved = way(running.body, running.receiver, running.place);
    if (running.stopped) running.moved.stop();
    this.changed();
  }

  private begin(running: Running): void {
    const payload = running.place === null ? running.body : { resume: running.place };
    if (!this.send({ type: "inference", id: running.id, payload })) return;
    if (running.stopped) this.send({ type: "stop", id: running.id });
  }

  private stop(running: Running): void {
    if (running.moved !== null) return running.moved.stop();
    if (!this.byId.has(running.id)) return;
    running.stopped = true;
    if (this.send({ type: "stop", id: running.id })) return;
    const { receiver } = running;
    running.receiver = silent;
    // What the server never heard of needs no end there.
    if (running.place === null) this.byId.delete(running.id);
    receiver.end({ reason: "cancelled", generatedTokens: 0, promptTokens: 0, tokensPerSecond: 0 });
    this.changed();
  }

  private leave(running: Running): void {
    if (running.moved !== null) return running.moved.leave();
    if (this.byId.delete(running.id)) this.changed();
  }

  private finish(running: Running, tell: () => void): void {
    this.byId.delete(running.id);
    tell();
    this.changed();
  }

  private newId(): string {
    return `page-${++this.made}`;
  }
}

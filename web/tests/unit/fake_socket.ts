// A WebSocket without a network: a test opens it, says what comes, and reads what was sent.
import type { OpenSocket, SocketLike } from "../../src/core/connection.ts";

interface Sent {
  type: string;
  id: string;
  payload?: Record<string, unknown>;
}

export class FakeSocket implements SocketLike {
  readyState = 0;
  readonly sent: Sent[] = [];
  readonly protocols: string[];
  onopen: ((event: never) => void) | null = null;
  onclose: ((event: never) => void) | null = null;
  onmessage: ((event: never) => void) | null = null;
  onerror: ((event: never) => void) | null = null;

  constructor(protocols: string[]) {
    this.protocols = protocols;
  }

  send(text: string): void {
    this.sent.push(JSON.parse(text) as Sent);
  }

  close(code = 1005): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.onclose?.({ code } as never);
  }

  open(): void {
    this.readyState = 1;
    this.onopen?.({} as never);
  }

  say(type: string, id: string, payload: unknown): void {
    this.onmessage?.({ data: JSON.stringify({ type, id, payload }) } as never);
  }

  /** The requests for answers, without the questions after the server's state. */
  get asked(): Sent[] {
    return this.sent.filter(({ type }) => type === "inference");
  }
}

export class FakeNetwork {
  readonly sockets: FakeSocket[] = [];

  get open(): OpenSocket {
    return (protocols) => {
      const socket = new FakeSocket(protocols);
      this.sockets.push(socket);
      return socket;
    };
  }

  get last(): FakeSocket {
    const socket = this.sockets.at(-1);
    if (socket === undefined) throw new Error("no socket was opened");
    return socket;
  }
}

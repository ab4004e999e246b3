import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestContext } from "node:test";
import { Api } from "../../src/core/api.ts";
import type { AnswerReceiver } from "../../src/core/answer.ts";
import { waitBefore } from "../../src/core/backoff.ts";
import { protocolsFor, ServerConnection } from "../../src/core/connection.ts";
import { Keys } from "../../src/core/keys.ts";
import { FakeNetwork } from "./fake_socket.ts";

interface Story extends AnswerReceiver {
  text: string;
  events: string[];
}

function story(): Story {
  const told: Story = {
    text: "", events: [],
    news: ({ state }) => void told.events.push(state),
    piece: ({ text }) => { told.text += text; },
    end: ({ reason }) => void told.events.push(`end ${reason}`),
    failed: ({ error }) => void told.events.push(`failed ${error.code}`),
    lost: () => void told.events.push("lost"),
  };
  return told;
}

interface Setting {
  connection: ServerConnection;
  network: FakeNetwork;
  keys: Keys;
  /** What HTTP answers with; null: nobody is there. */
  http: { status: number | null };
  calls: string[];
}

function setting(context: TestContext): Setting {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const http: { status: number | null } = { status: null };
  const calls: string[] = [];
  const keys = new Keys({ session: null, lasting: null, crypto: null });
  const api = new Api(keys, (url, options) => {
    calls.push(`${options.method ?? ""} ${url}`);
    return http.status === null ? Promise.reject(new TypeError("nobody is there")) : Promise.resolve(new Response("[]", { status: http.status }));
  });
  const network = new FakeNetwork();
  return { connection: new ServerConnection(api, keys, network.open), network, keys, http, calls };
}

/** Lets promises that are settled run on. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

function piece(event: number, text: string, complete = false): Record<string, unknown> {
  return { token: text, token_id: complete ? -1 : event, complete, tokens_per_sec: 10, resume: `ab:${event}`, ...(complete ? { finish_reason: "stop" } : {}) };
}

test("pauses grow to half a minute, each a little different", () => {
  const middle = [0, 1, 2, 3, 4, 5, 6, 50].map((attempt) => waitBefore(attempt, () => 0.5));
  assert.deepEqual(middle, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
  assert.deepEqual([waitBefore(0, () => 0), waitBefore(0, () => 1)], [400, 600]);
});

test("the key is a subprotocol, and in no URL", () => {
  assert.deepEqual(protocolsFor(null), ["quarrel.v1"]);
  assert.deepEqual(protocolsFor("qk_a?b/c"), ["quarrel.v1", "quarrel.key.cWtfYT9iL2M"]);
});

test("an answer goes on over a second connection, every event once", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  assert.equal(connection.status.get().state, "connecting");
  network.last.open();
  assert.equal(connection.status.get().state, "connected");
  const told = story();
  connection.ask({ messages: [] }, told, null);
  assert.equal(connection.status.get().state, "generating");
  const [request] = network.last.asked;
  assert.equal(request?.payload?.["resume"], true);
  const id = request?.id ?? "";
  network.last.say("status", id, { state: "loading", resume: "ab:0" });
  network.last.say("inference", id, piece(1, "one "));
  network.last.say("inference", id, piece(2, "two "));
  network.last.close();
  assert.equal(connection.status.get().state, "disconnected");
  assert.ok((connection.status.get().retryAt ?? 0) > Date.now());
  context.mock.timers.tick(1000);
  network.last.open();
  const [again] = network.last.asked;
  assert.deepEqual(again?.payload, { resume: "ab:2" });
  network.last.say("inference", id, piece(3, "of the old connection"));
  network.last.say("inference", again?.id ?? "", piece(2, "two "));
  network.last.say("inference", again?.id ?? "", piece(3, "three"));
  network.last.say("inference", again?.id ?? "", piece(4, "", true));
  assert.equal(told.text, "one two three");
  assert.deepEqual(told.events, ["loading", "lost", "end stop"]);
  assert.equal(connection.status.get().state, "connected");
});

test("a request that the server never answered is sent again", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  const told = story();
  connection.ask({ prompt: "a" }, told, null);
  network.last.open();
  assert.equal(network.last.asked.length, 1, "what was asked before there was a connection goes out with it");
  network.last.close();
  context.mock.timers.tick(1000);
  network.last.open();
  assert.deepEqual(network.last.asked[0]?.payload, { prompt: "a", resume: true });
});

test("silence is asked about, and ends the connection where no answer comes", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  network.last.open();
  const first = network.last;
  context.mock.timers.tick(15_000);
  assert.equal(first.sent.at(-1)?.type, "ping");
  first.say("status", "page-ping", { connected: true });
  context.mock.timers.tick(14_000);
  assert.equal(connection.status.get().state, "connected");
  context.mock.timers.tick(1000);
  context.mock.timers.tick(10_000);
  assert.equal(connection.status.get().state, "disconnected");
  assert.equal(first.readyState, 3);
});

test("stop is sent; without a connection the answer ends here, and there as soon as there is one", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  network.last.open();
  const heard = story();
  connection.ask({ prompt: "a" }, heard, null).stop();
  assert.equal(network.last.sent.at(-1)?.type, "stop");
  const cut = story();
  const handle = connection.ask({ prompt: "b" }, cut, null);
  const id = network.last.asked[1]?.id ?? "";
  network.last.say("status", id, { state: "loading", resume: "cd:0" });
  network.last.say("inference", network.last.asked[0]?.id ?? "", { ...piece(1, "", true), finish_reason: "cancelled" });
  network.last.close();
  handle.stop();
  assert.deepEqual([heard.events, cut.events], [["end cancelled"], ["loading", "lost", "end cancelled"]]);
  context.mock.timers.tick(1000);
  network.last.open();
  assert.deepEqual(network.last.sent.slice(0, 2).map(({ type, payload }) => [type, payload]), [["inference", { resume: "cd:0" }], ["stop", undefined]]);
});

test("a stop that is said to a connection that is dying is said to the next", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  network.last.open();
  const told = story();
  const handle = connection.ask({ prompt: "a" }, told, null);
  network.last.say("status", network.last.asked[0]?.id ?? "", { state: "loading", resume: "ab:0" });
  handle.stop();
  network.last.close();
  context.mock.timers.tick(1000);
  network.last.open();
  assert.deepEqual(network.last.sent.slice(0, 2).map(({ type, payload }) => [type, payload]), [["inference", { resume: "ab:0" }], ["stop", undefined]]);
  network.last.say("inference", network.last.asked[0]?.id ?? "", { ...piece(1, "", true), finish_reason: "cancelled" });
  assert.deepEqual(told.events, ["loading", "lost", "end cancelled"]);
});

test("an answer that is left is not taken up again, and the server is not told", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  network.last.open();
  const told = story();
  const handle = connection.ask({ prompt: "a" }, told, null);
  const id = network.last.asked[0]?.id ?? "";
  network.last.say("status", id, { state: "loading", resume: "ab:0" });
  handle.leave();
  assert.equal(connection.status.get().state, "connected");
  network.last.say("inference", id, piece(1, "late"));
  assert.ok(!network.last.sent.some(({ type }) => type === "stop"));
  network.last.close();
  context.mock.timers.tick(1000);
  network.last.open();
  assert.deepEqual([network.last.asked, told.events, told.text], [[], ["loading"], ""]);
});

test("a server that is away is tried again and again, and a key that it wants is asked for", async (context) => {
  const { connection, network, keys, http } = setting(context);
  connection.start();
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    network.last.close();
    await settle();
    assert.deepEqual([connection.status.get().state, connection.status.get().attempt], ["disconnected", attempt]);
    context.mock.timers.tick(40_000);
  }
  http.status = 401;
  const told = story();
  connection.ask({ prompt: "a" }, told, null);
  network.last.close();
  await settle();
  assert.equal(keys.state.get(), "needed");
  assert.deepEqual(told.events, ["lost", "failed KEY_NEEDED"]);
  assert.equal(connection.status.get().retryAt, null, "no use in trying");
  keys.giveForSession("k");
  assert.deepEqual(network.last.protocols, protocolsFor("k"));
});

test("a page that is loaded again takes up its answer when the key is there", async (context) => {
  const { connection, network, keys, http } = setting(context);
  http.status = 401;
  connection.start();
  const [early, late] = [story(), story()];
  connection.ask({ prompt: "a" }, early, "ab:2");
  network.last.close();
  await settle();
  assert.equal(keys.state.get(), "needed");
  connection.ask({ prompt: "b" }, late, "cd:5");
  await settle();
  assert.deepEqual([early.events, late.events], [["lost"], []]);
  keys.giveForSession("k");
  network.last.open();
  assert.deepEqual(network.last.asked.map(({ payload }) => payload), [{ resume: "ab:2" }, { resume: "cd:5" }]);
});

test("what an older attempt finds out does not spoil a newer connection", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const answers: ((response: Response) => void)[] = [];
  let ended = 0;
  const keys = new Keys({ session: null, lasting: null, crypto: null });
  const api = new Api(keys, (_url, options) => new Promise((resolve, reject) => {
    answers.push(resolve);
    options.signal?.addEventListener("abort", () => {
      ended += 1;
      reject(new DOMException("ended", "AbortError"));
    });
  }));
  const network = new FakeNetwork();
  const connection = new ServerConnection(api, keys, network.open);
  connection.start();
  network.last.close();
  await settle();
  connection.retry();
  network.last.open();
  answers[0]?.(new Response("busy", { status: 503 }));
  await settle();
  assert.equal(connection.status.get().state, "connected");
  context.mock.timers.tick(12_000);
  assert.equal(network.sockets.length, 2, "nothing tries again what is there");
  keys.giveForSession("k");
  assert.deepEqual(network.sockets.map(({ readyState }) => readyState), [3, 3, 0], "one that is replaced is closed");
  network.last.close();
  await settle();
  context.mock.timers.tick(10_000);
  await settle();
  assert.deepEqual([ended, connection.status.get().state, connection.status.get().reason], [1, "disconnected", "The server cannot be reached."]);
});

test("where sockets do not get through answers come by events", async (context) => {
  const { connection, network, http, calls } = setting(context);
  http.status = 200;
  connection.start();
  network.last.close();
  await settle();
  context.mock.timers.tick(1000);
  network.last.close();
  await settle();
  assert.deepEqual([connection.status.get().state, connection.status.get().transport], ["connected", "sse"]);
  connection.ask({ prompt: "a" }, story(), null);
  assert.equal(calls.at(-1), "POST /api/stream");
  assert.equal(connection.status.get().state, "generating");
});

test("where sockets are opened and nothing comes through them answers come by events", async (context) => {
  const { connection, network, http, calls } = setting(context);
  http.status = 200;
  connection.start();
  network.last.open();
  const told = story();
  connection.ask({ prompt: "a" }, told, null);
  network.last.close(1006);
  assert.deepEqual([connection.status.get().state, calls], ["disconnected", []], "it may have been the server's end");
  context.mock.timers.tick(1000);
  network.last.open();
  network.last.close(1006);
  assert.equal(connection.status.get().state, "connecting", "it is not there while HTTP is asked");
  await settle();
  assert.deepEqual([connection.status.get().state, connection.status.get().transport], ["generating", "sse"]);
  assert.deepEqual(calls, ["GET /api/models", "POST /api/stream"]);
});

test("a connection on which something came is no sign of a proxy, nor is one that was sent too much", async (context) => {
  const { connection, network, http, calls } = setting(context);
  http.status = 200;
  connection.start();
  for (let turn = 0; turn < 6; turn += 1) {
    network.last.open();
    if (turn % 2 === 1) network.last.say("status", "page-status", { connected: true });
    network.last.close(turn === 4 ? 1009 : 1006);
    await settle();
    assert.equal(connection.status.get().transport, "websocket");
    context.mock.timers.tick(40_000);
  }
  assert.deepEqual(calls, []);
});

test("a prompt too long for a message goes by HTTP", (context) => {
  const { connection, network, calls } = setting(context);
  connection.start();
  network.last.open();
  connection.ask({ prompt: "x".repeat(1_000_000) }, story(), null);
  assert.equal(network.last.asked.length, 0);
  assert.equal(calls.at(-1), "POST /api/stream");
});

test("the length of a prompt is counted in bytes", (context) => {
  const { connection, network, calls } = setting(context);
  connection.start();
  network.last.open();
  connection.ask({ prompt: "x".repeat(400_000) }, story(), null);
  assert.equal(network.last.asked.length, 1);
  connection.ask({ prompt: "汉".repeat(400_000) }, story(), null);
  assert.equal(network.last.asked.length, 1);
  assert.equal(calls.at(-1), "POST /api/stream");
});

test("what is too big for the server's messages goes by HTTP, and the others go on", (context) => {
  const { connection, network, calls } = setting(context);
  connection.start();
  network.last.open();
  const other = story();
  connection.ask({ prompt: "short" }, other, null);
  network.last.say("status", network.last.asked[0]?.id ?? "", { state: "loading", resume: "ab:0" });
  const big = story();
  const handle = connection.ask({ prompt: "long" }, big, null);
  network.last.close(1009);
  assert.equal(calls.at(-1), "POST /api/stream");
  context.mock.timers.tick(700);
  network.last.open();
  assert.deepEqual(network.last.asked.map(({ payload }) => payload), [{ resume: "ab:0" }]);
  handle.stop();
  assert.deepEqual(big.events, ["end cancelled"], "it can still be stopped");
});

test("pauses grow as long as the server says nothing, although it opens connections", async (context) => {
  const { connection, network } = setting(context);
  connection.start();
  for (let attempt = 1; attempt <= 3; attempt += 1) {
    network.last.open();
    network.last.close();
    await settle();
    assert.equal(connection.status.get().attempt, attempt);
    context.mock.timers.tick(40_000);
  }
  network.last.open();
  network.last.say("status", "page-status", { connected: true });
  network.last.close();
  assert.equal(connection.status.get().attempt, 1);
});

test("without a key that the server wants a question fails at once", async (context) => {
  const { connection, network, keys, http } = setting(context);
  http.status = 401;
  connection.start();
  network.last.close();
  await settle();
  const told = story();
  connection.ask({ prompt: "a" }, told, null);
  await settle();
  assert.deepEqual(told.events, ["failed KEY_NEEDED"]);
  keys.giveForSession("k");
  network.last.open();
  connection.ask({ prompt: "a" }, told, null);
  assert.equal(network.last.asked.length, 1);
});

test("errors of the server are failures of that answer", (context) => {
  const { connection, network } = setting(context);
  connection.start();
  network.last.open();
  const busy = story();
  const long = story();
  connection.ask({ prompt: "a" }, busy, null);
  connection.ask({ prompt: "b" }, long, null);
  const [first, second] = network.last.asked;
  network.last.say("error", first?.id ?? "", { code: "QUEUE_FULL", message: "too many", retry_after: 3 });
  network.last.say("error", second?.id ?? "", { code: "INVALID_REQUEST", reason: "context_length_exceeded", message: "too much" });
  network.last.say("error", "", { code: "RATE_LIMITED", message: "of nobody" });
  assert.deepEqual([busy.events, long.events], [["failed QUEUE_FULL"], ["failed CONTEXT_FULL"]]);
  network.last.onmessage?.({ data: "no JSON" } as never);
  network.last.say("news", "", null);
  assert.equal(connection.status.get().state, "connected");
});

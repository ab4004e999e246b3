import assert from "node:assert/strict";
import { test } from "node:test";
import type { TestContext } from "node:test";
import type { AnswerNews } from "../../src/core/answer.ts";
import { Api } from "../../src/core/api.ts";
import { EventParser, streamAnswer } from "../../src/core/event_stream.ts";
import { eventually } from "./made.ts";

function event(number: number, text: string, end = ""): string {
  const data = { token: text, token_id: end === "" ? number : -1, complete: end !== "", tokens_per_sec: 5, ...(end === "" ? {} : { finish_reason: end, tokens_generated: number - 1, prompt_tokens: 7 }) };
  return `id: ab:${number}\ndata: ${JSON.stringify(data)}\n\n`;
}

test("events are read however they are cut", () => {
  const text = `: a comment\nid: ab:0\n\n${event(1, "a\nb")}event: error\r\ndata: {}\r\n\r\ndata: 1\ndata: 2\n\n`;
  for (const step of [1, 2, 5, 1000]) {
    const parser = new EventParser();
    const events = [];
    for (let start = 0; start < text.length; start += step) events.push(...parser.feed(text.slice(start, start + step)));
    assert.deepEqual(events.map(({ id, event: kind, data }) => [id, kind, data === null ? null : data.length > 10]), [
      ["ab:0", "", null], ["ab:1", "", true], [null, "error", false], [null, "", false],
    ]);
  }
});

interface Call {
  method: string;
  last: string | null;
  body: string | null;
}

const codes: Readonly<Record<number, string>> = { 404: "answer_not_found", 503: "draining" };

/** A server whose n-th answer is the n-th of these; a number is a status. */
function served(answers: readonly (string | number)[], headers: Readonly<Record<string, string>> = {}): { api: Api; calls: Call[] } {
  const calls: Call[] = [];
  const api = new Api({ current: () => "k", refuse: () => undefined }, (_url, options) => {
    const sent = new Headers(options.headers);
    assert.equal(sent.get("Authorization"), "Bearer k");
    calls.push({ method: options.method ?? "", last: sent.get("Last-Event-ID"), body: (options.body as string | undefined) ?? null });
    const answer = answers[calls.length - 1] ?? 500;
    if (typeof answer === "number") return Promise.resolve(new Response(answer === 204 ? null : `{"error": "no", "code": "${codes[answer] ?? ""}"}`, { status: answer, headers }));
    return Promise.resolve(new Response(answer, { headers: { "Content-Type": "text/event-stream" } }));
  });
  return { api, calls };
}

async function read(answers: readonly (string | number)[], resume: string | null = null): Promise<{ text: string; story: string[]; calls: Call[]; news: AnswerNews[] }> {
  const { api, calls } = served(answers);
  const story: string[] = [];
  const news: AnswerNews[] = [];
  let text = "";
  streamAnswer(api, { prompt: "x" }, {
    news: (one) => void news.push(one),
    piece: (piece) => { text += piece.text; },
    end: ({ reason }) => void story.push(`end ${reason}`),
    failed: ({ error }) => void story.push(`failed ${error.code}`),
    lost: () => void story.push("lost"),
  }, resume);
  await eventually(() => story.some((one) => one !== "lost"), "an end");
  return { text, story, calls, news };
}

test("the place in the queue and the tokens that were read are told", async () => {
  const told = ['{"state": "queued", "ahead": 2}', '{"state": "reading", "prompt_tokens": 40, "prompt_tokens_read": 16}', '{"state": "something new"}'];
  const { text, news } = await read([`id: ab:0\n\n${told.map((data) => `event: status\ndata: ${data}\n\n`).join("")}${event(1, "a")}${event(2, "", "stop")}`]);
  assert.equal(text, "a");
  assert.deepEqual(news.map(({ state, ahead, promptTokens, readTokens }) => [state, ahead, promptTokens, readTokens]), [["generating", null, null, null], ["queued", 2, null, null], ["reading", null, 40, 16]]);
});

test("a stream that breaks off is taken up behind its last event, whole", async () => {
  const { text, story, calls } = await read([`id: ab:0\n\n${event(1, "one ")}${event(2, "two ")}`, event(2, "two ") + event(3, "three") + event(4, "", "length")]);
  assert.equal(text, "one two three");
  assert.deepEqual(story, ["lost", "end length"]);
  assert.deepEqual(calls.map(({ last, body }) => [last, body]), [[null, '{"prompt":"x"}'], ["ab:2", null]]);
});

test("where all had come but the end, that is told", async () => {
  const { text, story } = await read([event(5, "rest"), 204], "ab:4");
  assert.deepEqual([text, story], ["rest", ["lost", "end stop"]]);
});

test("an answer that is gone, and one that fails, are failures", async () => {
  assert.deepEqual((await read([404], "ab:4")).story, ["failed ANSWER_LOST"]);
  assert.deepEqual((await read([`${event(1, "a")}event: error\ndata: {"error": "it broke"}\n\n`])).story, ["failed INFERENCE_ERROR"]);
  assert.deepEqual((await read([401])).story, ["failed KEY_NEEDED"]);
  assert.deepEqual((await read(['event: error\ndata: {"error": "too much", "code": "context_length_exceeded"}\n\n'])).story, ["failed CONTEXT_FULL"]);
});

test("a server that ends is a connection that is lost: it is asked again, and what had come is kept", async () => {
  const { text, story, calls } = await read([503, `${event(1, "a")}${event(2, "", "stop")}`]);
  assert.deepEqual([text, story, calls.map(({ body }) => body)], ["a", ["lost", "end stop"], ['{"prompt":"x"}', '{"prompt":"x"}']]);
  assert.deepEqual((await read([`${event(1, "a")}event: error\ndata: {"error": "the server is about to end", "code": "draining"}\n\n`])).story, ["failed CONNECTION_LOST"]);
});

test("a server too busy to let an answer be taken up is asked again when it says, and nothing is lost", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  };
  const listen = (answers: readonly (string | number)[], headers: Readonly<Record<string, string>> = {}): { story: string[]; calls: Call[] } => {
    const { api, calls } = served(answers, headers);
    const story: string[] = [];
    streamAnswer(api, { prompt: "x" }, {
      news: () => undefined, piece: ({ text }) => void story.push(text), end: ({ reason }) => void story.push(`end ${reason}`),
      failed: ({ error }) => void story.push(`failed ${error.code}`), lost: () => void story.push("lost"),
    }, null);
    return { story, calls };
  };
  for (const status of [429, 502, 503, 504]) {
    const { story, calls } = listen([event(1, "one "), status, event(2, "two") + event(3, "", "stop")], { "Retry-After": "7" });
    await turns();
    context.mock.timers.tick(600); // the first loss
    await turns();
    assert.equal(calls.length, 2);
    context.mock.timers.tick(6900);
    await turns();
    assert.deepEqual([calls.length, story], [2, ["one ", "lost", "lost"]], "it said when to come back");
    context.mock.timers.tick(101);
    await turns();
    assert.deepEqual([story, calls.at(-1)?.last], [["one ", "lost", "lost", "two", "end stop"], "ab:1"]);
  }
  const refused = listen([429]);
  await turns();
  assert.deepEqual(refused.story, ["failed RATE_LIMITED"], "what has not begun is the reader's to ask again");
  const never = listen([event(1, "one "), ...Array<number>(20).fill(429)]);
  for (let attempt = 0; attempt < 20; attempt += 1) {
    await turns();
    context.mock.timers.tick(40_000);
  }
  assert.deepEqual([never.story.at(-1), never.calls.length], ["failed CONNECTION_LOST", 9], "the text that had come is kept as one that was cut off");
});

test("stop ends the answer at the server too", async () => {
  const calls: Call[] = [];
  const api = new Api({ current: () => null, refuse: () => undefined }, (_url, options) => {
    const headers = new Headers(options.headers);
    calls.push({ method: options.method ?? "", last: headers.get("Last-Event-ID"), body: null });
    const stream = new ReadableStream<Uint8Array>({ start: (controller) => controller.enqueue(new TextEncoder().encode(event(1, "a"))) });
    return Promise.resolve(new Response(options.method === "DELETE" ? "{}" : stream));
  });
  const story: string[] = [];
  const handle = streamAnswer(api, {}, { news: () => undefined, piece: ({ text }) => void story.push(text), end: ({ reason }) => void story.push(reason), failed: () => undefined, lost: () => undefined }, null);
  await eventually(() => story.length === 1, "the first piece");
  handle.stop();
  handle.stop();
  assert.deepEqual(story, ["a", "cancelled"]);
  assert.deepEqual(calls.map(({ method, last }) => [method, last]), [["POST", null], ["DELETE", "ab:1"]]);
});

test("a stream that is left ends in silence, and the server is not told", async () => {
  const { api, calls } = served([event(1, "a")]);
  const story: string[] = [];
  const handle = streamAnswer(api, { prompt: "x" }, {
    news: () => undefined, piece: () => void story.push("piece"), end: () => void story.push("end"), failed: () => void story.push("failed"), lost: () => void story.push("lost"),
  }, "ab:0");
  handle.leave();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.deepEqual([story, calls.map(({ method }) => method)], [[], ["POST"]]);
});

interface Line {
  path: string;
  last: string | null;
  /** What comes on it, and its end. */
  say(text: string): void;
  isOpen: boolean;
}

/** A network on which nothing comes but what a test says; what is given up is closed. */
function quietNetwork(context: TestContext, answers: (path: string) => boolean): { api: Api; lines: Line[]; wait: (milliseconds: number) => Promise<void> } {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const lines: Line[] = [];
  const api = new Api({ current: () => null, refuse: () => undefined }, (path, options) => new Promise((resolve, reject) => {
    const line: Line = { path, last: new Headers(options.headers).get("Last-Event-ID"), say: () => undefined, isOpen: true };
    lines.push(line);
    const body = new ReadableStream<Uint8Array>({ start: (controller) => {
      line.say = (text) => { begin(); controller.enqueue(new TextEncoder().encode(text)); };
      options.signal?.addEventListener("abort", () => {
        line.isOpen = false;
        const error = new DOMException("given up", "AbortError");
        controller.error(error);
        reject(error);
      });
    } });
    let response: Response | null = null;
    const begin = (): void => resolve(response ??= new Response(body));
    if (path !== "/api/stream" && answers(path)) resolve(new Response("{}"));
  }));
  const settle = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  };
  const wait = async (milliseconds: number): Promise<void> => {
    for (let left = milliseconds; left > 0; left -= 1000) {
      await settle();
      context.mock.timers.tick(Math.min(1000, left));
    }
    await settle();
  };
  return { api, lines, wait };
}

function listen(api: Api, news: string[] = []): string[] {
  const story: string[] = [];
  streamAnswer(api, { prompt: "x" }, {
    news: ({ state }) => void news.push(state), piece: ({ text }) => void story.push(text), end: ({ reason }) => void story.push(`end ${reason}`), failed: ({ error }) => void story.push(`failed ${error.code}`), lost: () => void story.push("lost"),
  }, null);
  return story;
}

test("a stream in which not even comments come is given up and taken up again, as often as it needs", async (context) => {
  const { api, lines, wait } = quietNetwork(context, () => true);
  const story = listen(api);
  lines[0]?.say(event(1, "one "));
  for (let comment = 0; comment < 10; comment += 1) {
    await wait(5000);
    lines[0]?.say(":\n\n");
  }
  assert.deepEqual([story, lines.length], [["one "], 1], "comments are enough");
  for (let silent = 0; silent < 12; silent += 1) {
    await wait(18_000);
    assert.equal(lines[silent]?.isOpen, false);
    assert.deepEqual([lines.length, lines.at(-1)?.last], [silent + 2, "ab:1"]);
    lines.at(-1)?.say(":\n\n");
  }
  lines.at(-1)?.say(event(2, "two") + event(3, "", "stop"));
  await wait(1);
  assert.deepEqual(story, ["one ", ...Array<string>(12).fill("lost"), "two", "end stop"]);
  await wait(60_000);
  assert.equal(lines.length, 13, "what has ended is not watched any more");
});

test("a pause without comments is no loss as long as the server is there", async (context) => {
  let isThere = true;
  const { api, lines, wait } = quietNetwork(context, () => isThere);
  const story = listen(api);
  const streams = (): Line[] => lines.filter(({ path }) => path === "/api/stream");
  lines[0]?.say(event(1, "one "));
  await wait(300_000);
  assert.deepEqual([story, streams().length, streams()[0]?.isOpen], [["one "], 1, true]);
  const asked = new Set(lines.map(({ path }) => path));
  assert.deepEqual([...asked], ["/api/stream", "/healthz"], "which no key, no limit and no server that is ending refuses");
  isThere = false;
  await wait(30_000);
  assert.deepEqual([story, streams()[0]?.isOpen, streams().length, streams()[1]?.last], [["one ", "lost"], false, 2, "ab:1"]);
  isThere = true;
  streams()[1]?.say(event(2, "", "stop"));
  await wait(1);
  assert.deepEqual(story, ["one ", "lost", "end stop"]);
});

test("a server that sends its comments rarely is given more time", async (context) => {
  const { api, lines, wait } = quietNetwork(context, () => true);
  const story = listen(api);
  const streams = (): Line[] => lines.filter(({ path }) => path === "/api/stream");
  lines[0]?.say(event(1, "one "));
  for (let comment = 0; comment < 5; comment += 1) {
    await wait(40_000);
    streams()[0]?.say(":\n\n");
  }
  await wait(100_000);
  assert.deepEqual([story, streams().length], [["one "], 1]);
  await wait(40_000);
  assert.deepEqual([story, streams().length], [["one ", "lost"], 2], "three are missing");
});

test("a stream that has not begun after a second waits for its model, and one that is taken up does not", async (context) => {
  const { api, lines, wait } = quietNetwork(context, () => true);
  const news: string[] = [];
  listen(api, news);
  await wait(1000);
  context.mock.timers.tick(0);
  assert.deepEqual(news, ["loading"]);
  lines[0]?.say(event(1, "one "));
  await wait(5000);
  assert.deepEqual(news, ["loading", "generating"]);
  const early: string[] = [];
  listen(api, early);
  lines[1]?.say(event(1, "one "));
  const again: string[] = [];
  streamAnswer(api, {}, { news: ({ state }) => void again.push(state), piece: () => undefined, end: () => undefined, failed: () => undefined, lost: () => undefined }, "ab:4");
  await wait(5000);
  assert.deepEqual([early, again], [["generating"], []]);
});

test("a stream that begins late is waited for as long as the server is there", async (context) => {
  let isThere = true;
  const { api, lines, wait } = quietNetwork(context, () => isThere);
  const story = listen(api);
  await wait(200_000);
  const asked = lines.filter(({ path }) => path === "/api/stream");
  assert.deepEqual([asked.length, asked[0]?.isOpen, story], [1, true, []], "a model takes its time to load");
  isThere = false;
  await wait(30_000);
  assert.deepEqual([asked[0]?.isOpen, story], [false, ["lost"]]);
  const again = lines.filter(({ path }) => path === "/api/stream");
  assert.equal(again.length, 2);
  isThere = true;
  again[1]?.say(event(1, "", "stop"));
  await wait(1);
  assert.deepEqual(story, ["lost", "end stop"]);
});

test("a machine that slept believes the server's rhythm as before", async (context) => {
  const { api, lines, wait } = quietNetwork(context, () => true);
  const story = listen(api);
  lines[0]?.say(event(1, "one "));
  await wait(600_000);
  lines[0]?.say(":\n\n");
  await wait(150_000);
  assert.deepEqual(story, ["one "]);
  await wait(50_000);
  assert.deepEqual(story, ["one ", "lost"], "not half an hour later");
});

test("where streams take all connections nobody is asked, and none is given up", async (context) => {
  const { api, lines, wait } = quietNetwork(context, () => false);
  const stories = Array.from({ length: 6 }, () => listen(api));
  for (const line of [...lines]) line.say(event(1, "one "));
  await wait(120_000);
  assert.deepEqual([stories.flat(), lines.length], [Array<string>(6).fill("one "), 6]);
  lines[0]?.say(event(2, "", "stop"));
  await wait(30_000);
  assert.ok(stories.slice(1).every((story) => story.includes("lost")), "with a connection free it is asked, and is not there");
});

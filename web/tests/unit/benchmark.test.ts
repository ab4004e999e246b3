import assert from "node:assert/strict";
import { test } from "node:test";
import type { AnswerReceiver } from "../../src/core/answer.ts";
import { createBenchmark, median } from "../../src/core/benchmark.ts";
import { Failure } from "../../src/core/failure.ts";
import type { AnswerSource } from "../../src/core/generation.ts";
import { eventually } from "./made.ts";

interface Stream {
  receiver: AnswerReceiver;
  stopped: boolean;
  over: boolean;
}

/** Answers that come when a test says so; those that are stopped end, as the server's do. */
function scripted(): { source: AnswerSource; streams: Stream[]; end: (stream: Stream) => void } {
  const streams: Stream[] = [];
  const end = (stream: Stream): void => {
    if (stream.over) return;
    stream.over = true;
    stream.receiver.end({ reason: "stop", generatedTokens: 64, promptTokens: 9, tokensPerSecond: 1 });
  };
  const source: AnswerSource = {
    ask: (_body, receiver) => {
      const stream: Stream = { receiver, stopped: false, over: false };
      streams.push(stream);
      const stop = (): void => {
        if (!stream.over) stream.stopped = true;
        end(stream);
      };
      return { stop, leave: () => undefined };
    },
  };
  return { source, streams, end };
}

test("a benchmark asks one, two, four and eight at once, after one that warms up", async () => {
  const { source, streams, end } = scripted();
  const run = createBenchmark(source).run(null, () => undefined, new AbortController().signal);
  for (const count of [1, 2, 4, 8, 16]) {
    await eventually(() => streams.length === count, `${count} streams`);
    streams.forEach(end);
  }
  assert.deepEqual((await run).map((one) => one.streams), [1, 2, 4, 8]);
  assert.ok(streams.every(({ stopped }) => !stopped));
});

for (const [name, fail] of [
  ["loses its connection", (stream: Stream) => stream.receiver.lost()],
  ["fails", (stream: Stream) => { stream.over = true; stream.receiver.failed(new Failure("CONNECTION_LOST", "It broke.")); }],
] as const) {
  test(`a benchmark of which one stream ${name} ends them all`, async () => {
    const { source, streams, end } = scripted();
    const run = createBenchmark(source).run(null, () => undefined, new AbortController().signal);
    const refused = assert.rejects(run, /lost|broke/);
    for (const count of [1, 2, 4]) {
      await eventually(() => streams.length === count, `${count} streams`);
      if (count < 4) streams.forEach(end);
    }
    const round = streams.slice(2);
    const [first] = round;
    if (first) fail(first);
    await refused;
    assert.ok(round.every(({ over }) => over), "nothing is taken up for a benchmark that is over");
    await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal(streams.length, 4, "and no further round begins");
  });
}

test("a benchmark that is stopped ends its streams", async () => {
  const { source, streams } = scripted();
  const stop = new AbortController();
  const run = createBenchmark(source).run(null, () => undefined, stop.signal);
  stop.abort();
  await assert.rejects(run, /stopped/);
  assert.ok(streams.every(({ stopped }) => stopped));
});

test("the median", () => {
  assert.deepEqual([median([]), median([3]), median([3, 1]), median([9, 1, 2])], [0, 3, 2, 2]);
});

// A small measurement from the page: answers of 64 tokens, one and several at once, as a reader would see them come.
import type { AnswerSource } from "./generation.ts";
import { Failure } from "./failure.ts";
import type { Benchmark, BenchmarkRun } from "./types.ts";

const streamCounts = [1, 2, 4, 8];
const answerTokens = 64;

interface Stream {
  firstToken: number | null; // milliseconds
  gaps: number[];
  tokens: number;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return 0;
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

function oneStream(source: AnswerSource, model: string | null, seed: number, signal: AbortSignal): Promise<Stream> {
  return new Promise((resolve, reject) => {
    const stream: Stream = { firstToken: null, gaps: [], tokens: 0 };
    const began = performance.now();
    let last = began;
    const body: Record<string, unknown> = {
      messages: [{ role: "user", content: `Write a long story about the number ${seed}.` }], max_tokens: answerTokens, seed, temperature: 1,
    };
    if (model !== null) body["model"] = model;
    const handle = source.ask(body, {
      news: () => undefined,
      piece: ({ isToken }) => {
        const now = performance.now();
        if (isToken) stream.tokens += 1;
        if (stream.firstToken === null) stream.firstToken = now - began;
        else if (isToken) stream.gaps.push(now - last);
        last = now;
      },
      end: () => resolve(stream),
      failed: reject,
      lost: () => reject(new Failure("CONNECTION_LOST", "The connection was lost during the benchmark. Try again.")),
    }, null);
    signal.addEventListener("abort", () => {
      reject(new Failure("CONNECTION_LOST", "The benchmark was stopped.")); // first: some ways to the server end at once
      handle.stop(); // one that is over hears nothing of it
    }, { once: true });
  });
}

/** Several at once. One that fails ends the others: they would go on in the server, and be taken up for nobody. */
async function oneRound(source: AnswerSource, model: string | null, seeds: readonly number[], signal: AbortSignal): Promise<Stream[]> {
  const round = new AbortController();
  const end = (): void => round.abort();
  signal.addEventListener("abort", end);
  try {
    return await Promise.all(seeds.map((seed) => oneStream(source, model, seed, round.signal)));
  } finally {
    signal.removeEventListener("abort", end);
    end();
  }
}

export function createBenchmark(source: AnswerSource): Benchmark {
  return {
    run: async (model, progress, signal) => {
      const runs: BenchmarkRun[] = [];
      const tell = (): void => progress({ done: runs.length, total: streamCounts.length, runs: [...runs] });
      tell();
      await oneRound(source, model, [0], signal); // the model is loaded and warm after it
      for (const streams of streamCounts) {
        const began = performance.now();
        const seen = await oneRound(source, model, Array.from({ length: streams }, (_, index) => runs.length * 10 + index + 1), signal);
        const seconds = (performance.now() - began) / 1000;
        runs.push({
          streams,
          tokensPerSecond: seen.reduce((total, { tokens }) => total + tokens, 0) / seconds,
          timeToFirstToken: median(seen.flatMap(({ firstToken }) => firstToken ?? [])),
          tokenGap: median(seen.flatMap(({ gaps }) => gaps)),
        });
        tell();
      }
      return runs;
    },
  };
}

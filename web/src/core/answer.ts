// An answer on its way: what both ways to the server (socket.ts, event_stream.ts) tell of it, read from what they carry.
import type { Failure } from "./failure.ts";
import { field, isRecord, numberOr, textOr } from "./json.ts";
import { readSources } from "./sources.ts";
import type { FinishReason, Source } from "./types.ts";

export interface AnswerPiece {
  text: string;
  /** false: text that was held back and comes without a token of its own. */
  isToken: boolean;
  tokensPerSecond: number;
  /** Where the answer can be taken up behind this piece. */
  resume: string | null;
}

export interface AnswerEnd {
  reason: FinishReason;
  generatedTokens: number;
  promptTokens: number;
  tokensPerSecond: number;
  /** The texts that it was asked with; null or not there: without, or it is not told. */
  sources?: readonly Source[] | null;
}

/** `loading`: the model is looked for and perhaps loaded; `generating`: the model has taken the request, which may have to
 * wait there; `queued`: so many would start before it; `reading`: so much of the prompt is read. */
export interface AnswerNews {
  state: "loading" | "generating" | "queued" | "reading";
  promptTokens: number | null;
  /** Tokens of the prompt that were read. */
  readTokens: number | null;
  ahead: number | null;
  resume: string | null;
}

/** After `end` or `failed` nothing more comes. */
export interface AnswerReceiver {
  news(news: AnswerNews): void;
  piece(piece: AnswerPiece): void;
  end(end: AnswerEnd): void;
  failed(failure: Failure): void;
  /** The connection is gone; it is taken up again as soon as there is another. */
  lost(): void;
}

export interface AnswerHandle {
  stop(): void;
  /** Nothing more of it is wanted here; the server goes on with it, for another tab. */
  leave(): void;
}

const reasons: Readonly<Record<string, FinishReason>> = { stop: "stop", length: "length", context: "context", cancelled: "cancelled" };

function reasonOf(value: unknown): FinishReason {
  return typeof value === "string" ? (reasons[value] ?? "error") : "stop";
}

/** Of a payload with `token`; null: it is none. */
export function readPiece(payload: unknown, resume: string | null): AnswerPiece | null {
  if (!isRecord(payload) || typeof payload["token"] !== "string") return null;
  return {
    text: payload["token"],
    isToken: numberOr(payload["token_id"], -1) >= 0,
    tokensPerSecond: numberOr(payload["tokens_per_sec"], 0),
    resume,
  };
}

/** null: more comes. */
export function readEnd(payload: unknown): AnswerEnd | null {
  if (field(payload, "complete") !== true) return null;
  return {
    reason: reasonOf(field(payload, "finish_reason")),
    generatedTokens: numberOr(field(payload, "tokens_generated"), 0),
    promptTokens: numberOr(field(payload, "prompt_tokens"), 0),
    tokensPerSecond: numberOr(field(payload, "tokens_per_sec"), 0),
    sources: readSources(field(payload, "sources")),
  };
}

export function readNews(payload: unknown): AnswerNews | null {
  const state = field(payload, "state");
  if (state !== "loading" && state !== "generating" && state !== "queued" && state !== "reading") return null;
  return {
    state,
    promptTokens: numberOr(field(payload, "prompt_tokens"), null),
    readTokens: numberOr(field(payload, "prompt_tokens_read"), null),
    ahead: numberOr(field(payload, "ahead"), null),
    resume: textOr(field(payload, "resume"), null),
  };
}

/** The number in "<id>:<event>"; -1: there is none. */
export function eventNumber(resume: string | null): number {
  const digits = /:(\d{1,15})$/.exec(resume ?? "")?.[1];
  return digits === undefined ? -1 : Number(digits);
}

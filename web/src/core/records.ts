// What the browser keeps of conversations, as records; read with care, since an older version of the page, another one, or
// an import wrote them.
import { field, isRecord, listOr, numberOr, textOr, timeOr } from "./json.ts";
import { emptySettings, readSettings } from "./settings.ts";
import { readSources } from "./sources.ts";
import type { AnswerStatistics, Conversation, ErrorCode, FinishReason, Message, MessageState, RequestError } from "./types.ts";

export interface StoredConversation extends Conversation {
  /** It was removed then, which can still be undone; null: it is there. */
  deletedAt: number | null;
}

export interface StoredMessage extends Message {
  /** Where the server's answer can be taken up behind this text: "<id>:<event>"; null: it cannot. */
  resume: string | null;
  /** Of an answer that is not over: what its figures are made of, wherever it goes on. null: it has not begun, or is complete. */
  soFar: AnswerSoFar | null;
}

/** Times are in milliseconds since 1970. */
export interface AnswerSoFar {
  startedAt: number;
  firstTokenAt: number | null;
  /** Tokens that were there before it was continued. */
  earlierTokens: number;
  /** Tokens until now, those with it. */
  generatedTokens: number;
  promptTokens: number; // 0: not known yet
  tokensPerSecond: number;
}

const states: readonly MessageState[] = ["writing", "complete", "failed", "interrupted"];
const reasons: readonly FinishReason[] = ["stop", "length", "context", "cancelled", "error"];

function readStatistics(value: unknown): AnswerStatistics | null {
  if (!isRecord(value)) return null;
  return {
    promptTokens: numberOr(value["promptTokens"], 0),
    generatedTokens: numberOr(value["generatedTokens"], 0),
    tokensPerSecond: numberOr(value["tokensPerSecond"], 0),
    timeToFirstToken: numberOr(value["timeToFirstToken"], null),
    duration: numberOr(value["duration"], 0),
  };
}

function readSoFar(value: unknown): AnswerSoFar | null {
  const startedAt = timeOr(field(value, "startedAt"), null);
  if (startedAt === null) return null;
  return {
    startedAt,
    firstTokenAt: timeOr(field(value, "firstTokenAt"), null),
    earlierTokens: numberOr(field(value, "earlierTokens"), 0),
    generatedTokens: numberOr(field(value, "generatedTokens"), 0),
    promptTokens: numberOr(field(value, "promptTokens"), 0),
    tokensPerSecond: numberOr(field(value, "tokensPerSecond"), 0),
  };
}

function readError(value: unknown): RequestError | null {
  const message = textOr(field(value, "message"), "");
  if (message === "") return null;
  // A code that nobody knows is shown by its message all the same.
  const code = textOr(field(value, "code"), "INFERENCE_ERROR") as ErrorCode;
  return { code, message, retryAfter: numberOr(field(value, "retryAfter"), null) };
}

/** null: it is no message. */
export function readMessage(value: unknown): StoredMessage | null {
  if (!isRecord(value)) return null;
  const id = textOr(value["id"], "");
  const conversationId = textOr(value["conversationId"], "");
  const role = value["role"];
  if (id === "" || conversationId === "" || (role !== "user" && role !== "assistant")) return null;
  return {
    id, conversationId, role,
    parentId: textOr(value["parentId"], null),
    createdAt: timeOr(value["createdAt"], 0),
    text: textOr(value["text"], ""),
    state: states.find((one) => one === value["state"]) ?? "complete",
    model: textOr(value["model"], null),
    settings: isRecord(value["settings"]) ? { ...emptySettings(), ...readSettings(value["settings"]) } : null,
    finishReason: reasons.find((one) => one === value["finishReason"]) ?? null,
    error: readError(value["error"]),
    statistics: readStatistics(value["statistics"]),
    sources: readSources(value["sources"]),
    resume: textOr(value["resume"], null),
    soFar: readSoFar(value["soFar"]),
  };
}

function readSelected(value: unknown): Record<string, string> {
  const selected: Record<string, string> = {};
  if (!isRecord(value)) return selected;
  for (const [parent, child] of Object.entries(value)) {
    if (typeof child === "string" && parent !== "__proto__") selected[parent] = child;
  }
  return selected;
}

/** null: it is no conversation. */
export function readConversation(value: unknown): StoredConversation | null {
  if (!isRecord(value)) return null;
  const id = textOr(value["id"], "");
  if (id === "") return null;
  const createdAt = timeOr(value["createdAt"], 0);
  return {
    id, createdAt,
    updatedAt: timeOr(value["updatedAt"], createdAt),
    title: textOr(value["title"], ""),
    titleIsOwn: value["titleIsOwn"] === true,
    model: textOr(value["model"], null),
    settings: readSettings(value["settings"]),
    selected: readSelected(value["selected"]),
    deletedAt: timeOr(value["deletedAt"], null),
  };
}

export function readAll<T>(values: unknown, read: (value: unknown) => T | null): T[] {
  return listOr(values).map(read).filter((one): one is T => one !== null);
}

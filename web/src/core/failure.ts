// What can go wrong with a request, as a sentence for the reader: from a WebSocket's `error`, an HTTP answer, or a
// connection that is not there.
import type { ErrorCode, RequestError, RequestFailure } from "./types.ts";
import { field, isRecord, numberOr, textOr } from "./json.ts";

export class Failure extends Error implements RequestFailure {
  readonly error: RequestError;
  /** The server's own name for it; empty: there is none. */
  readonly reason: string;
  /** The server, or a proxy before it, has no time for a request now: it says nothing of what was asked for. */
  readonly isBusy: boolean;

  constructor(code: ErrorCode, message: string, retryAfter: number | null = null, reason = "", isBusy = false) {
    super(message);
    this.name = "Failure";
    this.error = { code, message, retryAfter };
    this.reason = reason;
    this.isBusy = isBusy;
  }
}

const codes: readonly ErrorCode[] = [
  "INVALID_REQUEST", "MODEL_NOT_FOUND", "INFERENCE_ERROR", "CONNECTION_LOST", "RATE_LIMITED", "QUEUE_FULL", "CONTEXT_FULL",
];

/** What the server's own reasons mean here, whatever the status or code they come with. */
const reasons: Readonly<Record<string, ErrorCode>> = {
  context_length_exceeded: "CONTEXT_FULL",
  answer_not_found: "ANSWER_LOST",
  draining: "CONNECTION_LOST",
  connection_lost: "ANSWER_TAKEN",
};

function codeOfReason(reason: unknown): ErrorCode | null {
  return typeof reason === "string" && Object.hasOwn(reasons, reason) ? (reasons[reason] ?? null) : null;
}

function sentence(text: string): string {
  const trimmed = text.trim();
  if (trimmed === "") return "Something went wrong in the server.";
  const capital = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.?]$/.test(capital) ? capital : `${capital}.`;
}

/** Of a message of type `error`. */
export function failureOfSocket(payload: unknown): Failure {
  const said = textOr(field(payload, "message"), "");
  const given = field(payload, "code");
  const code = codes.find((one) => one === given) ?? "INFERENCE_ERROR";
  const retryAfter = numberOr(field(payload, "retry_after"), null);
  const reason = textOr(field(payload, "reason"), "");
  return new Failure(codeOfReason(reason) ?? code, sentence(said), retryAfter, reason);
}

function codeOfStatus(status: number, reason: unknown): ErrorCode {
  const known = codeOfReason(reason);
  if (known !== null) return known;
  if (status === 401) return "KEY_NEEDED";
  if (status === 403) return "NOT_ALLOWED";
  if (status === 404) return "MODEL_NOT_FOUND";
  if (status === 429) return "RATE_LIMITED";
  if (status === 503) return "QUEUE_FULL";
  return status >= 500 ? "INFERENCE_ERROR" : "INVALID_REQUEST";
}

const busyStatuses: readonly number[] = [429, 502, 503, 504];

/** Both of the server's forms: {"error": "…", "code": "…"} and {"error": {"message": "…", "code": "…"}}. */
function readError(body: unknown): { said: string; reason: unknown } {
  const error = field(body, "error");
  return isRecord(error) ? { said: textOr(error["message"], ""), reason: error["code"] } : { said: textOr(error, ""), reason: field(body, "code") };
}

export function failureOfStatus(status: number, body: unknown, retryAfter: number | null): Failure {
  const { said, reason } = readError(body);
  const message = said === "" ? `The server answered with status ${status}.` : sentence(said);
  return new Failure(codeOfStatus(status, reason), message, retryAfter, textOr(reason, ""), busyStatuses.includes(status));
}

export function lost(message = "The server cannot be reached. Is it running?"): Failure {
  return new Failure("CONNECTION_LOST", message);
}

/** Whatever was thrown, as a failure. */
export function asFailure(thrown: unknown): Failure {
  if (thrown instanceof Failure) return thrown;
  if (thrown instanceof DOMException && thrown.name === "AbortError") return new Failure("CONNECTION_LOST", "The request was ended.");
  return lost();
}

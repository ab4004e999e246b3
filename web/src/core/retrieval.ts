// Questions that are asked with texts of a dataset: what is chosen for it, the field of the request, and what can go wrong.
import { Failure } from "./failure.ts";
import { isRecord } from "./json.ts";
import type { ModelInfo, RequestError, Settings } from "./types.ts";

const longestAddress = 2048;
const longestModel = 300;

/** What a reader may leave out of an address. */
export function readAddress(text: string): string {
  const given = text.trim().slice(0, longestAddress);
  return given === "" || given.includes("://") ? given : `longbow://${given}`;
}

export function isAddress(text: string): boolean {
  return /^longbow(\+tls)?:\/\/[^/\s]+\/[^?\s]/i.test(text);
}

export function readRetrieval(value: unknown): Partial<Settings> {
  const read: Partial<Settings> = {};
  if (!isRecord(value)) return read;
  if (typeof value["retrieval"] === "boolean" || value["retrieval"] === null) read.retrieval = value["retrieval"];
  if (typeof value["retrievalAddress"] === "string") read.retrievalAddress = readAddress(value["retrievalAddress"]);
  if (typeof value["retrievalModel"] === "string") read.retrievalModel = value["retrievalModel"].slice(0, longestModel);
  return read;
}

/** The field of a request; none where questions are asked without texts. */
export function retrievalField(settings: Settings): Record<string, unknown> {
  if (settings.retrieval !== true) return {};
  const retrieval: Record<string, unknown> = { model: settings.retrievalModel };
  if (settings.retrievalAddress !== "") retrieval["from"] = settings.retrievalAddress;
  if (settings.retrievalTexts !== null) retrieval["k"] = settings.retrievalTexts;
  return { retrieval };
}

function failed(message: string, retryAfter: number | null = null): Failure {
  return new Failure("RETRIEVAL_FAILED", message, retryAfter);
}

/** What the server need not be asked about; null: nothing is wrong. */
export function retrievalProblem(settings: Settings): Failure | null {
  if (settings.retrieval !== true) return null;
  if (settings.retrievalModel === "") return failed("No embedding model is chosen. Choose the one that the dataset was filled with, then retry.");
  if (settings.retrievalAddress === "" || isAddress(settings.retrievalAddress)) return null;
  return failed(`“${settings.retrievalAddress}” is not the address of a dataset. It should look like longbow://host/dataset.`);
}

const sentences: Readonly<Record<string, (settings: Settings, error: RequestError) => string>> = {
  host_not_allowed: ({ retrievalAddress }) => `The server is not allowed to reach ${retrievalAddress}. Its administrator can add the host to “longbow.hosts”.`,
  dataset_not_found: ({ retrievalAddress }) => `There is no dataset ${retrievalAddress === "" ? "at the server's own address" : `at ${retrievalAddress}`}. Check its name in the settings.`,
  unsupported: (_, { message }) => `This server cannot search datasets. ${message}`,
  store_refused: (_, { message }) => `The vector store refused the search. ${message} Is this the embedding model that the dataset was filled with?`,
  dataset_differs: (_, { message }) => `The dataset does not fit the search. ${message}`,
  store_busy: () => "The vector store is busy.",
  store_failed: () => "The vector store does not answer. The server's log says more.",
};

/** The failure of a question that was asked with texts, as one of the search where it was that. */
export function asRetrievalFailure(failure: Failure, settings: Settings, models: readonly ModelInfo[]): Failure {
  const { error, reason } = failure;
  if (settings.retrieval !== true) return failure;
  if (error.code === "MODEL_NOT_FOUND" && !models.some(({ name }) => name === settings.retrievalModel)) {
    return failed(`The server does not offer the embedding model “${settings.retrievalModel}”. Choose another one in the settings, then retry.`);
  }
  const sentence = Object.hasOwn(sentences, reason) ? sentences[reason] : undefined;
  return sentence === undefined ? failure : failed(sentence(settings, error), error.retryAfter);
}

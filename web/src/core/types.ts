// The seam between the page's two halves: core/ owns the data, the connection and the storage, ui/ draws them. Types only;
// everything here is made by `createCore` (core.ts), and ui/ asks for nothing else but functions without a state of their own
// (markdown.ts, sources.ts, …). Callbacks come on the page's one thread, never while the call that registers them still runs.

// ---- Values that change -------------------------------------------------------------------------------------------

export interface Readable<T> {
  get(): T;
  /** Calls back at every change, not at once; returns what ends it. */
  subscribe(listener: (value: T) => void): () => void;
}

export interface Events<T> {
  on(listener: (event: T) => void): () => void;
}

// ---- Settings -----------------------------------------------------------------------------------------------------

/** null: the server decides, by what the model's makers recommend. */
export interface Settings {
  temperature: number | null; // 0 to 2
  topK: number | null; // 1 to 100
  topP: number | null; // 0 to 1
  minP: number | null; // 0 to 1
  maxTokens: number | null; // 1 and more
  seed: number | null; // 0 and more
  stop: string[]; // up to four
  systemPrompt: string;
  /** Whether questions are asked with texts of a dataset; null: they are not. */
  retrieval: boolean | null;
  retrievalAddress: string; // longbow://host/dataset; empty: that of the server's settings
  retrievalModel: string; // which the dataset was filled with
  retrievalTexts: number | null; // 1 to 32
}

export interface NumberBounds {
  least: number;
  most: number;
  step: number;
  /** What the server takes where nothing is set and the model recommends nothing. */
  usual: number | null;
}

export type NumberSetting = "temperature" | "topK" | "topP" | "minP" | "maxTokens" | "seed" | "retrievalTexts";

export type Theme = "light" | "dark" | "system";

export interface PromptTemplate {
  id: string;
  name: string;
  /** `{text}` stands for what is in the composer. */
  text: string;
  own: boolean; // the user's, which can be changed and removed
}

export interface SettingsStore {
  readonly bounds: Readonly<Record<NumberSetting, NumberBounds>>;
  readonly defaults: Readable<Settings>;
  updateDefaults(patch: Partial<Settings>): void;
  resetDefaults(): void;
  /** The defaults with what the conversation has of its own. */
  effective(conversation: Conversation | null): Settings;
  readonly theme: Readable<Theme>;
  setTheme(theme: Theme): void;
  readonly templates: Readable<readonly PromptTemplate[]>;
  saveTemplate(template: { id?: string; name: string; text: string }): void;
  removeTemplate(id: string): void;
  readonly sidebarOpen: Readable<boolean>;
  setSidebarOpen(open: boolean): void;
  /** The model of new conversations; null: the server's default. */
  readonly lastModel: Readable<string | null>;
  setLastModel(name: string | null): void;
  /** Why changes hold in this tab only, for the reader; empty: they are kept. */
  readonly problem: Readable<string>;
}

// ---- Conversations ------------------------------------------------------------------------------------------------

export type Role = "user" | "assistant";

/** `interrupted`: the page was closed, or the answer could not be taken up again; what had come is kept. */
export type MessageState = "writing" | "complete" | "failed" | "interrupted";

/** `context`: the context is full. */
export type FinishReason = "stop" | "length" | "context" | "cancelled" | "error";

export interface AnswerStatistics {
  promptTokens: number;
  generatedTokens: number;
  tokensPerSecond: number;
  /** Milliseconds from sending to the first token; null: none came. */
  timeToFirstToken: number | null;
  /** Milliseconds from sending to the end. */
  duration: number;
}

/** What happened, why, and what to do, in a sentence for the reader. */
export interface RequestError {
  code: ErrorCode;
  message: string;
  /** Seconds after which trying again makes sense. */
  retryAfter: number | null;
}

export type ErrorCode =
  | "INVALID_REQUEST" | "MODEL_NOT_FOUND" | "INFERENCE_ERROR" | "CONNECTION_LOST" | "RATE_LIMITED" | "QUEUE_FULL"
  | "CONTEXT_FULL" | "KEY_NEEDED" | "NOT_ALLOWED" | "STORAGE_FULL" | "NO_MODEL"
  /** The server has not this answer any more; another tab has taken it up. */
  | "ANSWER_LOST" | "ANSWER_TAKEN"
  /** The texts that the question should have been asked with could not be found. */
  | "RETRIEVAL_FAILED";

/** A text of a dataset that a question was asked with. Not trusted: whoever fills the dataset wrote it. */
export interface Source {
  number: number; // by which the answer may name it: [1]
  score: number | null;
  id: string; // empty: none, like the next three
  docId: string;
  source: string;
  metadata: string; // JSON
  text: string;
  isCut: boolean; // the model has read only its beginning
}

export interface Message {
  readonly id: string;
  readonly conversationId: string;
  /** null: a first message. Those with the same parent are branches of one another. */
  readonly parentId: string | null;
  readonly role: Role;
  readonly createdAt: number; // milliseconds since 1970
  text: string;
  state: MessageState;
  model: string | null; // of answers
  settings: Settings | null; // of answers: what was asked for
  finishReason: FinishReason | null;
  error: RequestError | null;
  statistics: AnswerStatistics | null;
  sources: readonly Source[] | null; // of answers; null: asked without texts
}

export interface Conversation {
  readonly id: string;
  readonly createdAt: number;
  updatedAt: number;
  title: string; // empty: none yet; show "New chat"
  titleIsOwn: boolean; // the user gave it
  model: string | null; // null: the server's default
  settings: Partial<Settings>; // what differs from the defaults
  /** The branch that is shown: of a parent's id ("" for the first messages) the child's id. */
  selected: Record<string, string>;
}

/** A message of the branch that is shown, with its place among its siblings. */
export interface ShownMessage {
  message: Message;
  siblings: readonly string[]; // ids, oldest first, with its own
  place: number; // 0-based, in siblings
}

export type ConversationChange =
  /** The list, its order, a title: conversations.list has changed. */
  | { kind: "list" }
  /** Messages were added or removed, or another branch is shown: read path() again. */
  | { kind: "path"; conversationId: string }
  /** Another tab has deleted it. */
  | { kind: "gone"; conversationId: string }
  /** One message's fields have changed; its text too. */
  | { kind: "message"; conversationId: string; messageId: string };

export interface StorageState {
  /** `memory`: the browser keeps nothing; conversations are gone with the page. */
  state: "ready" | "memory" | "full";
  /** For the reader; empty when ready. */
  message: string;
}

export interface SearchHit {
  conversationId: string;
  /** null: the title has it. */
  messageId: string | null;
  excerpt: string;
  /** Of the words in the excerpt: [start, end). */
  marks: readonly (readonly [number, number])[];
}

export interface ConversationStore {
  /** Newest first; without those that were removed. */
  readonly list: Readable<readonly Conversation[]>;
  readonly changes: Events<ConversationChange>;
  readonly storage: Readable<StorageState>;
  get(id: string): Conversation | null;
  /** It is there, and was not removed, which get() does not tell. */
  has(id: string): boolean;
  /** In memory only until its first message. */
  create(model: string | null): Conversation;
  /** Reads the messages; path() is empty before. */
  open(id: string): Promise<void>;
  path(id: string): readonly ShownMessage[];
  message(conversationId: string, messageId: string): Message | null;
  select(conversationId: string, messageId: string): void;
  /** Shows the branch in which the message is. */
  show(conversationId: string, messageId: string): void;
  rename(id: string, title: string): void;
  setModel(id: string, model: string | null): void;
  updateSettings(id: string, patch: Partial<Settings>): void;
  /** Back to the defaults. */
  resetSettings(id: string): void;
  /** Call the answer to undo it; after a while it does nothing. */
  remove(id: string): () => void;
  removeAll(): () => void;
  search(words: string): Promise<readonly SearchHit[]>;
}

/** What was typed and not sent. null: of a conversation without messages. */
export interface Drafts {
  get(conversationId: string | null): string;
  set(conversationId: string | null, text: string): void;
}

// ---- Connection ---------------------------------------------------------------------------------------------------

export type ConnectionState = "disconnected" | "connecting" | "connected" | "generating";

export interface ConnectionStatus {
  state: ConnectionState;
  /** `sse`: WebSockets do not get through; answers come by server-sent events. */
  transport: "websocket" | "sse";
  /** When the next attempt is made, milliseconds since 1970; for the banner's countdown. */
  retryAt: number | null;
  /** Attempts since the last connection. */
  attempt: number;
  /** Why it is not there, for the reader; empty otherwise. */
  reason: string;
}

export interface Connection {
  readonly status: Readable<ConnectionStatus>;
  /** Now, instead of when the time is over. */
  retry(): void;
}

// ---- Models -------------------------------------------------------------------------------------------------------

export type ModelState = "unloaded" | "loading" | "loaded" | "unloading";

export interface ModelInfo {
  name: string;
  state: ModelState;
  parameters: string; // "135M"; empty: not known
  quantization: string;
  size: number; // bytes of the file
  memory: number; // bytes in use
  contextLength: number | null; // known when loaded
  embeds: boolean | null; // whether it makes vectors of texts; null: nobody has looked yet
  /** Of a load that runs; total is 0 until it is known. */
  progress: LoadProgress | null;
}

export interface LoadProgress {
  completed: number; // bytes
  total: number;
  startedAt: number; // milliseconds since 1970
  warming: boolean;
}

/** What the model's makers recommend; null: nothing. */
export type Recommended = Pick<Settings, "temperature" | "topK" | "topP" | "minP">;

export interface ModelDetails {
  name: string;
  family: string;
  parameterCount: number;
  contextLength: number | null;
  systemPrompt: string | null; // of its own
  recommended: Recommended;
}

export interface ModelStore {
  readonly list: Readable<readonly ModelInfo[]>;
  /** Whether list() was read; false before the first answer. */
  readonly known: Readable<boolean>;
  /** The model of requests that name none; null: there is none. */
  readonly defaultModel: Readable<string | null>;
  /** Whether whoever asks may load and unload; null: the server has not said. */
  readonly mayControl: Readable<boolean | null>;
  /** The model that answers where `name` is wanted: the default in place of one that the server does not offer. */
  offered(name: string | null): string | null;
  refresh(): Promise<void>;
  details(name: string): Promise<ModelDetails>;
  /** Finds out which models make vectors of texts; it shows in `list`. */
  learnAbilities(): Promise<void>;
  /** Both reject with a RequestFailure. Progress shows in `list`. */
  load(name: string): Promise<void>;
  unload(name: string): Promise<void>;
}

// ---- Asking -------------------------------------------------------------------------------------------------------

export interface RunningAnswer {
  conversationId: string;
  messageId: string;
  /** sending, waiting in the queue, loading the model, reading the prompt, writing; lost: trying to take it up again;
   * elsewhere: another tab has it. */
  phase: "sending" | "queued" | "loading" | "reading" | "writing" | "lost" | "elsewhere";
  /** Bytes of the model while it loads, tokens of the prompt while it is read. */
  progress: { completed: number; total: number } | null;
  /** Requests that would start before this one while it waits in the queue; null: not known. */
  ahead: number | null;
  startedAt: number;
  generatedTokens: number;
  tokensPerSecond: number;
}

export interface Chat {
  /** By conversation; a new map at every change. Not changed by each token: see `changes` of ConversationStore. */
  readonly running: Readable<ReadonlyMap<string, RunningAnswer>>;
  /** A user's message at the end of what is shown, and its answer. All of these come back when the request has begun,
   * and reject where none can: an answer is being written, or the conversation was deleted. */
  send(conversationId: string, text: string): Promise<void>;
  /** Another answer beside this one. */
  regenerate(conversationId: string, messageId: string): Promise<void>;
  /** More of an answer that ended by its length, was stopped or interrupted. */
  continueAnswer(conversationId: string, messageId: string): Promise<void>;
  /** A user's message: a branch with the new text and a new answer. An answer: a branch with that text. */
  edit(conversationId: string, messageId: string, text: string): Promise<void>;
  /** A failed answer, once more: in its place, or beside it where it has text. */
  retry(conversationId: string, messageId: string): Promise<void>;
  stop(conversationId: string): void;
  /** Tokens of what is shown and of the model's context; null: not known. */
  contextUse(conversationId: string): { used: number; length: number | null };
}

// ---- Keys ---------------------------------------------------------------------------------------------------------

/** `open`: no key is needed, or none was asked for yet; `locked`: one was asked for and is kept, its passphrase is needed. */
export type KeyState = "open" | "needed" | "locked" | "given";

export interface KeyStore {
  readonly state: Readable<KeyState>;
  /** The server refused the key that was given. */
  readonly refused: Readable<boolean>;
  /** Without WebCrypto (plain HTTP off localhost) keys are kept for the session only. */
  readonly canEncrypt: boolean;
  /** Why a key that was to be kept is not, for the reader; empty otherwise. */
  readonly problem: Readable<string>;
  /** Whether one is kept encrypted, in use or not. */
  isKept(): boolean;
  giveForSession(key: string): void;
  giveEncrypted(key: string, passphrase: string): Promise<void>;
  /** false: the passphrase is wrong. */
  unlock(passphrase: string): Promise<boolean>;
  /** Ends the connection and removes what is kept. */
  forget(): void;
}

// ---- Dashboard, benchmark, embeddings -----------------------------------------------------------------------------

export interface Percentiles {
  p50: number | null;
  p90: number | null;
  p99: number | null;
}

/** What a loaded model does. */
export interface ModelActivity {
  name: string;
  running: number;
  waiting: number;
  kvUse: number | null; // 0 to 1; null: it has no KV cache
}

/** One broadcast of the server. null: it is not known, or there was nothing to measure. */
export interface DashboardSample {
  at: number; // milliseconds since 1970
  running: number | null;
  waiting: number | null;
  /** Since the broadcast before, like the next two; unknown in a connection's first. */
  tokensPerSecond: number | null;
  timeToFirstToken: Percentiles; // seconds
  tokenGap: Percentiles;
  kvUse: number | null; // 0 to 1, the fullest model's
  memory: number | null; // bytes of all models
  processMemory: number | null;
  /** 0 to 1 of prompt tokens since the broadcast before. */
  cacheHits: number | null;
  errorsTotal: number | null;
  requestsTotal: number | null;
  connections: number | null;
  models: readonly ModelActivity[];
}

export interface Dashboard {
  /** Oldest first, the last 720. */
  readonly samples: Readable<readonly DashboardSample[]>;
  /** Why none come, for the reader; empty: they do. */
  readonly problem: Readable<string>;
}

export interface BenchmarkRun {
  streams: number;
  tokensPerSecond: number; // of all together
  timeToFirstToken: number; // milliseconds, median
  tokenGap: number; // milliseconds, median
}

export interface BenchmarkProgress {
  done: number;
  total: number;
  runs: readonly BenchmarkRun[];
}

export interface Benchmark {
  /** Asks `model` for answers of 64 tokens, 1, 2, 4 and 8 at once; rejects with a RequestFailure. */
  run(model: string | null, progress: (progress: BenchmarkProgress) => void, signal: AbortSignal): Promise<readonly BenchmarkRun[]>;
}

export interface Embeddings {
  /** One vector a text, of length 1; rejects with a RequestFailure. */
  embed(model: string | null, texts: readonly string[], signal: AbortSignal): Promise<readonly Float32Array[]>;
  /** Rows and columns in the order of the vectors, cosines from -1 to 1. */
  similarities(vectors: readonly Float32Array[]): readonly (readonly number[])[];
}

/** What the promises above reject with. */
export interface RequestFailure extends Error {
  readonly error: RequestError;
}

// ---- Export and import --------------------------------------------------------------------------------------------

export interface ExportedFile {
  name: string;
  type: string;
  text: string;
}

export interface ImportReport {
  conversations: number;
  messages: number;
  /** Was here already. */
  skipped: number;
}

export interface Transfer {
  /** null: all. */
  export(conversationId: string | null, format: "json" | "markdown"): Promise<ExportedFile>;
  /** Rejects with an Error whose message is for the reader. */
  import(text: string): Promise<ImportReport>;
}

// ---- All of it ----------------------------------------------------------------------------------------------------

export interface Core {
  readonly version: Readable<string>; // of the server; empty: not known yet
  readonly settings: SettingsStore;
  readonly conversations: ConversationStore;
  readonly drafts: Drafts;
  readonly connection: Connection;
  readonly models: ModelStore;
  readonly chat: Chat;
  readonly keys: KeyStore;
  readonly dashboard: Dashboard;
  readonly benchmark: Benchmark;
  readonly embeddings: Embeddings;
  readonly transfer: Transfer;
}

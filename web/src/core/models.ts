// The models that the server offers: what they are, which are loaded, and loading and unloading them.
import type { Api } from "./api.ts";
import { asFailure, Failure, failureOfStatus } from "./failure.ts";
import { field, isRecord, listOr, numberOr, parseJson, textOr } from "./json.ts";
import { Cell } from "./observable.ts";
import type { LoadProgress, ModelDetails, ModelInfo, ModelState, ModelStore, Recommended } from "./types.ts";

/** How often a model that is loaded by somebody's request is looked at: ever less, since each look counts against the key's
 * quota, and a model that takes long is not watched for its last second. */
const watchFirst = 1000;
const watchLast = 5000;
const watchGrowth = 1.25;

const stateNames: Readonly<Record<string, ModelState>> = {
  loading: "loading", loaded: "loaded", ready: "loaded", unloading: "unloading", unloaded: "unloaded",
};

function stateOf(value: unknown): ModelState {
  return stateNames[textOr(value, "")] ?? "unloaded";
}

function pathOf(name: string, rest = ""): string {
  return `/api/models/${encodeURIComponent(name)}${rest}`;
}

function readRecommended(details: unknown): Recommended {
  const values = field(details, "recommended") ?? field(details, "settings");
  // A server that keeps them as 32-bit floats may write all digits of 0.2, and then some.
  const read = (name: string): number | null => {
    const value = numberOr(field(values, name), null);
    return value === null ? null : Number(value.toPrecision(6));
  };
  return { temperature: read("temperature"), topK: read("top_k"), topP: read("top_p"), minP: read("min_p") };
}

/** null: it is not told. */
function readEmbeds(value: unknown): boolean | null {
  const abilities = field(value, "capabilities");
  return Array.isArray(abilities) ? abilities.includes("embedding") : null;
}

function readModel(value: unknown, before: ModelInfo | undefined): ModelInfo | null {
  const name = textOr(field(value, "name"), "");
  if (name === "") return null;
  const state = stateOf(field(value, "state"));
  return {
    name, state,
    // A list made in haste does not know them; what a look into the file said stays.
    parameters: textOr(field(value, "parameters"), "") || (before?.parameters ?? ""),
    quantization: textOr(field(value, "quantization"), "") || (before?.quantization ?? ""),
    size: numberOr(field(value, "size"), 0),
    memory: state === "unloaded" ? 0 : numberOr(field(value, "memory_usage"), before?.memory ?? 0),
    contextLength: numberOr(field(value, "context_length"), state === "unloaded" ? null : (before?.contextLength ?? null)),
    embeds: readEmbeds(value) ?? before?.embeds ?? null,
    progress: state === "loading" ? (before?.progress ?? null) : null,
  };
}

function readProgress(value: unknown, before: LoadProgress | null): LoadProgress {
  const completed = numberOr(field(value, "completed"), before?.completed ?? 0);
  const total = numberOr(field(value, "total"), before?.total ?? 0);
  return { completed, total, startedAt: before?.startedAt ?? Date.now(), warming: field(value, "status") === "warming" };
}

/** Lines of JSON as they come. */
async function readLines(response: Response, take: (line: unknown) => void): Promise<void> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) break;
    const lines = (rest + part.value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) take(parseJson(line));
  }
  if (rest.trim() !== "") take(parseJson(rest));
}

export class Models implements ModelStore {
  readonly list = new Cell<readonly ModelInfo[]>([]);
  readonly known = new Cell(false);
  readonly defaultModel = new Cell<string | null>(null);
  readonly mayControl = new Cell<boolean | null>(null);
  private readonly api: Api;
  private readonly lookedInto = new Set<string>();
  private readonly abilitiesAsked = new Set<string>();
  private refreshing: Promise<void> | null = null;
  private learning: Promise<void> | null = null;

  constructor(api: Api) {
    this.api = api;
  }

  offered(name: string | null): string | null {
    const isGone = this.known.get() && !this.list.get().some((model) => model.name === name);
    return name === null || isGone ? this.defaultModel.get() : name;
  }

  refresh(): Promise<void> {
    this.refreshing ??= this.readList().finally(() => { this.refreshing = null; });
    return this.refreshing;
  }

  async details(name: string): Promise<ModelDetails> {
    const details = await this.look(name);
    return {
      name,
      family: textOr(field(details, "family"), ""),
      parameterCount: numberOr(field(details, "parameter_count"), 0),
      contextLength: numberOr(field(details, "context_length"), null),
      systemPrompt: textOr(field(details, "system"), null),
      recommended: readRecommended(details),
    };
  }

  learnAbilities(): Promise<void> {
    this.learning ??= this.readAbilities().finally(() => { this.learning = null; });
    return this.learning;
  }

  async load(name: string): Promise<void> {
    this.change(name, { state: "loading", progress: readProgress(null, null) });
    await this.control(async () => {
      const headers = { Accept: "application/x-ndjson" };
      const response = await this.api.call(pathOf(name, "/load"), { method: "POST", body: { stream: true }, headers });
      await readLines(response, (line) => this.takeLine(name, line));
    });
  }

  async unload(name: string): Promise<void> {
    this.change(name, { state: "unloading", progress: null });
    await this.control(async () => {
      await this.api.json(pathOf(name, "/unload"), { method: "POST", body: {} });
    });
  }

  /** A model that somebody's request loads: its progress shows in the list until it is there, or its load has failed; returns
   * what ends it. A request may say that it loads before its work has begun: the model is not loading yet then. */
  watchLoading(name: string): () => void {
    let over = false;
    let isLoading = false;
    let wait = watchFirst;
    const look = async (): Promise<void> => {
      while (!over) {
        const details = await this.look(name).catch(() => null);
        const state = stateOf(field(details, "state"));
        if (details === null || state === "loaded" || (isLoading && state !== "loading")) break;
        isLoading = state === "loading";
        await new Promise((resolve) => setTimeout(resolve, wait));
        wait = Math.min(watchLast, wait * watchGrowth);
      }
    };
    void look();
    return () => { over = true; };
  }

  /** Of the server's broadcasts. */
  takeStatus(status: unknown): void {
    const loaded = new Map(listOr(field(status, "models")).map((one) => [textOr(field(one, "name"), ""), one]));
    const models = this.list.get().map((model) => {
      const said = loaded.get(model.name);
      if (said === undefined) return model.state === "unloaded" ? model : { ...model, state: "unloaded" as const, memory: 0, progress: null };
      const state = stateOf(field(said, "state"));
      return {
        ...model, state,
        memory: numberOr(field(said, "bytes"), model.memory),
        contextLength: numberOr(field(said, "context_length"), model.contextLength),
        progress: state === "loading" ? model.progress : null,
      };
    });
    this.list.set(models);
  }

  private async readList(): Promise<void> {
    const said = await this.api.json("/api/models");
    const before = new Map(this.list.get().map((model) => [model.name, model]));
    const models = listOr(said).map((one) => readModel(one, before.get(textOr(field(one, "name"), "")))).filter((one) => one !== null);
    this.list.set(models);
    this.defaultModel.set(models[0]?.name ?? null);
    this.known.set(true);
    void this.lookIntoFiles(({ parameters }) => parameters === "", this.lookedInto);
  }

  private async readAbilities(): Promise<void> {
    if (!this.known.get()) await this.refresh().catch(() => undefined);
    await this.lookIntoFiles(({ embeds }) => embeds === null, this.abilitiesAsked);
  }

  /** Once each: a server that does not tell will not. */
  private async lookIntoFiles(isUnknown: (model: ModelInfo) => boolean, asked: Set<string>): Promise<void> {
    for (const { name } of this.list.get().filter(isUnknown)) {
      if (asked.has(name)) continue;
      asked.add(name);
      await this.look(name).catch(() => null);
    }
  }

  private async look(name: string): Promise<unknown> {
    const details = await this.api.json(pathOf(name));
    const before = this.list.get().find((model) => model.name === name);
    const model = readModel(details, before);
    if (model === null) throw new Failure("INFERENCE_ERROR", "The server's answer cannot be read.");
    if (model.state === "loading") model.progress = readProgress(details, before?.progress ?? null);
    this.change(name, model);
    return details;
  }

  private takeLine(name: string, line: unknown): void {
    if (!isRecord(line)) return;
    if (line["error"] !== undefined) throw failureOfStatus(500, line, null);
    const before = this.list.get().find((model) => model.name === name)?.progress ?? null;
    if (line["status"] === "ready") {
      this.change(name, { state: "loaded", progress: null, contextLength: numberOr(line["context_length"], null) });
    } else {
      this.change(name, { state: "loading", progress: readProgress(line, before) });
    }
  }

  private async control(action: () => Promise<void>): Promise<void> {
    try {
      await action();
      this.mayControl.set(true);
    } catch (error) {
      const failure = asFailure(error);
      if (failure.error.code === "NOT_ALLOWED") this.mayControl.set(false);
      throw failure;
    } finally {
      await this.refresh().catch(() => undefined);
    }
  }

  private change(name: string, patch: Partial<ModelInfo>): void {
    this.list.set(this.list.get().map((model) => (model.name === name ? { ...model, ...patch, name } : model)));
  }
}

// Settings, theme and templates, kept in localStorage where there is one. Other tabs' changes are heard and taken over.
import { field, isRecord, listOr, numberOr, parseJson, textOr } from "./json.ts";
import { Cell } from "./observable.ts";
import { readRetrieval } from "./retrieval.ts";
import type { Conversation, NumberBounds, NumberSetting, PromptTemplate, Settings, SettingsStore, Theme } from "./types.ts";

/** What of localStorage is used; a browser may refuse it altogether. */
export interface TextStorage {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

/** `usual`: what the server does without it (default_sampling of src/session/recommended_sampling.cpp). */
export const settingBounds: Readonly<Record<NumberSetting, NumberBounds>> = {
  temperature: { least: 0, most: 2, step: 0.05, usual: 0.7 },
  topK: { least: 1, most: 100, step: 1, usual: 40 },
  topP: { least: 0, most: 1, step: 0.01, usual: 0.95 },
  minP: { least: 0, most: 1, step: 0.01, usual: 0.05 },
  maxTokens: { least: 1, most: 131072, step: 1, usual: null },
  seed: { least: 0, most: 2 ** 53 - 1, step: 1, usual: null },
  retrievalTexts: { least: 1, most: 32, step: 1, usual: 4 },
};

const mostStops = 4;
const longestStop = 200;

export function emptySettings(): Settings {
  return {
    temperature: null, topK: null, topP: null, minP: null, maxTokens: null, seed: null, stop: [], systemPrompt: "",
    retrieval: null, retrievalAddress: "", retrievalModel: "", retrievalTexts: null,
  };
}

function boundedNumber(name: NumberSetting, value: unknown): number | null {
  const given = numberOr(value, null);
  if (given === null) return null;
  const { least, most, step } = settingBounds[name];
  const bounded = Math.min(most, Math.max(least, given));
  return step === 1 ? Math.round(bounded) : bounded;
}

/** What of `value` is usable, within its bounds; what is not there is not in the answer either. */
export function readSettings(value: unknown): Partial<Settings> {
  const read: Partial<Settings> = {};
  if (!isRecord(value)) return read;
  for (const name of Object.keys(settingBounds) as NumberSetting[]) {
    if (Object.hasOwn(value, name)) read[name] = boundedNumber(name, value[name]);
  }
  if (Array.isArray(value["stop"])) {
    const texts = value["stop"].filter((text): text is string => typeof text === "string" && text !== "");
    read.stop = texts.slice(0, mostStops).map((text) => text.slice(0, longestStop));
  }
  if (typeof value["systemPrompt"] === "string") read.systemPrompt = value["systemPrompt"];
  return { ...read, ...readRetrieval(value) };
}

/** What of a conversation's settings is its own: an empty field leaves the choice to the defaults. */
function ownSettings(settings: Partial<Settings>): Partial<Settings> {
  const isEmpty = (value: unknown): boolean => value === null || value === "" || (Array.isArray(value) && value.length === 0);
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => !isEmpty(value)));
}

/** The fields of a request's body that say how an answer is drawn; what is null is left to the server. */
export function requestFields(settings: Settings): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  const numbers: readonly (readonly [string, number | null])[] = [
    ["temperature", settings.temperature], ["top_k", settings.topK], ["top_p", settings.topP], ["min_p", settings.minP],
    ["max_tokens", settings.maxTokens], ["seed", settings.seed],
  ];
  for (const [name, value] of numbers) {
    if (value !== null) fields[name] = value;
  }
  if (settings.stop.length > 0) fields["stop"] = settings.stop;
  return fields;
}

const builtInTemplates: readonly PromptTemplate[] = [
  { id: "summarize", name: "Summarize", text: "Summarize the following text in three sentences:\n\n{text}", own: false },
  { id: "translate", name: "Translate", text: "Translate the following text into English. Answer with the translation alone:\n\n{text}", own: false },
  { id: "code", name: "Code", text: "Write a program that does the following, with a short explanation:\n\n{text}", own: false },
  { id: "explain", name: "Explain", text: "Explain the following so that somebody new to the subject understands it:\n\n{text}", own: false },
];

function readTemplates(value: unknown): PromptTemplate[] {
  const templates: PromptTemplate[] = [];
  for (const one of listOr(value)) {
    const id = textOr(field(one, "id"), "");
    const name = textOr(field(one, "name"), "");
    const text = textOr(field(one, "text"), "");
    if (id !== "" && name !== "" && text !== "") templates.push({ id, name, text, own: true });
  }
  return templates;
}

interface Kept {
  defaults: Settings;
  theme: Theme;
  templates: PromptTemplate[];
  sidebarOpen: boolean;
  lastModel: string | null;
}

const version = 1;
const place = "quarrel.settings";

const notKept = "The browser could not store your settings: what you changed last, templates too, holds in this tab only. Copy what you want to keep.";
const newerKept = "A newer version of the page has stored your settings, which this one leaves as they are: what you change holds in this tab only. Load the page again.";

/** What is kept, as it is; null: a newer version of the page has written it. */
function keptRecord(text: string | null): Record<string, unknown> | null {
  const kept = text === null ? undefined : parseJson(text);
  if (!isRecord(kept)) return {};
  return numberOr(kept["version"], version) > version ? null : kept;
}

function readKept(kept: Record<string, unknown>): Kept {
  const { theme } = kept;
  return {
    defaults: { ...emptySettings(), ...readSettings(kept["defaults"]) },
    theme: theme === "light" || theme === "dark" ? theme : "system",
    templates: readTemplates(kept["templates"]),
    sidebarOpen: kept["sidebarOpen"] !== false,
    lastModel: textOr(kept["lastModel"], null),
  };
}

/** The theme alone, for what is drawn before all the rest is there. */
export function keptTheme(storage: TextStorage): Theme {
  return readKept(keptRecord(storage.getItem(place)) ?? {}).theme;
}

export interface OwnSettingsStore extends SettingsStore {
  /** Another tab has written. */
  readAgain(): void;
}

/** The record in localStorage, of which a change writes its own fields alone: another tab may have changed the others, and
 * this one not have heard of it yet. */
class KeptSettings {
  readonly problem = new Cell("");
  private readonly storage: TextStorage | null;
  private known = readKept({}); // what was read last
  private own: Partial<Kept> = {}; // what could not be kept holds for this page

  constructor(storage: TextStorage | null) {
    this.storage = storage;
  }

  read(): Kept {
    const kept = this.record();
    if (kept !== null) this.known = readKept(kept);
    return { ...this.known, ...this.own };
  }

  write(patch: Partial<Kept>): void {
    this.own = { ...this.own, ...patch };
    const kept = this.record();
    if (kept === null || this.storage === null) return;
    try {
      this.storage.setItem(place, JSON.stringify({ ...kept, ...this.own, version }));
      this.own = {};
      this.problem.set("");
    } catch {
      this.problem.set(notKept);
    }
  }

  private record(): Record<string, unknown> | null {
    const kept = keptRecord(this.storage?.getItem(place) ?? null);
    if (kept === null) this.problem.set(newerKept);
    return kept;
  }
}

/** Listeners draw for every change: what is the same is none. */
function setChanged<T>(cell: Cell<T>, value: T): void {
  if (JSON.stringify(value) !== JSON.stringify(cell.get())) cell.set(value);
}

export function createSettings(storage: TextStorage | null, newId: () => string): OwnSettingsStore {
  const record = new KeptSettings(storage);
  const first = record.read();
  const defaults = new Cell(first.defaults);
  const theme = new Cell(first.theme);
  const templates = new Cell<readonly PromptTemplate[]>([...builtInTemplates, ...first.templates]);
  const sidebarOpen = new Cell(first.sidebarOpen);
  const lastModel = new Cell(first.lastModel);

  const show = (kept: Kept): void => {
    setChanged(defaults, kept.defaults);
    setChanged(theme, kept.theme);
    setChanged(templates, [...builtInTemplates, ...kept.templates]);
    setChanged(sidebarOpen, kept.sidebarOpen);
    setChanged(lastModel, kept.lastModel);
  };
  const change = (make: (kept: Kept) => Partial<Kept>): void => {
    record.write(make(record.read()));
    show(record.read());
  };

  return {
    bounds: settingBounds, defaults, theme, templates, sidebarOpen, lastModel, problem: record.problem,
    updateDefaults: (patch) => change((kept) => ({ defaults: { ...kept.defaults, ...readSettings(patch) } })),
    resetDefaults: () => change(() => ({ defaults: emptySettings() })),
    effective: (conversation: Conversation | null) => ({ ...defaults.get(), ...ownSettings(conversation?.settings ?? {}) }),
    setTheme: (chosen) => change(() => ({ theme: chosen })),
    setSidebarOpen: (open) => change(() => ({ sidebarOpen: open })),
    setLastModel: (name) => change(() => ({ lastModel: name })),
    saveTemplate: ({ id, name, text }) => {
      const saved = { id: id ?? newId(), name, text, own: true };
      change(({ templates: own }) => ({ templates: own.some((one) => one.id === saved.id) ? own.map((one) => (one.id === saved.id ? saved : one)) : [...own, saved] }));
    },
    removeTemplate: (id) => change(({ templates: own }) => ({ templates: own.filter((one) => one.id !== id) })),
    readAgain: () => show(record.read()),
  };
}

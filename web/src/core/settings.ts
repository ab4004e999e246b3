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

export const settingBounds: Readonly<Record<NumberSetting, NumberBounds>> = {
  temperature: { least: 0, most: 2, step: 0.05, usual: 0.8 },
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

function readKept(text: string | null): Kept {
  const kept = text === null ? undefined : parseJson(text);
  const theme = field(kept, "theme");
  return {
    defaults: { ...emptySettings(), ...readSettings(field(kept, "defaults")) },
    theme: theme === "light" || theme === "dark" ? theme : "system",
    templates: readTemplates(field(kept, "templates")),
    sidebarOpen: field(kept, "sidebarOpen") !== false,
    lastModel: textOr(field(kept, "lastModel"), null),
  };
}

/** The theme alone, for what is drawn before all the rest is there. */
export function keptTheme(storage: TextStorage): Theme {
  return readKept(storage.getItem(place)).theme;
}

export interface OwnSettingsStore extends SettingsStore {
  /** Another tab has written. */
  readAgain(): void;
}

function templateCommands(templates: Cell<readonly PromptTemplate[]>, newId: () => string, write: () => void): Pick<SettingsStore, "saveTemplate" | "removeTemplate"> {
  return {
    saveTemplate: ({ id, name, text }) => {
      const saved = { id: id ?? newId(), name, text, own: true };
      const known = templates.get().some((one) => one.own && one.id === saved.id);
      templates.set(known ? templates.get().map((one) => (one.id === saved.id ? saved : one)) : [...templates.get(), saved]);
      write();
    },
    removeTemplate: (id) => {
      templates.set(templates.get().filter((one) => !one.own || one.id !== id));
      write();
    },
  };
}

export function createSettings(storage: TextStorage | null, newId: () => string): OwnSettingsStore {
  const read = (): Kept => readKept(storage?.getItem(place) ?? null);
  const first = read();
  const defaults = new Cell(first.defaults);
  const theme = new Cell(first.theme);
  const templates = new Cell<readonly PromptTemplate[]>([...builtInTemplates, ...first.templates]);
  const sidebarOpen = new Cell(first.sidebarOpen);
  const lastModel = new Cell(first.lastModel);

  const write = (): void => {
    const kept: Kept & { version: number } = {
      version, defaults: defaults.get(), theme: theme.get(), templates: templates.get().filter((one) => one.own),
      sidebarOpen: sidebarOpen.get(), lastModel: lastModel.get(),
    };
    try {
      storage?.setItem(place, JSON.stringify(kept));
    } catch {
      // Full, or not allowed: they hold for this page.
    }
  };
  const put = <T>(cell: Cell<T>, value: T): void => {
    cell.set(value);
    write();
  };

  return {
    bounds: settingBounds, defaults, theme, templates, sidebarOpen, lastModel,
    updateDefaults: (patch) => put(defaults, { ...defaults.get(), ...readSettings(patch) }),
    resetDefaults: () => put(defaults, emptySettings()),
    effective: (conversation: Conversation | null) => ({ ...defaults.get(), ...ownSettings(conversation?.settings ?? {}) }),
    setTheme: (chosen) => put(theme, chosen),
    setSidebarOpen: (open) => put(sidebarOpen, open),
    setLastModel: (name) => put(lastModel, name),
    ...templateCommands(templates, newId, write),
    readAgain: () => {
      const now = read();
      defaults.set(now.defaults);
      theme.set(now.theme);
      templates.set([...builtInTemplates, ...now.templates]);
      sidebarOpen.set(now.sidebarOpen);
      lastModel.set(now.lastModel);
    },
  };
}

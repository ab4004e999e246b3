// How answers are drawn, for this conversation or as defaults, and what belongs to the page: theme and key. A slide-out
// over the right edge.
import type { Conversation, NumberSetting, Recommended, Settings } from "../core/types.ts";
import { waitBefore } from "../core/backoff.ts";
import { composing } from "./composing.ts";
import { button, segments, tool, type Segments } from "./controls.ts";
import { attribute, element, setText, uniqueId } from "./dom.ts";
import { currentModel } from "./model_picker.ts";
import type { Page } from "./page.ts";
import { follow } from "./page.ts";
import { retrievalSettings, type Knob } from "./retrieval_settings.ts";
import { THEMES } from "./theme.ts";

type Scope = "conversation" | "defaults";

interface NumberKnob {
  name: NumberSetting;
  label: string;
  hint: string;
  slider: boolean;
}

const NUMBERS: readonly NumberKnob[] = [
  { name: "temperature", label: "Temperature", hint: "Higher is more varied; 0 always picks the most likely token.", slider: true },
  { name: "topK", label: "Top-k", hint: "Only this many of the most likely tokens are considered.", slider: true },
  { name: "topP", label: "Top-p", hint: "Only the most likely tokens that together reach this probability are considered.", slider: true },
  { name: "minP", label: "Min-p", hint: "Ignores tokens less likely than this share of the most likely one.", slider: true },
  { name: "maxTokens", label: "Max tokens", hint: "Answers are cut at this length. Empty: no limit.", slider: false },
  { name: "seed", label: "Seed", hint: "The same seed gives the same answer. Empty: a new one each time.", slider: false },
];

const noValues: Recommended = { temperature: null, topK: null, topP: null, minP: null };

export class SettingsPanel {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #body = element("div", { class: "sheet__body" });
  readonly #knobs: Knob[];
  readonly #scopes: Segments<Scope>;
  readonly #toggled: () => void;
  #scope: Scope = "conversation";
  #recommended = noValues;
  #ownPrompt: string | null = null;
  #described = ""; // the model that was asked for
  #refusals = 0; // so often in a row its details did not come
  #anchor: HTMLElement | null = null;

  /** `toggled`: it was opened or closed; the focus moves after that. */
  constructor(page: Page, toggled: () => void) {
    this.#page = page;
    this.#toggled = toggled;
    const titleId = uniqueId("settings");
    this.#scopes = segments("Scope of the settings", [{ value: "conversation", label: "This chat" }, { value: "defaults", label: "Defaults" }], (scope) => {
      this.#scope = scope;
      this.#draw();
    });
    this.#knobs = [...NUMBERS.map((each) => this.#numberKnob(each)), this.#stopKnob(), this.#promptKnob(), this.#retrievalKnob()];
    const knobs = element("div", { class: "knobs" }, ...this.#knobs.map((knob) => knob.element));
    this.#body.append(this.#scopes.element, knobs, this.#themes(), this.#key());
    this.element = element("section", { class: "sheet", role: "dialog", "aria-labelledby": titleId, inert: true },
      element("div", { class: "sheet__head" }, element("h2", { class: "sheet__title", id: titleId }, "Settings"), tool("close", "Close settings", () => this.toggle(false))),
      this.#body,
      element("div", { class: "sheet__foot" }, button({ label: "Reset", press: () => this.#reset() }), button({ label: "Done", look: "main", press: () => this.toggle(false) })));
    this.#body.addEventListener("focusout", () => this.#draw()); // what has changed meanwhile
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || composing(event)) return;
      event.stopPropagation();
      this.toggle(false);
    });
    const draw = (): void => this.#draw();
    page.core.settings.defaults.subscribe(draw);
    page.core.conversations.changes.on((change) => change.kind === "list" && draw());
    page.core.chat.running.subscribe(draw);
    page.conversation.subscribe(draw);
    // The list may come after the panel was opened, and with it the model whose values are shown.
    for (const source of [page.core.models.list, page.core.models.defaultModel, page.core.models.known] as const) source.subscribe(draw);
  }

  get open(): boolean {
    return this.element.classList.contains("sheet--open");
  }

  toggle(open: boolean, anchor?: HTMLElement): void {
    if (open === this.open) return;
    this.element.classList.toggle("sheet--open", open);
    this.element.inert = !open;
    if (anchor) this.#anchor = anchor;
    attribute(this.#anchor ?? this.element, "aria-expanded", open ? "true" : "false");
    this.#toggled();
    if (!open) {
      this.#anchor?.focus();
      return;
    }
    this.#draw();
    this.#scopes.focus();
  }

  /** Opens this chat's settings with the focus on one of them. */
  openAt(name: keyof Settings, anchor: HTMLElement | null): void {
    this.#scope = "conversation";
    this.toggle(true, anchor ?? undefined);
    this.#draw();
    const field = this.#body.querySelector<HTMLElement>(`[data-setting=${name}]`);
    field?.scrollIntoView({ block: "center" });
    field?.focus();
  }

  /** Another conversation is about to be shown: what was typed in a field is still this one's. */
  settle(): void {
    const { activeElement } = document;
    if (activeElement instanceof HTMLElement && this.element.contains(activeElement)) activeElement.blur();
  }

  #conversation(): Conversation | null {
    return this.#page.core.conversations.get(this.#page.conversation.get());
  }

  /** What is set in the scope that is shown; undefined: it is as further out. */
  #own<K extends keyof Settings>(name: K): Settings[K] | undefined {
    const { core } = this.#page;
    return this.#scope === "defaults" ? core.settings.defaults.get()[name] : this.#conversation()?.settings[name];
  }

  #change(patch: Partial<Settings>): void {
    const { core } = this.#page;
    if (this.#scope === "defaults") core.settings.updateDefaults(patch);
    else core.conversations.updateSettings(this.#page.conversation.get(), patch);
    this.#draw();
  }

  #reset(): void {
    const { core } = this.#page;
    // A field that has the focus is not drawn again. Some browsers give a button none when it is pressed.
    if (!(document.activeElement instanceof HTMLButtonElement)) this.settle();
    if (this.#scope === "defaults") core.settings.resetDefaults();
    else core.conversations.resetSettings(this.#page.conversation.get());
    this.#draw();
    this.#page.announce("Settings reset.");
  }

  #draw(): void {
    if (!this.open) return;
    this.#scopes.show(this.#scope);
    const busy = this.#page.core.chat.running.get().has(this.#page.conversation.get());
    for (const field of this.#body.querySelectorAll<HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement>(".knobs input, .knobs textarea, .knobs select")) field.disabled = busy;
    for (const knob of this.#knobs) knob.draw();
    const model = currentModel(this.#page);
    if (model !== null && model !== this.#described) void this.#describe(model);
  }

  async #describe(model: string): Promise<void> {
    this.#described = model;
    try {
      const details = await this.#page.core.models.details(model);
      if (this.#described !== model) return;
      this.#recommended = details.recommended;
      this.#ownPrompt = details.systemPrompt;
      this.#refusals = 0;
    } catch {
      if (this.#described !== model) return;
      // Another model's values are not this one's. They are asked for again as long as the panel is open.
      this.#recommended = noValues;
      this.#ownPrompt = null;
      setTimeout(() => {
        if (this.#described === model) this.#described = "";
        this.#draw();
      }, waitBefore(this.#refusals++));
    }
    this.#draw();
  }

  /** What counts where this scope says nothing, and from where. */
  #fallback(name: NumberSetting): { value: number | null; from: string } {
    const defaults = this.#page.core.settings.defaults.get()[name];
    if (this.#scope === "conversation" && defaults !== null) return { value: defaults, from: "Your default" };
    const recommended = this.#recommended[name as keyof Recommended] ?? null; // of some
    if (recommended !== null) return { value: recommended, from: "Recommended for this model" };
    return { value: this.#page.core.settings.bounds[name].usual, from: "Server default" };
  }

  #numberKnob({ name, label, hint, slider }: NumberKnob): Knob {
    const bounds = this.#page.core.settings.bounds[name];
    const id = uniqueId(name);
    const value = element("input", { class: "input knob__value", type: "number", id, min: bounds.least, max: bounds.most, step: slider ? bounds.step : 1, inputmode: "decimal", "data-setting": name });
    const range = slider ? element("input", { class: "range", type: "range", min: bounds.least, max: bounds.most, step: bounds.step, "aria-label": `${label}, slider` }) : null;
    const from = element("span", { class: "knob__hint" });
    const made = element("div", { class: "knob" }, element("div", { class: "knob__row" }, element("label", { class: "knob__label", for: id }, label), value), range, element("span", { class: "knob__hint" }, hint), from);
    const set = (text: string): void => this.#change({ [name]: text === "" ? null : clamp(Number(text), bounds.least, bounds.most) });
    value.addEventListener("change", () => {
      set(value.value);
      value.value = String(this.#own(name) ?? ""); // within its bounds, though it has the focus
    });
    range?.addEventListener("input", () => set(range.value));
    return { element: made, draw: () => {
      const own = this.#own(name) ?? null;
      const fallback = this.#fallback(name);
      made.classList.toggle("knob--own", own !== null);
      if (document.activeElement !== value) value.value = own === null ? "" : String(own); // what is being typed stays
      value.placeholder = fallback.value === null ? "none" : String(fallback.value);
      const shown = own ?? fallback.value ?? bounds.least;
      if (range) range.value = String(shown);
      range?.style.setProperty("--share", `${((shown - bounds.least) / (bounds.most - bounds.least)) * 100}%`);
      setText(from, fallback.value === null ? "" : `${fallback.from}: ${fallback.value}`);
      from.hidden = fallback.value === null;
    } };
  }

  #stopKnob(): Knob {
    const id = uniqueId("stop");
    const field = element("textarea", { class: "input", id, rows: 2, spellcheck: "false", "data-setting": "stop" });
    field.addEventListener("change", () => this.#change({ stop: field.value.split("\n").filter((line) => line !== "").slice(0, 4) }));
    const made = element("div", { class: "field" }, element("label", { class: "field__label", for: id }, "Stop texts"), field, element("span", { class: "field__hint" }, "One per line, up to four. The answer stops before any of them."));
    return { element: made, draw: () => {
      if (document.activeElement !== field) field.value = (this.#own("stop") ?? []).join("\n");
    } };
  }

  #promptKnob(): Knob {
    const id = uniqueId("prompt");
    const field = element("textarea", { class: "input", id, rows: 4, dir: "auto", "data-setting": "systemPrompt" });
    const hint = element("span", { class: "field__hint" });
    field.addEventListener("change", () => this.#change({ systemPrompt: field.value }));
    const made = element("div", { class: "field" }, element("label", { class: "field__label", for: id }, "System prompt"), field, hint);
    return { element: made, draw: () => {
      if (document.activeElement !== field) field.value = this.#own("systemPrompt") ?? "";
      const inherited = this.#scope === "conversation" ? this.#page.core.settings.defaults.get().systemPrompt : "";
      field.placeholder = inherited !== "" ? inherited : this.#ownPrompt ?? "";
      setText(hint, this.#ownPrompt === null ? "Instructions that the model reads before the conversation." : "Instructions that the model reads before the conversation, in place of its own.");
    } };
  }

  #retrievalKnob(): Knob {
    const texts = this.#numberKnob({ name: "retrievalTexts", label: "Texts", hint: "How many, if they all fit into the prompt.", slider: false });
    return retrievalSettings(this.#page, {
      own: (name) => this.#own(name),
      inherited: (name) => (this.#scope === "conversation" ? this.#page.core.settings.defaults.get()[name] : undefined),
      change: (patch) => this.#change(patch),
    }, texts);
  }

  #themes(): HTMLElement {
    const { settings } = this.#page.core;
    const group = segments("Theme", THEMES.map(({ theme, label }) => ({ value: theme, label })), (theme) => settings.setTheme(theme));
    follow(settings.theme, (chosen) => group.show(chosen));
    return element("div", { class: "field" }, element("span", { class: "field__label" }, "Theme"), group.element);
  }

  #key(): HTMLElement {
    const { keys } = this.#page.core;
    const hint = element("span", { class: "field__hint" });
    const made = element("div", { class: "field" }, element("span", { class: "field__label" }, "Key"), hint,
      button({ label: "Forget the key", icon: "key", press: () => {
        keys.forget();
        draw();
      } }));
    const draw = (): void => {
      const state = keys.state.get();
      made.hidden = state !== "given" && !(state === "open" && keys.isKept());
      if (state === "open") setText(hint, "A key is kept, encrypted. This server asks for none.");
      else setText(hint, keys.canEncrypt ? "A key is in use." : "A key is in use, for this session only.");
    };
    follow(keys.state, draw);
    return made;
  }
}

function clamp(value: number, least: number, most: number): number {
  return Number.isFinite(value) ? Math.min(most, Math.max(least, value)) : least;
}

// The models of the server: which one answers, what is in memory and how much is reserved for it, and loading and unloading for who may.
import type { ModelInfo } from "../core/types.ts";
import { bar, button } from "./controls.ts";
import { element, renew, replace, setText } from "./dom.ts";
import { bytes, duration } from "./format.ts";
import { icon } from "./icons.ts";
import { hang } from "./menu.ts";
import { reason, type Page } from "./page.ts";

export function modelPicker(page: Page): HTMLButtonElement {
  const name = element("span", { class: "picker__name" });
  const facts = element("span", { class: "picker__facts" });
  const made = button({ label: "", class: "picker", press: () => toggle(page, made), attributes: { "aria-haspopup": "dialog", "aria-expanded": "false" } });
  replace(made, element("span", { class: "unseen" }, "Model: "), name, facts, icon("down", true));
  const draw = (): void => {
    const model = currentModel(page);
    const info = page.core.models.list.get().find((each) => each.name === model);
    setText(name, model ?? (page.core.models.known.get() ? "No model" : "Model"));
    made.title = model ?? ""; // a long name is cut
    setText(facts, info ? [info.parameters, info.quantization].filter(Boolean).join(" · ") : "");
  };
  const { core } = page;
  for (const source of [core.models.list, core.models.defaultModel, core.models.known, core.settings.lastModel, page.conversation] as const) source.subscribe(draw);
  core.conversations.changes.on(draw);
  draw();
  return made;
}

/** The model that the conversation asks. */
export function currentModel(page: Page): string | null {
  return page.core.models.offered(page.core.conversations.get(page.conversation.get())?.model ?? null);
}

function toggle(page: Page, anchor: HTMLButtonElement): void {
  if (anchor.getAttribute("aria-expanded") === "true") {
    document.querySelector<HTMLElement>(".models")?.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
    return;
  }
  void page.core.models.refresh().catch(() => undefined);
  const list = element("ul", {});
  const foot = element("p", { class: "models__foot" });
  const panel = element("div", { class: "menu models", role: "dialog", "aria-label": "Models" }, list, foot);
  const draw = (): void => {
    const models = page.core.models.list.get();
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset["focus"] : undefined;
    renew(list, ...models.map((model) => row(page, model, (choose) => {
      close();
      choose();
    })));
    const inUse = models.reduce((sum, model) => sum + model.memory, 0);
    setText(foot, models.length === 0 ? "The server offers no model. Fetch one with quarrel pull." : `${bytes(inUse)} of memory reserved. A model is loaded when it is first used.`);
    if (focused !== undefined) panel.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  };
  draw();
  const ends = [page.core.models.list.subscribe(draw), page.core.models.mayControl.subscribe(draw)];
  const close = hang(anchor, panel, () => ends.forEach((end) => end()));
  panel.querySelector<HTMLElement>(".model--current button, button")?.focus();
}

function row(page: Page, model: ModelInfo, closeAnd: (then: () => void) => void): HTMLElement {
  const current = currentModel(page) === model.name;
  const choose = (): void => closeAnd(() => {
    page.core.settings.setLastModel(model.name);
    page.core.conversations.setModel(page.conversation.get(), model.name);
  });
  const open = element("button", { type: "button", class: "model__open", "aria-pressed": current ? "true" : "false", "data-focus": `open ${model.name}`, on: { click: choose } },
    current ? icon("check") : element("span"),
    element("span", { class: "model__name" }, model.name),
    element("span", { class: "model__facts" }, ...facts(model).map((text) => element("span", {}, text)), state(model)));
  return element("li", { class: current ? "model model--current" : "model" }, open, action(page, model), progress(model));
}

export function facts(model: ModelInfo): string[] {
  return [model.parameters, model.quantization, bytes(model.size)].filter(Boolean);
}

/** A dot and a word: what the model is doing, and what it takes. */
export function state(model: ModelInfo): HTMLElement {
  const looks = { loaded: "dot dot--good", loading: "dot dot--busy dot--pulse", unloading: "dot dot--warn", unloaded: "dot" } as const;
  const text = model.state === "loaded" && model.memory > 0 ? `${bytes(model.memory)} reserved` : { loaded: "in memory", loading: "loading", unloading: "unloading", unloaded: "not loaded" }[model.state];
  return element("span", { class: "model__state" }, element("span", { class: looks[model.state] }), text);
}

export function action(page: Page, model: ModelInfo): HTMLElement | null {
  if (page.core.models.mayControl.get() !== true) return null;
  const loaded = model.state === "loaded";
  const change = (): void => {
    const asked = loaded ? page.core.models.unload(model.name) : page.core.models.load(model.name);
    asked.catch((failure: unknown) => page.note(reason(failure)));
  };
  const made = button({ label: loaded ? "Unload" : "Load", small: true, class: "model__action", press: change,
    attributes: { "aria-label": `${loaded ? "Unload" : "Load"} ${model.name}`, "data-focus": `change ${model.name}` } });
  made.disabled = model.state === "loading" || model.state === "unloading";
  return made;
}

export function progress(model: ModelInfo): HTMLElement | null {
  if (model.progress === null) return null;
  const { completed, total, startedAt, warming } = model.progress;
  const shown = bar(`Loading ${model.name}`);
  shown.set(total > 0 ? completed / total : null);
  const text = warming ? "Warming up" : total > 0 ? `${bytes(completed)} of ${bytes(total)}, ${duration(Date.now() - startedAt)}` : "Loading";
  return element("div", { class: "model__progress" }, shown.element, element("span", { class: "model__facts" }, text));
}

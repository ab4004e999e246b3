// Whether questions are asked with texts of a dataset: its address, the model that it was filled with, how many texts.
import { isAddress } from "../core/retrieval.ts";
import type { ModelInfo, Settings } from "../core/types.ts";
import { attribute, element, replace, setText, uniqueId } from "./dom.ts";
import type { Page } from "./page.ts";

export interface Knob {
  element: HTMLElement;
  draw(): void;
}

/** The settings that are shown: a conversation's, or the defaults. */
export interface SettingsScope {
  /** undefined: it is as further out. */
  own<K extends keyof Settings>(name: K): Settings[K] | undefined;
  /** What counts where this scope says nothing; undefined: there is nothing further out. */
  inherited<K extends keyof Settings>(name: K): Settings[K] | undefined;
  change(patch: Partial<Settings>): void;
}

export function retrievalSettings(page: Page, scope: SettingsScope, texts: Knob): Knob {
  const box = element("input", { type: "checkbox", "data-setting": "retrieval" });
  const address = addressField(scope);
  const model = modelField(page, scope);
  const more = element("div", { class: "retrieval__more" }, address.element, model.element, texts.element);
  const made = element("div", { class: "retrieval" },
    element("label", { class: "choice" }, box, element("span", { class: "field__label" }, "Ask with texts of a dataset"),
      element("span", { class: "choice__hint" }, "The texts nearest to a question are put before it, and listed under the answer.")), more);
  const draw = (): void => {
    box.checked = scope.own("retrieval") ?? scope.inherited("retrieval") ?? false;
    more.hidden = !box.checked;
    if (!box.checked) return;
    void page.core.models.learnAbilities();
    for (const knob of [address, model, texts]) knob.draw();
  };
  box.addEventListener("change", () => {
    const before = scope.inherited("retrieval") ?? false;
    scope.change({ retrieval: box.checked === before ? null : box.checked });
    if (box.checked) void model.choose();
  });
  page.core.models.list.subscribe(() => {
    if (box.checked) model.draw();
  });
  return { element: made, draw };
}

function addressField(scope: SettingsScope): Knob {
  const id = uniqueId("address");
  const errorId = uniqueId("address-error");
  const field = element("input", { class: "input", id, type: "text", inputmode: "url", autocomplete: "off", autocapitalize: "off", spellcheck: "false", "data-setting": "retrievalAddress", "aria-describedby": errorId });
  const hint = element("span", { class: "field__hint" });
  const error = element("span", { class: "field__error", id: errorId });
  const draw = (): void => {
    const own = scope.own("retrievalAddress") ?? "";
    const inherited = scope.inherited("retrievalAddress") ?? "";
    if (document.activeElement !== field) field.value = own;
    field.placeholder = inherited === "" ? "longbow://localhost/notes" : inherited;
    setText(hint, inherited === "" ? "Empty: the dataset of the server's settings." : "Empty: your default.");
    const isWrong = own !== "" && !isAddress(own);
    attribute(field, "aria-invalid", isWrong ? "true" : null);
    setText(error, isWrong ? "An address looks like longbow://host/dataset." : "");
    error.hidden = !isWrong;
  };
  field.addEventListener("change", () => {
    scope.change({ retrievalAddress: field.value });
    field.value = scope.own("retrievalAddress") ?? ""; // as it is kept, though it has the focus
  });
  return { element: element("div", { class: "field" }, element("label", { class: "field__label", for: id }, "Dataset"), field, error, hint), draw };
}

/** Those that make vectors; of a server that does not tell, all. */
function embeddingModels(models: readonly ModelInfo[]): readonly ModelInfo[] {
  const known = models.filter(({ embeds }) => embeds === true);
  return known.length > 0 ? known : models.filter(({ embeds }) => embeds === null);
}

function modelField(page: Page, scope: SettingsScope): Knob & { choose(): Promise<void> } {
  const { models } = page.core;
  const id = uniqueId("embedding-model");
  const select = element("select", { class: "input", id, "data-setting": "retrievalModel" });
  let drawn = "";
  const draw = (): void => {
    const own = scope.own("retrievalModel") ?? "";
    const inherited = scope.inherited("retrievalModel") ?? "";
    const names = embeddingModels(models.list.get()).map(({ name }) => name);
    const empty = inherited !== "" ? `Your default: ${inherited}` : names.length > 0 ? "Choose a model" : "No embedding model here";
    const options = [["", empty], ...(own === "" || names.includes(own) ? [] : [[own, `${own} (not offered)`]]), ...names.map((name) => [name, name])];
    const key = JSON.stringify(options);
    if (key !== drawn) replace(select, ...options.map(([value, label]) => element("option", { value: value ?? "" }, label)));
    drawn = key;
    select.value = own;
  };
  select.addEventListener("change", () => scope.change({ retrievalModel: select.value }));
  /** The first, where none is chosen. */
  const choose = async (): Promise<void> => {
    await models.learnAbilities();
    const chosen = scope.own("retrievalModel") || scope.inherited("retrievalModel");
    const first = embeddingModels(models.list.get())[0]?.name;
    if (!chosen && first !== undefined) scope.change({ retrievalModel: first });
  };
  const hint = element("span", { class: "field__hint" }, "The one that the dataset was filled with.");
  return { element: element("div", { class: "field" }, element("label", { class: "field__label", for: id }, "Embedding model"), select, hint), draw, choose };
}

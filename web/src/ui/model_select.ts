// A choice of the server's models, kept in step with its list.
import type { ModelInfo } from "../core/types.ts";
import { element, replace, uniqueId } from "./dom.ts";
import { follow, type Page } from "./page.ts";

export function modelSelect(page: Page, label: string, prefers?: (model: ModelInfo) => boolean): { field: HTMLElement; select: HTMLSelectElement } {
  const select = element("select", { class: "input", id: uniqueId("model") });
  let chosen = false;
  select.addEventListener("change", () => {
    chosen = true;
  });
  follow(page.core.models.list, (models) => {
    const before = select.value;
    replace(select, ...models.map(({ name }) => element("option", { value: name }, name)));
    const wanted = chosen ? before : models.find((model) => prefers?.(model))?.name ?? page.core.models.defaultModel.get() ?? "";
    select.value = models.some(({ name }) => name === wanted) ? wanted : models[0]?.name ?? "";
  });
  return { select, field: element("div", { class: "field" }, element("label", { class: "field__label", for: select.id }, label), select) };
}

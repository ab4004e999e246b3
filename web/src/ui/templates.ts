// The user's own templates: written, changed and removed in a dialog.
import type { PromptTemplate } from "../core/types.ts";
import { button, tool } from "./controls.ts";
import { openDialog } from "./dialog.ts";
import { element, replace, uniqueId } from "./dom.ts";
import type { Page } from "./page.ts";

export function manageTemplates(page: Page): void {
  const { settings } = page.core;
  const list = element("ul", { class: "plain" });
  const name = element("input", { class: "input", id: uniqueId("name"), maxlength: 60, autocomplete: "off" });
  const text = element("textarea", { class: "input", id: uniqueId("text"), rows: 5 });
  let changing: string | undefined;

  const clear = (): void => {
    changing = undefined;
    name.value = "";
    text.value = "";
    save.disabled = true;
  };
  const save = button({ label: "Save", look: "main", press: () => {
    settings.saveTemplate({ ...(changing === undefined ? {} : { id: changing }), name: name.value.trim(), text: text.value });
    clear();
  } });
  const change = (template: PromptTemplate): void => {
    changing = template.id;
    name.value = template.name;
    text.value = template.text;
    save.disabled = false;
    name.focus();
  };
  const check = (): void => {
    save.disabled = name.value.trim() === "" || text.value.trim() === "";
  };
  name.addEventListener("input", check);
  text.addEventListener("input", check);
  clear();

  const draw = (): void => {
    const own = settings.templates.get().filter((template) => template.own);
    if (own.length === 0) replace(list, element("li", { class: "dialog__lead" }, "You have no templates yet. They appear in the composer's menu, after the four built-in ones."));
    else replace(list, ...own.map((template) => row(page, template, change)));
  };
  draw();
  const end = settings.templates.subscribe(draw);
  openDialog({
    title: "Your templates", wide: true, closed: end,
    body: [
      list,
      element("div", { class: "field" }, element("label", { class: "field__label", for: name.id }, "Name"), name),
      element("div", { class: "field" }, element("label", { class: "field__label", for: text.id }, "Text"), text,
        element("span", { class: "field__hint" }, "{text} stands for what is in the composer.")),
      element("div", { class: "dialog__foot" }, save),
    ],
  });
}

function row(page: Page, template: PromptTemplate, change: (template: PromptTemplate) => void): HTMLElement {
  const remove = (): void => {
    page.core.settings.removeTemplate(template.id);
    page.note(`Template “${template.name}” removed.`, { label: "Undo", press: () => page.core.settings.saveTemplate({ id: template.id, name: template.name, text: template.text }) });
  };
  return element("li", { class: "plain__row" },
    element("span", { class: "plain__words" }, element("span", { class: "plain__name" }, template.name), element("span", { class: "menu__hint" }, template.text)),
    tool("edit", `Edit ${template.name}`, () => change(template)),
    tool("trash", `Remove ${template.name}`, remove));
}

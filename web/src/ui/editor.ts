// The field in which a message that was sent is changed.
import { directionOf } from "../core/direction.ts";
import { composing } from "./composing.ts";
import { button } from "./controls.ts";
import { attribute, element } from "./dom.ts";

export interface EditorOptions {
  text: string;
  user: boolean;
  /** It was asked for just now, and takes the focus. */
  fresh: boolean;
  typed: (text: string) => void;
  cancel: () => void;
  save: (text: string) => void;
}

export function editor(options: EditorOptions): HTMLElement {
  const field = element("textarea", { class: "input", dir: directionOf(options.text), "aria-label": options.user ? "Edit your message" : "Edit the answer" });
  field.value = options.text;
  field.rows = Math.min(12, options.text.split("\n").length + 1);
  const save = (): void => {
    if (field.value.trim() !== "") options.save(field.value);
  };
  field.addEventListener("input", () => {
    attribute(field, "dir", directionOf(field.value));
    options.typed(field.value);
  });
  field.addEventListener("keydown", (event) => {
    if (composing(event)) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      options.cancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey || (options.user && !event.shiftKey))) {
      event.preventDefault();
      save();
    }
  });
  if (options.fresh) {
    queueMicrotask(() => {
      field.focus();
      field.setSelectionRange(field.value.length, field.value.length);
    });
  }
  const hint = options.user ? "The original stays as a branch." : "The original answer stays as a branch.";
  return element("div", { class: "editor" }, field,
    element("div", { class: "editor__row" },
      element("span", { class: "editor__hint" }, hint),
      button({ label: "Cancel", small: true, look: "bare", press: options.cancel }),
      button({ label: options.user ? "Send" : "Save", small: true, look: "main", press: save })));
}

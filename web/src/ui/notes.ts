// Lines at the edge of the page that go by themselves, some with a way back. The pointer or the focus on one keeps it.
import { element } from "./dom.ts";
import { button, tool } from "./controls.ts";
import type { NoteAction } from "./page.ts";

const STAYS = 8000;
const MOST = 3;

export class Notes {
  readonly element = element("div", { class: "notes", role: "region", "aria-label": "Notifications" });

  show(text: string, action?: NoteAction): void {
    const note = element("div", { class: "note", role: "status" }, element("span", { class: "note__text" }, text));
    const close = (): void => {
      clearTimeout(timer);
      note.remove();
    };
    if (action) {
      note.append(button({ label: action.label, look: "bare", press: () => {
        close();
        action.press();
      } }));
    }
    note.append(tool("close", "Dismiss", close, { small: true }));
    let timer = window.setTimeout(close, STAYS);
    const keep = (): void => clearTimeout(timer);
    const letGo = (): void => {
      timer = window.setTimeout(close, STAYS / 2);
    };
    note.addEventListener("pointerenter", keep);
    note.addEventListener("focusin", keep);
    note.addEventListener("pointerleave", letGo);
    note.addEventListener("focusout", letGo);
    this.element.append(note);
    this.#place();
    while (this.element.childElementCount > MOST) this.element.firstElementChild?.remove();
  }

  /** What lies outside of an open dialog cannot be pressed. */
  #place(): void {
    const dialog = document.querySelector("dialog[open]");
    (dialog ?? document.body).append(this.element);
    dialog?.addEventListener("close", () => document.body.append(this.element), { once: true });
  }
}

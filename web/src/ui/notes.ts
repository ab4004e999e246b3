// Lines at the edge of the page that go by themselves. The pointer or the focus on one keeps it, but not one with a way back:
// that is offered as long as there is one. It
// makes no room for others, and may have the region scroll. Screen readers hear notes as they come, for the region in which they
// appear is there before.
import { undoTime } from "../core/conversations.ts";
import { element } from "./dom.ts";
import { button, tool } from "./controls.ts";
import type { NoteAction } from "./page.ts";
import { CONTROL, inField } from "./shortcuts.ts";

const STAYS = 8000;
const MOST = 3;
const SETTLES = 100; // milliseconds until what comes into a region that was moved is heard

export class Notes {
  readonly element = element("div", { class: "notes", role: "region", "aria-label": "Notifications", "aria-live": "polite" });
  #shown: HTMLElement[] = [];
  readonly #actions = new Map<HTMLElement, () => void>(); // of those, oldest first
  #typed = false; // since the newest action was offered

  constructor() {
    document.addEventListener("input", () => { this.#typed = true; });
  }

  show(text: string, action?: NoteAction): void {
    const note = element("div", { class: "note" }, element("span", { class: "note__text" }, text));
    let timer = 0;
    const close = (): void => {
      clearTimeout(timer);
      this.#drop(note);
    };
    const goIn = (time: number): void => {
      clearTimeout(timer);
      timer = window.setTimeout(close, time);
    };
    if (action) {
      goIn(undoTime);
      const press = (): void => {
        close();
        action.press();
      };
      this.#actions.set(note, press);
      this.#typed = false;
      note.append(button({ label: action.label, look: "bare", press, attributes: { "aria-keyshortcuts": `${CONTROL}+Z` } }));
    } else {
      goIn(STAYS);
      const holds = new Set<string>(); // the pointer, the focus
      for (const [by, comes, goes] of [["pointer", "pointerenter", "pointerleave"], ["focus", "focusin", "focusout"]] as const) {
        note.addEventListener(comes, () => {
          holds.add(by);
          clearTimeout(timer);
        });
        note.addEventListener(goes, () => {
          holds.delete(by);
          if (holds.size === 0) goIn(STAYS / 2);
        });
      }
    }
    note.append(tool("close", "Dismiss", close, { small: true }));
    this.#place(note);
  }

  /** Runs the newest action; false: none is offered. */
  act(): boolean {
    const newest = [...this.#actions.values()].at(-1);
    newest?.();
    return newest !== undefined;
  }

  /** Whether Ctrl+Z is the field's that has the focus: not where it is empty, and nothing was typed since the action came. */
  isTypedIn(target: EventTarget | null): boolean {
    if (!inField(target)) return false;
    return this.#typed || ((target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement) && target.value !== "");
  }

  /** What lies outside of an open dialog can be neither pressed nor heard. */
  #place(note: HTMLElement): void {
    const dialog = document.querySelector("dialog[open]");
    const host = dialog ?? document.body;
    this.#shown.push(note);
    this.#makeRoom(note);
    if (this.element.parentElement === host) {
      this.#append(note);
      return;
    }
    host.append(this.element);
    dialog?.addEventListener("close", () => document.body.append(this.element), { once: true });
    setTimeout(() => {
      if (this.#shown.includes(note)) this.#append(note);
    }, SETTLES);
  }

  #append(note: HTMLElement): void {
    this.element.append(note);
    this.element.scrollTop = this.element.scrollHeight;
  }

  /** The oldest without a way back go. */
  #makeRoom(newest: HTMLElement): void {
    const others = this.#shown.filter((each) => each !== newest && !this.#actions.has(each));
    for (const oldest of others.slice(0, Math.max(0, this.#shown.length - MOST))) this.#drop(oldest);
    this.element.classList.toggle("notes--many", this.#shown.length > MOST);
  }

  #drop(note: HTMLElement): void {
    this.#shown = this.#shown.filter((each) => each !== note);
    this.#actions.delete(note);
    this.element.classList.toggle("notes--many", this.#shown.length > MOST);
    note.remove();
  }
}

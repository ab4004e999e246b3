// The keys that do things, and their list under `?`. Those with a letter alone work outside of fields.
import { composing } from "./composing.ts";
import { openDialog } from "./dialog.ts";
import { element } from "./dom.ts";

export interface Shortcut {
  keys: string; // as written in the list, joined by +
  does: string;
  /** Of the event: whether it is this one. */
  matches: (event: KeyboardEvent) => boolean;
  inDialogs?: boolean; // there too
  /** false: it was not for us after all, the browser goes on with it. */
  run: () => boolean;
}

const listed: { keys: string; does: string }[] = [];

const MAC = navigator.userAgent.includes("Mac");
/** As `aria-keyshortcuts` has it. */
export const CONTROL = MAC ? "Meta" : "Control";

export function control(event: KeyboardEvent): boolean {
  return MAC ? event.metaKey : event.ctrlKey;
}

export function setShortcuts(shortcuts: readonly Shortcut[]): void {
  listed.splice(0, listed.length, ...shortcuts, { keys: "Enter", does: "Send the message" }, { keys: "Shift+Enter", does: "New line" });
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || composing(event)) return;
    const plain = !event.ctrlKey && !event.metaKey && !event.altKey;
    if (plain && event.key !== "Escape" && inField(event.target)) return;
    const found = shortcuts.find((each) => each.matches(event));
    if (found === undefined || (!found.inDialogs && document.querySelector("dialog[open]") !== null)) return;
    if (found.run()) event.preventDefault();
  });
}

export function inField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=range]):not([type=radio]), textarea, select, [contenteditable]");
}

export function showShortcuts(): void {
  const list = element("dl", { class: "keys" });
  for (const { keys, does } of listed) {
    const parts = keys.split("+").map((key) => element("kbd", {}, MAC && key === "Ctrl" ? "⌘" : key));
    list.append(element("div", { class: "keys__row" }, element("dt", {}, does), element("dd", {}, ...parts)));
  }
  openDialog({ title: "Shortcuts", body: [list] });
}

// Menus and other panels that hang on a button: placed within the window, closed by Escape, a press elsewhere or the
// loss of focus; arrows walk through a menu.
import { attribute, element } from "./dom.ts";
import { icon, type IconName } from "./icons.ts";

export interface MenuItem {
  label: string;
  hint?: string;
  icon?: IconName;
  danger?: boolean;
  line?: boolean; // a line above it
  press: () => void;
}

let closeOpen: (() => void) | null = null;

/** Shows `panel` at `anchor`; a second call for the same button closes it. Returns what closes it. */
export function hang(anchor: HTMLElement, panel: HTMLElement, closed?: () => void): () => void {
  closeOpen?.();
  // A landmark of its own: what hangs over the page is in none of the others.
  const host = element("section", { "aria-label": panel.getAttribute("aria-label") ?? "Menu" }, panel);
  (anchor.closest("dialog") ?? document.body).append(host);
  attribute(anchor, "aria-expanded", "true");
  place(anchor, panel);

  const close = (): void => {
    if (closeOpen !== close) return;
    closeOpen = null;
    const hadFocus = panel.contains(document.activeElement);
    host.remove();
    attribute(anchor, "aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    window.removeEventListener("resize", close);
    if (hadFocus) anchor.focus();
    closed?.();
  };
  const outside = (event: Event): void => {
    const target = event.target as Node;
    if (!panel.contains(target) && !anchor.contains(target)) close();
  };
  document.addEventListener("pointerdown", outside, true);
  window.addEventListener("resize", close);
  panel.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  });
  panel.addEventListener("focusout", (event) => {
    if (event.relatedTarget instanceof Node && !panel.contains(event.relatedTarget) && event.relatedTarget !== anchor) close();
  });
  closeOpen = close;
  return close;
}

function place(anchor: HTMLElement, panel: HTMLElement): void {
  const at = anchor.getBoundingClientRect();
  const size = panel.getBoundingClientRect();
  const edge = 8;
  const below = window.innerHeight - at.bottom - edge;
  const up = size.height > below && at.top > below;
  const left = at.left + size.width > window.innerWidth - edge ? at.right - size.width : at.left;
  panel.style.left = `${Math.max(edge, Math.min(left, window.innerWidth - size.width - edge))}px`;
  panel.style.top = up ? `${Math.max(edge, at.top - size.height - 4)}px` : `${at.bottom + 4}px`;
  panel.style.maxHeight = `${(up ? at.top : below) - edge}px`;
}

export function openMenu(anchor: HTMLElement, label: string, items: readonly MenuItem[]): void {
  if (anchor.getAttribute("aria-expanded") === "true") {
    closeOpen?.();
    return;
  }
  const panel = element("div", { class: "menu", role: "menu", "aria-label": label });
  for (const item of items) {
    if (item.line) panel.append(element("div", { class: "menu__line", role: "separator" }));
    const words = item.hint === undefined ? item.label
      : element("span", { class: "menu__words" }, element("span", {}, item.label), element("span", { class: "menu__hint" }, item.hint));
    panel.append(element("button", {
      type: "button", role: "menuitem", tabindex: -1, class: item.danger ? "menu__item menu__item--danger" : "menu__item",
      on: { click: () => {
        close();
        item.press();
      } },
    }, item.icon ? icon(item.icon) : null, words));
  }
  panel.addEventListener("keydown", (event) => walk(event, panel));
  const close = hang(anchor, panel);
  panel.querySelector<HTMLElement>("[role=menuitem]")?.focus();
}

function walk(event: KeyboardEvent, panel: HTMLElement): void {
  const items = [...panel.querySelectorAll<HTMLElement>("[role=menuitem]")];
  const at = items.indexOf(document.activeElement as HTMLElement);
  const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 };
  const next = steps[event.key];
  if (event.key === "Tab") closeOpen?.();
  if (next === undefined) return;
  event.preventDefault();
  items[next % items.length]?.focus();
}

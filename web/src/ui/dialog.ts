// Modal dialogs by the browser's own <dialog>: it keeps the focus inside, closes by Escape and gives the focus back.
import { append, element, uniqueId, type Child } from "./dom.ts";
import { button, tool } from "./controls.ts";

export interface DialogOptions {
  title: string;
  body: Child[];
  wide?: boolean;
  class?: string;
  closed?: () => void;
}

export interface OpenDialog {
  element: HTMLDialogElement;
  body: HTMLElement;
  close(): void;
}

export function openDialog(options: DialogOptions): OpenDialog {
  const titleId = uniqueId("dialog");
  const body = element("div", { class: "dialog__body" });
  append(body, options.body);
  const made = element("dialog", { class: ["dialog", options.wide ? "dialog--wide" : "", options.class ?? ""].filter(Boolean).join(" "), "aria-labelledby": titleId },
    element("div", { class: "dialog__head" },
      element("h2", { class: "dialog__title", id: titleId }, options.title),
      tool("close", "Close", () => made.close())),
    body);
  made.addEventListener("close", () => {
    made.remove();
    options.closed?.();
  });
  made.addEventListener("pointerdown", (event) => {
    if (event.target === made) made.close();
  });
  document.body.append(made);
  made.showModal();
  body.querySelector<HTMLElement>("[data-first], input, textarea, select, button")?.focus();
  return { element: made, body, close: () => made.close() };
}

/** Asks before what cannot be taken back at once. */
export function confirmFirst(title: string, text: string, label: string, go: () => void): void {
  const cancel = button({ label: "Cancel", press: () => open.close(), attributes: { "data-first": true } });
  const open = openDialog({
    title,
    body: [
      element("p", { class: "dialog__lead" }, text),
      element("div", { class: "dialog__foot" }, cancel, button({ label, look: "danger", press: () => {
        open.close();
        go();
      } })),
    ],
  });
}

// Copying and saving. Over plain HTTP off localhost there is no clipboard API: a hidden field and the browser's own copy
// command serve instead, and where those fail the text is offered selected.
import { element } from "./dom.ts";
import { openDialog } from "./dialog.ts";

export async function copyText(text: string): Promise<boolean> {
  if (window.isSecureContext) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused by the browser: the other way may still work.
    }
  }
  return copyBySelection(text);
}

function copyBySelection(text: string): boolean {
  const before = document.activeElement;
  const field = element("textarea", { class: "unseen", "aria-hidden": "true", tabindex: -1, readonly: true });
  field.value = text;
  document.body.append(field);
  field.select();
  // Deprecated, and the only way there is without a secure context.
  // eslint-disable-next-line @typescript-eslint/no-deprecated
  const copied = document.execCommand("copy");
  field.remove();
  if (before instanceof HTMLElement) before.focus();
  return copied;
}

/** The last way: the text, selected, for the reader's own keys. */
export function offerText(text: string): void {
  const field = element("textarea", { class: "input", readonly: true, rows: 8, "aria-label": "Text to copy" });
  field.value = text;
  openDialog({
    title: "Copy by hand",
    body: [element("p", { class: "dialog__lead" }, "The browser does not let this page write to the clipboard over plain HTTP. The text is selected: press Ctrl+C, or ⌘C."), field],
  });
  field.select();
}

export function saveFile(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = element("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

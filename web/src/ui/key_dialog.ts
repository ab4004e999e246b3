// Asks for the server's key, or for the passphrase of one that is kept. Off localhost over plain HTTP the browser has no
// cryptography: then a key is for the session, and the dialog says so.
import { canBeSent } from "../core/keys.ts";
import { button } from "./controls.ts";
import { openDialog, type OpenDialog } from "./dialog.ts";
import { element, setText, uniqueId } from "./dom.ts";
import { reason, type Page } from "./page.ts";

let open: OpenDialog | null = null;
let wantsKept = false; // the choice of the dialog before, when the server refused its key

/** Opens by itself whenever a key is needed. */
export function watchKeys(page: Page): void {
  const look = (): void => {
    const state = page.core.keys.state.get();
    if (state === "needed" || state === "locked") openKeyDialog(page);
    else open?.close();
  };
  page.core.keys.state.subscribe(look);
  page.core.keys.refused.subscribe(look);
  look();
}

export function openKeyDialog(page: Page): void {
  open?.close();
  open = page.core.keys.state.get() === "locked" ? askPassphrase(page) : askKey(page);
}

function closed(): void {
  open = null;
}

function secret(label: string, hint: string): { field: HTMLElement; input: HTMLInputElement } {
  const input = element("input", { class: "input", type: "password", id: uniqueId("secret"), autocomplete: "off", spellcheck: "false" });
  return { input, field: element("div", { class: "field" }, element("label", { class: "field__label", for: input.id }, label), input, hint ? element("span", { class: "field__hint" }, hint) : null) };
}

function askKey(page: Page): OpenDialog {
  const { keys } = page.core;
  const key = secret("Key", "Keys made with “quarrel key create” begin with qk_.");
  const passphrase = secret("Passphrase", "You will be asked for it when the page is opened again. It is not stored and cannot be recovered.");
  const session = choice("For this session", "Forgotten when the page is closed.", !wantsKept);
  const kept = choice("Keep it, encrypted", "In this browser, with a passphrase of your own.", wantsKept);
  const problem = element("p", { class: "field__error", role: "alert" });
  if (keys.refused.get()) setText(problem, "The server refused that key: it is wrong, expired or revoked.");
  passphrase.field.hidden = !wantsKept;
  for (const each of [session, kept]) each.input.addEventListener("change", () => {
    wantsKept = kept.input.checked;
    passphrase.field.hidden = !wantsKept;
  });
  const use = async (): Promise<void> => {
    const given = key.input.value.trim();
    if (given === "") { setText(problem, "Type or paste the key first."); return; }
    if (!canBeSent(given)) { setText(problem, "A key has neither spaces nor letters beyond plain ASCII. Copy it again from where it was shown."); return; }
    if (!kept.input.checked) { keys.giveForSession(given); return; }
    if (passphrase.input.value.length < 8) { setText(problem, "Use at least eight characters."); return; }
    await keys.giveEncrypted(given, passphrase.input.value);
  };
  return openDialog({
    title: "A key is needed", closed,
    body: [form(page, [
      element("p", { class: "dialog__lead" }, "Ask whoever runs the server. The key is sent with each request and is never part of an address."),
      key.field,
      keys.canEncrypt ? element("div", { role: "radiogroup", "aria-label": "How long to keep it" }, session.element, kept.element)
        : element("p", { class: "dialog__lead" }, "This page was loaded over plain HTTP, where browsers offer no encryption: the key is kept for this session only."),
      passphrase.field, problem,
      element("div", { class: "dialog__foot" }, button({ label: "Use the key", look: "main", attributes: { type: "submit" }, press: () => undefined })),
    ], use)],
  });
}

function askPassphrase(page: Page): OpenDialog {
  const { keys } = page.core;
  const passphrase = secret("Passphrase", "");
  const problem = element("p", { class: "field__error", role: "alert" });
  const unlock = async (): Promise<void> => {
    if (await keys.unlock(passphrase.input.value)) return;
    setText(problem, "Wrong passphrase.");
    passphrase.input.select();
  };
  return openDialog({
    title: "Unlock your key", closed,
    body: [form(page, [
      element("p", { class: "dialog__lead" }, "A key for this server is kept in this browser, encrypted."),
      passphrase.field, problem,
      element("div", { class: "dialog__foot" },
        button({ label: "Forget it", look: "bare", press: () => keys.forget() }),
        button({ label: "Unlock", look: "main", attributes: { type: "submit" }, press: () => undefined })),
    ], unlock)],
  });
}

function form(page: Page, children: (HTMLElement | null)[], submit: () => Promise<void>): HTMLElement {
  const made = element("form", { class: "form" }, ...children);
  made.addEventListener("submit", (event) => {
    event.preventDefault();
    submit().catch((failure: unknown) => page.note(reason(failure)));
  });
  return made;
}

function choice(label: string, hint: string, checked: boolean): { element: HTMLElement; input: HTMLInputElement } {
  const input = element("input", { type: "radio", name: "kept", checked });
  return { input, element: element("label", { class: "choice" }, input, element("span", {}, label), element("span", { class: "choice__hint" }, hint)) };
}

// Lines under the header about what is wrong with the whole page: no connection, no key, nothing kept.
import type { ConnectionStatus } from "../core/types.ts";
import { button } from "./controls.ts";
import { element, replace, setText } from "./dom.ts";
import { icon } from "./icons.ts";
import { openKeyDialog } from "./key_dialog.ts";
import { follow, type Page } from "./page.ts";

export function banners(page: Page): HTMLElement {
  return element("div", {}, connectionBanner(page), keyBanner(page), storageBanner(page));
}

function line(text: HTMLElement, bad: boolean, ...buttons: HTMLElement[]): HTMLElement {
  const warning = icon("warning");
  warning.classList.add("banner__icon");
  return element("div", { class: bad ? "banner banner--bad" : "banner", role: "status", hidden: true }, warning, text, ...buttons);
}

/** A connection that comes back at once is not worth a line: it shows after a moment. */
const SHOWS_AFTER = 600;

function connectionBanner(page: Page): HTMLElement {
  const text = element("span", { class: "banner__text" });
  const retry = button({ label: "Retry now", small: true, press: () => page.core.connection.retry() });
  const made = line(text, true, retry);
  let timer = 0;
  let since = Infinity;
  const draw = (): void => {
    const status = page.core.connection.status.get();
    const lost = isLost(status) && page.core.keys.state.get() !== "needed" && page.core.keys.state.get() !== "locked";
    if (!lost) since = Infinity;
    else if (since === Infinity) since = Date.now();
    made.hidden = Date.now() - since < SHOWS_AFTER || since === Infinity;
    setText(text, sentence(status));
    retry.disabled = status.state === "connecting";
    clearInterval(timer);
    if (lost) timer = window.setInterval(draw, 250);
  };
  follow(page.core.connection.status, draw);
  page.core.keys.state.subscribe(draw);
  return made;
}

function isLost(status: ConnectionStatus): boolean {
  return status.state === "disconnected" || (status.state === "connecting" && status.attempt > 1);
}

function sentence(status: ConnectionStatus): string {
  const why = status.reason === "" ? "The connection to the server is lost." : status.reason;
  if (status.state === "connecting" || status.retryAt === null) return `${why} Trying again.`;
  const seconds = Math.max(0, Math.ceil((status.retryAt - Date.now()) / 1000));
  return `${why} Trying again in ${seconds} s.`;
}

function keyBanner(page: Page): HTMLElement {
  const text = element("span", { class: "banner__text" });
  const made = line(text, false, button({ label: "Enter key", icon: "key", small: true, press: () => openKeyDialog(page) }));
  follow(page.core.keys.state, (state) => {
    made.hidden = state !== "needed" && state !== "locked";
    setText(text, state === "locked" ? "Your key is stored encrypted. Enter its passphrase to use it." : "This server needs a key.");
  });
  return made;
}

function storageBanner(page: Page): HTMLElement {
  const text = element("span", { class: "banner__text" });
  const made = line(text, false);
  follow(page.core.conversations.storage, (storage) => {
    made.hidden = storage.state === "ready";
    replace(text, storage.message);
  });
  return made;
}

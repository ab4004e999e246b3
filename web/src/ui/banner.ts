// Lines under the header about what is wrong with the whole page: no connection, no key, nothing kept.
import type { ConnectionStatus } from "../core/types.ts";
import { button } from "./controls.ts";
import { element, setText } from "./dom.ts";
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
  // The seconds are to be seen alone: a status that changes every second would be read out every second.
  const said = element("span");
  const countdown = element("span", { "aria-hidden": "true" });
  const text = element("span", { class: "banner__text" }, said, countdown, ".");
  const retry = button({ label: "Retry now", small: true, press: () => page.core.connection.retry() });
  const made = line(text, true, retry);
  let timer = 0;
  let since = Infinity;
  let why = ""; // while an attempt runs there is no other
  const draw = (): void => {
    const status = page.core.connection.status.get();
    const lost = isLost(status) && page.core.keys.state.get() !== "needed" && page.core.keys.state.get() !== "locked";
    if (!lost) since = Infinity;
    if (!lost || status.reason !== "") why = status.reason;
    if (lost && since === Infinity) since = Date.now();
    made.hidden = Date.now() - since < SHOWS_AFTER || since === Infinity;
    setText(said, `${why === "" ? "The connection to the server is lost." : why} Trying again`);
    setText(countdown, secondsLeft(status));
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

function secondsLeft(status: ConnectionStatus): string {
  if (status.state === "connecting" || status.retryAt === null) return "";
  return ` in ${Math.max(0, Math.ceil((status.retryAt - Date.now()) / 1000))} s`;
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

/** What is not kept: conversations, settings, the key. */
function storageBanner(page: Page): HTMLElement {
  const text = element("span", { class: "banner__text" });
  const made = line(text, false);
  const { conversations, settings, keys } = page.core;
  const draw = (): void => {
    const problems = [conversations.storage.get().message, settings.problem.get(), keys.problem.get()].filter((problem) => problem !== "");
    made.hidden = problems.length === 0;
    setText(text, problems.join(" "));
  };
  conversations.storage.subscribe(draw);
  settings.problem.subscribe(draw);
  follow(keys.problem, draw);
  return made;
}

// The line under the composer: version, documentation, shortcuts.
import { element, setText } from "./dom.ts";
import { follow, type Page } from "./page.ts";
import { showShortcuts } from "./shortcuts.ts";

export function footer(page: Page): HTMLElement {
  return element("footer", { class: "foot" }, ...footerLinks(page));
}

export function footerLinks(page: Page): HTMLElement[] {
  const version = element("span", { class: "version" }, "Quarrel");
  follow(page.core.version, (text) => setText(version, text === "" ? "Quarrel" : `Quarrel ${text}`));
  const shortcuts = element("button", { type: "button", class: "link" }, "Shortcuts");
  shortcuts.addEventListener("click", () => showShortcuts());
  return [version, element("a", { href: "/docs" }, "Docs"), element("a", { href: "/openapi.json" }, "API"), shortcuts];
}

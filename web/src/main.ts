// Starts the page.
import { createCore } from "./core/core.ts";
import { prepareMarkdown } from "./core/markdown.ts";
import { keptTheme } from "./core/settings.ts";
import { App } from "./ui/app.ts";
import { element, replace } from "./ui/dom.ts";
import { reason } from "./ui/page.ts";
import { applyTheme } from "./ui/theme.ts";

/** Safari has no requestIdleCallback. */
function whenIdle(work: () => void): void {
  if ("requestIdleCallback" in globalThis) requestIdleCallback(work, { timeout: 1000 });
  else setTimeout(work, 200);
}

const root = document.getElementById("app");
if (root === null) throw new Error("index.html has no #app");
try {
  applyTheme(keptTheme(localStorage), false); // before the storage is open, so that nothing flashes
} catch {
  // The browser allows no storage: the system's theme it is.
}
try {
  new App(await createCore(), root);
  whenIdle(prepareMarkdown);
} catch (failure) {
  const sentence = `The page could not start (${reason(failure).replace(/\.$/, "")}). Load it again; if that does not help, try a private window.`;
  replace(root, element("p", { class: "splash", role: "alert" }, sentence));
}

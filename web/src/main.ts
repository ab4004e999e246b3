// Starts the page.
import { createCore } from "./core/core.ts";
import { keptTheme } from "./core/settings.ts";
import { App } from "./ui/app.ts";
import { applyTheme } from "./ui/theme.ts";

const root = document.getElementById("app");
if (root === null) throw new Error("index.html has no #app");
try {
  applyTheme(keptTheme(localStorage), false); // before the storage is open, so that nothing flashes
} catch {
  // The browser allows no storage: the system's theme it is.
}
new App(await createCore(), root);

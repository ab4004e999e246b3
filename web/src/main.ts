// Starts the page.
import { createCore } from "./core/core.ts";
import { App } from "./ui/app.ts";

const root = document.getElementById("app");
if (root === null) throw new Error("index.html has no #app");
new App(await createCore(), root);

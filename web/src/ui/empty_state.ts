// What stands in place of messages: no model (how to get one), or no message yet (four prompts to begin with).
import { button } from "./controls.ts";
import { element, replace } from "./dom.ts";
import { mark } from "./icons.ts";
import type { Page } from "./page.ts";

const EXAMPLES: readonly { name: string; text: string }[] = [
  { name: "Explain", text: "Why is the sky blue, in three sentences?" },
  { name: "Write code", text: "A Python function that counts the words of a text file" },
  { name: "Compare", text: "Make a table of five sorting algorithms and their costs" },
  { name: "Draft", text: "A short, polite note that moves a meeting to Thursday" },
];

export function emptyState(page: Page, begin: (text: string) => void): HTMLElement {
  const made = element("div", { class: "empty" });
  const draw = (): void => {
    const none = page.core.models.known.get() && page.core.models.list.get().length === 0;
    if (none) drawNoModel(page, made);
    else drawExamples(made, begin);
  };
  draw();
  page.core.models.list.subscribe(draw);
  page.core.models.known.subscribe(draw);
  return made;
}

function drawNoModel(page: Page, made: HTMLElement): void {
  if (made.dataset["shows"] === "none") return;
  made.dataset["shows"] = "none";
  const command = "quarrel pull default";
  replace(made, mark("empty__mark"),
    element("h2", { class: "empty__title" }, "No model yet"),
    element("p", { class: "empty__lead" }, "The server has no model to answer with. Fetch one on the server's machine; it appears here by itself."),
    element("div", { class: "command" }, element("code", { tabindex: 0 }, command), button({ label: "Copy", icon: "copy", small: true, press: () => page.copy(command, "Command") })),
    element("p", { class: "empty__lead" }, "A model file that you already have is served with ", element("code", {}, "quarrel serve model.gguf"), "."));
}

function drawExamples(made: HTMLElement, begin: (text: string) => void): void {
  if (made.dataset["shows"] === "examples") return;
  made.dataset["shows"] = "examples";
  replace(made, mark("empty__mark"),
    element("h2", { class: "empty__title" }, "What shall we work on?"),
    element("p", { class: "empty__lead" }, "Everything stays on this server and in this browser."),
    element("div", { class: "empty__examples" }, ...EXAMPLES.map(({ name, text }) =>
      element("button", { type: "button", class: "example", on: { click: () => begin(text) } },
        element("span", { class: "example__name" }, name), element("span", { class: "example__text" }, text)))));
}

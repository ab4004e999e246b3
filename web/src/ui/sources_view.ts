// What an answer's question was asked with: a line for each text, which opens to show it. Texts come from a dataset that
// anybody may have filled: they are shown as they are, never as Markdown.
import { sourceName } from "../core/sources.ts";
import type { Source } from "../core/types.ts";
import { button } from "./controls.ts";
import { element, replace } from "./dom.ts";
import { plural } from "./format.ts";
import { icon } from "./icons.ts";

/** So many lines stand there at once; the others on request. */
const SHOWN = 5;

export class SourcesView {
  readonly element = element("section", { class: "sources", "aria-label": "Sources", hidden: true });
  #shown: readonly Source[] | null = null;

  /** null: there is nothing to be shown. */
  show(sources: readonly Source[] | null): void {
    if (sources === this.#shown) return;
    this.#shown = sources;
    this.element.hidden = sources === null;
    if (sources === null) replace(this.element);
    else if (sources.length === 0) replace(this.element, title(), element("p", { class: "sources__none" }, "No texts were found in the dataset."));
    else replace(this.element, title(), ...this.#list(sources));
  }

  #list(sources: readonly Source[]): HTMLElement[] {
    const rows = sources.map(row);
    const list = element("ol", { class: "sources__list" }, ...rows.slice(0, SHOWN));
    if (rows.length <= SHOWN + 1) { // a button takes no less room than a line
      list.append(...rows.slice(SHOWN));
      return [list];
    }
    const more = button({ label: `Show ${plural(rows.length - SHOWN, "more source")}`, small: true, look: "bare", press: () => {
      list.append(...rows.slice(SHOWN));
      more.remove();
      rows[SHOWN]?.querySelector("summary")?.focus();
    } });
    return [list, more];
  }
}

function title(): HTMLElement {
  return element("h3", { class: "sources__title" }, "Sources");
}

function row(source: Source): HTMLElement {
  const box = element("details", { class: "source" }, element("summary", { class: "source__head" },
    element("span", { class: "source__number" }, String(source.number)),
    element("span", { class: "source__name", dir: "auto" }, sourceName(source)),
    source.score === null ? null : element("span", { class: "source__score", title: "How near the text is to the question; higher is nearer" }, element("span", { class: "unseen" }, "score "), source.score.toFixed(2)),
    icon("right", true)));
  // Long texts are put into the document when somebody reads them.
  box.addEventListener("toggle", () => {
    if (box.open && box.childElementCount === 1) box.append(...opened(source));
  });
  return element("li", {}, box);
}

function opened(source: Source): HTMLElement[] {
  const facts = [source.docId, source.id === "" ? "" : `id ${source.id}`, source.metadata].filter((fact) => fact !== "" && fact !== sourceName(source));
  const made = [element("div", { class: "source__text", dir: "auto", tabindex: 0, role: "region", "aria-label": `Text of source ${source.number}` }, source.text === "" ? "The store has no text for it." : source.text)];
  if (source.isCut) facts.unshift("only its beginning was read");
  if (facts.length > 0) made.push(element("p", { class: "source__facts", dir: "auto" }, facts.join(" · ")));
  return made;
}

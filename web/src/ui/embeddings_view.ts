// Texts in, vectors out: their similarities as a matrix with colours, and the vectors to copy or to save.
import { button, tool } from "./controls.ts";
import { element, replace, setText, uniqueId } from "./dom.ts";
import { footer } from "./footer.ts";
import { count, plural } from "./format.ts";
import { modelSelect } from "./model_select.ts";
import { reason, type Page } from "./page.ts";

const EXAMPLE = ["A fox runs through the forest.", "The animal sprints between trees.", "Interest rates rose again in May.", "The central bank tightened its policy."].join("\n");
const MOST_TEXTS = 64;

export class EmbeddingsView {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #texts: HTMLTextAreaElement;
  readonly #model: HTMLSelectElement;
  readonly #result = element("div", { class: "page__part" });
  readonly #problem = element("p", { class: "field__error", role: "alert" });
  readonly #compare: HTMLButtonElement;
  #looked: Promise<void> = Promise.resolve(); // which models make vectors
  #stop: AbortController | null = null;

  constructor(page: Page) {
    this.#page = page;
    const id = uniqueId("texts");
    this.#texts = element("textarea", { class: "input embed__texts", id, rows: 6, dir: "auto", spellcheck: "false" });
    this.#texts.value = EXAMPLE;
    const { field, select } = modelSelect(page, "Model", ({ embeds }) => embeds === true);
    this.#model = select;
    this.#compare = button({ label: "Compare", look: "main", press: () => void this.#run() });
    this.#texts.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void this.#run();
    });
    this.element = element("div", { class: "page" }, element("div", { class: "page__column" },
      element("p", { class: "page__lead" }, "Turns texts into vectors. Texts with similar meaning have vectors that point in similar directions."),
      element("div", { class: "field" }, element("label", { class: "field__label", for: id }, "Texts"), this.#texts, element("span", { class: "field__hint" }, `One per line, up to ${MOST_TEXTS}. Ctrl+Enter compares.`)),
      element("div", { class: "bench__row" }, field, this.#compare), this.#problem, this.#result, footer(page)));
  }

  shown(now: boolean): void {
    if (!now) return;
    const { models } = this.#page.core;
    this.#looked = models.refresh().catch(() => undefined).then(() => models.learnAbilities());
  }

  async #run(): Promise<void> {
    this.#stop?.abort();
    const texts = this.#texts.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
    setText(this.#problem, "");
    if (texts.length === 0) { setText(this.#problem, "Write at least one text."); return; }
    if (texts.length > MOST_TEXTS) { setText(this.#problem, `${count(texts.length)} texts are more than the ${MOST_TEXTS} that the matrix shows. Take some out.`); return; }
    const stop = new AbortController();
    this.#stop = stop;
    this.#compare.disabled = true;
    this.#result.setAttribute("aria-busy", "true");
    try {
      await this.#looked; // who is quick does not ask a model that only writes
      const vectors = await this.#page.core.embeddings.embed(this.#model.value || null, texts, stop.signal);
      this.#draw(texts, vectors);
      this.#page.announce(`${plural(vectors.length, "text")} compared.`);
    } catch (failure) {
      if (!stop.signal.aborted) setText(this.#problem, reason(failure));
    } finally {
      this.#compare.disabled = false;
      this.#result.removeAttribute("aria-busy");
    }
  }

  #draw(texts: readonly string[], vectors: readonly Float32Array[]): void {
    const matrix = this.#page.core.embeddings.similarities(vectors);
    replace(this.#result,
      element("section", { class: "card card--plain" }, element("h2", { class: "card__title" }, "Similarity"), this.#matrix(texts, matrix)),
      element("section", { class: "card card--plain" },
        element("div", { class: "card__head" }, element("h2", { class: "card__title" }, `Vectors of ${count(vectors[0]?.length ?? 0)} numbers`),
          element("span", { class: "card__tools" },
            button({ label: "Save as JSON", icon: "download", small: true, press: () => this.#save(texts, vectors, "json") }),
            button({ label: "Save as CSV", icon: "download", small: true, press: () => this.#save(texts, vectors, "csv") }))),
        element("ul", { class: "list" }, ...texts.map((text, at) => this.#vector(text, at, vectors[at] ?? new Float32Array())))));
  }

  #matrix(texts: readonly string[], matrix: readonly (readonly number[])[]): HTMLElement {
    const head = element("tr", {}, element("td", {}), ...texts.map((text, at) => element("th", { scope: "col", title: text }, String(at + 1))));
    const body = element("tbody", {});
    matrix.forEach((row, at) => {
      const cells = row.map((value, other) => {
        const cell = element("td", { class: "matrix__cell", title: `${texts[at] ?? ""}\n${texts[other] ?? ""}` }, value.toFixed(2));
        const colour = value >= 0 ? "--accent" : "--warn";
        cell.style.backgroundColor = `color-mix(in srgb, var(${colour}) ${Math.round(Math.min(1, Math.abs(value)) ** 1.5 * 46)}%, var(--surface))`;
        return cell;
      });
      body.append(element("tr", {}, element("th", { scope: "row", class: "matrix__text", dir: "auto", title: texts[at] ?? "" }, element("span", { class: "matrix__number" }, String(at + 1)), texts[at] ?? ""), ...cells));
    });
    return element("div", { class: "figures-frame", tabindex: 0, role: "region", "aria-label": "Similarities" }, element("table", { class: "matrix" }, element("thead", {}, head), body));
  }

  #vector(text: string, at: number, vector: Float32Array): HTMLElement {
    const numbers = Array.from(vector, (value) => value.toFixed(3));
    return element("li", { class: "plain__row" },
      element("span", { class: "plain__words" }, element("span", { class: "plain__name", dir: "auto" }, `${at + 1}. ${text}`), element("code", { class: "menu__hint" }, `${numbers.slice(0, 8).join(", ")}, …`)),
      tool("copy", `Copy vector ${at + 1}`, () => this.#page.copy(JSON.stringify(Array.from(vector)), "Vector")));
  }

  #save(texts: readonly string[], vectors: readonly Float32Array[], format: "json" | "csv"): void {
    if (format === "json") {
      const model = this.#model.value;
      this.#page.download("embeddings.json", "application/json", JSON.stringify(texts.map((text, at) => ({ text, model, embedding: Array.from(vectors[at] ?? []) })), null, 1));
      return;
    }
    const lines = texts.map((text, at) => [`"${text.replaceAll('"', '""')}"`, ...Array.from(vectors[at] ?? [], String)].join(","));
    this.#page.download("embeddings.csv", "text/csv", `${lines.join("\n")}\n`);
  }
}

// A benchmark of the server from the page: answers side by side, 1, 2, 4 and 8, with their picture.
import type { BenchmarkRun } from "../core/types.ts";
import { barChart } from "./chart.ts";
import { bar, button } from "./controls.ts";
import { element, replace, setText } from "./dom.ts";
import { duration, rounded } from "./format.ts";
import { modelSelect } from "./model_select.ts";
import { reason, type Page } from "./page.ts";

export class BenchmarkPanel {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #result = element("div", { class: "bench__result" });
  readonly #progress = bar("Benchmark");
  readonly #text = element("span", { class: "page__lead", role: "status" });
  readonly #run: HTMLButtonElement;
  readonly #model: HTMLSelectElement;
  #stop: AbortController | null = null;

  constructor(page: Page) {
    this.#page = page;
    this.#run = button({ label: "Run benchmark", look: "main", press: () => void this.#pressed() });
    const { field, select } = modelSelect(page, "Model");
    this.#model = select;
    this.#progress.element.hidden = true;
    this.element = element("section", { class: "card card--plain bench" },
      element("h2", { class: "card__title" }, "Benchmark"),
      element("p", { class: "page__lead" }, "Answers of 64 tokens: one alone, then 2, 4 and 8 at once. Other requests affect the result."),
      element("div", { class: "bench__row" }, field, this.#run), this.#progress.element, this.#text, this.#result);
  }

  async #pressed(): Promise<void> {
    if (this.#stop !== null) {
      this.#stop.abort();
      return;
    }
    this.#stop = new AbortController();
    setText(this.#run, "Stop");
    this.#progress.element.hidden = false;
    this.#progress.set(0);
    replace(this.#result);
    try {
      const runs = await this.#page.core.benchmark.run(this.#model.value || null, ({ done, total, runs: soFar }) => {
        this.#progress.set(total === 0 ? null : done / total);
        if (done < total) setText(this.#text, `Round ${done + 1} of ${total}`);
        this.#draw(soFar);
      }, this.#stop.signal);
      this.#draw(runs);
      setText(this.#text, "Done.");
    } catch (failure) {
      setText(this.#text, this.#stop.signal.aborted ? "Stopped." : reason(failure));
    } finally {
      this.#stop = null;
      setText(this.#run, "Run benchmark");
      this.#progress.element.hidden = true;
    }
  }

  #draw(runs: readonly BenchmarkRun[]): void {
    if (runs.length === 0) return replace(this.#result);
    const rows = runs.map((run) => ({ label: `${run.streams} at once`, value: run.tokensPerSecond, text: `${rounded(run.tokensPerSecond)} tokens/s` }));
    const body = element("tbody", {});
    for (const run of runs) {
      body.append(element("tr", {}, element("th", { scope: "row" }, String(run.streams)), element("td", {}, rounded(run.tokensPerSecond)),
        element("td", {}, rounded(run.tokensPerSecond / run.streams)), element("td", {}, duration(run.timeToFirstToken)), element("td", {}, duration(run.tokenGap))));
    }
    const heads = ["At once", "Tokens/s", "Each", "First token", "Gap"].map((text) => element("th", { scope: "col" }, text));
    replace(this.#result, barChart("Tokens per second, all answers together", rows),
      element("div", { class: "figures-frame", tabindex: 0, role: "region", "aria-label": "Benchmark figures" }, element("table", { class: "figures" }, element("thead", {}, element("tr", {}, ...heads)), body)));
  }
}

// The dashboard: what the server does, over the last minutes, as small charts; its models; a benchmark.
import type { DashboardSample, ModelActivity, Percentiles } from "../core/types.ts";
import { BenchmarkPanel } from "./benchmark_panel.ts";
import { LineChart, type Line } from "./chart.ts";
import { element, renew, setText } from "./dom.ts";
import { bytes, count, duration, plural, rounded } from "./format.ts";
import { action, facts, progress, state } from "./model_picker.ts";
import { eachFrame, follow, type Page } from "./page.ts";
import { footer } from "./footer.ts";

const SHOWN = 180; // samples in a chart

export class StatusView {
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #models = element("ul", { class: "list" });
  readonly #problem = element("p", { class: "message__notice message__notice--bad", role: "status" });
  readonly #span = element("p", { class: "page__lead" });
  readonly #charts: { chart: LineChart; lines: (samples: readonly DashboardSample[]) => Line[] }[];
  readonly #draw = eachFrame(() => this.#drawNow());
  #shown = false;

  constructor(page: Page) {
    this.#page = page;
    this.#charts = charts();
    this.element = element("div", { class: "page" }, element("div", { class: "page__column" },
      this.#span, this.#problem,
      element("div", { class: "cards-frame" }, element("div", { class: "cards" }, ...this.#charts.map(({ chart }) => chart.element))),
      element("section", { class: "card card--plain" }, element("h2", { class: "card__title" }, "Models"), this.#models),
      new BenchmarkPanel(page).element, footer(page)));
    page.core.dashboard.samples.subscribe(this.#draw);
    page.core.models.list.subscribe(this.#draw);
    page.core.models.mayControl.subscribe(this.#draw);
    follow(page.core.dashboard.problem, (problem) => {
      this.#problem.hidden = problem === "";
      setText(this.#problem, problem);
      this.#draw();
    });
  }

  /** It is drawn only while somebody looks. */
  show(on: boolean): void {
    if (on === this.#shown) return;
    this.#shown = on;
    if (!on) return;
    this.#drawNow();
    void this.#page.core.models.refresh().catch(() => undefined);
  }

  #drawNow(): void {
    if (!this.#shown) return;
    const samples = this.#page.core.dashboard.samples.get().slice(-SHOWN);
    const none = this.#page.core.dashboard.problem.get() !== "";
    for (const { chart, lines } of this.#charts) {
      // What does not come is not shown as if it were to.
      const known = lines(samples).filter((line) => !none || line.values.some((value) => value !== null));
      chart.element.hidden = known.length === 0;
      chart.draw(known);
    }
    setText(this.#span, lead(samples, none));
    this.#drawModels(none ? [] : samples.at(-1)?.models ?? []);
  }

  #drawModels(active: readonly ModelActivity[]): void {
    const models = this.#page.core.models.list.get();
    const focused = document.activeElement instanceof HTMLElement && this.#models.contains(document.activeElement) ? document.activeElement.dataset["focus"] : undefined;
    renew(this.#models, ...(models.length === 0 ? [element("li", { class: "page__lead" }, "The server offers no model.")] : models.map((model) =>
      element("li", { class: "model" }, element("div", { class: "list__words" }, element("span", { class: "model__name" }, model.name),
        element("span", { class: "model__facts" }, ...facts(model).map((text) => element("span", {}, text)), state(model),
          ...work(active.find((each) => each.name === model.name)).map((text) => element("span", {}, text)))), action(this.#page, model), progress(model)))));
    if (focused !== undefined) this.#models.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }
}

function lead(samples: readonly DashboardSample[], none: boolean): string {
  const first = samples[0];
  const last = samples.at(-1);
  if (first === undefined || last === undefined) return none ? "There are no figures." : "Waiting for the first figures.";
  return [`The last ${duration(Math.max(1000, last.at - first.at))}.`,
    last.requestsTotal === null ? "" : `${plural(last.requestsTotal, "request")} since the server was started.`,
    last.connections === null ? "" : `${plural(last.connections, "connection")} now.`].filter(Boolean).join(" ");
}

/** What a model computes now. */
function work(model: ModelActivity | undefined): string[] {
  if (model === undefined) return [];
  return [model.running > 0 ? `${count(model.running)} running` : "", model.waiting > 0 ? `${count(model.waiting)} waiting` : "",
    model.kvUse !== null && model.kvUse > 0 ? `KV cache ${percent(model.kvUse)}` : ""].filter(Boolean);
}

function one(label: string, values: readonly (number | null)[]): Line[] {
  return [{ label, look: "one", values }];
}

function percentiles(samples: readonly DashboardSample[], read: (sample: DashboardSample) => Percentiles): Line[] {
  return [
    { label: "p50", look: "one", values: samples.map((sample) => read(sample).p50) },
    { label: "p90", look: "two", values: samples.map((sample) => read(sample).p90) },
    { label: "p99", look: "three", values: samples.map((sample) => read(sample).p99) },
  ];
}

function newest(line: Line | undefined): number | null {
  return line?.values.findLast((value) => value !== null) ?? null;
}

const seconds = (value: number): string => duration(value * 1000);
const percent = (value: number): string => `${Math.round(value * 100)} %`;

function charts(): { chart: LineChart; lines: (samples: readonly DashboardSample[]) => Line[] }[] {
  const figure = (write: (value: number) => string) => (lines: readonly Line[]): string => {
    const value = newest(lines[0]);
    return value === null ? "none yet" : write(value);
  };
  return [
    { chart: new LineChart({ title: "Tokens per second", figure: figure(rounded), write: (value) => (value >= 10 ? count(value) : rounded(value)), least: 10 }), lines: (samples) => one("tokens/s", samples.map((sample) => sample.tokensPerSecond)) },
    { chart: new LineChart({ title: "Answers", least: 4, write: count, figure: figure((value) => `${count(value)} running`) }),
      lines: (samples) => [{ label: "running", look: "one", values: samples.map((sample) => sample.running) }, { label: "waiting", look: "two", values: samples.map((sample) => sample.waiting) }] },
    { chart: new LineChart({ title: "Time to first token", figure: figure(seconds), write: seconds, least: 0.1 }), lines: (samples) => percentiles(samples, (sample) => sample.timeToFirstToken) },
    { chart: new LineChart({ title: "Token gap", figure: figure(seconds), write: seconds, least: 0.01 }), lines: (samples) => percentiles(samples, (sample) => sample.tokenGap) },
    { chart: new LineChart({ title: "KV cache in use", figure: figure(percent), write: percent, least: 1 }), lines: (samples) => one("share", samples.map((sample) => sample.kvUse)) },
    { chart: new LineChart({ title: "Memory", least: 1e8, write: bytes, figure: figure(bytes) }),
      lines: (samples) => [{ label: "reserved by models", look: "one", values: samples.map((sample) => sample.memory) }, { label: "process", look: "two", values: samples.map((sample) => sample.processMemory) }] },
    { chart: new LineChart({ title: "Cache hits", figure: figure(percent), write: percent, least: 1 }), lines: (samples) => one("share", samples.map((sample) => sample.cacheHits)) },
    { chart: new LineChart({ title: "Errors", figure: figure((value) => `${count(value)} in total`), write: count, least: 4 }), lines: (samples) => one("errors", samples.map((sample) => sample.errorsTotal)) },
  ];
}

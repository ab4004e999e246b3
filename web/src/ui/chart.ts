// Small line and bar charts as SVG, drawn here. Lines keep their width however wide the chart is shown.
import { element, replace, setText, svg } from "./dom.ts";

export interface Line {
  label: string;
  look: "one" | "two" | "three";
  /** null: nothing was measured then; the line is broken there. */
  values: readonly (number | null)[];
}

export interface LineChartOptions {
  title: string;
  /** The figure beside the title. */
  figure: (lines: readonly Line[]) => string;
  /** How values are written on the axis. */
  write: (value: number) => string;
  /** The axis goes at least so far. */
  least: number;
}

const WIDTH = 300;
const HEIGHT = 80;

export class LineChart {
  readonly element: HTMLElement;
  readonly #options: LineChartOptions;
  readonly #figure = element("span", { class: "card__figure" });
  readonly #most = element("span", { class: "chart__most" });
  readonly #legend = element("span", { class: "chart__legend" });
  readonly #plot = svg("svg", { class: "chart__plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  readonly #picture: HTMLElement;

  constructor(options: LineChartOptions) {
    this.#options = options;
    this.#picture = element("div", { class: "chart", role: "img" }, this.#most, this.#plot);
    this.element = element("section", { class: "card" },
      element("div", { class: "card__head" }, element("h2", { class: "card__title" }, options.title), this.#figure), this.#picture, this.#legend);
  }

  draw(lines: readonly Line[]): void {
    const values = lines.flatMap((line) => line.values.filter((value) => value !== null));
    const most = niceAbove(Math.max(this.#options.least, ...values));
    setText(this.#most, this.#options.write(most));
    const figure = this.#options.figure(lines);
    setText(this.#figure, figure);
    this.#picture.setAttribute("aria-label", `${this.#options.title}: ${figure}. The axis goes to ${this.#options.write(most)}.`);
    const grid = [0.25, 0.5, 0.75].map((share) => svg("line", { class: "chart__grid", x1: 0, x2: WIDTH, y1: HEIGHT * share, y2: HEIGHT * share }));
    this.#plot.replaceChildren(...grid, ...lines.flatMap((line) => drawLine(line, most, lines.length === 1)));
    if (lines.length > 1) replace(this.#legend, ...lines.map((line) => element("span", { class: `chart__key chart__key--${line.look}` }, line.label)));
    this.#legend.hidden = lines.length < 2;
  }
}

function drawLine(line: Line, most: number, filled: boolean): SVGElement[] {
  const step = WIDTH / Math.max(1, line.values.length - 1);
  const made: SVGElement[] = [];
  let run: [number, number][] = [];
  const end = (): void => {
    if (run.length > 0) made.push(...drawRun(run, line.look, filled));
    run = [];
  };
  line.values.forEach((value, at) => {
    if (value === null) end();
    else run.push([at * step, HEIGHT - 2 - (value / most) * (HEIGHT - 6)]);
  });
  end();
  return made;
}

function drawRun(run: readonly [number, number][], look: string, filled: boolean): SVGElement[] {
  const first = run[0];
  const last = run.at(-1);
  if (first === undefined || last === undefined) return [];
  const points = run.length === 1 ? [first, [first[0] + 2, first[1]] as const] : run;
  const path = `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
  const made = [svg("path", { class: `chart__line chart__line--${look}`, d: path })];
  if (filled) made.unshift(svg("path", { class: "chart__area", d: `${path}L${last[0].toFixed(1)} ${HEIGHT}L${first[0].toFixed(1)} ${HEIGHT}Z` }));
  return made;
}

/** The next of 1, 2, 5, 10, 20 … that is not below. */
export function niceAbove(value: number): number {
  if (value <= 0) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 2, 5, 10].find((each) => each * ten >= value * 0.999) ?? 10;
  return factor * ten;
}

export interface BarChartRow {
  label: string;
  value: number;
  text: string;
}

/** Bars that lie, with their figures beside them: a list, so that it can be read out. */
export function barChart(label: string, rows: readonly BarChartRow[]): HTMLElement {
  const most = Math.max(1e-9, ...rows.map((row) => row.value));
  const list = element("ul", { class: "bars", "aria-label": label });
  for (const row of rows) {
    const fill = element("span", { class: "bars__fill" });
    fill.style.width = `${Math.max(1, (row.value / most) * 100)}%`;
    list.append(element("li", { class: "bars__row" }, element("span", { class: "bars__label" }, row.label),
      element("span", { class: "bars__track" }, fill), element("span", { class: "bars__value" }, row.text)));
  }
  return list;
}

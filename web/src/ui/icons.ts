// The page's icons: strokes of 1.5 on a grid of 20, drawn here. They are hidden from screen readers; what they stand on
// has a name.
import { svg } from "./dom.ts";

const PATHS = {
  menu: "M3 5.5h14M3 10h14M3 14.5h14",
  plus: "M10 4v12M4 10h12",
  search: "M9 3.5a5.5 5.5 0 1 1 0 11 5.5 5.5 0 0 1 0-11M13 13l4 4",
  send: "M10 16.5v-13M4.5 9 10 3.5 15.5 9",
  stop: "M5.5 5.5h9v9h-9z",
  copy: "M7.5 7.5h9v9h-9zM12.5 7.5v-4h-9v9h4",
  check: "M4 10.5l4 4 8-9",
  retry: "M16 10a6 6 0 1 1-1.8-4.3M16.2 3v3.2H13",
  edit: "M4 16l.8-3.4L13 4.4a1.4 1.4 0 0 1 2 0l.6.6a1.4 1.4 0 0 1 0 2L7.4 15.200z",
  trash: "M4 6h12M8 6V4h4v2M5.5 6l.7 10.500h7.600L14.5 6M8.5 9v4.500M11.5 9v4.5",
  sliders: "M3 6h7M14 6h3M12 4v4M3 14h3M10 14h7M8 12v4",
  close: "M5 5l10 10M15 5 5 15",
  left: "M12 4.5 6.5 10l5.5 5.5",
  right: "M8 4.5 13.5 10 8 15.5",
  down: "M4.5 7.5 10 13l5.5-5.5",
  more: "M4.5 10h.01M10 10h.01M15.5 10h.01",
  sun: "M10 6.500a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7M10 2v1.500M10 16.500V18M2 10h1.500M16.5 10H18M4.3 4.300l1.1 1.100M14.6 14.600l1.1 1.100M4.3 15.700l1.1-1.100M14.6 5.400l1.1-1.1",
  moon: "M16.5 11.800A7 7 0 1 1 8.2 3.500a5.6 5.6 0 0 0 8.3 8.300z",
  screen: "M3 4h14v9.500H3zM7.5 16.500h5M10 13.500v3",
  chart: "M3 16.500h14M5.5 13.500v-4M10 13.500v-9M14.5 13.500V8",
  grid: "M3.5 3.500h5v5h-5zM11.5 3.500h5v5h-5zM3.5 11.500h5v5h-5zM11.5 11.500h5v5h-5z",
  download: "M10 3.500v9M6 9l4 4 4-4M3.5 16.500h13",
  upload: "M10 13V4M6 7.500l4-4 4 4M3.5 16.500h13",
  warning: "M10 3 2.5 16.500h15zM10 8v4M10 14.300v.01",
  text: "M4 5.500V4h12v1.500M10 4v12M8 16h4",
  chat: "M3.5 4.500h13v9H9l-3.5 3v-3h-2z",
  key: "M12.5 3.500a4 4 0 1 1-3.3 6.300L3.5 15.500v1.500h2.500v-2h2v-2l1.9-1.900M13.3 6.700h.01",
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName, small = false): SVGElement {
  const classes = small ? "icon icon--small" : "icon";
  const path = svg("path", { d: PATHS[name] });
  const made = svg("svg", { class: classes, viewBox: "0 0 20 20", "aria-hidden": "true" }, path);
  if (name === "stop") made.classList.add("icon--solid");
  if (name === "more") path.setAttribute("stroke-width", "2.5");
  return made;
}

/** The bolt of a crossbow, which a quarrel is. */
export function mark(className: string): SVGElement {
  const paths = ["M4 20 18 6", "M11 5h8v8", "M4 15l3-3", "M9 20l3-3"];
  return svg("svg", { class: className, viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 2.2, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" },
    ...paths.map((d) => svg("path", { d })));
}

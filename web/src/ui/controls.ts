// Buttons, tools and bars, made the same way everywhere.
import { attribute, element, type Attributes } from "./dom.ts";
import { icon, type IconName } from "./icons.ts";

export interface ButtonOptions {
  label: string;
  icon?: IconName;
  look?: "main" | "bare" | "danger";
  small?: boolean;
  class?: string;
  attributes?: Attributes;
  press: (button: HTMLButtonElement) => void;
}

export function button(options: ButtonOptions): HTMLButtonElement {
  const classes = ["button"];
  if (options.look) classes.push(`button--${options.look}`);
  if (options.small) classes.push("button--small");
  if (options.class) classes.push(options.class);
  const made = element("button", { type: "button", class: classes.join(" "), ...options.attributes },
    options.icon ? icon(options.icon, true) : null, options.label);
  made.addEventListener("click", () => options.press(made));
  return made;
}

/** A button that is an icon alone; the label is its name and its tip. */
export function tool(name: IconName, label: string, press: (button: HTMLButtonElement) => void, options: { small?: boolean; class?: string } = {}): HTMLButtonElement {
  const classes = ["tool", options.small ? "tool--small" : "", options.class ?? ""].filter(Boolean).join(" ");
  const made = element("button", { type: "button", class: classes, "aria-label": label, title: label }, icon(name, options.small));
  made.addEventListener("click", () => press(made));
  return made;
}

export function setTool(target: HTMLButtonElement, name: IconName, label: string): void {
  target.replaceChildren(icon(name, target.classList.contains("tool--small")));
  target.setAttribute("aria-label", label);
  target.title = label;
}

export interface Segments<T extends string> {
  element: HTMLElement;
  show(chosen: T): void;
  focus(): void;
}

/** Buttons of which one is chosen: one stop for Tab, and arrows go between them, as people know it of radio buttons. */
export function segments<T extends string>(label: string, choices: readonly { value: T; label: string }[], choose: (value: T) => void): Segments<T> {
  const buttons = choices.map(({ value, label: text }) => element("button", { type: "button", class: "tabs__tab", role: "radio", on: { click: () => choose(value) } }, text));
  const made = element("div", { class: "tabs", role: "radiogroup", "aria-label": label }, ...buttons);
  const steps: Record<string, number> = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  made.addEventListener("keydown", (event) => {
    const step = steps[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const next = buttons.findIndex((each) => each === document.activeElement) + step + buttons.length;
    buttons[next % buttons.length]?.focus();
    buttons[next % buttons.length]?.click();
  });
  const show = (chosen: T): void => buttons.forEach((each, at) => {
    attribute(each, "aria-checked", choices[at]?.value === chosen ? "true" : "false");
    each.tabIndex = choices[at]?.value === chosen ? 0 : -1;
  });
  return { element: made, show, focus: () => buttons.find((each) => each.tabIndex === 0)?.focus() };
}

export interface Bar {
  element: HTMLElement;
  /** 0 to 1; null: not known, it only moves. */
  set(share: number | null): void;
}

export function bar(label: string): Bar {
  const fill = element("div", { class: "bar__fill" });
  const made = element("div", { class: "bar bar--unknown", role: "progressbar", "aria-label": label }, fill);
  return {
    element: made,
    set(share) {
      made.classList.toggle("bar--unknown", share === null);
      if (share === null) {
        made.removeAttribute("aria-valuenow");
        fill.style.removeProperty("transform");
      } else {
        made.setAttribute("aria-valuenow", String(Math.round(share * 100)));
        fill.style.transform = `scaleX(${Math.min(1, Math.max(0, share))})`;
      }
    },
  };
}

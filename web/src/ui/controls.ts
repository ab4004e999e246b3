// Buttons, tools and bars, made the same way everywhere.
import { element, type Attributes } from "./dom.ts";
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

// Builds elements. Text always becomes a text node, never markup; styles go through the CSSOM, which the page's content
// security policy lets pass.

export type Child = Node | string | null | false | undefined;

type Listeners = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

export interface Attributes {
  class?: string;
  on?: Listeners;
  [name: string]: string | number | boolean | Listeners | null | undefined;
}

/** `true` sets an attribute without a value; `false`, null and undefined leave it out. */
export function element<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "object") listen(made, value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  append(made, children);
  return made;
}

function listen(target: HTMLElement, listeners: Listeners): void {
  for (const [name, listener] of Object.entries(listeners)) target.addEventListener(name, listener as EventListener);
}

export function append(parent: Element, children: readonly Child[]): void {
  for (const child of children) if (child !== null && child !== undefined && child !== false) parent.append(child);
}

export function replace(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** Brings what is in `parent` to what it should be, and leaves in its place what is the same already: a button that is drawn
 * again between the pointer's going down and up is not pressed, and loses the focus. */
export function renew(parent: Element, ...children: Element[]): void {
  children.forEach((wanted, at) => {
    const now = parent.childNodes[at];
    if (now === undefined) parent.append(wanted);
    else if (now.isEqualNode(wanted)) return;
    else if (now instanceof Element && isFrame(now) && now.tagName === wanted.tagName) renewFrame(now, wanted);
    else now.replaceWith(wanted);
  });
  while (parent.childNodes.length > children.length) parent.lastChild?.remove();
}

/** What holds others and listens to nothing itself. */
function isFrame(node: Element): boolean {
  return node instanceof HTMLLIElement || node instanceof HTMLUListElement;
}

function renewFrame(now: Element, wanted: Element): void {
  for (const { name } of [...now.attributes]) if (!wanted.hasAttribute(name)) now.removeAttribute(name);
  for (const { name, value } of wanted.attributes) attribute(now, name, value);
  renew(now, ...wanted.children);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, attributes: Record<string, string | number>, ...children: Element[]): SVGElement {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/** Sets an attribute, or takes it away for null. */
export function attribute(target: Element, name: string, value: string | null): void {
  if (value === null) target.removeAttribute(name);
  else if (target.getAttribute(name) !== value) target.setAttribute(name, value);
}

/** Sets the text where it differs, so that nothing is laid out for nothing. */
export function setText(target: Node, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

let lastId = 0;
export function uniqueId(prefix: string): string {
  lastId += 1;
  return `${prefix}-${lastId}`;
}

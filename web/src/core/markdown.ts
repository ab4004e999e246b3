// Turns a model's text, which is hostile, into elements. Blocks that are finished are left alone: only the last one is
// rendered again while text comes, the less often the longer it takes. HTML in the text is shown as text, but for <br>, <sub>,
// <sup> and <kbd>; formulas are left as they are; what the parser makes passes a list of elements and attributes that are
// allowed; nothing is fetched.
//
// What it makes, for styles and handlers: `.md-block` around each block; `.md-code` (figure) with `.md-code__bar`,
// `.md-code__language`, `button.md-code__copy[data-action="copy-code"]` and `pre.md-code__text > code`; `.md-table` (scrolls
// inside itself, focusable) around tables; `a.md-link[rel][target]`; `.md-image` in place of images, with their text;
// `li.md-task` with a box in place of the list's own mark; `.md-math` around formulas; hljs-* inside code.
import DOMPurify from "dompurify";
import { Marked } from "marked";
import type { Tokens } from "marked";
import { BlockSplitter } from "./blocks.ts";
import { directionOf } from "./direction.ts";
import { formulaAt } from "./formula.ts";
import { highlightInto } from "./highlight.ts";

export interface MarkdownView {
  /** The whole text so far; `done`: nothing more comes. */
  update(text: string, done: boolean): void;
}

const allowedElements = [
  "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "kbd", "li", "ol", "p", "pre", "span", "strong", "sub", "sup",
  "table", "tbody", "td", "th", "thead", "tr", "ul",
];
const allowedAttributes = ["href", "align", "start", "class"];
const allowedLinks = /^(?:https?:\/\/|mailto:)/i;
const lineBreak = /^<br\s*\/?>$/i;
const plainTag = /^<\/?(?:sub|sup|kbd)>$/i; // without attributes
const ownClasses = ["md-image", "md-math", "md-task"];
const formulaStart = { block: /(?<=\n)(?:\\\[|\$\$)/, inline: /\\[[(]|\$\$/ };

function escapeHtml(text: string): string {
  const names: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return text.replace(/[&<>"']/g, (character) => names[character] ?? "");
}

function showHtml(text: string): string {
  if (lineBreak.test(text.trim())) return "<br>";
  return plainTag.test(text) ? text : escapeHtml(text);
}

const parser = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => showHtml(text),
    image: ({ text, href }: Tokens.Image) => `<span class="md-image">${escapeHtml(text === "" ? href : text)}</span>`,
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? "☑ " : "☐ "),
    code: ({ text, lang }: Tokens.Code) => `<pre><code class="language-${escapeHtml((lang ?? "").split(/\s/)[0] ?? "")}">${escapeHtml(text)}</code></pre>`,
    heading({ tokens, depth }: Tokens.Heading) {
      const level = Math.min(6, depth + 2); // the page's own come before
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
    listitem(item: Tokens.ListItem) {
      return `<li${item.task ? ' class="md-task"' : ""}>${this.parser.parse(item.tokens)}</li>\n`;
    },
  },
});

/** Formulas keep their backslashes, underscores and stars: nothing draws them, but they can be read and copied. */
parser.use({
  extensions: (["block", "inline"] as const).map((level) => ({
    name: `${level}Formula`,
    level,
    start: (text: string) => formulaStart[level].exec(text)?.index,
    tokenizer: (text: string) => {
      const raw = formulaAt(text);
      const isAlone = raw !== null && !raw.startsWith("\\(") && /^[ \t]*(?:\n|$)/.test(text.slice(raw.length));
      return raw === null || (level === "block" && !isAlone) ? undefined : { type: `${level}Formula`, raw };
    },
    renderer: ({ raw }: Tokens.Generic) => {
      const shown = `<span class="md-math">${escapeHtml(raw)}</span>`;
      return level === "block" ? `<p>${shown}</p>\n` : shown;
    },
  })),
});

function element<K extends keyof HTMLElementTagNameMap>(tag: K, className: string, text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  made.className = className;
  if (text !== "") made.textContent = text;
  return made;
}

/** HTML that the parser made, as elements that may be shown. */
function sanitise(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: allowedElements,
    ALLOWED_ATTR: allowedAttributes,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: allowedLinks,
    ADD_URI_SAFE_ATTR: ["align", "start"], // no addresses: a table's sides and where a list begins
    RETURN_DOM_FRAGMENT: true,
  });
}

function codeFigure(language: string): { figure: HTMLElement; code: HTMLElement } {
  const figure = element("figure", "md-code");
  const bar = element("div", "md-code__bar");
  const copy = element("button", "md-code__copy", "Copy");
  copy.type = "button";
  copy.dataset["action"] = "copy-code";
  copy.setAttribute("aria-label", language === "" ? "Copy the code" : `Copy the ${language} code`);
  bar.append(element("span", "md-code__language", language === "" ? "text" : language), copy);
  const pre = element("pre", "md-code__text");
  pre.tabIndex = 0; // wide code is scrolled by keyboard too
  pre.setAttribute("dir", "ltr");
  const code = document.createElement("code");
  pre.append(code);
  figure.append(bar, pre);
  return { figure, code };
}

function dressCode(fragment: DocumentFragment): void {
  for (const pre of fragment.querySelectorAll("pre")) {
    const inner = pre.querySelector("code");
    const language = /language-([\w+#.-]{1,40})/.exec(inner?.className ?? "")?.[1] ?? "";
    const { figure, code } = codeFigure(language);
    const text = (inner ?? pre).textContent;
    code.textContent = text;
    pre.replaceWith(figure);
    highlightInto(code, text, language);
  }
}

function dressLinks(fragment: DocumentFragment): void {
  for (const link of fragment.querySelectorAll("a")) {
    if (!allowedLinks.test(link.getAttribute("href") ?? "")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.className = "md-link";
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
}

function dressTables(fragment: DocumentFragment): void {
  for (const table of fragment.querySelectorAll("table")) {
    const frame = element("div", "md-table");
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", "Table");
    give(frame, table);
    table.replaceWith(frame);
    frame.append(table);
  }
}

/** Classes come from us alone. */
function dropForeignClasses(fragment: DocumentFragment): void {
  for (const one of fragment.querySelectorAll("[class]")) {
    if (!ownClasses.includes(one.className) && !one.className.startsWith("language-")) one.removeAttribute("class");
  }
}

/** Gives `target` the direction in which `source` begins; code has none. */
function give(target: Element, source: Element): void {
  const walk = document.createTreeWalker(source, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) =>
    node instanceof Element && node.matches("code, .md-code, .md-math") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  for (let node = walk.nextNode(); node !== null; node = walk.nextNode()) {
    const direction = node instanceof Text ? directionOf(node.data) : null;
    if (direction !== null) { target.setAttribute("dir", direction); return; }
  }
}

/** Each part by its own script: an answer may hold both directions. A browser's "auto" would pass over children with a
 * direction of their own, and lay a number in a right-to-left table out to the left. */
function dressDirections(fragment: DocumentFragment): void {
  for (const one of fragment.querySelectorAll("code, .md-math")) one.setAttribute("dir", "ltr");
  for (const one of fragment.querySelectorAll("p, h3, h4, h5, h6, td, th, ul, ol, li, blockquote")) give(one, one);
}

/** One block, or a whole text where it does not grow. */
export function renderMarkdown(text: string): DocumentFragment {
  const fragment = sanitise(parser.parse(text) as string);
  dropForeignClasses(fragment);
  dressLinks(fragment);
  dressCode(fragment);
  dressTables(fragment);
  dressDirections(fragment);
  // An answer may begin with any level; to readers of the page's outline all are parts of the answer.
  for (const one of fragment.querySelectorAll("h4, h5, h6")) one.setAttribute("aria-level", "3");
  return fragment;
}

/** A block as it is read aloud: without marks, and code by its language and length alone. */
export function spokenText(block: string): string {
  const fragment = sanitise(parser.parse(block) as string);
  for (const pre of fragment.querySelectorAll("pre")) {
    const language = /language-([\w+#.-]{1,40})/.exec(pre.querySelector("code")?.className ?? "")?.[1] ?? "";
    const lines = pre.textContent.replace(/\n$/, "").split("\n").length;
    const name = language === "" ? "Code" : `${language.charAt(0).toUpperCase()}${language.slice(1)} code`;
    pre.replaceWith(`${name}, ${lines} ${lines === 1 ? "line" : "lines"}.`);
  }
  return fragment.textContent.trim();
}

/** The code of a block whose fence is not closed yet: lines are added, nothing is parsed again. */
class OpenCode {
  readonly figure: HTMLElement;
  private readonly text: Text;

  constructor(block: string) {
    const info = /^[ ]*(?:`{3,}|~{3,})[ \t]*([\w+#.-]{0,40})/.exec(block)?.[1] ?? "";
    const { figure, code } = codeFigure(info);
    this.figure = figure;
    this.text = document.createTextNode("");
    code.append(this.text);
    this.update(block);
  }

  update(block: string): void {
    const start = block.indexOf("\n") + 1;
    const shown = start === 0 ? "" : block.slice(start);
    if (shown.length > this.text.length && shown.startsWith(this.text.data)) this.text.appendData(shown.slice(this.text.length));
    else if (shown !== this.text.data) this.text.data = shown;
  }
}

/** A block that grows rests so many times as long as it took to be rendered: a table of hundreds of rows takes a quarter of the
 * page's time, not all of it. */
const restsTimes = 3;

class GrowingMarkdown implements MarkdownView {
  private readonly host: HTMLElement;
  private splitter = new BlockSplitter();
  private shown = "";
  private last: HTMLElement | null = null;
  private code: OpenCode | null = null;
  private isDone = false;
  private restsUntil = 0; // of the open block
  private later: ReturnType<typeof setTimeout> | undefined;

  constructor(host: HTMLElement) {
    this.host = host;
  }

  update(text: string, done: boolean): void {
    if (this.isDone && done && text === this.shown) return;
    if (this.isDone || !text.startsWith(this.shown)) this.reset();
    this.shown = text;
    this.isDone = done;
    for (const block of this.splitter.feed(text)) {
      this.lastBlock().replaceChildren(renderMarkdown(block));
      this.forgetLast();
    }
    this.showOpen();
  }

  private reset(): void {
    this.splitter = new BlockSplitter();
    this.forgetLast();
    this.host.replaceChildren();
  }

  private forgetLast(): void {
    this.last = null;
    this.code = null;
    this.restsUntil = 0;
  }

  private showOpen(): void {
    clearTimeout(this.later);
    const block = this.splitter.open(this.shown);
    if (block.trim() === "") {
      this.last?.remove();
      this.forgetLast();
    } else if (this.isDone || !this.splitter.inFence) {
      this.code = null;
      this.renderOpen(block);
    } else if (this.code !== null) {
      this.code.update(block);
    } else {
      this.code = new OpenCode(block);
      this.lastBlock().replaceChildren(this.code.figure);
    }
  }

  private renderOpen(block: string): void {
    const began = performance.now();
    if (!this.isDone && began < this.restsUntil) {
      this.later = setTimeout(() => this.showOpen(), this.restsUntil - began);
      return;
    }
    this.lastBlock().replaceChildren(renderMarkdown(block));
    const now = performance.now();
    this.restsUntil = now + restsTimes * (now - began);
  }

  private lastBlock(): HTMLElement {
    if (this.last === null) {
      this.last = element("div", "md-block");
      this.host.append(this.last);
    }
    return this.last;
  }
}

export function createMarkdownView(host: HTMLElement): MarkdownView {
  return new GrowingMarkdown(host);
}

/** Renders what nobody sees: the browser compiles the parsers at their first use, some 30 ms that the first words of an
 * answer would wait for. */
export function prepareMarkdown(): void {
  const view = createMarkdownView(document.createElement("div"));
  view.update("A *word*, a [link](https://example.com)", false);
  view.update("A *word*, a [link](https://example.com).\n\n- and\n- more", true);
}

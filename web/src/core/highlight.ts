// Colours for code. The languages are a file of their own, fetched from the server when the first code is shown; until
// then, and for a language that is not among them, code is plain.

const longest = 60_000; // characters; more would hold up the page

type Highlighter = (text: string, language: string) => DocumentFragment | null;

let loading: Promise<Highlighter> | null = null;

function load(): Promise<Highlighter> {
  loading ??= import("./highlight_languages.ts").then((module) => module.highlight);
  return loading;
}

export function highlightInto(code: HTMLElement, text: string, language: string): void {
  if (language === "" || text.length > longest) return;
  load().then((highlight) => {
    const coloured = highlight(text, language);
    if (coloured !== null) code.replaceChildren(coloured);
  }, () => {
    loading = null; // it stays plain, and the next code tries again
  });
}

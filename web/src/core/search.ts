// Finds words in texts: every word has to be there, in any case of letters.
//
// A search reads every message that is kept: it waits until the typing pauses.

export interface TextMatch {
  excerpt: string;
  marks: readonly (readonly [number, number])[];
}

const pauseTime = 150;
const before = 40;
const longest = 160;

export function searchPatterns(words: string): RegExp[] {
  const parts = words.trim().split(/\s+/u).filter((word) => word !== "").slice(0, 16);
  return parts.map((word) => new RegExp(word.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&"), "giu"));
}

function marksIn(text: string, patterns: readonly RegExp[]): (readonly [number, number])[] {
  const marks: [number, number][] = [];
  for (const pattern of patterns) {
    for (const match of text.matchAll(pattern)) marks.push([match.index, match.index + match[0].length]);
  }
  marks.sort((a, b) => a[0] - b[0]);
  const joined: [number, number][] = [];
  for (const mark of marks) {
    const last = joined.at(-1);
    if (last !== undefined && mark[0] <= last[1]) last[1] = Math.max(last[1], mark[1]);
    else joined.push([...mark]);
  }
  return joined;
}

/** null: a word is missing. */
export function findIn(text: string, patterns: readonly RegExp[]): TextMatch | null {
  if (patterns.length === 0) return null;
  const places = patterns.map((pattern) => text.search(pattern));
  if (places.includes(-1)) return null;
  const start = Math.max(0, Math.min(...places) - before);
  const cut = text.slice(start, start + longest).replace(/\s/gu, " ");
  const excerpt = `${start > 0 ? "…" : ""}${cut}${start + longest < text.length ? "…" : ""}`;
  return { excerpt, marks: marksIn(excerpt, patterns) };
}

/** A search as its words are typed: of all that is asked only the last is answered. */
export class TypedSearch<Found> {
  private readonly search: (words: string) => Promise<Found>;
  private readonly show: (found: Found | null) => void;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = 0;

  /** `show` gets null where nothing is looked for. */
  constructor(search: (words: string) => Promise<Found>, show: (found: Found | null) => void) {
    this.search = search;
    this.show = show;
  }

  look(words: string): void {
    const number = ++this.asked;
    clearTimeout(this.timer);
    if (words === "") this.show(null);
    else this.timer = setTimeout(() => void this.ask(words, number), pauseTime);
  }

  private async ask(words: string, number: number): Promise<void> {
    const found = await this.search(words);
    if (number === this.asked) this.show(found);
  }
}

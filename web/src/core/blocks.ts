// Cuts Markdown that is still being written into blocks that stand for themselves: what was cut off never changes again,
// whatever comes. Text only grows; every character is looked at once.

interface Fence {
  mark: string; // "`" or "~"
  length: number;
}

const fenceStart = /^( *)(`{3,}(?!.*`)|~{3,})/;
const listStart = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?: |\t|$)/;

export class BlockSplitter {
  private start = 0; // of the open block
  private scanned = 0; // whole lines up to here
  private kind: "none" | "fence" | "list" | "other" = "none";
  private fence: Fence | null = null;
  private blank = false; // the open block's last lines are empty

  /** Blocks that are finished now; `text` is all that there is so far. */
  feed(text: string): string[] {
    const blocks: string[] = [];
    for (let end = text.indexOf("\n", this.scanned); end >= 0; end = text.indexOf("\n", this.scanned)) {
      this.line(text, text.slice(this.scanned, end), end + 1, blocks);
      this.scanned = end + 1;
    }
    this.beginning(text, blocks);
    return blocks;
  }

  /** What may still change. */
  open(text: string): string {
    return text.slice(this.start);
  }

  /** Whether the open block is code that goes on: its lines can be shown as they come. */
  get inFence(): boolean {
    return this.kind === "fence" && this.fence !== null;
  }

  private line(text: string, line: string, next: number, blocks: string[]): void {
    if (this.fence !== null) {
      if (!this.closes(line)) return;
      this.fence = null;
      if (this.kind === "fence") this.cut(text, next, blocks);
      return;
    }
    if (line.trim() === "") {
      this.blank = this.kind !== "none";
      return;
    }
    const opening = fenceStart.exec(line);
    const indented = (opening?.[1]?.length ?? 0) > 3;
    if (this.startsBlock(line) || (opening !== null && !indented && this.kind === "other")) this.cut(text, this.scanned, blocks);
    if (opening !== null && !(indented && this.kind !== "list")) {
      const marks = opening[2] ?? "```";
      this.fence = { mark: marks.charAt(0), length: marks.length };
      if (this.kind === "none") this.kind = "fence";
    }
    if (this.kind === "none") this.kind = listStart.test(line) ? "list" : "other";
    this.blank = false;
  }

  /** Behind an empty line the first characters tell whether a new block begins: no need to wait for the line's end. */
  private beginning(text: string, blocks: string[]): void {
    if (!this.blank || this.fence !== null) return;
    const line = text.slice(this.scanned);
    if (line.trim().length >= 4 && this.startsBlock(line)) this.cut(text, this.scanned, blocks);
  }

  private startsBlock(line: string): boolean {
    if (!this.blank || this.kind === "none") return false;
    return !(this.kind === "list" && (listStart.test(line) || /^(?: {2}|\t)/.test(line)));
  }

  private closes(line: string): boolean {
    const { mark, length } = this.fence ?? { mark: "`", length: 3 };
    const trimmed = line.trim();
    return trimmed.length >= length && trimmed === mark.repeat(trimmed.length);
  }

  private cut(text: string, end: number, blocks: string[]): void {
    blocks.push(text.slice(this.start, end));
    this.start = end;
    this.kind = "none";
    this.blank = false;
  }
}

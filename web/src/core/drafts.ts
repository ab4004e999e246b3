// What was typed and not sent, by conversation, kept as long as the tab: a page that is loaded again still has it.
import { isRecord, parseJson } from "./json.ts";
import type { TextStorage } from "./settings.ts";
import type { Drafts } from "./types.ts";

const place = "quarrel.drafts";
const saveAfter = 300;

export class KeptDrafts implements Drafts {
  private readonly storage: TextStorage | null;
  private readonly texts: Map<string, string>;
  private timer: ReturnType<typeof setTimeout> | null = null;

  constructor(storage: TextStorage | null) {
    this.storage = storage;
    const kept = parseJson(storage?.getItem(place) ?? "");
    const entries = isRecord(kept) ? Object.entries(kept) : [];
    this.texts = new Map(entries.filter((entry): entry is [string, string] => typeof entry[1] === "string"));
  }

  get(conversationId: string | null): string {
    return this.texts.get(conversationId ?? "") ?? "";
  }

  set(conversationId: string | null, text: string): void {
    if (text === "") this.texts.delete(conversationId ?? "");
    else this.texts.set(conversationId ?? "", text);
    this.timer ??= setTimeout(() => this.save(), saveAfter);
  }

  /** At once: the page goes away. */
  save(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    try {
      this.storage?.setItem(place, JSON.stringify(Object.fromEntries(this.texts)));
    } catch {
      // Full: they live as long as the page.
    }
  }
}

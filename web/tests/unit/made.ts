// Things that several tests make.
import type { StoredMessage } from "../../src/core/records.ts";
import type { TabNews, Tabs } from "../../src/core/tabs.ts";

export function message(id: string, parentId: string | null, createdAt = 0, more: Partial<StoredMessage> = {}): StoredMessage {
  return {
    id, parentId, createdAt, conversationId: "c", role: id.startsWith("a") ? "assistant" : "user", text: `text of ${id}`, state: "complete",
    model: null, settings: null, finishReason: null, error: null, statistics: null, sources: null, resume: null, soFar: null, ...more,
  };
}

/** Tabs of one browser: what one tells all others hear, a moment later. */
export class Browser {
  private readonly tabs: { own: object; listeners: ((news: TabNews) => void)[] }[] = [];

  tab(): Tabs {
    const tab = { own: {}, listeners: [] as ((news: TabNews) => void)[] };
    this.tabs.push(tab);
    return {
      tell: (news) => {
        for (const other of this.tabs) {
          if (other.own !== tab.own) for (const listener of other.listeners) setTimeout(() => listener(structuredClone(news)), 0);
        }
      },
      on: (listener) => void tab.listeners.push(listener),
    };
  }
}

export function counter(prefix: string): () => string {
  let made = 0;
  return () => `${prefix}${++made}`;
}

/** Until it holds: everything here happens within some turns of the event loop. */
export async function eventually(holds: () => boolean, what: string): Promise<void> {
  for (let turn = 0; turn < 2000; turn += 1) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  throw new Error(`this never came: ${what}`);
}

// The messages of one conversation as a tree: those with the same parent are branches of one another.
import type { StoredMessage } from "./records.ts";
import type { ShownMessage } from "./types.ts";

/** The name of the first messages' parent in `selected`. */
export const rootKey = "";

export class MessageTree {
  private readonly byId = new Map<string, StoredMessage>();
  private readonly children = new Map<string, string[]>();

  get(id: string): StoredMessage | null {
    return this.byId.get(id) ?? null;
  }

  all(): readonly StoredMessage[] {
    return [...this.byId.values()];
  }

  get size(): number {
    return this.byId.size;
  }

  /** Adds it, or gives its fields to the one with its id, which stays the same object: others hold it. True: it is new. */
  put(message: StoredMessage): boolean {
    const known = this.byId.get(message.id);
    if (known !== undefined) {
      Object.assign(known, message);
      return false;
    }
    this.byId.set(message.id, message);
    const key = message.parentId ?? rootKey;
    const siblings = this.children.get(key) ?? [];
    siblings.push(message.id);
    // Ids decide where two tabs wrote in the same millisecond.
    siblings.sort((a, b) => this.age(a) - this.age(b) || (a < b ? -1 : 1));
    this.children.set(key, siblings);
    return true;
  }

  siblings(id: string): readonly string[] {
    const message = this.byId.get(id);
    return message === undefined ? [] : (this.children.get(message.parentId ?? rootKey) ?? []);
  }

  /** From the first message to the last of the branch that `selected` names; the newest where it names none. */
  path(selected: Readonly<Record<string, string>>): ShownMessage[] {
    const shown: ShownMessage[] = [];
    const seen = new Set<string>(); // an import may hold a circle
    let key = rootKey;
    for (;;) {
      const siblings = this.children.get(key) ?? [];
      const wanted = selected[key];
      const id = wanted !== undefined && siblings.includes(wanted) ? wanted : siblings.at(-1);
      if (id === undefined || seen.has(id)) return shown;
      const message = this.byId.get(id);
      if (message === undefined) return shown;
      seen.add(id);
      shown.push({ message, siblings, place: siblings.indexOf(id) });
      key = id;
    }
  }

  /** The messages that lead to this one, from the first to itself. */
  line(id: string): StoredMessage[] {
    const line: StoredMessage[] = [];
    const seen = new Set<string>();
    for (let message = this.byId.get(id); message !== undefined && !seen.has(message.id);) {
      seen.add(message.id);
      line.push(message);
      message = message.parentId === null ? undefined : this.byId.get(message.parentId);
    }
    return line.reverse();
  }

  private age(id: string): number {
    return this.byId.get(id)?.createdAt ?? 0;
  }
}

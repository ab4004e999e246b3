// Writes behind: what has changed is saved soon, in order, and what found no room stays in memory until there is some.
// Nothing is dropped, and the storage's state says how it stands. What changes while a write runs waits for the next one:
// a growing answer is not written, and read by every other tab, as fast as the database can.
import { QuotaError } from "./database.ts";
import type { ConversationUpdate, Database } from "./database.ts";
import { Cell } from "./observable.ts";
import type { StoredConversation, StoredMessage } from "./records.ts";
import type { Tabs } from "./tabs.ts";
import type { StorageState } from "./types.ts";

const ready: StorageState = { state: "ready", message: "" };
const inMemory: StorageState = {
  state: "memory",
  message: "This browser does not let the page store anything: conversations are lost when it is closed. Export what you want to keep.",
};
const full: StorageState = {
  state: "full",
  message: "The browser has no room left for conversations. New messages are kept in this tab only: export them, or delete old conversations.",
};
const failed: StorageState = {
  state: "full",
  message: "The browser's storage failed. New messages are kept in this tab only: export them, then reload the page.",
};

export class Keeper {
  readonly storage: Cell<StorageState>;
  private readonly database: Database;
  private readonly tabs: Tabs;
  private readonly updates: { id: string; update: ConversationUpdate }[] = [];
  private dirty = new Map<string, StoredMessage>();
  private running: Promise<void> | null = null;
  private next: Promise<void> | null = null; // the write behind the one that runs
  private timer: ReturnType<typeof setTimeout> | null = null;

  constructor(database: Database, tabs: Tabs) {
    this.database = database;
    this.tabs = tabs;
    this.storage = new Cell(database.lasting ? ready : inMemory);
  }

  updateConversation(id: string, update: ConversationUpdate): void {
    this.updates.push({ id, update });
    this.flushSoon(0);
  }

  /** The record is read when it is saved. */
  keepMessage(message: StoredMessage, soon = 0): void {
    this.dirty.set(message.id, message);
    this.flushSoon(soon);
  }

  /** Whether this tab has something newer than what is kept. */
  holds(messageId: string): boolean {
    return this.dirty.has(messageId);
  }

  /** Whether something found no room, and goes with the page if it is closed now. */
  get holdsUnsaved(): boolean {
    return this.storage.get().state === "full" && (this.running !== null || this.updates.length + this.dirty.size > 0);
  }

  /** What another tab keeps of this message counts. */
  letGo(messageId: string): void {
    this.dirty.delete(messageId);
  }

  /** What is kept, with what still waits to be saved. */
  withUpdates(id: string, kept: StoredConversation | null): StoredConversation | null {
    return this.updates.filter((one) => one.id === id).reduce<StoredConversation | null>((record, one) => one.update(record) ?? record, kept);
  }

  async remove(ids: readonly string[]): Promise<void> {
    this.letGoOf(ids);
    await this.database.removeConversations(ids);
    this.tabs.tell({ kind: "removed", conversations: ids });
    await this.flush(); // there may be room now
  }

  /** Another tab has removed them: nothing of them is written any more, and what was on its way meanwhile goes too. */
  async forget(ids: readonly string[]): Promise<void> {
    this.letGoOf(ids);
    // While a write runs the first is on its way, and leaves the list by itself.
    const wasWriting = this.running !== null;
    const first = wasWriting ? this.updates[0] : undefined;
    this.updates.splice(0, this.updates.length, ...this.updates.filter((one) => one === first || !ids.includes(one.id)));
    while (this.running !== null) await this.running;
    if (wasWriting) {
      this.letGoOf(ids); // what found no room is back
      await this.database.removeConversations(ids).catch(() => undefined);
    }
    await this.flush(); // there may be room now
  }

  /** Resolves when all is saved that had changed by now, or has found no room. */
  flush(): Promise<void> {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    if (this.running === null) {
      this.running = this.write().finally(() => { this.running = null; });
      return this.running;
    }
    this.next ??= this.running.then(() => {
      this.next = null;
      return this.flush();
    });
    return this.next;
  }

  private letGoOf(conversations: readonly string[]): void {
    for (const { id, conversationId } of [...this.dirty.values()]) if (conversations.includes(conversationId)) this.dirty.delete(id);
  }

  private flushSoon(delay: number): void {
    if (this.timer !== null && delay > 0) return;
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.flush(), delay);
  }

  private async write(): Promise<void> {
    try {
      const conversations = await this.writeUpdates();
      const messages = await this.writeMessages();
      if (conversations.length + messages.length > 0) this.tabs.tell({ kind: "saved", conversations, messages });
      if (this.database.lasting) this.storage.set(ready);
    } catch (error) {
      this.storage.set(error instanceof QuotaError ? full : failed);
    }
  }

  private async writeUpdates(): Promise<string[]> {
    const written = new Set<string>();
    for (let next = this.updates[0]; next !== undefined; next = this.updates[0]) {
      await this.database.updateConversation(next.id, next.update);
      written.add(next.id);
      this.updates.shift();
    }
    return [...written];
  }

  private async writeMessages(): Promise<{ conversationId: string; id: string }[]> {
    const batch = this.dirty;
    if (batch.size === 0) return [];
    this.dirty = new Map();
    try {
      await this.database.putMessages([...batch.values()]);
    } catch (error) {
      // Those that have changed again since are newer.
      this.dirty = new Map([...batch, ...this.dirty]);
      throw error;
    }
    return [...batch.values()].map(({ conversationId, id }) => ({ conversationId, id }));
  }
}

// The conversations: the list, the trees of those that are open, and what becomes of them here and in other tabs. Changes
// are seen at once and saved behind (keeper.ts).
import type { Database } from "./database.ts";
import { Keeper } from "./keeper.ts";
import { MessageTree, rootKey } from "./message_tree.ts";
import { Cell, Emitter } from "./observable.ts";
import type { StoredConversation, StoredMessage } from "./records.ts";
import { findIn, searchPatterns } from "./search.ts";
import { readSettings } from "./settings.ts";
import type { TabNews, Tabs } from "./tabs.ts";
import type { Conversation, ConversationChange, ConversationStore, Message, SearchHit, Settings, ShownMessage } from "./types.ts";

/** How long a removal can be undone; then it is carried out. */
export const undoTime = 20_000;
/** A tab that removed something and was closed leaves it to the others. */
const forgottenTime = 60_000;
/** While an answer is written it is saved so often. */
const saveEvery = 1000;
const mostHits = 200;
const longestTitle = 60;

export interface OwnWriting {
  writes(messageId: string): boolean;
  /** Another tab has more of it: what this one still gets is not wanted. */
  giveUp(messageId: string): void;
}

/** Whether what another tab saved of an answer takes the place of what this tab writes. */
function isFurther(kept: StoredMessage, own: StoredMessage): boolean {
  return kept.text.length > own.text.length || (kept.state === "complete" && kept.text.length === own.text.length);
}

function titleOf(text: string): string {
  const line = text.trim().split("\n")[0]?.trim() ?? "";
  const characters = Array.from(line);
  return characters.length <= longestTitle ? line : `${characters.slice(0, longestTitle - 1).join("").trimEnd()}…`;
}

export class Conversations implements ConversationStore {
  readonly list = new Cell<readonly Conversation[]>([]);
  readonly changes = new Emitter<ConversationChange>();
  /** An answer that is being written, but not by this tab; somebody should find out whether another one does. */
  readonly orphans = new Emitter<StoredMessage>();
  readonly removed = new Emitter<readonly string[]>(); // here or by another tab
  /** Answers that this tab writes; who writes them sets it. */
  writing: OwnWriting = { writes: () => false, giveUp: () => undefined };
  readonly keeper: Keeper;
  private readonly database: Database;
  private readonly newId: () => string;
  private readonly records = new Map<string, StoredConversation>();
  private readonly drafts = new Map<string, StoredConversation>(); // without a message yet
  private readonly trees = new Map<string, MessageTree>();
  private readonly opening = new Map<string, Promise<void>>();

  constructor(database: Database, tabs: Tabs, newId: () => string) {
    this.database = database;
    this.newId = newId;
    this.keeper = new Keeper(database, tabs);
    // One after the other: what was saved is read slowly, and must not bring back what was removed since.
    let heard = Promise.resolve();
    tabs.on((news) => { heard = heard.then(() => this.hear(news)).catch(() => undefined); });
  }

  get storage(): Keeper["storage"] {
    return this.keeper.storage;
  }

  /** Reads the list; call it once before anything else. */
  async start(): Promise<void> {
    const all = await this.database.conversations();
    const forgotten = all.filter((one) => one.deletedAt !== null && one.deletedAt < Date.now() - forgottenTime).map((one) => one.id);
    for (const record of all) {
      if (!forgotten.includes(record.id)) this.records.set(record.id, record);
    }
    if (forgotten.length > 0) await this.forget(forgotten);
    this.showList();
  }

  get(id: string): StoredConversation | null {
    return this.records.get(id) ?? this.drafts.get(id) ?? null;
  }

  has(id: string): boolean {
    return this.get(id)?.deletedAt === null;
  }

  create(model: string | null): Conversation {
    const now = Date.now();
    const record: StoredConversation = {
      id: this.newId(), createdAt: now, updatedAt: now, title: "", titleIsOwn: false, model, settings: {}, selected: {}, deletedAt: null,
    };
    this.drafts.set(record.id, record);
    this.trees.set(record.id, new MessageTree());
    return record;
  }

  open(id: string): Promise<void> {
    if (this.trees.has(id)) return Promise.resolve();
    const known = this.opening.get(id);
    if (known !== undefined) return known;
    const opened = this.readTree(id).finally(() => this.opening.delete(id));
    this.opening.set(id, opened);
    return opened;
  }

  path(id: string): readonly ShownMessage[] {
    return this.trees.get(id)?.path(this.get(id)?.selected ?? {}) ?? [];
  }

  message(conversationId: string, messageId: string): StoredMessage | null {
    return this.trees.get(conversationId)?.get(messageId) ?? null;
  }

  /** The messages that lead to this one, with it. */
  line(conversationId: string, messageId: string): readonly Message[] {
    return this.trees.get(conversationId)?.line(messageId) ?? [];
  }

  select(conversationId: string, messageId: string): void {
    const message = this.message(conversationId, messageId);
    if (message === null) return;
    const key = message.parentId ?? rootKey;
    this.update(conversationId, (record) => ({ ...record, selected: { ...record.selected, [key]: messageId } }));
    this.changes.emit({ kind: "path", conversationId });
  }

  show(conversationId: string, messageId: string): void {
    const chosen = this.line(conversationId, messageId).map((one) => [one.parentId ?? rootKey, one.id] as const);
    if (chosen.length === 0) return;
    this.update(conversationId, (record) => ({ ...record, selected: { ...record.selected, ...Object.fromEntries(chosen) } }));
    this.changes.emit({ kind: "path", conversationId });
  }

  rename(id: string, title: string): void {
    const given = title.trim();
    this.update(id, (record) => ({ ...record, title: given === "" ? record.title : given, titleIsOwn: given !== "" || record.titleIsOwn }));
    this.showList();
  }

  setModel(id: string, model: string | null): void {
    this.update(id, (record) => ({ ...record, model }));
    this.showList();
  }

  updateSettings(id: string, patch: Partial<Settings>): void {
    const read = readSettings(patch);
    this.update(id, (record) => ({ ...record, settings: { ...record.settings, ...read } }));
    this.showList();
  }

  resetSettings(id: string): void {
    this.update(id, (record) => ({ ...record, settings: {} }));
    this.showList();
  }

  remove(id: string): () => void {
    return this.removeThese([id]);
  }

  removeAll(): () => void {
    return this.removeThese(this.list.get().map((one) => one.id));
  }

  async search(words: string): Promise<readonly SearchHit[]> {
    const patterns = searchPatterns(words);
    const hits: SearchHit[] = [];
    if (patterns.length === 0) return hits;
    for (const { id, title } of this.list.get()) {
      if (hits.length >= mostHits) break;
      const inTitle = findIn(title, patterns);
      if (inTitle !== null) hits.push({ conversationId: id, messageId: null, ...inTitle });
      const messages = this.trees.get(id)?.all() ?? (await this.database.messages(id));
      for (const message of messages) {
        const found = findIn(message.text, patterns);
        if (found !== null) hits.push({ conversationId: id, messageId: message.id, ...found });
      }
    }
    return hits.slice(0, mostHits);
  }

  // ---- For the rest of core/ ----

  /** Adds messages, shows the branch that they are in, and makes a draft a conversation. */
  add(conversationId: string, messages: readonly StoredMessage[]): void {
    const tree = this.trees.get(conversationId);
    if (tree === undefined) return;
    for (const message of messages) {
      tree.put(message);
      this.keeper.keepMessage(message);
    }
    const first = messages.find((one) => one.role === "user");
    const selected = Object.fromEntries(messages.map((one) => [one.parentId ?? rootKey, one.id]));
    const draft = this.drafts.get(conversationId);
    if (draft !== undefined) {
      this.drafts.delete(conversationId);
      this.records.set(conversationId, draft);
      this.keeper.updateConversation(conversationId, (kept) => kept ?? draft);
    }
    const now = Date.now();
    this.update(conversationId, (record) => ({
      ...record,
      updatedAt: Math.max(record.updatedAt, now),
      title: record.title === "" && first !== undefined ? titleOf(first.text) : record.title,
      selected: { ...record.selected, ...selected },
    }));
    this.showList();
    this.changes.emit({ kind: "path", conversationId });
  }

  /** Changes fields of a message; `soon`: while it is written, it is saved now and then. */
  change(conversationId: string, messageId: string, patch: Partial<StoredMessage>, soon = false): void {
    const message = this.message(conversationId, messageId);
    if (message === null) return;
    Object.assign(message, patch);
    this.keeper.keepMessage(message, soon ? saveEvery : 0);
    this.changes.emit({ kind: "message", conversationId, messageId });
  }

  /** All messages of a conversation, open or not. */
  async allMessages(id: string): Promise<readonly StoredMessage[]> {
    return this.trees.get(id)?.all() ?? (await this.database.messages(id));
  }

  /** Takes over what was imported; false: it is here already. */
  takeOver(record: StoredConversation, messages: readonly StoredMessage[]): boolean {
    if (this.has(record.id)) return false;
    // What was deleted and not forgotten yet makes room: its messages have other ids than those that come back.
    if (this.records.has(record.id)) void this.forget([record.id]);
    this.records.set(record.id, record);
    const tree = new MessageTree();
    for (const message of messages) {
      tree.put(message);
      this.keeper.keepMessage(message);
    }
    this.trees.set(record.id, tree);
    this.keeper.updateConversation(record.id, (kept) => (kept !== null && kept.deletedAt === null ? kept : record));
    this.showList();
    return true;
  }

  private async readTree(id: string): Promise<void> {
    const messages = await this.database.messages(id);
    if (this.trees.has(id) || this.get(id) === null) return; // another tab may have removed it meanwhile
    const tree = new MessageTree();
    for (const message of messages) tree.put(message);
    this.trees.set(id, tree);
    this.changes.emit({ kind: "path", conversationId: id });
    for (const message of messages) {
      if (message.state === "writing") this.orphans.emit(message);
    }
  }

  private update(id: string, change: (record: StoredConversation) => StoredConversation): void {
    const draft = this.drafts.get(id);
    if (draft !== undefined) {
      Object.assign(draft, change(draft));
      return;
    }
    const record = this.records.get(id);
    if (record === undefined) return;
    this.records.set(id, change(record));
    this.keeper.updateConversation(id, (kept) => (kept === null ? null : change(kept)));
  }

  private removeThese(ids: readonly string[]): () => void {
    const now = Date.now();
    for (const id of ids) this.update(id, (record) => ({ ...record, deletedAt: now }));
    this.removed.emit(ids);
    this.showList();
    let undone = false;
    const timer = setTimeout(() => {
      undone = true;
      // One that was imported meanwhile is another, and stays.
      const gone = ids.filter((id) => this.records.get(id)?.deletedAt === now);
      for (const id of gone) this.drop(id);
      void this.keeper.flush().then(() => this.forget(gone));
    }, undoTime);
    return () => {
      if (undone) return;
      undone = true;
      clearTimeout(timer);
      for (const id of ids) this.update(id, (record) => ({ ...record, deletedAt: null }));
      this.showList();
    };
  }

  /** A removal that fails is tried again when the page is next opened. */
  private async forget(ids: readonly string[]): Promise<void> {
    await this.keeper.remove(ids).catch(() => undefined);
  }

  private drop(id: string): void {
    this.records.delete(id);
    this.trees.delete(id);
  }

  private showList(): void {
    const shown = [...this.records.values()].filter((one) => one.deletedAt === null);
    shown.sort((a, b) => b.updatedAt - a.updatedAt || (a.id < b.id ? -1 : 1));
    this.list.set(shown);
    this.changes.emit({ kind: "list" });
  }

  private async hear(news: TabNews): Promise<void> {
    if (news.kind === "removed") {
      for (const id of news.conversations) {
        const wasThere = this.has(id);
        this.drop(id);
        if (wasThere) this.tellGone(id);
      }
      this.showList();
      await this.keeper.forget(news.conversations);
    } else if (news.kind === "saved") {
      for (const id of news.conversations) await this.readRecord(id);
      for (const { conversationId, id } of news.messages) await this.readMessage(conversationId, id);
      if (news.conversations.length > 0) this.showList();
    }
  }

  private tellGone(id: string): void {
    this.removed.emit([id]);
    this.changes.emit({ kind: "gone", conversationId: id });
  }

  private async readRecord(id: string): Promise<void> {
    const kept = this.keeper.withUpdates(id, await this.database.updateConversation(id, () => null));
    if (kept === null) return;
    const before = this.records.get(id);
    this.records.set(id, kept);
    if (before?.deletedAt === null && kept.deletedAt !== null) this.tellGone(id);
    if (JSON.stringify(before?.selected) !== JSON.stringify(kept.selected)) this.changes.emit({ kind: "path", conversationId: id });
  }

  /** Takes what is kept of a message, unless this tab has more of it. */
  async readMessage(conversationId: string, id: string): Promise<void> {
    const tree = this.trees.get(conversationId);
    if (tree === undefined) return;
    const kept = await this.database.message(id);
    if (kept === null) return;
    const own = tree.get(id);
    const before = own?.state;
    const isWriter = this.writing.writes(id);
    if (isWriter) {
      if (own !== null && !isFurther(kept, own)) return;
      this.keeper.letGo(id);
      this.writing.giveUp(id);
    } else if (this.keeper.holds(id)) {
      return;
    }
    const isNew = tree.put(kept);
    if (kept.state === "writing" && (isWriter || before !== "writing")) this.orphans.emit(kept);
    this.changes.emit(isNew ? { kind: "path", conversationId } : { kind: "message", conversationId, messageId: id });
  }
}

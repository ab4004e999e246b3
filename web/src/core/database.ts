// Where conversations are kept: IndexedDB, or the page's memory where a browser has none to give. A record a message, and
// a conversation is changed by a function of what is kept: two tabs never write over each other's news.
import { readAll, readConversation, readMessage } from "./records.ts";
import type { StoredConversation, StoredMessage } from "./records.ts";

export type ConversationUpdate = (kept: StoredConversation | null) => StoredConversation | null;

export interface Database {
  /** false: gone with the page. */
  readonly lasting: boolean;
  conversations(): Promise<StoredConversation[]>;
  messages(conversationId: string): Promise<StoredMessage[]>;
  message(id: string): Promise<StoredMessage | null>;
  /** What `update` answers takes the place of what is kept; null: nothing changes. Resolves with what is kept then. */
  updateConversation(id: string, update: ConversationUpdate): Promise<StoredConversation | null>;
  /** All or none. Rejects with a QuotaError where there is no room. */
  putMessages(messages: readonly StoredMessage[]): Promise<void>;
  /** With their messages. */
  removeConversations(ids: readonly string[]): Promise<void>;
}

export class QuotaError extends Error {}

/** The n-th takes a database from version n to n + 1. Never change one that was published: add another. */
export type Migration = (database: IDBDatabase, transaction: IDBTransaction) => void;

export const migrations: readonly Migration[] = [
  (database) => {
    database.createObjectStore("conversations", { keyPath: "id" });
    database.createObjectStore("messages", { keyPath: "id" }).createIndex("conversationId", "conversationId");
  },
];

function ended<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the browser's database failed"));
  });
}

function committed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => {
      const error = transaction.error;
      reject(error?.name === "QuotaExceededError" ? new QuotaError(error.message) : (error ?? new Error("the browser's database gave up")));
    };
  });
}

class IndexedDatabase implements Database {
  readonly lasting = true;
  private readonly database: IDBDatabase;

  constructor(database: IDBDatabase) {
    this.database = database;
    // A newer page wants to migrate: it goes first, and this one has to be loaded again.
    database.onversionchange = () => database.close();
  }

  async conversations(): Promise<StoredConversation[]> {
    const store = this.database.transaction("conversations").objectStore("conversations");
    return readAll(await ended(store.getAll() as IDBRequest<unknown>), readConversation);
  }

  async messages(conversationId: string): Promise<StoredMessage[]> {
    const index = this.database.transaction("messages").objectStore("messages").index("conversationId");
    return readAll(await ended(index.getAll(conversationId) as IDBRequest<unknown>), readMessage);
  }

  async message(id: string): Promise<StoredMessage | null> {
    const store = this.database.transaction("messages").objectStore("messages");
    return readMessage(await ended(store.get(id) as IDBRequest<unknown>));
  }

  async updateConversation(id: string, update: ConversationUpdate): Promise<StoredConversation | null> {
    const transaction = this.database.transaction("conversations", "readwrite");
    const end = committed(transaction);
    const store = transaction.objectStore("conversations");
    const request = store.get(id) as IDBRequest<unknown>;
    let kept: StoredConversation | null = null;
    request.onsuccess = () => {
      kept = readConversation(request.result);
      const next = update(kept);
      if (next === null) return;
      kept = next;
      store.put(next);
    };
    await end;
    return kept;
  }

  async putMessages(messages: readonly StoredMessage[]): Promise<void> {
    const transaction = this.database.transaction("messages", "readwrite");
    const end = committed(transaction);
    const store = transaction.objectStore("messages");
    for (const message of messages) store.put(message);
    await end;
  }

  async removeConversations(ids: readonly string[]): Promise<void> {
    const transaction = this.database.transaction(["conversations", "messages"], "readwrite");
    const end = committed(transaction);
    const messages = transaction.objectStore("messages");
    for (const id of ids) {
      transaction.objectStore("conversations").delete(id);
      const keys = messages.index("conversationId").getAllKeys(id);
      keys.onsuccess = () => {
        for (const key of keys.result) messages.delete(key);
      };
    }
    await end;
  }
}

export class MemoryDatabase implements Database {
  readonly lasting: boolean = false;
  private readonly conversationsById = new Map<string, StoredConversation>();
  private readonly messagesById = new Map<string, StoredMessage>();

  conversations(): Promise<StoredConversation[]> {
    return Promise.resolve([...this.conversationsById.values()].map((one) => structuredClone(one)));
  }

  messages(conversationId: string): Promise<StoredMessage[]> {
    const found = [...this.messagesById.values()].filter((one) => one.conversationId === conversationId);
    return Promise.resolve(found.map((one) => structuredClone(one)));
  }

  message(id: string): Promise<StoredMessage | null> {
    return Promise.resolve(structuredClone(this.messagesById.get(id) ?? null));
  }

  updateConversation(id: string, update: ConversationUpdate): Promise<StoredConversation | null> {
    const kept = this.conversationsById.get(id) ?? null;
    const next = update(structuredClone(kept));
    if (next !== null) this.conversationsById.set(id, structuredClone(next));
    return Promise.resolve(next ?? kept);
  }

  putMessages(messages: readonly StoredMessage[]): Promise<void> {
    for (const message of messages) this.messagesById.set(message.id, structuredClone(message));
    return Promise.resolve();
  }

  removeConversations(ids: readonly string[]): Promise<void> {
    for (const id of ids) this.conversationsById.delete(id);
    for (const [id, message] of this.messagesById) {
      if (ids.includes(message.conversationId)) this.messagesById.delete(id);
    }
    return Promise.resolve();
  }
}

export function openIndexedDatabase(factory: IDBFactory, name = "quarrel", steps: readonly Migration[] = migrations): Promise<Database> {
  return new Promise((resolve, reject) => {
    const request = factory.open(name, steps.length);
    request.onupgradeneeded = (event) => {
      const { transaction } = request;
      if (transaction === null) return;
      for (const step of steps.slice(event.oldVersion)) step(request.result, transaction);
    };
    request.onsuccess = () => resolve(new IndexedDatabase(request.result));
    request.onerror = () => reject(request.error ?? new Error("the browser's database cannot be opened"));
    // An old page holds it open and does not let go: rather without than never.
    request.onblocked = () => reject(new Error("another tab with an older version of the page is open"));
  });
}

/** IndexedDB where it works, else the memory. */
export async function openDatabase(): Promise<Database> {
  try {
    return await openIndexedDatabase(indexedDB);
  } catch {
    return new MemoryDatabase();
  }
}

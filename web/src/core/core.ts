// Makes all of core/ and ties it together; main.ts calls it once.
import { Api } from "./api.ts";
import { createBenchmark } from "./benchmark.ts";
import { ServerConnection } from "./connection.ts";
import type { OpenSocket } from "./connection.ts";
import { Conversations } from "./conversations.ts";
import { createDashboard } from "./dashboard.ts";
import { openDatabase } from "./database.ts";
import { KeptDrafts } from "./drafts.ts";
import { createEmbeddings } from "./embeddings.ts";
import { ChatController } from "./generation.ts";
import { newId } from "./identifier.ts";
import { field, textOr } from "./json.ts";
import { Keys } from "./keys.ts";
import { Models } from "./models.ts";
import { Cell } from "./observable.ts";
import { createSettings } from "./settings.ts";
import type { TextStorage } from "./settings.ts";
import { openTabs } from "./tabs.ts";
import { createTransfer } from "./transfer.ts";
import type { Core } from "./types.ts";

/** null: the browser allows none. */
function storageOf(give: () => Storage): TextStorage | null {
  try {
    const storage = give();
    storage.getItem("quarrel");
    return storage;
  } catch {
    return null;
  }
}

const openSocket: OpenSocket = (protocols) => {
  const address = new URL("/ws", location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(address, protocols);
};

async function readVersion(api: Api, version: Cell<string>, models: Models): Promise<void> {
  const said = await api.json("/version");
  version.set(textOr(field(said, "version"), ""));
  models.mayControl.set(field(said, "role") === "admin");
}

function followServer(connection: ServerConnection, models: Models, keys: Keys, readAll: () => void): void {
  connection.serverStatus.on((status) => models.takeStatus(status));
  let wasThere = false;
  connection.status.subscribe(({ state }) => {
    const isThere = state === "connected" || state === "generating";
    if (isThere && !wasThere) readAll();
    wasThere = isThere;
  });
  keys.changed.on(() => models.mayControl.set(null));
}

/** While something has found no room the browser asks before it closes the page. Only then is there a listener: browsers put
 * no page aside that has one. */
function askBeforeLoss(conversations: Conversations): void {
  const ask = (event: BeforeUnloadEvent): void => {
    if (conversations.keeper.holdsUnsaved) event.preventDefault();
  };
  conversations.storage.subscribe(({ state }) => {
    if (state === "full") addEventListener("beforeunload", ask);
    else removeEventListener("beforeunload", ask);
  });
}

function followPage(connection: ServerConnection, conversations: Conversations, drafts: KeptDrafts, readSettings: () => void): void {
  addEventListener("online", () => connection.retry());
  addEventListener("storage", readSettings);
  // A page that was put aside has heard of nothing meanwhile.
  addEventListener("pageshow", (event) => { if (event.persisted) readSettings(); });
  askBeforeLoss(conversations);
  addEventListener("pagehide", () => {
    drafts.save();
    void conversations.keeper.flush();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") void conversations.keeper.flush();
    else connection.retry();
  });
}

export async function createCore(): Promise<Core> {
  const lasting = storageOf(() => localStorage);
  // Browsers that follow the standard have no `subtle` outside secure contexts, whatever its type says.
  const subtle = crypto.subtle as SubtleCrypto | undefined;
  const session = storageOf(() => sessionStorage);
  const keys = new Keys({ session, lasting, crypto: subtle ?? null });
  const drafts = new KeptDrafts(session);
  const api = new Api(keys, (url, options) => fetch(url, options));
  const settings = createSettings(lasting, newId);
  const tabs = openTabs();
  const conversations = new Conversations(await openDatabase(), tabs, newId);
  const connection = new ServerConnection(api, keys, openSocket);
  const models = new Models(api);
  const chat = new ChatController({ source: connection, conversations, settings, models, tabs, newId });
  const version = new Cell("");
  const readAll = (): void => {
    void models.refresh().catch(() => undefined);
    void readVersion(api, version, models).catch(() => undefined);
  };
  followServer(connection, models, keys, readAll);
  followPage(connection, conversations, drafts, () => settings.readAgain());
  await conversations.start();
  connection.start();
  return {
    version, settings, conversations, drafts, connection, models, chat, keys,
    dashboard: createDashboard(connection),
    benchmark: createBenchmark(connection),
    embeddings: createEmbeddings(api),
    transfer: createTransfer(conversations, newId),
  };
}

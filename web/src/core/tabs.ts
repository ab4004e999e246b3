// What the page's tabs tell one another: what was saved, and who writes which answer.
import { field, listOr, textOr } from "./json.ts";

export type TabNews =
  | { kind: "saved"; conversations: readonly string[]; messages: readonly { conversationId: string; id: string }[] }
  | { kind: "removed"; conversations: readonly string[] }
  /** Who writes this answer? Its tab says `writer`. `tab`: of the one that asks, which would take it up. */
  | { kind: "who"; messageId: string; tab: string }
  | { kind: "writer"; messageId: string }
  /** The reader of another tab wants this answer ended. */
  | { kind: "stop"; messageId: string };

export interface Tabs {
  tell(news: TabNews): void;
  on(listener: (news: TabNews) => void): void;
}

function texts(value: unknown): string[] {
  return listOr(value).filter((one) => typeof one === "string");
}

/** null: an other version's news. */
export function readTabNews(value: unknown): TabNews | null {
  const kind = field(value, "kind");
  const messageId = textOr(field(value, "messageId"), "");
  if (kind === "who") return { kind, messageId, tab: textOr(field(value, "tab"), "") };
  if (kind === "writer" || kind === "stop") return { kind, messageId };
  const conversations = texts(field(value, "conversations"));
  if (kind === "removed") return { kind, conversations };
  if (kind !== "saved") return null;
  const messages = listOr(field(value, "messages")).map((one) => ({ conversationId: textOr(field(one, "conversationId"), ""), id: textOr(field(one, "id"), "") }));
  return { kind, conversations, messages };
}

export function openTabs(): Tabs {
  if (typeof BroadcastChannel === "undefined") return { tell: () => undefined, on: () => undefined };
  const channel = new BroadcastChannel("quarrel");
  return {
    tell: (news) => channel.postMessage(news),
    on: (listener) => channel.addEventListener("message", (event: MessageEvent<unknown>) => {
      const news = readTabNews(event.data);
      if (news !== null) listener(news);
    }),
  };
}

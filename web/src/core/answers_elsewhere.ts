// Answers that another tab writes: they are shown as that tab saves them, and taken up here when it is gone. Where several
// tabs would take up the same one, the tab with the least name does, and the others follow it.
import type { Conversations } from "./conversations.ts";
import type { StoredMessage } from "./records.ts";
import type { TabNews, Tabs } from "./tabs.ts";
import type { RunningAnswer } from "./types.ts";

/** How long the other tabs have to say that an answer is theirs, and how often they are asked. */
const tabTime = 400;
const tabEvery = 3000;

/** What the answers of this tab are asked. */
export interface OwnAnswers {
  writes(messageId: string): boolean;
  stop(messageId: string): void;
  /** No tab writes it any more. */
  takeUp(message: StoredMessage): void;
  /** There are more answers elsewhere, or fewer. */
  changed(): void;
}

export class AnswersElsewhere {
  private readonly conversations: Conversations;
  private readonly tabs: Tabs;
  private readonly own: OwnAnswers;
  private readonly name: string; // of this tab
  private readonly followed = new Map<string, StoredMessage>();
  private readonly asking = new Set<string>(); // whose they are is being found out
  private readonly claimed = new Set<string>(); // those that other tabs said are theirs

  constructor(conversations: Conversations, tabs: Tabs, name: string, own: OwnAnswers) {
    this.conversations = conversations;
    this.tabs = tabs;
    this.name = name;
    this.own = own;
    conversations.orphans.on((message) => this.follow(message));
    conversations.changes.on((change) => {
      if (change.kind === "message" && conversations.message(change.conversationId, change.messageId)?.state !== "writing") this.leave(change.messageId);
    });
    tabs.on((news) => this.hear(news));
  }

  /** An answer that is being written, but not here. */
  follow(message: StoredMessage): void {
    if (this.own.writes(message.id) || this.followed.has(message.id)) return;
    this.followed.set(message.id, message);
    this.own.changed();
    void this.findWriter(message);
  }

  /** Asks the tab that writes to end it. */
  stop(conversationId: string): void {
    for (const message of this.followed.values()) {
      if (message.conversationId === conversationId) this.tabs.tell({ kind: "stop", messageId: message.id });
    }
  }

  all(): RunningAnswer[] {
    return [...this.followed.values()].map(({ id, conversationId, createdAt }) => ({
      conversationId, messageId: id, phase: "elsewhere", progress: null, ahead: null, startedAt: createdAt, generatedTokens: 0, tokensPerSecond: 0,
    }));
  }

  private leave(messageId: string): void {
    if (this.followed.delete(messageId)) this.own.changed();
  }

  private hear(news: TabNews): void {
    if (news.kind === "writer") this.claimed.add(news.messageId);
    else if (news.kind === "who") this.answer(news.messageId, news.tab);
    else if (news.kind === "stop" && this.own.writes(news.messageId)) this.own.stop(news.messageId);
  }

  private answer(messageId: string, tab: string): void {
    const isAsking = this.asking.has(messageId);
    if (this.own.writes(messageId) || (isAsking && this.name < tab)) this.tabs.tell({ kind: "writer", messageId });
    else if (isAsking) this.claimed.add(messageId);
  }

  /** Whose is it? It is taken up where it is nobody's, and asked about again as long as it is another tab's. */
  private async findWriter({ id, conversationId }: StoredMessage): Promise<void> {
    if (this.asking.has(id)) return;
    this.asking.add(id);
    this.claimed.delete(id);
    this.tabs.tell({ kind: "who", messageId: id, tab: this.name });
    await new Promise((resolve) => setTimeout(resolve, tabTime));
    this.asking.delete(id);
    const now = this.conversations.message(conversationId, id);
    if (now?.state !== "writing" || this.own.writes(id)) {
      this.leave(id);
    } else if (this.claimed.has(id)) {
      setTimeout(() => void this.findWriter(now), tabEvery);
    } else {
      this.followed.delete(id);
      this.own.takeUp(now);
      this.own.changed();
    }
  }
}

// Asking and answering: messages become requests, what comes back becomes messages. An answer that this tab began is this
// tab's; one whose tab is gone is taken up again where the server still has it.
import type { AnswerEnd, AnswerHandle, AnswerNews, AnswerPiece, AnswerReceiver } from "./answer.ts";
import type { Conversations } from "./conversations.ts";
import { Failure } from "./failure.ts";
import type { Models } from "./models.ts";
import { Cell } from "./observable.ts";
import type { StoredMessage } from "./records.ts";
import { requestFields } from "./settings.ts";
import type { Tabs } from "./tabs.ts";
import type { Chat, Message, RunningAnswer, Settings, SettingsStore } from "./types.ts";

/** How long the other tabs have to say that an answer is theirs, and how often they are asked. */
const tabTime = 400;
const tabEvery = 10_000;
/** The running answer's figures are shown so often. */
const showEvery = 200;
/** A request whose prompt is not read after so long is in a queue. */
const queueTime = 400;

export interface AnswerSource {
  ask(body: Record<string, unknown>, receiver: AnswerReceiver, resume: string | null): AnswerHandle;
}

interface Running {
  answer: RunningAnswer;
  handle: AnswerHandle;
  stopWatching: () => void;
  firstTokenAt: number | null;
  shownAt: number;
  /** Tokens of the answer before it was continued. */
  earlierTokens: number;
  promptTokens: number;
  stopped: boolean;
}

/** What the model reads: the conversation up to an answer, without answers that never came. */
export function requestMessages(line: readonly Message[], systemPrompt: string): { role: string; content: string }[] {
  const messages = line.filter((one) => one.role === "user" || one.text !== "").map((one) => ({ role: one.role, content: one.text }));
  return systemPrompt.trim() === "" ? messages : [{ role: "system", content: systemPrompt }, ...messages];
}

export class ChatController implements Chat {
  readonly running = new Cell<ReadonlyMap<string, RunningAnswer>>(new Map());
  private readonly source: AnswerSource;
  private readonly conversations: Conversations;
  private readonly settings: SettingsStore;
  private readonly models: Models;
  private readonly tabs: Tabs;
  private readonly newId: () => string;
  private readonly byConversation = new Map<string, Running>();
  private readonly claimed = new Set<string>(); // answers that other tabs said are theirs

  constructor(parts: { source: AnswerSource; conversations: Conversations; settings: SettingsStore; models: Models; tabs: Tabs; newId: () => string }) {
    this.source = parts.source;
    this.conversations = parts.conversations;
    this.settings = parts.settings;
    this.models = parts.models;
    this.tabs = parts.tabs;
    this.newId = parts.newId;
    this.conversations.orphans.on((message) => void this.adopt(message));
    this.conversations.removed.on((ids) => ids.forEach((id) => this.stop(id)));
    this.tabs.on((news) => {
      if (news.kind === "writer") this.claimed.add(news.messageId);
      else if (news.kind === "who" && this.writes(news.messageId)) this.tabs.tell({ kind: "writer", messageId: news.messageId });
    });
  }

  async send(conversationId: string, text: string): Promise<void> {
    await this.conversations.open(conversationId);
    if (this.byConversation.has(conversationId)) return;
    const parentId = this.conversations.path(conversationId).at(-1)?.message.id ?? null;
    this.ask(conversationId, this.newMessage(conversationId, parentId, "user", text));
  }

  async regenerate(conversationId: string, messageId: string): Promise<void> {
    await this.conversations.open(conversationId);
    const message = this.free(conversationId, messageId);
    if (message?.role !== "assistant") return;
    const answer = this.newAnswer(conversationId, message.parentId);
    this.conversations.add(conversationId, [answer]);
    this.run(answer, null, false);
  }

  async continueAnswer(conversationId: string, messageId: string): Promise<void> {
    await this.conversations.open(conversationId);
    const message = this.free(conversationId, messageId);
    if (message?.role !== "assistant") return;
    this.conversations.change(conversationId, messageId, { state: "writing", finishReason: null, error: null, resume: null });
    this.run(message, null, message.text !== "");
  }

  async edit(conversationId: string, messageId: string, text: string): Promise<void> {
    await this.conversations.open(conversationId);
    const message = this.free(conversationId, messageId);
    if (message === null) return;
    if (message.role === "user") {
      this.ask(conversationId, this.newMessage(conversationId, message.parentId, "user", text));
      return;
    }
    const { model, settings } = message;
    this.conversations.add(conversationId, [{ ...this.newMessage(conversationId, message.parentId, "assistant", text), model, settings }]);
  }

  async retry(conversationId: string, messageId: string): Promise<void> {
    await this.conversations.open(conversationId);
    const message = this.free(conversationId, messageId);
    if (message?.role !== "assistant") return;
    const { model, settings } = this.newAnswer(conversationId, message.parentId);
    this.conversations.change(conversationId, messageId, {
      text: "", state: "writing", model, settings, finishReason: null, error: null, statistics: null, resume: null,
    });
    this.run(message, null, false);
  }

  stop(conversationId: string): void {
    const running = this.byConversation.get(conversationId);
    if (running === undefined) return;
    running.stopped = true;
    running.handle.stop();
  }

  contextUse(conversationId: string): { used: number; length: number | null } {
    const path = this.conversations.path(conversationId);
    const model = this.modelOf(conversationId);
    const length = this.models.list.get().find((one) => one.name === model)?.contextLength ?? null;
    const last = path.findLast(({ message }) => message.statistics !== null && message.statistics.promptTokens > 0)?.message.statistics;
    const running = this.byConversation.get(conversationId);
    if (running !== undefined && running.promptTokens > 0) return { used: running.promptTokens + running.answer.generatedTokens, length };
    return { used: last === undefined || last === null ? 0 : last.promptTokens + last.generatedTokens, length };
  }

  // ---- Messages ----

  private ask(conversationId: string, question: StoredMessage): void {
    const answer = this.newAnswer(conversationId, question.id);
    this.conversations.add(conversationId, [question, answer]);
    this.run(answer, null, false);
  }

  /** A message of a conversation in which nothing runs. */
  private free(conversationId: string, messageId: string): StoredMessage | null {
    return this.byConversation.has(conversationId) ? null : this.conversations.message(conversationId, messageId);
  }

  private newMessage(conversationId: string, parentId: string | null, role: Message["role"], text: string): StoredMessage {
    return {
      id: this.newId(), conversationId, parentId, role, createdAt: Date.now(), text, state: "complete",
      model: null, settings: null, finishReason: null, error: null, statistics: null, resume: null,
    };
  }

  private newAnswer(conversationId: string, parentId: string | null): StoredMessage {
    const settings: Settings = structuredClone(this.settings.effective(this.conversations.get(conversationId)));
    return { ...this.newMessage(conversationId, parentId, "assistant", ""), state: "writing", model: this.modelOf(conversationId), settings };
  }

  private modelOf(conversationId: string): string | null {
    return this.conversations.get(conversationId)?.model ?? this.models.defaultModel.get();
  }

  // ---- Requests ----

  private run(message: StoredMessage, resume: string | null, continuing: boolean): void {
    const { conversationId, id: messageId } = message;
    const answer: RunningAnswer = {
      conversationId, messageId, phase: resume === null ? "sending" : "lost", progress: null, ahead: null, startedAt: Date.now(), generatedTokens: 0, tokensPerSecond: 0,
    };
    const running: Running = {
      answer, handle: { stop: () => undefined }, stopWatching: () => undefined, firstTokenAt: null, shownAt: 0, promptTokens: 0, stopped: false,
      earlierTokens: continuing ? (message.statistics?.generatedTokens ?? 0) : 0,
    };
    this.byConversation.set(conversationId, running);
    this.show(running);
    if (this.models.known.get() && this.models.list.get().length === 0) {
      this.fail(running, new Failure("NO_MODEL", "There is no model. Fetch one with “quarrel pull default”, then try again."));
      return;
    }
    running.handle = this.source.ask(this.bodyOf(message, continuing), {
      news: (news) => this.takeNews(running, news),
      piece: (piece) => this.takePiece(running, piece),
      end: (end) => this.end(running, end),
      failed: (failure) => this.fail(running, failure),
      lost: () => this.phase(running, "lost"),
    }, resume);
  }

  private bodyOf(message: StoredMessage, continuing: boolean): Record<string, unknown> {
    const settings = message.settings ?? this.settings.effective(this.conversations.get(message.conversationId));
    const line = this.conversations.line(message.conversationId, message.id);
    const messages = requestMessages(continuing ? line : line.slice(0, -1), settings.systemPrompt);
    const body: Record<string, unknown> = { messages, ...requestFields(settings) };
    if (message.model !== null) body["model"] = message.model;
    if (continuing) body["continue"] = true;
    body["progress"] = true;
    return body;
  }

  private takeNews(running: Running, news: AnswerNews): void {
    running.promptTokens = news.promptTokens ?? running.promptTokens;
    if (news.resume !== null) this.change(running, { resume: news.resume }, false); // at once: a page that is closed now can still take it up
    if (news.state === "loading") {
      this.watchLoading(running);
      return this.phase(running, "loading");
    }
    if (running.answer.phase === "writing") return;
    // A wait that is over at once is not worth a line: the timer shows it.
    if (news.state === "queued") {
      if (running.answer.phase === "queued") this.phase(running, "queued", { ahead: news.ahead });
      else running.answer.ahead = news.ahead;
      return;
    }
    running.stopWatching();
    const progress = news.readTokens !== null && news.promptTokens !== null ? { completed: news.readTokens, total: news.promptTokens } : null;
    this.phase(running, "reading", { progress, ahead: null });
    if (news.state === "generating") this.expectReading(running);
  }

  /** Whose prompt is not read soon waits for others. */
  private expectReading(running: Running): void {
    const timer = setTimeout(() => {
      if (running.answer.phase === "reading" && running.answer.progress === null) this.phase(running, "queued");
    }, queueTime);
    running.stopWatching = () => clearTimeout(timer);
  }

  /** How far a model is that the request has to wait for. */
  private watchLoading(running: Running): void {
    const name = this.modelOf(running.answer.conversationId);
    if (name === null) return;
    const unsubscribe = this.models.list.subscribe((models) => {
      const progress = models.find((one) => one.name === name)?.progress ?? null;
      if (running.answer.phase === "loading") this.phase(running, "loading", { progress });
    });
    const stop = this.models.watchLoading(name);
    running.stopWatching = () => {
      unsubscribe();
      stop();
    };
  }

  private takePiece(running: Running, piece: AnswerPiece): void {
    const { answer } = running;
    const now = Date.now();
    if (piece.isToken) answer.generatedTokens += 1;
    answer.tokensPerSecond = piece.tokensPerSecond;
    running.firstTokenAt ??= now;
    const message = this.conversations.message(answer.conversationId, answer.messageId);
    if (message === null) return running.handle.stop();
    if (answer.phase !== "writing") {
      running.stopWatching();
      this.phase(running, "writing", { progress: null });
    } else if (now - running.shownAt >= showEvery) {
      this.show(running);
    }
    this.change(running, { text: message.text + piece.text, resume: piece.resume }, true);
  }

  private end(running: Running, end: AnswerEnd): void {
    const { answer } = running;
    const promptTokens = end.promptTokens || running.promptTokens;
    const generatedTokens = end.generatedTokens || answer.generatedTokens;
    const statistics = {
      // What was there before an answer was continued is part of the prompt now.
      promptTokens: Math.max(0, promptTokens - running.earlierTokens),
      generatedTokens: generatedTokens + running.earlierTokens,
      tokensPerSecond: end.tokensPerSecond || answer.tokensPerSecond,
      timeToFirstToken: running.firstTokenAt === null ? null : running.firstTokenAt - answer.startedAt,
      duration: Date.now() - answer.startedAt,
    };
    const reason = running.stopped ? "cancelled" : end.reason;
    if (reason === "error") return this.fail(running, new Failure("INFERENCE_ERROR", "The server ended the answer before it was whole. Try again."));
    this.finish(running, { state: "complete", finishReason: reason, statistics, resume: null });
  }

  private fail(running: Running, failure: Failure): void {
    const message = this.conversations.message(running.answer.conversationId, running.answer.messageId);
    const kept = message !== null && message.text !== "";
    const isLost = failure.error.code === "CONNECTION_LOST";
    this.finish(running, {
      state: kept && isLost ? "interrupted" : "failed",
      finishReason: "error",
      error: failure.error,
      resume: null,
    });
  }

  private finish(running: Running, patch: Partial<StoredMessage>): void {
    running.stopWatching();
    const { conversationId } = running.answer;
    if (this.byConversation.get(conversationId) === running) this.byConversation.delete(conversationId);
    this.change(running, patch, false);
    this.showAll();
    if (this.modelOf(conversationId) !== null) void this.models.refresh().catch(() => undefined);
  }

  private change(running: Running, patch: Partial<StoredMessage>, soon: boolean): void {
    this.conversations.change(running.answer.conversationId, running.answer.messageId, patch, soon);
  }

  private phase(running: Running, phase: RunningAnswer["phase"], more: Partial<RunningAnswer> = {}): void {
    Object.assign(running.answer, more, { phase });
    this.show(running);
  }

  private show(running: Running): void {
    running.shownAt = Date.now();
    this.showAll();
  }

  private showAll(): void {
    this.running.set(new Map([...this.byConversation].map(([id, running]) => [id, { ...running.answer }])));
  }

  // ---- Answers of other tabs, and of tabs that are gone ----

  private writes(messageId: string): boolean {
    return [...this.byConversation.values()].some(({ answer }) => answer.messageId === messageId);
  }

  private async adopt(message: StoredMessage): Promise<void> {
    const { id, conversationId } = message;
    this.claimed.delete(id);
    this.tabs.tell({ kind: "who", messageId: id });
    await new Promise((resolve) => setTimeout(resolve, tabTime));
    const now = this.conversations.message(conversationId, id);
    if (now?.state !== "writing" || this.writes(id)) return;
    if (this.claimed.has(id)) {
      setTimeout(() => void this.adopt(now), tabEvery);
      return;
    }
    if (now.resume !== null && !this.byConversation.has(conversationId)) { this.run(now, now.resume, false); return; }
    this.conversations.change(conversationId, id, { state: "interrupted", resume: null });
  }
}

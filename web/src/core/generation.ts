// Asking and answering: messages become requests, what comes back becomes messages. An answer that this tab began is this
// tab's; one whose tab is gone is taken up again where the server still has it.
import { AnswersElsewhere } from "./answers_elsewhere.ts";
import type { AnswerEnd, AnswerHandle, AnswerNews, AnswerPiece, AnswerReceiver } from "./answer.ts";
import type { Conversations } from "./conversations.ts";
import { Failure } from "./failure.ts";
import type { Models } from "./models.ts";
import { Cell } from "./observable.ts";
import type { AnswerSoFar, StoredMessage } from "./records.ts";
import { asRetrievalFailure, retrievalField, retrievalProblem } from "./retrieval.ts";
import { requestFields } from "./settings.ts";
import type { Tabs } from "./tabs.ts";
import type { Chat, Message, RequestError, RunningAnswer, Settings, SettingsStore } from "./types.ts";

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
  shownAt: number;
  /** Kept with the message: the page may be loaded again, or another tab may take the answer up. */
  soFar: AnswerSoFar;
  stopped: boolean;
}

function notBegun(earlierTokens: number): AnswerSoFar {
  return { startedAt: Date.now(), firstTokenAt: null, earlierTokens, generatedTokens: earlierTokens, promptTokens: 0, tokensPerSecond: 0 };
}

/** What the model reads: the conversation up to an answer, without answers that never came. The questions around one become a
 * single message: many models' templates refuse two in a row. */
export function requestMessages(line: readonly Message[], systemPrompt: string): { role: string; content: string }[] {
  const messages: { role: string; content: string }[] = [];
  for (const { role, text } of line) {
    if (role === "assistant" && text === "") continue;
    const last = messages.at(-1);
    if (last?.role === role) last.content += `\n\n${text}`;
    else messages.push({ role, content: text });
  }
  return systemPrompt.trim() === "" ? messages : [{ role: "system", content: systemPrompt }, ...messages];
}

/** What had come before an answer was cut off is no failure: it can be gone on with. */
function endOf(message: Message | null, error: RequestError): Partial<StoredMessage> {
  const isCut = message !== null && message.text !== "" && (error.code === "CONNECTION_LOST" || error.code === "ANSWER_LOST");
  return { ...(isCut ? { state: "interrupted", error: null } : { state: "failed", error }), finishReason: "error", resume: null };
}

export class ChatController implements Chat {
  readonly running = new Cell<ReadonlyMap<string, RunningAnswer>>(new Map());
  private readonly source: AnswerSource;
  private readonly conversations: Conversations;
  private readonly settings: SettingsStore;
  private readonly models: Models;
  private readonly newId: () => string;
  private readonly byConversation = new Map<string, Running>();
  /** Answers that were asked for before the server's models were known, with their conversations. */
  private readonly nameless = new Map<string, string>();
  private readonly elsewhere: AnswersElsewhere;

  constructor(parts: { source: AnswerSource; conversations: Conversations; settings: SettingsStore; models: Models; tabs: Tabs; newId: () => string }) {
    this.source = parts.source;
    this.conversations = parts.conversations;
    this.settings = parts.settings;
    this.models = parts.models;
    this.newId = parts.newId;
    this.elsewhere = new AnswersElsewhere(this.conversations, parts.tabs, parts.newId(), {
      writes: (id) => this.writes(id),
      stop: (id) => this.stop(this.ownOf(id)?.answer.conversationId ?? ""),
      takeUp: (message) => this.takeUp(message),
      changed: () => this.showAll(),
    });
    this.conversations.writing = { writes: (id) => this.writes(id), giveUp: (id) => this.giveUp(id) };
    this.conversations.removed.on((ids) => ids.forEach((id) => this.stop(id)));
    this.models.defaultModel.subscribe((name) => this.nameModels(name));
  }

  async send(conversationId: string, text: string): Promise<void> {
    await this.conversations.open(conversationId);
    this.refuseWhereNoneCanRun(conversationId);
    const parentId = this.conversations.path(conversationId).at(-1)?.message.id ?? null;
    this.ask(conversationId, this.newMessage(conversationId, parentId, "user", text));
  }

  async regenerate(conversationId: string, messageId: string): Promise<void> {
    await this.conversations.open(conversationId);
    this.refuseWhereNoneCanRun(conversationId);
    const message = this.conversations.message(conversationId, messageId);
    if (message?.role !== "assistant") return;
    const answer = this.newAnswer(conversationId, message.parentId);
    this.conversations.add(conversationId, [answer]);
    this.run(answer, null, false);
  }

  async continueAnswer(conversationId: string, messageId: string): Promise<void> {
    await this.conversations.open(conversationId);
    this.refuseWhereNoneCanRun(conversationId);
    const message = this.conversations.message(conversationId, messageId);
    if (message?.role !== "assistant") return;
    const model = this.models.offered(message.model);
    this.conversations.change(conversationId, messageId, { state: "writing", model, finishReason: null, error: null, resume: null });
    this.run(message, null, message.text !== "");
  }

  async edit(conversationId: string, messageId: string, text: string): Promise<void> {
    await this.conversations.open(conversationId);
    this.refuseWhereNoneCanRun(conversationId);
    const message = this.conversations.message(conversationId, messageId);
    if (message === null) return;
    if (message.role === "user") {
      this.ask(conversationId, this.newMessage(conversationId, message.parentId, "user", text));
      return;
    }
    const { model, settings, sources } = message;
    this.conversations.add(conversationId, [{ ...this.newMessage(conversationId, message.parentId, "assistant", text), model, settings, sources }]);
  }

  async retry(conversationId: string, messageId: string): Promise<void> {
    await this.conversations.open(conversationId);
    this.refuseWhereNoneCanRun(conversationId);
    const message = this.conversations.message(conversationId, messageId);
    if (message?.role !== "assistant") return;
    if (message.text !== "") return this.regenerate(conversationId, messageId);
    const { model, settings } = this.newAnswer(conversationId, message.parentId);
    this.conversations.change(conversationId, messageId, {
      text: "", state: "writing", model, settings, finishReason: null, error: null, statistics: null, sources: null, resume: null, soFar: null,
    });
    this.run(message, null, false);
  }

  stop(conversationId: string): void {
    const running = this.byConversation.get(conversationId);
    this.elsewhere.stop(conversationId);
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
    if (running !== undefined && running.soFar.promptTokens > 0) {
      const { promptTokens, generatedTokens, earlierTokens } = running.soFar;
      return { used: promptTokens + generatedTokens - earlierTokens, length };
    }
    return { used: last === undefined || last === null ? 0 : last.promptTokens + last.generatedTokens, length };
  }

  // ---- Messages ----

  private ask(conversationId: string, question: StoredMessage): void {
    const answer = this.newAnswer(conversationId, question.id);
    this.conversations.add(conversationId, [question, answer]);
    this.run(answer, null, false);
  }

  /** Not in silence: what was typed for it stays where it is. */
  private refuseWhereNoneCanRun(conversationId: string): void {
    if (!this.conversations.has(conversationId)) throw new Failure("INVALID_REQUEST", "This conversation was deleted.");
    if (this.running.get().has(conversationId)) throw new Failure("INVALID_REQUEST", "An answer of this conversation is being written. Wait for its end, or stop it.");
  }

  private newMessage(conversationId: string, parentId: string | null, role: Message["role"], text: string): StoredMessage {
    return {
      id: this.newId(), conversationId, parentId, role, createdAt: Date.now(), text, state: "complete",
      model: null, settings: null, finishReason: null, error: null, statistics: null, sources: null, resume: null, soFar: null,
    };
  }

  private newAnswer(conversationId: string, parentId: string | null): StoredMessage {
    const settings: Settings = structuredClone(this.settings.effective(this.conversations.get(conversationId)));
    return { ...this.newMessage(conversationId, parentId, "assistant", ""), state: "writing", model: this.modelOf(conversationId), settings };
  }

  private modelOf(conversationId: string): string | null {
    return this.models.offered(this.conversations.get(conversationId)?.model ?? null);
  }

  /** A request without a model is the default's. */
  private nameModels(name: string | null): void {
    if (name === null) return;
    const unnamed = [...this.nameless];
    this.nameless.clear();
    for (const [messageId, conversationId] of unnamed) {
      const running = this.ownOf(messageId);
      this.conversations.change(conversationId, messageId, { model: name }, running !== null); // saved with the text that comes
      if (running?.answer.phase === "loading") this.watchLoading(running);
    }
  }

  // ---- Requests ----

  private run(message: StoredMessage, resume: string | null, continuing: boolean): void {
    const { conversationId, id: messageId } = message;
    const earlierTokens = continuing ? ((message.soFar ?? message.statistics)?.generatedTokens ?? 0) : 0;
    const soFar = resume === null || message.soFar === null ? notBegun(earlierTokens) : { ...message.soFar };
    const answer: RunningAnswer = {
      conversationId, messageId, phase: resume === null ? "sending" : "lost", progress: null, ahead: null,
      startedAt: soFar.startedAt, generatedTokens: soFar.generatedTokens, tokensPerSecond: soFar.tokensPerSecond,
    };
    const running: Running = {
      answer, handle: { stop: () => undefined, leave: () => undefined }, stopWatching: () => undefined, shownAt: 0, soFar, stopped: false,
    };
    this.byConversation.set(conversationId, running);
    if (message.model === null && !this.models.known.get()) this.nameless.set(messageId, conversationId);
    this.show(running);
    if (this.models.known.get() && this.models.list.get().length === 0) {
      this.fail(running, new Failure("NO_MODEL", "There is no model. Fetch one with “quarrel pull default”, then try again."));
      return;
    }
    const problem = retrievalProblem(this.settingsOf(message));
    if (problem !== null && resume === null && !continuing) {
      this.fail(running, problem);
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

  private settingsOf(message: StoredMessage): Settings {
    return message.settings ?? this.settings.effective(this.conversations.get(message.conversationId));
  }

  private bodyOf(message: StoredMessage, continuing: boolean): Record<string, unknown> {
    const settings = this.settingsOf(message);
    const line = this.conversations.line(message.conversationId, message.id);
    const messages = requestMessages(continuing ? line : line.slice(0, -1), settings.systemPrompt);
    const body: Record<string, unknown> = { messages, ...requestFields(settings) };
    if (message.model !== null) body["model"] = message.model;
    if (continuing) body["continue"] = true;
    else Object.assign(body, retrievalField(settings)); // the server searches for a question's texts alone
    body["progress"] = true;
    return body;
  }

  private takeNews(running: Running, news: AnswerNews): void {
    running.soFar.promptTokens = news.promptTokens ?? running.soFar.promptTokens;
    if (news.resume !== null) this.change(running, { resume: news.resume, soFar: { ...running.soFar } }, false); // at once: a page that is closed now can still take it up
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
    running.stopWatching(); // it may be told again
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
    const { answer, soFar } = running;
    const now = Date.now();
    if (piece.isToken) soFar.generatedTokens += 1;
    soFar.tokensPerSecond = piece.tokensPerSecond;
    soFar.firstTokenAt ??= now;
    Object.assign(answer, { generatedTokens: soFar.generatedTokens, tokensPerSecond: soFar.tokensPerSecond });
    const message = this.conversations.message(answer.conversationId, answer.messageId);
    if (message === null) return running.handle.stop();
    if (answer.phase !== "writing") {
      running.stopWatching();
      this.phase(running, "writing", { progress: null });
    } else if (now - running.shownAt >= showEvery) {
      this.show(running);
    }
    this.change(running, { text: message.text + piece.text, resume: piece.resume, soFar: { ...soFar } }, true);
  }

  private end(running: Running, end: AnswerEnd): void {
    const { startedAt, firstTokenAt, earlierTokens, generatedTokens, promptTokens, tokensPerSecond } = running.soFar;
    const statistics = {
      // What was there before an answer was continued is part of the prompt now.
      promptTokens: Math.max(0, (end.promptTokens || promptTokens) - earlierTokens),
      generatedTokens: end.generatedTokens > 0 ? end.generatedTokens + earlierTokens : generatedTokens,
      tokensPerSecond: end.tokensPerSecond || tokensPerSecond,
      timeToFirstToken: firstTokenAt === null ? null : firstTokenAt - startedAt,
      duration: Date.now() - startedAt,
    };
    const reason = running.stopped ? "cancelled" : end.reason;
    if (reason === "error") return this.fail(running, new Failure("INFERENCE_ERROR", "The server ended the answer before it was complete. Try again."));
    const sources = end.sources ? { sources: end.sources } : {};
    this.finish(running, { state: "complete", finishReason: reason, statistics, resume: null, soFar: null, ...sources });
  }

  private fail(running: Running, failure: Failure): void {
    const message = this.conversations.message(running.answer.conversationId, running.answer.messageId);
    const { error } = message === null ? failure : asRetrievalFailure(failure, this.settingsOf(message), this.models.list.get());
    if (error.code === "ANSWER_TAKEN" && message !== null) return this.handOver(running, message);
    if (error.code === "ANSWER_LOST") void this.endLost(running, error);
    else this.finish(running, endOf(message, error));
  }

  /** The server may have forgotten the answer because another tab has all of it. */
  private async endLost(running: Running, error: RequestError): Promise<void> {
    const { conversationId, messageId } = running.answer;
    await this.conversations.readMessage(conversationId, messageId).catch(() => undefined);
    if (this.byConversation.get(conversationId) !== running) return;
    this.finish(running, endOf(this.conversations.message(conversationId, messageId), error));
  }

  private finish(running: Running, patch: Partial<StoredMessage>): void {
    running.stopWatching();
    const { conversationId } = running.answer;
    if (this.byConversation.get(conversationId) === running) this.byConversation.delete(conversationId);
    this.change(running, patch, false);
    this.showAll();
    if (this.modelOf(conversationId) !== null || this.nameless.size > 0) void this.models.refresh().catch(() => undefined);
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
    const own = [...this.byConversation.values()].map(({ answer }) => ({ ...answer }));
    this.running.set(new Map([...this.elsewhere.all(), ...own].map((answer) => [answer.conversationId, answer])));
  }

  // ---- Answers of other tabs, and of tabs that are gone ----

  private writes(messageId: string): boolean {
    return this.ownOf(messageId) !== null;
  }

  private ownOf(messageId: string): Running | null {
    return [...this.byConversation.values()].find(({ answer }) => answer.messageId === messageId) ?? null;
  }

  private takeUp(message: StoredMessage): void {
    const { id, conversationId, resume } = message;
    if (resume !== null && !this.byConversation.has(conversationId)) this.run(message, resume, false);
    else this.conversations.change(conversationId, id, { state: "interrupted", resume: null });
  }

  /** Another tab has taken up what ran here. */
  private handOver(running: Running, message: StoredMessage): void {
    running.stopWatching();
    this.byConversation.delete(message.conversationId);
    this.conversations.keeper.letGo(message.id); // the other tab's text may be longer
    this.elsewhere.follow(message);
  }

  /** Another tab has more of what is written here. */
  private giveUp(messageId: string): void {
    const running = this.ownOf(messageId);
    if (running === null) return;
    running.stopWatching();
    running.handle.leave();
    this.byConversation.delete(running.answer.conversationId);
    this.showAll();
  }
}

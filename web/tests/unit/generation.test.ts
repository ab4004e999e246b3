import assert from "node:assert/strict";
import { test } from "node:test";
import { Api } from "../../src/core/api.ts";
import type { AnswerReceiver } from "../../src/core/answer.ts";
import { Conversations } from "../../src/core/conversations.ts";
import { MemoryDatabase } from "../../src/core/database.ts";
import { Failure } from "../../src/core/failure.ts";
import { ChatController, requestMessages } from "../../src/core/generation.ts";
import { Models } from "../../src/core/models.ts";
import type { StoredMessage } from "../../src/core/records.ts";
import { createSettings } from "../../src/core/settings.ts";
import type { Settings } from "../../src/core/types.ts";
import { Browser, counter, eventually, message } from "./made.ts";

interface Asked {
  body: Record<string, unknown>;
  receiver: AnswerReceiver;
  resume: string | null;
  stopped: boolean;
  left: boolean;
}

interface Page {
  chat: ChatController;
  models: Models;
  conversations: Conversations;
  asked: Asked[];
  ready: Promise<void>;
  setDefaults: (patch: Partial<Settings>) => void;
}

function page(database = new MemoryDatabase(), browser = new Browser(), prefix = "id", models = '[{"name": "toy", "state": "loaded", "parameters": "1M", "context_length": 512}]'): Page {
  const asked: Asked[] = [];
  const tabs = browser.tab();
  const conversations = new Conversations(database, tabs, counter(`${prefix}-`));
  const settings = createSettings(null, counter("t"));
  const api = new Api({ current: () => null, refuse: () => undefined }, () => Promise.resolve(new Response(models)));
  const source = {
    ask: (body: Record<string, unknown>, receiver: AnswerReceiver, resume: string | null) => {
      const one: Asked = { body, receiver, resume, stopped: false, left: false };
      asked.push(one);
      return {
        stop: () => { one.stopped = true; receiver.end({ reason: "cancelled", generatedTokens: 0, promptTokens: 0, tokensPerSecond: 0 }); },
        leave: () => { one.left = true; },
      };
    },
  };
  const models_ = new Models(api);
  const ready = models_.refresh();
  const chat = new ChatController({ source, conversations, settings, models: models_, tabs, newId: counter(`${prefix}-m`) });
  return { chat, models: models_, conversations, asked, ready, setDefaults: (patch) => settings.updateDefaults(patch) };
}

function say(asked: Asked | undefined, ...texts: string[]): void {
  texts.forEach((text, index) => asked?.receiver.piece({ text, isToken: true, tokensPerSecond: 10, resume: `ab:${index + 1}` }));
}

function end(asked: Asked | undefined, reason: "stop" | "length" = "stop", generatedTokens = 2): void {
  asked?.receiver.end({ reason, generatedTokens, promptTokens: 30, tokensPerSecond: 12 });
}

function texts(at: Page, id: string): string[] {
  return at.conversations.path(id).map(({ message: one }) => `${one.role}: ${one.text}`);
}

test("a question and its answer, with settings and figures", async () => {
  const at = page();
  await at.ready;
  at.setDefaults({ temperature: 0.3, systemPrompt: "Be brief." });
  const { id } = at.conversations.create("toy");
  at.conversations.updateSettings(id, { maxTokens: 9 });
  await at.chat.send(id, "Hello");
  const [asked] = at.asked;
  assert.deepEqual(asked?.body, {
    model: "toy", temperature: 0.3, max_tokens: 9, messages: [{ role: "system", content: "Be brief." }, { role: "user", content: "Hello" }], progress: true,
  });
  assert.equal(at.chat.running.get().get(id)?.phase, "sending");
  say(asked, "Hi", " there");
  assert.equal(at.chat.running.get().get(id)?.phase, "writing");
  end(asked);
  assert.deepEqual(texts(at, id), ["user: Hello", "assistant: Hi there"]);
  const answer = at.conversations.path(id)[1]?.message;
  assert.deepEqual([answer?.state, answer?.finishReason, answer?.model, answer?.settings?.maxTokens], ["complete", "stop", "toy", 9]);
  assert.deepEqual([answer?.statistics?.generatedTokens, answer?.statistics?.promptTokens, answer?.statistics?.tokensPerSecond], [2, 30, 12]);
  assert.equal(at.chat.running.get().size, 0);
  assert.deepEqual(at.chat.contextUse(id), { used: 32, length: 512 });
});

test("a wait in the queue shows after a moment, with the place", async (context) => {
  const at = page();
  await at.ready;
  const { id } = at.conversations.create("toy");
  await at.chat.send(id, "Hello");
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const news = { promptTokens: null, readTokens: null, ahead: null, resume: null };
  const [asked] = at.asked;
  const shown = (): unknown[] => [at.chat.running.get().get(id)?.phase, at.chat.running.get().get(id)?.ahead];
  asked?.receiver.news({ ...news, state: "generating" });
  asked?.receiver.news({ ...news, state: "queued", ahead: 2 });
  assert.deepEqual(shown()[0], "reading", "perhaps it is over at once");
  context.mock.timers.tick(500);
  assert.deepEqual(shown(), ["queued", 2]);
  asked?.receiver.news({ ...news, state: "queued", ahead: 1 });
  assert.deepEqual(shown(), ["queued", 1]);
  asked?.receiver.news({ ...news, state: "reading", promptTokens: 40, readTokens: 0 });
  assert.deepEqual(shown(), ["reading", null]);
  end(asked);
});

test("a model that is told twice to be loading is watched once, until the answer is over", async () => {
  const at = page();
  await at.ready;
  let watched = 0;
  at.models.watchLoading = () => {
    watched += 1;
    return () => { watched -= 1; };
  };
  const { id } = at.conversations.create("toy");
  await at.chat.send(id, "Hello");
  const news = { state: "loading", promptTokens: null, readTokens: null, ahead: null, resume: null } as const;
  at.asked[0]?.receiver.news(news);
  at.asked[0]?.receiver.lost();
  at.asked[0]?.receiver.news(news);
  assert.deepEqual([watched, at.chat.running.get().get(id)?.phase], [1, "loading"]);
  end(at.asked[0]);
  assert.equal(watched, 0);
});

test("another answer and another question are branches", async () => {
  const at = page();
  const { id } = at.conversations.create(null);
  await at.chat.send(id, "one");
  say(at.asked[0], "first");
  end(at.asked[0]);
  const [question, answer] = at.conversations.path(id).map(({ message: one }) => one.id);
  await at.chat.regenerate(id, answer ?? "");
  say(at.asked[1], "second");
  end(at.asked[1]);
  assert.deepEqual(texts(at, id), ["user: one", "assistant: second"]);
  assert.deepEqual([at.conversations.path(id)[1]?.place, at.conversations.path(id)[1]?.siblings.length], [1, 2]);
  await at.chat.edit(id, question ?? "", "two");
  say(at.asked[2], "third");
  end(at.asked[2]);
  assert.deepEqual(texts(at, id), ["user: two", "assistant: third"]);
  assert.deepEqual(at.asked[2]?.body["messages"], [{ role: "user", content: "two" }]);
  at.conversations.select(id, question ?? "");
  assert.deepEqual(texts(at, id), ["user: one", "assistant: second"]);
  await at.chat.edit(id, answer ?? "", "by hand");
  assert.equal(at.asked.length, 3, "an answer that was written by hand asks nothing");
  assert.deepEqual(texts(at, id), ["user: one", "assistant: by hand"]);
});

test("an answer is continued where it ended", async () => {
  const at = page();
  const { id } = at.conversations.create(null);
  await at.chat.send(id, "count");
  say(at.asked[0], "1, ", "2, ");
  end(at.asked[0], "length");
  const answer = at.conversations.path(id)[1]?.message.id ?? "";
  await at.chat.continueAnswer(id, answer);
  assert.equal(at.asked[1]?.body["continue"], true);
  assert.deepEqual(at.asked[1]?.body["messages"], [{ role: "user", content: "count" }, { role: "assistant", content: "1, 2, " }]);
  say(at.asked[1], "3");
  assert.equal(at.chat.running.get().get(id)?.generatedTokens, 3, "those before count too");
  end(at.asked[1], "stop", 1);
  assert.deepEqual(texts(at, id), ["user: count", "assistant: 1, 2, 3"]);
  assert.equal(at.conversations.path(id)[1]?.message.statistics?.generatedTokens, 3);
});

test("a failure is a message, and is tried again in its place", async () => {
  const at = page();
  const { id } = at.conversations.create(null);
  await at.chat.send(id, "one");
  at.asked[0]?.receiver.failed(new Failure("QUEUE_FULL", "Too many wait.", 3));
  const failed = at.conversations.path(id)[1]?.message;
  assert.deepEqual([failed?.state, failed?.error?.code, failed?.error?.retryAfter], ["failed", "QUEUE_FULL", 3]);
  await at.chat.retry(id, failed?.id ?? "");
  say(at.asked[1], "now");
  end(at.asked[1]);
  assert.deepEqual(texts(at, id), ["user: one", "assistant: now"]);
  assert.equal(at.conversations.path(id)[1]?.siblings.length, 1);
  await at.chat.send(id, "two");
  say(at.asked[2], "half");
  at.asked[2]?.receiver.failed(new Failure("CONNECTION_LOST", "Gone."));
  const half = at.conversations.path(id)[3]?.message;
  assert.deepEqual([half?.state, half?.error], ["interrupted", null]);
  await at.chat.retry(id, half?.id ?? "");
  assert.deepEqual([half?.text, at.conversations.path(id)[3]?.siblings.length], ["half", 2], "text is never thrown away");
  at.asked[3]?.receiver.failed(new Failure("ANSWER_LOST", "Gone."));
  await eventually(() => at.conversations.path(id)[3]?.message.error?.code === "ANSWER_LOST", "the failure: nothing had come");
});

test("questions around an answer that never came are one message, and roles alternate", () => {
  const line = [message("u1", null), message("a1", "u1", 0, { text: "" }), message("u2", "a1"), message("a2", "u2"), message("u3", "a2"), message("a3", "u3", 0, { text: "" })];
  assert.deepEqual(requestMessages(line.slice(0, 2), " "), [{ role: "user", content: "text of u1" }]);
  assert.deepEqual(requestMessages(line, "Be brief."), [
    { role: "system", content: "Be brief." },
    { role: "user", content: "text of u1\n\ntext of u2" },
    { role: "assistant", content: "text of a2" },
    { role: "user", content: "text of u3" },
  ]);
});

test("a model that the server does not offer is not asked", async () => {
  const at = page();
  await at.ready;
  const { id } = at.conversations.create("gone");
  await at.chat.send(id, "one");
  assert.equal(at.asked[0]?.body["model"], "toy");
});

test("stop ends it, and a removed conversation's answer too", async () => {
  const at = page();
  const { id } = at.conversations.create(null);
  const both = await Promise.allSettled([at.chat.send(id, "one"), at.chat.send(id, "pressed twice")]);
  assert.deepEqual(both.map(({ status }) => status), ["fulfilled", "rejected"]);
  const [question] = at.conversations.path(id).map(({ message: one }) => one.id);
  await assert.rejects(at.chat.send(id, "while it runs"), /being written/);
  await assert.rejects(at.chat.edit(id, question ?? "", "while it runs"), /being written/);
  assert.equal(at.asked.length, 1);
  say(at.asked[0], "a");
  at.chat.stop(id);
  const answer = at.conversations.path(id)[1]?.message;
  assert.deepEqual([at.asked[0]?.stopped, answer?.finishReason, answer?.text], [true, "cancelled", "a"]);
  await at.chat.send(id, "two");
  const undo = at.conversations.remove(id);
  assert.equal(at.asked[1]?.stopped, true);
  await assert.rejects(at.chat.send(id, "to nobody"), /deleted/);
  undo();
  await at.chat.send(id, "three");
  assert.equal(at.asked.length, 3);
});

test("a page without models says so", async () => {
  const at = page(new MemoryDatabase(), new Browser(), "id", "[]");
  const { id } = at.conversations.create(null);
  await at.ready;
  await at.chat.send(id, "one");
  assert.equal(at.conversations.path(id)[1]?.message.error?.code, "NO_MODEL");
});

test("a page that was loaded again takes up its answer behind what is kept", async (context) => {
  const database = new MemoryDatabase();
  const before = page(database);
  const { id } = before.conversations.create(null);
  await before.chat.send(id, "one");
  say(before.asked[0], "first ", "half, ");
  await before.conversations.keeper.flush();
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const after = page(database, new Browser(), "again");
  await after.conversations.start();
  await after.conversations.open(id);
  context.mock.timers.tick(1000);
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
  assert.equal(after.asked[0]?.resume, "ab:2");
  say(after.asked[0], "second");
  end(after.asked[0]);
  assert.deepEqual(texts(after, id), ["user: one", "assistant: first half, second"]);
});

test("the figures of an answer that is taken up after a reload are those of the whole", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"], now: 1_000_000 });
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
  };
  const keep = async (at: Page): Promise<void> => {
    const kept = at.conversations.keeper.flush();
    await turns();
    context.mock.timers.tick(1);
    await kept;
  };
  const again = async (name: string): Promise<Page> => {
    const at = page(database, new Browser(), name);
    await at.conversations.start();
    await at.conversations.open(id);
    context.mock.timers.tick(1000);
    await turns();
    return at;
  };
  const figures = (at: Page): unknown => {
    const { statistics } = at.conversations.path(id)[1]?.message ?? {};
    return statistics && [statistics.promptTokens, statistics.generatedTokens, statistics.tokensPerSecond, statistics.timeToFirstToken, statistics.duration];
  };
  const database = new MemoryDatabase();
  const before = page(database);
  const { id } = before.conversations.create(null);
  await before.chat.send(id, "one");
  before.asked[0]?.receiver.news({ state: "reading", promptTokens: 30, readTokens: 0, ahead: null, resume: null });
  context.mock.timers.tick(700);
  say(before.asked[0], "first ", "half, ");
  await keep(before);
  const after = await again("after");
  context.mock.timers.tick(3000);
  say(after.asked[0], "second");
  assert.equal(after.chat.running.get().get(id)?.generatedTokens, 3);
  assert.equal(after.chat.contextUse(id).used, 33);
  // All of it had come: this end tells no figures.
  after.asked[0]?.receiver.end({ reason: "stop", generatedTokens: 0, promptTokens: 0, tokensPerSecond: 0 });
  assert.deepEqual(figures(after), [30, 3, 10, 700, 700 + 1 + 1000 + 3000]);
  assert.equal(after.conversations.message(id, after.conversations.path(id)[1]?.message.id ?? "")?.soFar, null);

  await after.chat.continueAnswer(id, after.conversations.path(id)[1]?.message.id ?? "");
  say(after.asked[1], " and", " more");
  await keep(after);
  const last = await again("last");
  say(last.asked[0], " still");
  end(last.asked[0], "stop", 3);
  assert.deepEqual((figures(last) as number[]).slice(0, 2), [27, 6], "of the end's 30 tokens three were written before it was continued");
});

test("what an answer had before it was cut off counts when it is continued", async () => {
  const at = page();
  const { id } = at.conversations.create(null);
  await at.chat.send(id, "one");
  say(at.asked[0], "a", "b", "c");
  at.asked[0]?.receiver.failed(new Failure("CONNECTION_LOST", "Gone."));
  await at.chat.continueAnswer(id, at.conversations.path(id)[1]?.message.id ?? "");
  say(at.asked[1], "d");
  end(at.asked[1], "stop", 1);
  assert.equal(at.conversations.path(id)[1]?.message.statistics?.generatedTokens, 4);
});

test("an answer that another tab writes is left to it; one that nobody can take up is marked", async () => {
  const database = new MemoryDatabase();
  const browser = new Browser();
  const writer = page(database, browser, "a");
  const { id } = writer.conversations.create(null);
  await writer.chat.send(id, "one");
  say(writer.asked[0], "text");
  await writer.conversations.keeper.flush();
  await database.putMessages([message("a9", "u9", 5, { conversationId: id, state: "writing", text: "left behind" })]);
  const reader = page(database, browser, "b");
  await reader.conversations.start();
  await reader.conversations.open(id);
  await eventually(() => reader.conversations.message(id, "a9")?.state === "interrupted", "the mark");
  assert.equal(reader.asked.length, 0);
  assert.equal(reader.conversations.path(id)[1]?.message.state, "writing");
});

test("a second tab shows what the first one writes, is busy meanwhile, and can end it", async () => {
  const database = new MemoryDatabase();
  const browser = new Browser();
  const writer = page(database, browser, "a");
  const { id } = writer.conversations.create(null);
  await writer.chat.send(id, "one");
  end(writer.asked[0]);
  await writer.conversations.keeper.flush();
  const reader = page(database, browser, "b");
  await reader.conversations.start();
  await reader.conversations.open(id);
  await writer.chat.send(id, "two");
  await eventually(() => reader.chat.running.get().get(id)?.phase === "elsewhere", "the answer in the other tab");
  const shown = reader.conversations.path(id)[3]?.message;
  say(writer.asked[1], "text");
  await writer.conversations.keeper.flush();
  await eventually(() => shown?.text === "text", "the text in what the other tab shows");
  await assert.rejects(reader.chat.send(id, "while it runs"), /being written/);
  assert.equal(reader.asked.length, 0);
  reader.chat.stop(id);
  await eventually(() => writer.asked[1]?.stopped === true, "the end in the tab that writes");
  await writer.conversations.keeper.flush();
  await eventually(() => shown?.state === "complete" && reader.chat.running.get().size === 0, "the end in the other tab");
});

test("of two tabs that come back to an answer one takes it up, and the other follows", async () => {
  const database = new MemoryDatabase();
  const gone = page(database);
  const { id } = gone.conversations.create(null);
  await gone.chat.send(id, "one");
  say(gone.asked[0], "first ", "half, ");
  await gone.conversations.keeper.flush();
  const browser = new Browser();
  const tabs = ["x", "y"].map((name) => page(database, browser, name));
  for (const tab of tabs) {
    await tab.conversations.start();
    await tab.conversations.open(id);
  }
  const asked = (): Asked[] => tabs.flatMap((tab) => tab.asked);
  await eventually(() => asked().length > 0, "that one takes it up");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(asked().length, 1);
  say(asked()[0], "second");
  end(asked()[0]);
  await Promise.all(tabs.map((tab) => tab.conversations.keeper.flush()));
  for (const tab of tabs) await eventually(() => texts(tab, id)[1] === "assistant: first half, second" && tab.chat.running.get().size === 0, "the whole in both");
});

test("an answer that another connection has taken up is followed, not failed", async () => {
  const at = page();
  const { id } = at.conversations.create(null);
  await at.chat.send(id, "one");
  say(at.asked[0], "half");
  at.asked[0]?.receiver.failed(new Failure("ANSWER_TAKEN", "Another connection has it."));
  assert.deepEqual([at.conversations.path(id)[1]?.message.state, at.chat.running.get().get(id)?.phase], ["writing", "elsewhere"]);
});

test("an answer ends when another tab deletes its conversation", async () => {
  const database = new MemoryDatabase();
  const browser = new Browser();
  const writer = page(database, browser, "a");
  const { id } = writer.conversations.create(null);
  await writer.chat.send(id, "one");
  await writer.conversations.keeper.flush();
  const other = page(database, browser, "b");
  await other.conversations.start();
  const undo = other.conversations.remove(id);
  await eventually(() => writer.asked[0]?.stopped === true, "the end");
  undo();
});

interface Shared {
  at: Page;
  database: MemoryDatabase;
  id: string;
  answer: string;
  /** Another tab saves the answer so. */
  save: (patch: Partial<StoredMessage>) => Promise<void>;
}

/** A tab that writes "one two ", and has saved it. */
async function shared(): Promise<Shared> {
  const database = new MemoryDatabase();
  const browser = new Browser();
  const at = page(database, browser, "a");
  const tabs = browser.tab();
  const { id } = at.conversations.create(null);
  await at.chat.send(id, "count");
  say(at.asked[0], "one ", "two ");
  await at.conversations.keeper.flush();
  const answer = at.conversations.path(id)[1]?.message.id ?? "";
  const save = async (patch: Partial<StoredMessage>): Promise<void> => {
    const kept = await database.message(answer);
    if (kept !== null) await database.putMessages([{ ...kept, ...patch }]);
    tabs.tell({ kind: "saved", conversations: [], messages: [{ conversationId: id, id: answer }] });
  };
  return { at, database, id, answer, save };
}

test("an answer that another tab has more of is that tab's, and nothing comes twice", async () => {
  const { at, database, id, answer, save } = await shared();
  await save({ text: "one " });
  say(at.asked[0], "three ");
  assert.deepEqual(texts(at, id)[1], "assistant: one two three ", "less is not taken");
  await save({ text: "one two three four ", resume: "ab:4" });
  await eventually(() => at.asked[0]?.left === true, "that this tab lets go");
  assert.equal(at.asked[0]?.stopped, false, "the server goes on");
  await eventually(() => texts(at, id)[1] === "assistant: one two three four ", "the longer text");
  assert.equal(at.chat.running.get().get(id)?.phase, "elsewhere");
  await at.conversations.keeper.flush();
  assert.equal((await database.message(answer))?.text, "one two three four ");
  await eventually(() => at.asked[1]?.resume === "ab:4", "that it is taken up there, as no other tab has it");
});

test("an answer that the server has forgotten is taken as another tab finished it", async () => {
  const { at, database, id, answer } = await shared();
  const kept = await database.message(answer);
  if (kept !== null) await database.putMessages([{ ...kept, text: "one two three", state: "complete", resume: null }]);
  at.asked[0]?.receiver.failed(new Failure("ANSWER_LOST", "Gone."));
  await eventually(() => at.chat.running.get().size === 0, "the end");
  await at.conversations.keeper.flush();
  for (const one of [at.conversations.message(id, answer), await database.message(answer)]) assert.deepEqual([one?.text, one?.state], ["one two three", "complete"]);
});

test("what another tab has taken up is not overwritten by what came here last", async () => {
  const { at, database, answer } = await shared();
  say(at.asked[0], "three ");
  const kept = await database.message(answer);
  if (kept !== null) await database.putMessages([{ ...kept, text: "one two three four " }]);
  at.asked[0]?.receiver.failed(new Failure("ANSWER_TAKEN", "Another connection has it."));
  await at.conversations.keeper.flush();
  assert.equal((await database.message(answer))?.text, "one two three four ");
});

test("a question is asked with texts of a dataset, and the answer keeps its sources", async () => {
  const at = page();
  await at.ready;
  const { id } = at.conversations.create("toy");
  at.conversations.updateSettings(id, { retrieval: true, retrievalAddress: "localhost/notes", retrievalModel: "minilm" });
  await at.chat.send(id, "How?");
  assert.deepEqual(at.asked[0]?.body["retrieval"], { from: "longbow://localhost/notes", model: "minilm" });
  const sources = [{ number: 1, score: 0.5, id: "7", docId: "", source: "ops.md", metadata: "", text: "So.", isCut: false }];
  say(at.asked[0], "Half");
  at.asked[0]?.receiver.end({ reason: "length", generatedTokens: 1, promptTokens: 30, tokensPerSecond: 12, sources });
  const answer = at.conversations.path(id)[1]?.message;
  assert.deepEqual(answer?.sources, sources);
  await at.chat.continueAnswer(id, answer?.id ?? "");
  assert.ok(!("retrieval" in (at.asked[1]?.body ?? {})), "the server searches for questions alone");
  end(at.asked[1]);
  assert.deepEqual(at.conversations.path(id)[1]?.message.sources, sources);
  await at.chat.regenerate(id, answer?.id ?? "");
  at.asked[2]?.receiver.failed(new Failure("NOT_ALLOWED", "No.", null, "host_not_allowed"));
  const failed = at.conversations.path(id)[1]?.message;
  assert.deepEqual([failed?.error?.code, failed?.sources], ["RETRIEVAL_FAILED", null]);
  at.conversations.updateSettings(id, { retrievalModel: "" });
  await at.chat.retry(id, failed?.id ?? "");
  assert.equal(at.asked.length, 3, "nothing is sent that cannot be searched for");
  assert.match(at.conversations.path(id)[1]?.message.error?.message ?? "", /No embedding model/);
});

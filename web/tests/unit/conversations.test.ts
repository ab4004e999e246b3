import assert from "node:assert/strict";
import { test } from "node:test";
import { IDBFactory } from "fake-indexeddb";
import { Conversations } from "../../src/core/conversations.ts";
import { MemoryDatabase, openIndexedDatabase, QuotaError } from "../../src/core/database.ts";
import type { StoredMessage } from "../../src/core/records.ts";
import { Browser, counter, eventually, message } from "./made.ts";

async function tabOf(factory: IDBFactory, browser: Browser, prefix: string): Promise<Conversations> {
  const conversations = new Conversations(await openIndexedDatabase(factory), browser.tab(), counter(prefix));
  await conversations.start();
  return conversations;
}

function shown(conversations: Conversations, id: string): string[] {
  return conversations.path(id).map(({ message: one }) => one.id);
}

test("a conversation is kept from its first message on, and titled by it", async () => {
  const factory = new IDBFactory();
  const first = await tabOf(factory, new Browser(), "a");
  const { id } = first.create("toy");
  await first.keeper.flush();
  assert.deepEqual(first.list.get(), []);
  first.add(id, [message("u1", null, 1, { conversationId: id, text: "  Why is the sky blue?\nTell me." })]);
  await first.keeper.flush();
  const again = await tabOf(factory, new Browser(), "b");
  assert.deepEqual(again.list.get().map(({ title, model }) => [title, model]), [["Why is the sky blue?", "toy"]]);
  await again.open(id);
  assert.deepEqual(shown(again, id), ["u1"]);
});

test("two tabs do not write over each other", async () => {
  const factory = new IDBFactory();
  const browser = new Browser();
  const a = await tabOf(factory, browser, "a");
  const { id } = a.create(null);
  a.add(id, [message("u1", null, 1, { conversationId: id })]);
  await a.keeper.flush();
  const b = await tabOf(factory, browser, "b");
  await b.open(id);
  a.add(id, [message("a1", "u1", 2, { conversationId: id, text: "from a" })]);
  b.add(id, [message("a2", "u1", 3, { conversationId: id, text: "from b" })]);
  a.rename(id, "named by a");
  b.updateSettings(id, { temperature: 0.5 });
  await Promise.all([a.keeper.flush(), b.keeper.flush()]);
  for (const tab of [a, b]) {
    await eventually(() => tab.message(id, "a1") !== null && tab.message(id, "a2") !== null, "both answers in both tabs");
    await eventually(() => tab.get(id)?.title === "named by a" && tab.get(id)?.settings.temperature === 0.5, "both changes in both tabs");
  }
  const c = await tabOf(factory, browser, "c");
  await c.open(id);
  assert.deepEqual([...(c.path(id)[1]?.siblings ?? [])], ["a1", "a2"]);
  assert.equal(c.get(id)?.title, "named by a");
});

test("a removal can be undone, and then is carried out in all tabs", async (context) => {
  const factory = new IDBFactory();
  const browser = new Browser();
  const a = await tabOf(factory, browser, "a");
  const b = await tabOf(factory, browser, "b");
  const { id } = a.create(null);
  a.add(id, [message("u1", null, 1, { conversationId: id })]);
  await a.keeper.flush();
  await eventually(() => b.list.get().length === 1, "the conversation in the other tab");
  const undo = a.remove(id);
  assert.deepEqual(a.list.get(), []);
  await eventually(() => b.list.get().length === 0, "its removal there");
  undo();
  await eventually(() => b.list.get().length === 1, "its return there");
  context.mock.timers.enable({ apis: ["setTimeout"] });
  a.remove(id);
  context.mock.timers.tick(60_000);
  context.mock.timers.reset();
  const database = await openIndexedDatabase(factory);
  let left = 1;
  for (let turn = 0; turn < 500 && left > 0; turn += 1) {
    await new Promise((resolve) => setTimeout(resolve, 1));
    left = (await database.conversations()).length + (await database.messages(id)).length;
  }
  assert.equal(left, 0);
});

test("a removal that fails keeps the page from nothing, and is tried again", async () => {
  class Stuck extends MemoryDatabase {
    tries = 0;
    override removeConversations(): Promise<void> {
      this.tries += 1;
      return Promise.reject(new Error("the browser's database gave up"));
    }
  }
  const database = new Stuck();
  await database.updateConversation("old", () => ({ id: "old", createdAt: 1, updatedAt: 1, title: "", titleIsOwn: false, model: null, settings: {}, selected: {}, deletedAt: 1 }));
  for (const prefix of ["a", "b"]) {
    const conversations = new Conversations(database, new Browser().tab(), counter(prefix));
    await conversations.start();
    assert.deepEqual([conversations.list.get(), conversations.has("old")], [[], false]);
  }
  assert.equal(database.tries, 2);
});

test("a conversation that another tab deletes is told of once, and is not there any more", async (context) => {
  const factory = new IDBFactory();
  const browser = new Browser();
  const a = await tabOf(factory, browser, "a");
  const b = await tabOf(factory, browser, "b");
  const { id } = a.create(null);
  a.add(id, [message("u1", null, 1, { conversationId: id })]);
  await a.keeper.flush();
  await eventually(() => b.has(id), "the conversation in the other tab");
  const told: string[] = [];
  for (const [name, tab] of [["a", a], ["b", b]] as const) tab.changes.on((change) => { if (change.kind === "gone") told.push(name); });
  context.mock.timers.enable({ apis: ["setTimeout"] });
  a.remove(id);
  context.mock.timers.tick(0);
  context.mock.timers.reset();
  await a.keeper.flush();
  await eventually(() => told.length > 0, "that it is gone");
  assert.deepEqual([a.has(id), b.has(id)], [false, false]);
  await a.keeper.remove([id]);
  await eventually(() => b.get(id) === null, "its end there");
  assert.deepEqual(told, ["b"]);
});

test("nothing waits for a conversation that another tab has removed, and what waited for room is written", async () => {
  class Tight extends MemoryDatabase {
    override readonly lasting = true;
    full = false;
    override putMessages(messages: readonly StoredMessage[]): Promise<void> {
      return this.full ? Promise.reject(new QuotaError("full")) : super.putMessages(messages);
    }
    override removeConversations(ids: readonly string[]): Promise<void> {
      this.full = false;
      return super.removeConversations(ids);
    }
  }
  const database = new Tight();
  const browser = new Browser();
  const [a, b] = [new Conversations(database, browser.tab(), counter("a")), new Conversations(database, browser.tab(), counter("b"))];
  await a.start();
  await b.start();
  const [gone, stays] = [b.create(null).id, b.create(null).id];
  b.add(gone, [message("u1", null, 1, { conversationId: gone })]);
  b.add(stays, [message("u2", null, 1, { conversationId: stays })]);
  await b.keeper.flush();
  await eventually(() => a.has(gone) && a.has(stays), "both in the other tab");
  database.full = true;
  b.add(gone, [message("a1", "u1", 2, { conversationId: gone })]);
  b.add(stays, [message("a2", "u2", 2, { conversationId: stays })]);
  b.rename(gone, "Another name");
  await b.keeper.flush();
  assert.equal(b.storage.get().state, "full");
  await a.keeper.remove([gone]);
  await eventually(() => b.storage.get().state === "ready", "the end of the want");
  assert.deepEqual([await database.messages(gone), (await database.messages(stays)).map(({ id }) => id)], [[], ["u2", "a2"]]);
  assert.deepEqual((await database.conversations()).map(({ id }) => id), [stays]);
  assert.equal(b.has(gone), false);
});

test("what was on its way when another tab removed the conversation goes too", async () => {
  class Slow extends MemoryDatabase {
    goOn: () => void = () => undefined;
    slow = false;
    readonly story: string[] = [];
    override async putMessages(messages: readonly StoredMessage[]): Promise<void> {
      if (this.slow) await new Promise<void>((resolve) => { this.goOn = resolve; });
      this.story.push(...messages.map((one) => one.id));
      await super.putMessages(messages);
    }
    override removeConversations(ids: readonly string[]): Promise<void> {
      this.story.push("removed");
      return super.removeConversations(ids);
    }
  }
  const database = new Slow();
  const browser = new Browser();
  const [a, b] = [new Conversations(database, browser.tab(), counter("a")), new Conversations(database, browser.tab(), counter("b"))];
  await a.start();
  await b.start();
  const { id } = b.create(null);
  b.add(id, [message("u1", null, 1, { conversationId: id })]);
  await b.keeper.flush();
  database.slow = true;
  b.add(id, [message("a1", "u1", 2, { conversationId: id })]);
  const written = b.keeper.flush();
  await eventually(() => !b.keeper.holds("a1"), "the write");
  await a.keeper.remove([id]);
  await eventually(() => b.get(id) === null, "its end there");
  database.slow = false;
  database.goOn();
  await written;
  assert.deepEqual(database.story.slice(0, 3), ["u1", "removed", "a1"]);
  let left = 1;
  await eventually(() => { void database.messages(id).then((all) => { left = all.length; }); return left === 0; }, "its end");
});

test("an answer that grows faster than it is written is written once a second, and what is asked for meanwhile is waited for", async (context) => {
  class Slow extends MemoryDatabase {
    writes = 0;
    during: () => void = () => undefined;
    override async putMessages(messages: readonly StoredMessage[]): Promise<void> {
      this.writes += 1;
      for (let turn = 0; turn < 5; turn += 1) {
        await Promise.resolve();
        if (this.writes < 100) this.during(); // a page that never comes to an end ends the test too
      }
      await super.putMessages(messages);
    }
  }
  const database = new Slow();
  const conversations = new Conversations(database, new Browser().tab(), counter("a"));
  await conversations.start();
  const { id } = conversations.create(null);
  conversations.add(id, [message("u1", null, 1, { conversationId: id }), message("a1", "u1", 2, { conversationId: id, text: "", state: "writing" })]);
  await conversations.keeper.flush();
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const grow = (): void => conversations.change(id, "a1", { text: `${conversations.message(id, "a1")?.text ?? ""}x` }, true);
  database.writes = 0;
  database.during = grow;
  grow();
  await conversations.keeper.flush();
  assert.equal(database.writes, 1);
  for (const second of [1, 2, 3]) {
    context.mock.timers.tick(999);
    await Promise.resolve();
    assert.equal(database.writes, second);
    context.mock.timers.tick(1);
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    assert.equal(database.writes, second + 1);
  }
  const ends: Promise<void>[] = [];
  database.during = () => {
    if (ends.length > 0) return;
    conversations.change(id, "a1", { text: "the end", state: "complete" });
    ends.push(conversations.keeper.flush());
  };
  await conversations.keeper.flush();
  await Promise.all(ends);
  assert.deepEqual([(await database.message("a1"))?.text, database.writes], ["the end", 6]);
});

test("every sign of a word is looked for as it is", async () => {
  const conversations = await tabOf(new IDBFactory(), new Browser(), "a");
  const { id } = conversations.create(null);
  const signs = Array.from({ length: 0x7f - 0x21 }, (_, at) => String.fromCharCode(0x21 + at)).filter((sign) => /[^a-z0-9]/i.test(sign));
  assert.equal(signs.length, 32);
  conversations.add(id, signs.map((sign, at) => message(`u${at}`, null, at, { conversationId: id, text: `top${sign}k` })));
  conversations.rename(id, "signs");
  for (const [at, sign] of signs.entries()) {
    assert.deepEqual((await conversations.search(`top${sign}k`)).map(({ messageId }) => messageId), [`u${at}`], sign);
  }
});

test("what finds no room stays, is told of, and is saved when there is room", async () => {
  class Full extends MemoryDatabase {
    override readonly lasting = true;
    full = true;
    override putMessages(messages: readonly StoredMessage[]): Promise<void> {
      return this.full ? Promise.reject(new QuotaError("full")) : super.putMessages(messages);
    }
  }
  const database = new Full();
  const conversations = new Conversations(database, new Browser().tab(), counter("a"));
  await conversations.start();
  const { id } = conversations.create(null);
  conversations.add(id, [message("u1", null, 1, { conversationId: id })]);
  await conversations.keeper.flush();
  assert.equal(conversations.storage.get().state, "full");
  conversations.add(id, [message("a1", "u1", 2, { conversationId: id })]);
  await conversations.keeper.flush();
  assert.deepEqual(shown(conversations, id), ["u1", "a1"]);
  assert.equal(conversations.keeper.holdsUnsaved, true);
  database.full = false;
  await conversations.keeper.flush();
  assert.deepEqual([conversations.storage.get().state, conversations.keeper.holdsUnsaved], ["ready", false]);
  assert.equal((await database.messages(id)).length, 2);
});

test("branches are selected, and words are found in titles and texts", async () => {
  const conversations = await tabOf(new IDBFactory(), new Browser(), "a");
  const { id } = conversations.create(null);
  const own = { conversationId: id };
  conversations.add(id, [message("u1", null, 1, { ...own, text: "About Foxes" }), message("a1", "u1", 2, { ...own, text: "The fox (red) is quick." })]);
  conversations.add(id, [message("a2", "u1", 3, { ...own, text: "Wolves are not." })]);
  assert.deepEqual(shown(conversations, id), ["u1", "a2"]);
  conversations.select(id, "a1");
  assert.deepEqual(shown(conversations, id), ["u1", "a1"]);
  const hits = await conversations.search("FOX (red)");
  assert.deepEqual(hits.map(({ messageId }) => messageId), ["a1"]);
  const [hit] = hits;
  assert.deepEqual(hit?.marks.map(([start, end]) => hit.excerpt.slice(start, end)), ["fox", "(red)"]);
  assert.deepEqual((await conversations.search("foxes")).map(({ messageId }) => messageId), [null, "u1"]);
  assert.deepEqual(await conversations.search("  "), []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Conversations } from "../../src/core/conversations.ts";
import { MemoryDatabase } from "../../src/core/database.ts";
import { emptySettings } from "../../src/core/settings.ts";
import { createTransfer } from "../../src/core/transfer.ts";
import { Browser, counter, message } from "./made.ts";

async function filled(): Promise<{ conversations: Conversations; database: MemoryDatabase; id: string }> {
  const database = new MemoryDatabase();
  const conversations = new Conversations(database, new Browser().tab(), counter("c"));
  await conversations.start();
  const { id } = conversations.create("toy");
  const own = { conversationId: id };
  conversations.add(id, [
    message("u1", null, 1000, { ...own, text: "Why?" }),
    message("a1", "u1", 2000, {
      ...own, text: "Because.", model: "toy", settings: { ...emptySettings(), temperature: 0.5, systemPrompt: "Be brief." }, resume: "secret:4",
      statistics: { promptTokens: 3, generatedTokens: 2, tokensPerSecond: 7, timeToFirstToken: 10, duration: 20 },
    }),
  ]);
  conversations.add(id, [message("a2", "u1", 3000, { ...own, text: "So." })]);
  return { conversations, database, id };
}

test("what was exported can be imported elsewhere, branches and figures too, and only once", async () => {
  const { conversations, id } = await filled();
  const file = await createTransfer(conversations, counter("n")).export(null, "json");
  assert.equal(file.name, "quarrel-conversations.json");
  assert.ok(!file.text.includes("secret"));
  const other = new Conversations(new MemoryDatabase(), new Browser().tab(), counter("x"));
  await other.start();
  const transfer = createTransfer(other, counter("n"));
  assert.deepEqual(await transfer.import(file.text), { conversations: 1, messages: 3, skipped: 0 });
  assert.deepEqual(await transfer.import(file.text), { conversations: 0, messages: 0, skipped: 1 });
  await other.keeper.flush();
  assert.deepEqual(other.path(id).map(({ message: one }) => one.text), ["Why?", "So."]);
  other.select(id, other.path(id)[1]?.siblings[0] ?? "");
  assert.equal(other.path(id)[1]?.message.statistics?.tokensPerSecond, 7);
});

test("what was deleted comes back by an import, and stays", async (context) => {
  const { conversations, database, id } = await filled();
  const transfer = createTransfer(conversations, counter("n"));
  const file = await transfer.export(id, "json");
  context.mock.timers.enable({ apis: ["setTimeout"] });
  conversations.remove(id);
  assert.deepEqual(await transfer.import(file.text), { conversations: 1, messages: 3, skipped: 0 });
  context.mock.timers.tick(60_000);
  for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
  assert.deepEqual(conversations.list.get().map((one) => one.id), [id]);
  assert.equal(conversations.path(id).length, 2);
  context.mock.timers.reset();
  await conversations.keeper.flush();
  const again = new Conversations(database, new Browser().tab(), counter("x"));
  await again.start();
  assert.equal((await again.allMessages(id)).length, 3, "what it was before is gone");
});

test("a file's messages take no other conversation's place, and keep their branches", async () => {
  const { conversations, id } = await filled();
  await conversations.keeper.flush();
  const file = {
    format: "quarrel-conversations", version: 1,
    conversations: [{ id: "thief", selected: { "": "u1", u1: "a1", gone: "a1" }, messages: [
      { id: "u1", role: "user", text: "mine now", createdAt: 1 }, { id: "a1", parentId: "u1", role: "assistant", text: "first", createdAt: 2 },
      { id: "a2", parentId: "u1", role: "assistant", text: "second", createdAt: 3 },
    ] }],
  };
  await createTransfer(conversations, counter("n")).import(JSON.stringify(file));
  await conversations.keeper.flush();
  assert.deepEqual(conversations.path("thief").map(({ message: one }) => one.text), ["mine now", "first"]);
  assert.equal(conversations.path("thief")[1]?.siblings.length, 2);
  assert.deepEqual(Object.keys(conversations.get("thief")?.selected ?? {}).length, 2, "what names no message is left out");
  assert.deepEqual(conversations.path(id).map(({ message: one }) => one.text), ["Why?", "So."]);
});

test("times that no calendar has are moved into it", async () => {
  const { conversations } = await filled();
  const transfer = createTransfer(conversations, counter("n"));
  const file = { format: "quarrel-conversations", version: 1, conversations: [
    { id: "early", createdAt: -1e16, updatedAt: -1e16, messages: [{ id: "m", role: "user", text: "x", createdAt: 1e300 }] }, { id: "late", updatedAt: 1e16 },
  ] };
  await transfer.import(JSON.stringify(file));
  assert.deepEqual([conversations.get("early")?.updatedAt, conversations.get("late")?.updatedAt], [0, 8.64e15]);
  for (const { updatedAt } of conversations.list.get()) new Intl.DateTimeFormat("en").format(updatedAt);
  assert.ok((await transfer.export("early", "markdown")).text.includes("+275760-09-13"));
});

test("Markdown has what is shown, with time and parameters", async () => {
  const { conversations, id } = await filled();
  conversations.select(id, "a1");
  const { name, text } = await createTransfer(conversations, counter("n")).export(id, "markdown");
  assert.equal(name, "Why.md");
  for (const part of ["# Why?", "## You", "## Model", "1970-01-01T00:00:02.000Z", "temperature 0.5", "7.0 tokens/s", "Be brief.", "Because."]) {
    assert.ok(text.includes(part), part);
  }
  assert.ok(!text.includes("So."));
});

test("what is no export is refused in a sentence, and hostile fields are left out", async () => {
  const { conversations } = await filled();
  const transfer = createTransfer(conversations, counter("n"));
  await assert.rejects(transfer.import("{"), /not JSON/);
  await assert.rejects(transfer.import("[]"), /no Quarrel conversations/);
  await assert.rejects(transfer.import('{"format": "quarrel-conversations", "version": 99}'), /newer/);
  const hostile = {
    format: "quarrel-conversations", version: 1,
    conversations: [null, 7, { id: "h", title: { a: 1 }, settings: { temperature: "x" }, selected: { __proto__: "p", "": "m" },
      messages: [{ id: "m", role: "user", text: 7, conversationId: "someone-else's" }, { id: "n", role: "system", text: "x" }, { role: "user" },
        { id: "w", parentId: "m", role: "assistant", text: "half", state: "writing", resume: "r:1" }] }],
  };
  assert.deepEqual(await transfer.import(JSON.stringify(hostile)), { conversations: 1, messages: 2, skipped: 0 });
  assert.equal(conversations.get("h")?.title, "");
  assert.deepEqual(conversations.path("h").map(({ message: one }) => [one.text, one.state]), [["", "complete"], ["half", "interrupted"]]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { IDBFactory } from "fake-indexeddb";
import { MemoryDatabase, migrations, openIndexedDatabase } from "../../src/core/database.ts";
import type { Database } from "../../src/core/database.ts";
import { readConversation } from "../../src/core/records.ts";
import { message } from "./made.ts";

const conversation = readConversation({ id: "c", title: "one", createdAt: 5 });

for (const [name, open] of [["IndexedDB", () => openIndexedDatabase(new IDBFactory())], ["memory", () => Promise.resolve(new MemoryDatabase())]] as const) {
  test(`${name} keeps conversations and messages`, async () => {
    const database: Database = await open();
    await database.updateConversation("c", (kept) => (kept === null ? conversation : null));
    await database.putMessages([message("u1", null), message("u2", null, 0, { conversationId: "other" })]);
    assert.deepEqual((await database.conversations()).map(({ title }) => title), ["one"]);
    assert.deepEqual((await database.messages("c")).map(({ id }) => id), ["u1"]);
    assert.equal((await database.message("u2"))?.conversationId, "other");
    await database.removeConversations(["c"]);
    assert.deepEqual(await database.conversations(), []);
    assert.deepEqual(await database.messages("c"), []);
    assert.equal((await database.messages("other")).length, 1);
  });

  test(`${name} changes what is kept, not what was read`, async () => {
    const database: Database = await open();
    await database.updateConversation("c", () => conversation);
    await Promise.all([
      database.updateConversation("c", (kept) => (kept === null ? null : { ...kept, title: "two" })),
      database.updateConversation("c", (kept) => (kept === null ? null : { ...kept, model: "toy" })),
    ]);
    const [kept] = await database.conversations();
    assert.deepEqual([kept?.title, kept?.model], ["two", "toy"]);
  });
}

test("a database of an older version is migrated with what it holds", async () => {
  const factory = new IDBFactory();
  const older = await openIndexedDatabase(factory, "kept");
  await older.putMessages([message("u1", null)]);
  const newer = await openIndexedDatabase(factory, "kept", [...migrations, (database, transaction) => {
    database.createObjectStore("drafts");
    transaction.objectStore("messages").createIndex("createdAt", "createdAt");
  }]);
  assert.equal((await newer.message("u1"))?.text, "text of u1");
});

test("records of other versions are read as far as they make sense", () => {
  assert.equal(readConversation({ title: "without an id" }), null);
  assert.equal(readConversation("text"), null);
  const read = readConversation({ id: "x", settings: { temperature: 9, topK: "many", stop: [1, "a"] }, selected: { a: 1, b: "c" }, more: true });
  assert.deepEqual(read?.settings, { temperature: 2, topK: null, stop: ["a"] });
  assert.deepEqual(read?.selected, { b: "c" });
});

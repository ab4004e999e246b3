import assert from "node:assert/strict";
import { test } from "node:test";
import { directionOf } from "../../src/core/direction.ts";
import { KeptDrafts } from "../../src/core/drafts.ts";

test("drafts are there again when the page is loaded again", () => {
  const values = new Map<string, string>();
  const storage = { getItem: (name: string) => values.get(name) ?? null, setItem: (name: string, value: string) => void values.set(name, value), removeItem: () => undefined };
  const drafts = new KeptDrafts(storage);
  drafts.set(null, "of a new chat");
  drafts.set("c", "of an old one");
  drafts.set("d", "sent");
  drafts.set("d", "");
  drafts.save();
  const again = new KeptDrafts(storage);
  assert.deepEqual([again.get(null), again.get("c"), again.get("d")], ["of a new chat", "of an old one", ""]);
  values.set("quarrel.drafts", '["nonsense"');
  assert.equal(new KeptDrafts(storage).get(null), "");
  const full = new KeptDrafts({ ...storage, setItem: () => { throw new Error("full"); } });
  full.set("c", "stays");
  full.save();
  assert.equal(full.get("c"), "stays");
});

test("a text's direction is that of its first letter", () => {
  assert.deepEqual(["12: שלום abc", "«نص»", "abc שלום", "漢字", "123 — ?", ""].map(directionOf), ["rtl", "rtl", "ltr", "ltr", null, null]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { MessageTree } from "../../src/core/message_tree.ts";
import { message } from "./made.ts";

function ids(tree: MessageTree, selected: Record<string, string> = {}): string[] {
  return tree.path(selected).map((shown) => shown.message.id);
}

test("the newest branch is shown unless another is selected", () => {
  const tree = new MessageTree();
  for (const one of [message("u1", null, 1), message("a1", "u1", 2), message("a2", "u1", 3), message("u2", "a1", 4)]) tree.put(one);
  assert.deepEqual(ids(tree), ["u1", "a2"]);
  assert.deepEqual(ids(tree, { u1: "a1" }), ["u1", "a1", "u2"]);
  assert.deepEqual(ids(tree, { u1: "gone" }), ["u1", "a2"], "what is selected may be gone");
  const shown = tree.path({ u1: "a1" })[1];
  assert.deepEqual([shown?.siblings, shown?.place], [["a1", "a2"], 0]);
});

test("siblings are in the order of their time, in whatever order they come", () => {
  const tree = new MessageTree();
  for (const one of [message("c", null, 3), message("a", null, 1), message("b", null, 2)]) tree.put(one);
  assert.deepEqual(tree.siblings("a"), ["a", "b", "c"]);
});

test("a circle, as an import may hold it, is walked once", () => {
  const tree = new MessageTree();
  tree.put(message("a", "b", 1));
  tree.put(message("b", "a", 2));
  assert.deepEqual(ids(tree), []);
  assert.equal(tree.line("a").length, 2);
  const own = new MessageTree();
  own.put(message("", null, 1));
  assert.ok(ids(own).length <= 1);
});

test("news of a message reach those who hold it", () => {
  const tree = new MessageTree();
  tree.put(message("a1", null, 1, { text: "" }));
  const held = tree.path({})[0]?.message;
  assert.equal(tree.put(message("a1", null, 1, { text: "more" })), false);
  assert.equal(held?.text, "more");
});

test("the line to a message", () => {
  const tree = new MessageTree();
  for (const one of [message("u1", null, 1), message("a1", "u1", 2), message("a2", "u1", 3)]) tree.put(one);
  assert.deepEqual(tree.line("a1").map(({ id }) => id), ["u1", "a1"]);
});

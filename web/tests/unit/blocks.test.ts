import assert from "node:assert/strict";
import { test } from "node:test";
import { BlockSplitter } from "../../src/core/blocks.ts";

/** All blocks of a text that comes in pieces of so many characters; and that what was cut off stays. */
function split(text: string, step: number): string[] {
  const splitter = new BlockSplitter();
  const blocks: string[] = [];
  for (let end = step; end < text.length + step; end += step) blocks.push(...splitter.feed(text.slice(0, Math.min(end, text.length))));
  const open = splitter.open(text);
  if (open !== "") blocks.push(open);
  return blocks;
}

const cases: readonly (readonly [string, string, readonly string[]])[] = [
  ["paragraphs", "one\n\ntwo two\n\nthree", ["one\n\n", "two two\n\n", "three"]],
  ["code in a fence is one block, whatever is in it", "```js\na\n\nb\n\n# c\n```\nbehind", ["```js\na\n\nb\n\n# c\n```\n", "behind"]],
  ["a longer fence is closed by one as long", "````\n```\n````\nbehind", ["````\n```\n````\n", "behind"]],
  ["a paragraph ends where code begins", "text\n```\ncode\n```\n", ["text\n", "```\ncode\n```\n"]],
  ["the items of a list belong together", "- a\n\n- b\n\n  more of b\n\nbehind it", ["- a\n\n- b\n\n  more of b\n\n", "behind it"]],
  ["code in a list is part of it", "1. a\n\n   ```\n   x\n\n   y\n   ```\n\n2. b\n", ["1. a\n\n   ```\n   x\n\n   y\n   ```\n\n2. b\n"]],
  ["a table", "|a|b|\n|-|-|\n|1|2|\n\ntext text", ["|a|b|\n|-|-|\n|1|2|\n\n", "text text"]],
  ["a fence that is never closed", "```\na\n\nb", ["```\na\n\nb"]],
  ["nothing", "", []],
  ["a name in backquotes is no fence", "``` not ``` a fence\n\ntext text", ["``` not ``` a fence\n\n", "text text"]],
];

for (const [name, text, expected] of cases) {
  test(name, () => {
    for (const step of [1, 2, 3, 7, 1000]) assert.deepEqual(split(text, step), expected, `in steps of ${step}`);
  });
}

test("blocks together are the text, for any text", () => {
  const parts = ["- x\n", "\n", "```\n", "text ", "1. ", "  in\n", "~~~\n", "\t", "| a |\n", "> q\n", "    code\n"];
  let seed = 7;
  for (let round = 0; round < 500; round += 1) {
    let text = "";
    for (let count = 0; count < 30; count += 1) {
      seed = (seed * 1103515245 + 12345) % 2147483648;
      text += parts[(seed >> 8) % parts.length] ?? "";
    }
    assert.equal(split(text, 1 + (round % 5)).join(""), text);
  }
});

test("an open fence is told of", () => {
  const splitter = new BlockSplitter();
  splitter.feed("```\ncode\n");
  assert.equal(splitter.inFence, true);
  splitter.feed("```\ncode\n```\n");
  assert.equal(splitter.inFence, false);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { formulaAt, longestFormula } from "../../src/core/formula.ts";

test("a formula is what stands between its marks, to the first end", () => {
  const found = ["\\(a_b\\) and \\(c\\)", "\\[x\n= y\\]\n", "$$a$$b$$", "$$$$$", "\\(\\)", "\\[a\\)", "$5 and $6", "a\\(b\\)", "\\(a", ""].map((text) => formulaAt(text));
  assert.deepEqual(found, ["\\(a_b\\)", "\\[x\n= y\\]", "$$a$$", "$$$$$", null, null, null, null, null, null]);
});

test("an end is looked for within bounds, however much follows", () => {
  const most = "x".repeat(longestFormula - 4);
  assert.equal(formulaAt(`\\(${most}\\) and more`)?.length, longestFormula);
  assert.equal(formulaAt(`\\(${most}x\\) and more`), null);
  const hostile = `${"\\(".repeat(50_000)}\\)`;
  const found = Array.from({ length: 50_000 }, (_, at) => formulaAt(hostile.slice(2 * at))).filter((one) => one !== null);
  assert.equal(found.length, longestFormula / 2 - 2, "those near the end, not all: the work grows with the text, not with its square");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { TypedSearch } from "../../src/core/search.ts";

test("words are looked for when the typing pauses, and a late answer to earlier ones is not shown", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const asked: { words: string; answer: (found: string) => void }[] = [];
  const shown: (string | null)[] = [];
  const searching = new TypedSearch<string>((words) => new Promise((resolve) => asked.push({ words, answer: resolve })), (found) => void shown.push(found));
  const answer = async (at: number): Promise<void> => {
    asked[at]?.answer(`found ${at}`);
    for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
  };
  for (const words of ["q", "qu", "qua"]) {
    searching.look(words);
    context.mock.timers.tick(100);
  }
  assert.deepEqual(asked, []);
  context.mock.timers.tick(100);
  assert.deepEqual(asked.map(({ words }) => words), ["qua"]);
  searching.look("quarrel");
  await answer(0);
  assert.deepEqual(shown, [], "other words stand there now");
  context.mock.timers.tick(200);
  searching.look("quarrel"); // the list has changed
  context.mock.timers.tick(200);
  await answer(2);
  await answer(1);
  assert.deepEqual([asked.length, shown], [3, ["found 2"]]);
  searching.look("quarrels");
  searching.look("");
  context.mock.timers.tick(1000);
  assert.deepEqual([asked.length, shown], [3, ["found 2", null]], "nothing is looked for, at once");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { readEnd } from "../../src/core/answer.ts";
import { readMessage } from "../../src/core/records.ts";
import { readSources, sourceName, sourcesToMarkdown } from "../../src/core/sources.ts";

const told = { number: 2, cut: true, score: 0.61, id: 17, text: "A text.", doc_id: "d", source: "ops\n.md", metadata: { offset: 0 } };
const read = { number: 2, score: 0.61, id: "17", docId: "d", source: "ops .md", metadata: '{"offset":0}', text: "A text.", isCut: true };

test("the last event's sources are read, and what was kept is read the same", () => {
  assert.deepEqual(readEnd({ complete: true, sources: [told] })?.sources, [read]);
  assert.deepEqual(readSources([read]), [read]);
  assert.equal(readEnd({ complete: true })?.sources, null);
  assert.deepEqual(readSources([]), [], "nothing was found, which is not the same as nothing was asked for");
});

test("nothing about their shape is believed", () => {
  assert.equal(readSources({ length: 1, 0: told }), null);
  assert.deepEqual(readSources([null, 7, "x", []]), []);
  assert.deepEqual(readSources([{ number: "1", score: "high", id: {}, text: 7, source: [], cut: "yes" }]),
    [{ number: 1, score: null, id: "", docId: "", source: "", metadata: "", text: "", isCut: false }]);
  assert.equal(readSources(Array.from({ length: 5000 }, () => told))?.length, 100);
});

test("messages of older versions have none", () => {
  assert.equal(readMessage({ id: "a", conversationId: "c", role: "assistant", text: "x" })?.sources, null);
  assert.deepEqual(readMessage({ id: "a", conversationId: "c", role: "assistant", text: "x", sources: [told] })?.sources, [read]);
});

test("a source is known by its file, else its own id, else the store's", () => {
  assert.equal(sourceName(read), "ops .md");
  assert.equal(sourceName({ ...read, source: "" }), "d");
  assert.equal(sourceName({ ...read, source: "", docId: "" }), "id 17");
  assert.equal(sourceName({ ...read, source: "", docId: "", id: "" }), "without a name");
});

test("in Markdown a text cannot leave its fence", () => {
  const markdown = sourcesToMarkdown([{ ...read, text: "````\n# not a heading\n```" }]);
  assert.ok(markdown.includes("2. ops .md (id 17, score 0.61, cut)\n\n`````text\n````\n# not a heading\n```\n`````\n"), markdown);
  assert.match(sourcesToMarkdown([]), /No texts were found/);
});

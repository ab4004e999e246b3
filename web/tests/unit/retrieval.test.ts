import assert from "node:assert/strict";
import { test } from "node:test";
import { failureOfSocket, failureOfStatus } from "../../src/core/failure.ts";
import { asRetrievalFailure, isAddress, readAddress, retrievalField, retrievalProblem } from "../../src/core/retrieval.ts";
import { createSettings, emptySettings, readSettings } from "../../src/core/settings.ts";
import type { ModelInfo, Settings } from "../../src/core/types.ts";
import { counter } from "./made.ts";

const chosen: Settings = { ...emptySettings(), retrieval: true, retrievalAddress: "longbow://localhost/notes", retrievalModel: "minilm" };
const minilm: ModelInfo = { name: "minilm", state: "loaded", parameters: "", quantization: "", size: 0, memory: 0, contextLength: null, embeds: true, progress: null };

test("an address is read with and without its scheme", () => {
  assert.equal(readAddress(" localhost/notes "), "longbow://localhost/notes");
  assert.equal(readAddress("longbow+tls://[::1]:3000/a/b?meta=3001"), "longbow+tls://[::1]:3000/a/b?meta=3001");
  assert.equal(readAddress(""), "");
  for (const good of ["longbow://h/d", "longbow+tls://h:1/d?meta=2"]) assert.ok(isAddress(good), good);
  for (const bad of ["longbow://h", "longbow://h/", "longbow:///d", "http://h/d", "longbow://h/?meta=3"]) assert.ok(!isAddress(bad), bad);
});

test("the request's field has what is chosen, and is not there otherwise", () => {
  assert.deepEqual(retrievalField({ ...chosen, retrievalTexts: 3 }), { retrieval: { model: "minilm", from: "longbow://localhost/notes", k: 3 } });
  assert.deepEqual(retrievalField({ ...chosen, retrievalAddress: "" }), { retrieval: { model: "minilm" } });
  assert.deepEqual(retrievalField({ ...chosen, retrieval: false }), {});
  assert.deepEqual(retrievalField({ ...chosen, retrieval: null }), {});
});

test("a chat may leave what the defaults choose, and take it up again", () => {
  const settings = createSettings(null, counter("t"));
  settings.updateDefaults(chosen);
  const conversation = { id: "c", createdAt: 0, updatedAt: 0, title: "", titleIsOwn: false, model: null, settings: { retrieval: false as boolean | null }, selected: {} };
  assert.equal(settings.effective(conversation).retrieval, false);
  conversation.settings.retrieval = null;
  assert.deepEqual(settings.effective(conversation), chosen);
});

test("what was kept is read with care", () => {
  assert.deepEqual(readSettings({ retrieval: "yes", retrievalAddress: 7, retrievalModel: {}, retrievalTexts: 900 }), { retrievalTexts: 32 });
  assert.deepEqual(readSettings({ retrieval: true, retrievalAddress: "h/d", retrievalModel: "m" }), { retrieval: true, retrievalAddress: "longbow://h/d", retrievalModel: "m" });
});

test("what is plainly wrong is told before anything is sent", () => {
  assert.equal(retrievalProblem(chosen), null);
  assert.equal(retrievalProblem({ ...chosen, retrieval: null, retrievalModel: "" }), null);
  assert.equal(retrievalProblem({ ...chosen, retrievalAddress: "" }), null, "the server may have one of its own");
  assert.match(retrievalProblem({ ...chosen, retrievalModel: "" })?.message ?? "", /No embedding model is chosen/);
  assert.equal(retrievalProblem({ ...chosen, retrievalAddress: "http://h/d" })?.error.code, "RETRIEVAL_FAILED");
});

test("the server's reasons become sentences, on both ways", () => {
  const said: Record<string, RegExp> = {
    host_not_allowed: /not allowed to reach longbow:\/\/localhost\/notes/, dataset_not_found: /no dataset at longbow:\/\/localhost\/notes/,
    unsupported: /cannot search datasets\. Why\./, store_refused: /refused the search\. Why\./, dataset_differs: /does not fit the search\. Why\./,
    store_busy: /busy/, store_failed: /does not answer/,
  };
  for (const [reason, sentence] of Object.entries(said)) {
    for (const failure of [failureOfSocket({ code: "INVALID_REQUEST", reason, message: "why", retry_after: 2 }), failureOfStatus(404, { error: "why", code: reason }, 2)]) {
      const { error } = asRetrievalFailure(failure, chosen, [minilm]);
      assert.equal(error.code, "RETRIEVAL_FAILED");
      assert.match(error.message, sentence);
      assert.equal(error.retryAfter, 2);
    }
  }
});

test("a model that is not there: which of the two it is", () => {
  const failure = failureOfSocket({ code: "MODEL_NOT_FOUND", reason: "model_not_found", message: "there is no model" });
  assert.match(asRetrievalFailure(failure, chosen, []).message, /embedding model “minilm”/);
  assert.equal(asRetrievalFailure(failure, chosen, [minilm]), failure);
  assert.equal(asRetrievalFailure(failure, emptySettings(), []), failure);
});

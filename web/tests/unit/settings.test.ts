import assert from "node:assert/strict";
import { test } from "node:test";
import { createSettings, emptySettings, readSettings, requestFields } from "../../src/core/settings.ts";
import type { TextStorage } from "../../src/core/settings.ts";
import { counter } from "./made.ts";

function storage(): TextStorage & { values: Map<string, string> } {
  const values = new Map<string, string>();
  return { values, getItem: (name) => values.get(name) ?? null, setItem: (name, value) => void values.set(name, value), removeItem: (name) => void values.delete(name) };
}

test("numbers are kept within their bounds, and what is no number is none", () => {
  assert.deepEqual(readSettings({ temperature: -1, topK: 1000, topP: 0.5, minP: "x", maxTokens: 10.4, seed: Number.NaN, more: 1 }),
    { temperature: 0, topK: 100, topP: 0.5, minP: null, maxTokens: 10, seed: null });
  assert.deepEqual(readSettings({ stop: ["a", "", 3, "b", "c", "d", "e"], systemPrompt: 4 }), { stop: ["a", "b", "c", "d"] });
  assert.deepEqual(readSettings(null), {});
});

test("a request names what is set, and leaves the rest to the server", () => {
  assert.deepEqual(requestFields(emptySettings()), {});
  assert.deepEqual(requestFields({ ...emptySettings(), temperature: 0, topK: 5, seed: 7, stop: ["\n"] }), { temperature: 0, top_k: 5, seed: 7, stop: ["\n"] });
});

test("settings last, a conversation's own count more, and reset forgets them", () => {
  const place = storage();
  const settings = createSettings(place, counter("t"));
  settings.updateDefaults({ temperature: 0.5, systemPrompt: "Be brief." });
  settings.setTheme("dark");
  const again = createSettings(place, counter("t"));
  assert.deepEqual([again.defaults.get().temperature, again.theme.get()], [0.5, "dark"]);
  const conversation = { id: "c", createdAt: 0, updatedAt: 0, title: "", titleIsOwn: false, model: null, settings: { temperature: null, topK: 3, stop: [], systemPrompt: "" }, selected: {} };
  assert.deepEqual(again.effective(conversation), { ...emptySettings(), temperature: 0.5, topK: 3, systemPrompt: "Be brief." }, "what was emptied is left to the defaults");
  assert.equal(again.effective({ ...conversation, settings: { temperature: 0 } }).temperature, 0);
  again.resetDefaults();
  settings.readAgain();
  assert.deepEqual(settings.defaults.get(), emptySettings(), "the other tab has heard of it");
});

test("templates of the user's own are saved, changed and removed; ours stay", () => {
  const place = storage();
  const settings = createSettings(place, counter("own"));
  assert.deepEqual(settings.templates.get().map(({ name }) => name), ["Summarize", "Translate", "Code", "Explain"]);
  settings.saveTemplate({ name: "Poem", text: "A poem: {text}" });
  settings.saveTemplate({ id: "own1", name: "Poem", text: "Two poems: {text}" });
  settings.removeTemplate("summarize");
  const again = createSettings(place, counter("x")).templates.get();
  assert.deepEqual([again.length, again.at(-1)?.text], [5, "Two poems: {text}"]);
  settings.removeTemplate("own1");
  assert.equal(settings.templates.get().length, 4);
});

test("a browser that keeps nothing, and one that kept nonsense", () => {
  const refusing: TextStorage = { getItem: () => "{", setItem: () => { throw new Error("full"); }, removeItem: () => undefined };
  const settings = createSettings(refusing, counter("t"));
  settings.setTheme("light");
  assert.equal(settings.theme.get(), "light");
});

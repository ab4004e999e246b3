import assert from "node:assert/strict";
import { test } from "node:test";
import { createSettings, emptySettings, keptTheme, readSettings, requestFields } from "../../src/core/settings.ts";
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
  settings.readAgain();
  assert.equal(settings.theme.get(), "light", "it holds for this page");
});

test("two tabs that have not heard of each other lose nothing of the other's", () => {
  const place = storage();
  const [one, other] = [createSettings(place, counter("one")), createSettings(place, counter("other"))];
  one.saveTemplate({ name: "Poem", text: "A poem: {text}" });
  one.updateDefaults({ temperature: 0.5 });
  other.setTheme("dark");
  other.saveTemplate({ name: "List", text: "As a list: {text}" });
  other.updateDefaults({ topK: 3 });
  one.setSidebarOpen(false);
  for (const settings of [one, other, createSettings(place, counter("x"))]) {
    assert.deepEqual(settings.templates.get().filter(({ own }) => own).map(({ name }) => name), ["Poem", "List"]);
    assert.deepEqual([settings.theme.get(), settings.defaults.get().temperature, settings.defaults.get().topK], ["dark", 0.5, 3]);
  }
  one.removeTemplate("other1");
  other.setLastModel("toy");
  assert.equal(other.templates.get().length, 5);
});

test("a change tells of what it has changed alone", () => {
  const settings = createSettings(storage(), counter("t"));
  const told: string[] = [];
  settings.defaults.subscribe(() => void told.push("defaults"));
  settings.templates.subscribe(() => void told.push("templates"));
  settings.setTheme("dark");
  settings.readAgain();
  assert.deepEqual(told, []);
});

test("what could not be stored is told of, holds for the page, and is stored when there is room", () => {
  const place = storage();
  let isFull = true;
  const tight: TextStorage = { ...place, setItem: (name, value) => {
    if (isFull) throw new DOMException("full", "QuotaExceededError");
    place.setItem(name, value);
  } };
  const settings = createSettings(tight, counter("t"));
  assert.equal(settings.problem.get(), "");
  settings.saveTemplate({ name: "Poem", text: "A poem: {text}" });
  settings.setTheme("dark");
  settings.readAgain();
  assert.deepEqual([settings.templates.get().length, settings.theme.get()], [5, "dark"]);
  assert.match(settings.problem.get(), /could not store your settings/);
  isFull = false;
  settings.setSidebarOpen(false);
  assert.equal(settings.problem.get(), "");
  assert.deepEqual([createSettings(place, counter("x")).templates.get().length, createSettings(place, counter("x")).theme.get()], [5, "dark"]);
});

test("what a newer version of the page has stored stays as it is, and is not taken for this one's", () => {
  const place = storage();
  const open = createSettings(place, counter("t"));
  open.setTheme("dark");
  const newer = '{"version":2,"theme":{"name":"dark"},"templates":"elsewhere"}';
  place.setItem("quarrel.settings", newer);
  const late = createSettings(place, counter("t"));
  for (const settings of [open, late]) {
    settings.readAgain();
    settings.setSidebarOpen(false);
    assert.equal(settings.sidebarOpen.get(), false);
    assert.match(settings.problem.get(), /newer version/);
  }
  assert.deepEqual([open.theme.get(), late.theme.get(), keptTheme(place)], ["dark", "system", "system"]);
  assert.equal(place.getItem("quarrel.settings"), newer);
});

test("fields of a later page of the same version are left where they are", () => {
  const place = storage();
  place.setItem("quarrel.settings", '{"version":1,"more":7}');
  createSettings(place, counter("t")).setTheme("dark");
  assert.deepEqual(JSON.parse(place.getItem("quarrel.settings") ?? ""), { version: 1, more: 7, theme: "dark" });
});

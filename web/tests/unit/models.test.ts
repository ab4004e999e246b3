import assert from "node:assert/strict";
import { test } from "node:test";
import { Api } from "../../src/core/api.ts";
import { similarities, unitLength } from "../../src/core/embeddings.ts";
import { Models } from "../../src/core/models.ts";

function served(answers: Readonly<Record<string, string | { status: number; body: string }>>): { models: Models; calls: string[] } {
  const calls: string[] = [];
  const api = new Api({ current: () => null, refuse: () => undefined }, (url, options) => {
    const call = `${options.method ?? ""} ${url}`;
    calls.push(call);
    const answer = answers[call] ?? { status: 404, body: '{"error": "no such model"}' };
    return Promise.resolve(typeof answer === "string" ? new Response(answer) : new Response(answer.body, { status: answer.status }));
  });
  return { models: new Models(api), calls };
}

const list = '[{"name": "toy:1", "state": "unloaded", "size": 9}, {"name": "<b>", "state": "loaded"}, {"state": "loaded"}, 4]';

test("the list, the default, and what files say of models that the list does not know", async () => {
  const { models } = served({ "GET /api/models": list, "GET /api/models/toy%3A1": '{"name": "toy:1", "state": "unloaded", "parameters": "1M", "quantization": "Q8_0", "recommended": {"temperature": 0.20000000298023224, "top_k": 40}}' });
  await models.refresh();
  for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
  assert.deepEqual(models.list.get().map(({ name, state, parameters }) => [name, state, parameters]), [["toy:1", "unloaded", "1M"], ["<b>", "loaded", ""]]);
  assert.equal(models.defaultModel.get(), "toy:1");
  assert.deepEqual((await models.details("toy:1")).recommended, { temperature: 0.2, topK: 40, topP: null, minP: null });
  assert.deepEqual(["<b>", "gone", null].map((name) => models.offered(name)), ["<b>", "toy:1", "toy:1"]);
});

test("loading shows how far it is, and unloading", async () => {
  const lines = '{"status":"loading"}\n{"status":"loading","completed":5,"total":9}\n{"status":"warming"}\n{"status":"ready","model":"toy:1","context_length":64}\n';
  const { models, calls } = served({ "GET /api/models": list, "POST /api/models/toy%3A1/load": lines, "POST /api/models/toy%3A1/unload": '{"status": "unloaded"}' });
  await models.refresh();
  const seen: string[] = [];
  models.list.subscribe(([toy]) => { seen.push(`${toy?.state ?? ""} ${toy?.progress?.completed ?? "-"}/${toy?.progress?.total ?? "-"}${toy?.progress?.warming === true ? " warming" : ""}`); });
  await models.load("toy:1");
  assert.deepEqual([...new Set(seen)], ["loading 0/0", "loading 5/9", "loading 5/9 warming", "loaded -/-", "unloaded -/-"]);
  assert.equal(models.mayControl.get(), true);
  await models.unload("toy:1");
  assert.ok(calls.includes("POST /api/models/toy%3A1/unload"));
});

test("who may not control models is told so, and a load that fails rejects", async () => {
  const { models } = served({ "GET /api/models": list, "POST /api/models/toy%3A1/load": { status: 403, body: '{"error": "not your role"}' }, "POST /api/models/%3Cb%3E/load": '{"status":"loading"}\n{"error":"no memory"}\n' });
  await models.refresh();
  await assert.rejects(models.load("toy:1"), /Not your role/);
  assert.equal(models.mayControl.get(), false);
  await assert.rejects(models.load("<b>"), /No memory/);
});

test("a model that a request loads is watched until it is there, although its load begins late", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const told = ["unloaded", "unloaded", "loading", "loading", "loaded", "unloaded"];
  const watched = (states: readonly string[]): { models: Models; looks: () => number } => {
    let looks = 0;
    const api = new Api({ current: () => null, refuse: () => undefined }, (url) => {
      if (url === "/api/models") return Promise.resolve(new Response('[{"name": "toy", "state": "unloaded", "parameters": "1M"}]'));
      const state = states[Math.min(looks, states.length - 1)] ?? "";
      looks += 1;
      return Promise.resolve(new Response(JSON.stringify({ name: "toy", state, completed: looks, total: 9 })));
    });
    return { models: new Models(api), looks: () => looks };
  };
  const wait = async (seconds = 30): Promise<void> => {
    for (let turn = 0; turn < seconds * 10; turn += 1) {
      for (let step = 0; step < 20; step += 1) await new Promise((resolve) => setImmediate(resolve));
      context.mock.timers.tick(100);
    }
  };
  const { models, looks } = watched(told);
  await models.refresh();
  const seen: string[] = [];
  models.list.subscribe(([toy]) => void seen.push(`${toy?.state ?? ""} ${toy?.progress?.completed ?? "-"}`));
  models.watchLoading("toy");
  await wait();
  assert.deepEqual(seen, ["unloaded -", "unloaded -", "loading 3", "loading 4", "loaded -"]);
  assert.equal(looks(), 5, "it is there");
  const failing = watched(["unloaded", "loading", "unloaded"]);
  await failing.models.refresh();
  failing.models.watchLoading("toy");
  await wait();
  assert.equal(failing.looks(), 3, "its load has failed");
  const late = watched(["unloaded"]);
  await late.models.refresh();
  const end = late.models.watchLoading("toy");
  await wait(5);
  const atFirst = late.looks();
  assert.ok(atFirst >= 4 && atFirst <= 6, `${atFirst} in five seconds: each counts against a key's quota`);
  await wait(60);
  const before = late.looks();
  assert.ok(before - atFirst >= 11 && before - atFirst <= 20, `${before - atFirst} in the minute after`);
  end();
  await wait();
  assert.ok(late.looks() <= before + 1, "nobody wants to know any more");
});

test("broadcasts change what is loaded", async () => {
  const { models } = served({ "GET /api/models": list });
  await models.refresh();
  models.takeStatus({ models: [{ name: "toy:1", state: "loaded", bytes: 77, context_length: 128 }] });
  assert.deepEqual(models.list.get().map(({ name, state, memory, contextLength }) => [name, state, memory, contextLength]), [["toy:1", "loaded", 77, 128], ["<b>", "unloaded", 0, null]]);
});

test("which models make vectors is found out once, and all who ask wait for it", async () => {
  const { models, calls } = served({
    "GET /api/models": '[{"name": "chat", "state": "loaded", "parameters": "1M"}, {"name": "vectors", "state": "unloaded", "parameters": "1M"}, {"name": "old", "parameters": "1M"}]',
    "GET /api/models/chat": '{"name": "chat", "state": "loaded", "capabilities": ["completion"]}',
    "GET /api/models/vectors": '{"name": "vectors", "state": "unloaded", "capabilities": ["embedding"]}',
    "GET /api/models/old": '{"name": "old", "state": "unloaded"}',
  });
  void models.learnAbilities();
  await models.learnAbilities();
  assert.deepEqual(models.list.get().map(({ name, embeds }) => [name, embeds]), [["chat", false], ["vectors", true], ["old", null]]);
  await models.refresh();
  await models.learnAbilities();
  assert.deepEqual(models.list.get().map(({ embeds }) => embeds), [false, true, null]);
  assert.equal(calls.filter((call) => call.startsWith("GET /api/models/")).length, 3);
});

test("similarities are cosines", () => {
  const vectors = [[3, 4], [4, 3], [-3, -4]].map((values) => unitLength(Float32Array.from(values)));
  const rounded = similarities(vectors).map((row) => row.map((value) => Math.round(value * 100) / 100));
  assert.deepEqual(rounded, [[1, 0.96, -1], [0.96, 1, -0.96], [-1, -0.96, 1]]);
  assert.deepEqual([...unitLength(Float32Array.of(0, 0))], [0, 0]);
});

#!/usr/bin/env python3
"""The server as Ollama's clients see it: answers, lines of JSON, options, what is loaded, what is refused."""
import http.client
import json
import os
import re
import shutil
import signal
import time
import unittest

from harness import TIMEOUT, ProgramTest

GREEDY = {"temperature": 0, "num_predict": 8}


class Reply:
    def __init__(self, response):
        self.status, self.kind = response.status, response.getheader("Content-Type")
        self.text = response.read().decode()

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def lines(self):
        return [json.loads(line) for line in self.text.splitlines()]

    def __repr__(self):
        return f"{self.status} {self.text}"


class OllamaTest(ProgramTest):
    """A server of its own a class, with a model that chats and one that embeds in its store."""
    names = ()  # that it is started with

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        shutil.copy(cls.toy, cls.path("models/toy.gguf"))
        cls.make_toy("embed", "models/vectors.gguf")
        cls.server = cls.start(cls, "serve", *cls.names, "--port", "0", "--ctx", "256", "--cache-tokens", "1k",
                               "--threads", "1")
        cls.addClassCleanup(cls.stop)
        line = cls.server.stderr.readline().decode()
        cls.port = int(re.search(r"http://127\.0\.0\.1:(\d+)", line).group(1))

    @classmethod
    def stop(cls):
        cls.server.send_signal(signal.SIGTERM)
        try:
            cls.server.wait(TIMEOUT)
        finally:
            cls.server.kill()
            cls.server.stderr.close()
            cls.server.stdout.close()

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json"})
        return Reply(connection.getresponse())

    def post(self, path, **body):
        return self.call("POST", path, body)

    def answer(self, path, **body):
        reply = self.post(path, **{"model": "toy", "stream": False, "options": GREEDY, **body})
        self.assertEqual(reply.status, 200, reply)
        return reply.json

    def refused(self, status, words, path, **body):
        reply = self.post(path, **{"model": "toy", **body})
        self.assertEqual(reply.status, status, reply)
        self.assertLessEqual(set(reply.json), {"error", "code"}, reply)
        for word in words:
            self.assertIn(word, reply.json["error"])

    def loaded(self):
        return {model["name"]: model for model in self.call("GET", "/api/ps").json["models"]}


class Generate(OllamaTest):
    def test_one_object_has_the_text_the_ids_and_the_times(self):
        answer = self.answer("/api/generate", prompt="the fox")
        self.assertEqual(answer["model"], "toy")
        self.assertTrue(answer["done"])
        self.assertEqual(answer["done_reason"], "length")
        self.assertEqual(answer["eval_count"], 8)
        self.assertEqual(len(answer["context"]), answer["prompt_eval_count"] + 8)
        for name in ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"):
            self.assertIsInstance(answer[name], int)
        self.assertGreater(answer["total_duration"], answer["eval_duration"])
        self.assertRegex(answer["created_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$")

    def test_lines_are_the_default_and_say_the_same(self):
        whole = self.answer("/api/generate", prompt="the fox")
        reply = self.post("/api/generate", model="toy:latest", prompt="the fox", options=GREEDY)
        self.assertEqual(reply.kind, "application/x-ndjson")
        self.assertGreater(len(reply.lines), 2)
        self.assertEqual("".join(line["response"] for line in reply.lines), whole["response"])
        self.assertEqual([line["done"] for line in reply.lines], [False] * (len(reply.lines) - 1) + [True])
        self.assertEqual(reply.lines[-1]["context"], whole["context"])
        self.assertEqual({line["model"] for line in reply.lines}, {"toy:latest"})

    def test_the_same_text_as_the_program_gives(self):
        whole = self.answer("/api/generate", prompt="the fox")
        ran = self.succeed("run", self.toy, "the fox", "--temperature", "0", "--max-tokens", "8")
        self.assertEqual(ran.out.decode().strip(), whole["response"].strip())

    def test_raw_is_the_whole_text(self):
        raw = self.answer("/api/generate", prompt="the fox", raw=True)
        asked = self.answer("/api/generate", prompt="the fox")
        self.assertLess(raw["prompt_eval_count"], asked["prompt_eval_count"])
        self.assertNotIn("context", raw)
        self.refused(400, ["raw"], "/api/generate", prompt="a", raw=True, system="b")

    def test_system_and_context_are_part_of_the_prompt(self):
        first = self.answer("/api/generate", prompt="the fox")
        with_system = self.answer("/api/generate", prompt="the fox", system="a dog")
        self.assertGreater(with_system["prompt_eval_count"], first["prompt_eval_count"])
        second = self.answer("/api/generate", prompt="the fox", context=first["context"])
        self.assertEqual(second["prompt_eval_count"], len(first["context"]) + first["prompt_eval_count"])
        self.assertEqual(second["context"][:len(first["context"])], first["context"])
        self.refused(400, [], "/api/generate", prompt="a", context=[1 << 30])
        self.refused(400, ["context"], "/api/generate", prompt="a", context=["a"])

    def test_what_decides_whose_form_it_is(self):
        """null is as good as absent; an option in the wrong place is told where it belongs."""
        asked = self.answer("/api/generate", prompt="a", temperature=None, max_tokens=None, topk=None, topp=None)
        self.assertIn("response", asked)
        self.refused(400, ["'top_p'", "'options'"], "/api/generate", prompt="a", top_p=0.5)
        self.refused(400, ["'temperature'", "'options'"], "/api/chat", messages=[], temperature=0.5)

    def test_our_own_form_stays_ours(self):
        reply = self.post("/api/generate", model="toy", prompt="the fox", max_tokens=4, temperature=0)
        self.assertEqual(reply.json["tokens_generated"], 4)
        self.assertEqual(self.post("/api/generate", prompt="the fox", max_tokens=4).json["tokens_generated"], 4)


class Options(OllamaTest):
    def test_they_change_the_answer(self):
        plain = self.answer("/api/generate", prompt="the fox")["response"]
        first = next(letter for letter in plain if letter.strip())
        stopped = self.answer("/api/generate", prompt="the fox", options={**GREEDY, "stop": [first]})
        self.assertEqual(stopped["response"], plain.split(first)[0])
        self.assertEqual(stopped["done_reason"], "stop")
        drawn = {"temperature": 2, "num_predict": 16, "top_k": 0, "top_p": 1, "min_p": 0}
        def draw(seed):
            return self.answer("/api/generate", prompt="the fox", options={**drawn, "seed": seed})["response"]
        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))
        narrow = self.answer("/api/generate", prompt="the fox", options={**drawn, "top_k": 1, "num_predict": 8})
        self.assertEqual(narrow["response"], plain)

    def test_what_has_no_effect_is_taken(self):
        plain = self.answer("/api/generate", prompt="the fox")
        options = {**GREEDY, "num_gpu": 1, "num_thread": 3, "use_mmap": True, "num_batch": 8, "num_ctx": 128,
                   "penalize_newline": True, "tfs_z": 1}
        self.assertEqual(self.answer("/api/generate", prompt="the fox", options=options)["response"], plain["response"])

    def test_what_is_wrong_is_named(self):
        for options, word in (({"num_predic": 1}, "num_predict"), ({"temperature": -1}, "temperature"),
                              ({"mirostat": 1}, "mirostat"), ({"top_k": 1.5}, "top_k"), ({"stop": [""]}, "stop"),
                              ({"tfs_z": 0.5}, "tfs_z")):
            self.refused(400, [word], "/api/generate", prompt="a", options=options)

    def test_a_full_context(self):
        # What has come is ever likelier to come again, and no end among it.
        endless = {**GREEDY, "num_predict": -1, "repeat_penalty": 0.5, "repeat_last_n": -1}
        def ask(**request):
            return self.answer("/api/generate", prompt="the fox", raw=True, **request)
        ended = ask(options=endless)
        self.assertEqual(ended["done_reason"], "length")
        self.assertLess(ended["eval_count"], 256)
        more = {**endless, "num_predict": 400}
        for request in ({"shift": True, "options": more}, {"options": {**more, "num_keep": 4}},
                        {"options": {**more, "num_keep": -1}}):
            answer = ask(**request)
            self.assertEqual((answer["eval_count"], answer["done_reason"]), (400, "length"), request)
            self.assertTrue(answer["response"].startswith(ended["response"]), request)
        self.refused(400, ["num_keep", "shift"], "/api/generate", prompt="a", shift=False, options={"num_keep": 4})
        self.assertEqual(ask(shift=True, options=endless)["eval_count"], 2560, "ten contexts")

    def test_what_is_not_offered_is_named(self):
        for name, value in (("format", "json"), ("format", {"type": "object"}), ("think", True), ("suffix", "b"),
                            ("template", "{{ .Prompt }}"), ("images", ["aGk="]), ("nonsense", 1)):
            self.refused(400, [name], "/api/generate", prompt="a", **{name: value})
        self.refused(400, ["tools"], "/api/chat", messages=[], tools=[{"type": "function"}])
        neutral = {"format": "", "think": False, "suffix": "", "template": "", "images": [], "system": None}
        self.answer("/api/generate", prompt="a", **neutral)


class Chat(OllamaTest):
    messages = [{"role": "user", "content": "the fox"}]

    def test_whole_and_in_lines(self):
        whole = self.answer("/api/chat", messages=self.messages)
        self.assertEqual(whole["message"]["role"], "assistant")
        self.assertEqual(whole["done_reason"], "length")
        self.assertNotIn("context", whole)
        lines = self.post("/api/chat", model="toy", messages=self.messages, options=GREEDY).lines
        self.assertEqual("".join(line["message"]["content"] for line in lines), whole["message"]["content"])
        self.assertEqual(lines[-1]["eval_count"], 8)
        self.assertEqual(whole["message"]["content"], self.answer("/api/generate", prompt="the fox")["response"])

    def test_messages_are_checked(self):
        self.refused(400, ["role"], "/api/chat", messages=[{"role": "owner", "content": "a"}])
        self.refused(400, ["images"], "/api/chat", messages=[{"role": "user", "content": "a", "images": ["aGk="]}])
        self.refused(400, ["context"], "/api/chat", messages=[{"role": "user", "content": "the fox " * 400}])

    def test_an_unknown_model(self):
        self.refused(404, ["model 'nobody' not found"], "/api/chat", model="nobody", messages=self.messages)


class Loading(OllamaTest):
    def test_an_empty_question_loads_and_unloads(self):
        loaded = self.post("/api/generate", model="toy", keep_alive="10m").json
        self.assertEqual((loaded["done"], loaded["done_reason"], loaded["response"]), (True, "load", ""))
        row = self.loaded()["toy:latest"]
        self.assertEqual(row["context_length"], 256)
        self.assertGreater(row["size"], 0)
        self.assertRegex(row["digest"], "^[0-9a-f]{64}$")
        self.assertEqual(row["details"]["family"], "llama")
        unloaded = self.post("/api/chat", model="toy", messages=[], keep_alive=0).json
        self.assertEqual((unloaded["done_reason"], unloaded["message"]["content"]), ("unload", ""))
        self.assertNotIn("toy:latest", self.loaded())

    def test_how_long_a_model_stays(self):
        def expiry(keep_alive):
            self.assertEqual(self.post("/api/generate", model="vectors", keep_alive=keep_alive).json["done_reason"], "load")
            deadline = time.monotonic() + TIMEOUT
            while "vectors:latest" not in self.loaded():
                self.assertLess(time.monotonic(), deadline)
            return self.loaded()["vectors:latest"]["expires_at"]
        now = time.gmtime()
        self.assertGreaterEqual(expiry("48h"), time.strftime("%Y-%m-%d", time.gmtime(time.time() + 40 * 3600)))
        self.assertGreater(int(expiry(-1)[:4]), now.tm_year + 100)
        self.assertGreater(int(expiry("-1m")[:4]), now.tm_year + 100)
        self.assertLessEqual(int(expiry(300)[:4]), now.tm_year + 1)
        for wrong in ("soon", "5 m", "", "5x", [], "1m5"):
            self.refused(400, ["keep_alive"], "/api/generate", keep_alive=wrong)

    def test_it_stays_after_use_as_was_asked(self):
        """While it is in use too the last request's time counts, not the server's."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        endless = {"temperature": 0, "repeat_penalty": 0.5, "repeat_last_n": -1, "num_keep": 4}
        body = {"model": "toy", "prompt": "the fox", "raw": True, "keep_alive": "48h", "options": endless}
        connection.request("POST", "/api/generate", json.dumps(body))
        reply = connection.getresponse()
        self.assertFalse(json.loads(reply.readline())["done"])
        expires = self.loaded()["toy:latest"]["expires_at"]
        self.assertTrue(self.call("GET", "/api/models/toy").json["in_use"])
        self.assertGreaterEqual(expires, time.strftime("%Y-%m-%d", time.gmtime(time.time() + 40 * 3600)))
        reply.close()
        self.post("/api/generate", model="toy", keep_alive="5m")

    def test_one_use_and_gone(self):
        self.answer("/api/generate", prompt="a", keep_alive="0s")
        deadline = time.monotonic() + TIMEOUT
        while "toy:latest" in self.loaded():
            self.assertLess(time.monotonic(), deadline)


class Embed(OllamaTest):
    def test_vectors(self):
        reply = self.post("/api/embed", model="vectors", input=["the fox", "a dog"]).json
        self.assertEqual(len(reply["embeddings"]), 2)
        self.assertEqual({len(vector) for vector in reply["embeddings"]}, {128})
        self.assertGreater(reply["prompt_eval_count"], 2)
        one = self.post("/api/embed", model="vectors", input="a dog").json["embeddings"]
        self.assertEqual(one, [reply["embeddings"][1]])
        self.assertAlmostEqual(sum(x * x for x in one[0]), 1, places=4)
        short = self.post("/api/embed", model="vectors", input="a dog", dimensions=16).json["embeddings"]
        self.assertEqual(len(short[0]), 16)
        older = self.post("/api/embeddings", model="vectors", prompt="a dog").json["embedding"]
        length = sum(x * x for x in older) ** 0.5
        for x, y in zip(older, one[0]):
            self.assertAlmostEqual(x / length, y, places=4)

    def test_no_text_and_long_texts(self):
        self.assertEqual(self.post("/api/embed", model="vectors", input=[]).json["embeddings"], [])
        self.assertEqual(self.post("/api/embeddings", model="vectors").json["embedding"], [])
        long = "the fox " * 2000
        self.assertEqual(len(self.post("/api/embed", model="vectors", input=long).json["embeddings"]), 1)
        self.refused(400, ["truncate"], "/api/embed", model="vectors", input=long, truncate=False)
        self.refused(400, ["input"], "/api/embed", model="vectors", input=[1])


class Models(OllamaTest):
    def test_tags(self):
        reply = self.call("GET", "/api/tags")
        models = {model["name"]: model for model in reply.json["models"]}
        self.assertEqual(set(models) & {"toy:latest", "vectors:latest"}, {"toy:latest", "vectors:latest"})
        toy = models["toy:latest"]
        self.assertEqual(toy["model"], "toy:latest")
        self.assertEqual(toy["size"], os.path.getsize(self.toy))
        self.assertRegex(toy["digest"], "^[0-9a-f]{64}$")
        self.assertEqual(toy["details"]["format"], "gguf")
        self.assertEqual(toy["details"]["families"], ["llama"])
        self.assertTrue(toy["details"]["parameter_size"] and toy["details"]["quantization_level"])
        self.assertEqual(toy["capabilities"], ["completion"])
        for path in ("/", "/api/tags", "/api/version"):
            head = self.call("HEAD", path)
            self.assertEqual((head.status, head.text), (200, ""))

    def test_show(self):
        shown = self.post("/api/show", model="toy").json
        self.assertEqual(shown["model_info"]["general.architecture"], "llama")
        self.assertEqual(shown["model_info"]["tokenizer.ggml.tokens"], [])
        self.assertNotIn(self.folder, json.dumps(shown))
        self.assertEqual(shown["capabilities"], ["completion"])
        self.assertIn("messages", shown["template"])
        self.assertIn("FROM toy", shown["modelfile"])
        self.assertGreater(len(self.post("/api/show", name="toy:latest", verbose=True)
                               .json["model_info"]["tokenizer.ggml.tokens"]), 256)
        self.assertEqual(self.post("/api/show", model="vectors").json["capabilities"], ["embedding"])
        self.refused(404, ["not found"], "/api/show", model="nobody")
        self.refused(404, ["not found"], "/api/show", model=self.toy)
        self.refused(400, ["model"], "/api/show", model="")

    def test_copy_and_delete(self):
        self.assertEqual(self.post("/api/copy", source="toy", destination="twin:latest").status, 200)
        self.assertEqual(self.answer("/api/generate", model="twin", prompt="the fox")["eval_count"], 8)
        self.refused_copy(400, "toy", "twin")
        self.refused_copy(400, "toy", "../twin")
        self.refused_copy(404, "nobody", "other")
        self.assertEqual(self.call("DELETE", "/api/delete", {"model": "twin"}).status, 200)
        self.assertEqual(self.call("DELETE", "/api/delete", {"name": "twin"}).status, 404)
        self.assertFalse(os.path.exists(self.path("models/twin.gguf")))
        self.assertNotIn("twin:latest", self.loaded())
        self.refused(404, ["twin"], "/api/generate", model="twin", prompt="a")

    def refused_copy(self, status, source, destination):
        reply = self.post("/api/copy", source=source, destination=destination)
        self.assertEqual(reply.status, status, reply)
        self.assertLessEqual(set(reply.json), {"error", "code"})

    def test_who_is_there(self):
        self.assertEqual(self.call("GET", "/").text, "Ollama is running")
        version = self.call("GET", "/api/version").json["version"]
        self.assertGreaterEqual([int(part) for part in version.split(".")], [0, 6, 4])  # what VS Code's Copilot demands

    def test_names_of_tags_are_good_everywhere(self):
        """VS Code's Copilot lists models here and asks OpenAI's endpoint."""
        self.assertIn("toy:latest", [model["name"] for model in self.call("GET", "/api/tags").json["models"]])
        for path, question in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "the fox"}]}),
                               ("/v1/completions", {"prompt": "the fox"}), ("/api/native/generate", {"prompt": "the fox"}),
                               ("/tokenize", {"content": "the fox"})):
            reply = self.post(path, model="toy:latest", **({} if path == "/tokenize" else {"max_tokens": 2}), **question)
            self.assertEqual(reply.status, 200, (path, reply))
        self.assertEqual(self.call("GET", "/v1/models/toy:latest").json["id"], "toy")
        self.assertEqual(self.call("GET", "/api/models/toy:latest").json["name"], "toy")
        self.assertEqual(self.call("GET", "/v1/models/toy:other").status, 404)

    def test_what_is_not_offered_says_so(self):
        self.refused(400, ["not offered"], "/api/push", model="other")


class StartedWithNames(OllamaTest):
    """A server that offers one model of the store, by its name."""
    names = ("toy",)

    def test_a_copy_that_nobody_could_use_is_refused(self):
        reply = self.post("/api/copy", source="toy", destination="twin")
        self.assertEqual((reply.status, reply.json["code"]), (400, "unsupported"), reply)
        self.assertFalse(os.path.exists(self.path("models/twin.gguf")))

    def test_what_is_removed_is_listed_no_more(self):
        def listed():
            return ([model["id"] for model in self.call("GET", "/v1/models").json["data"]],
                    [model["name"] for model in self.call("GET", "/api/models").json],
                    [model["name"] for model in self.call("GET", "/api/tags").json["models"]])
        self.assertEqual(listed(), (["toy"], ["toy"], ["toy:latest"]))
        self.answer("/api/generate", prompt="the fox")
        self.assertEqual(self.call("DELETE", "/api/delete", {"model": "toy"}).status, 200)
        deadline = time.monotonic() + TIMEOUT
        while listed() != ([], [], []):  # until it is unloaded
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(self.post("/v1/completions", model="toy", prompt="a").status, 404)
        self.assertEqual(self.post("/v1/completions", prompt="a").status, 404)


if __name__ == "__main__":
    unittest.main()

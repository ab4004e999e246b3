#!/usr/bin/env python3
"""The `ollama` package, unchanged, against the server: answers, streams, vectors, models, errors, cancellation."""
import asyncio
import math
import os
import time
import unittest

import httpx
import ollama

from client_harness import ClientTest
from registry import Registry

GREEDY = {"temperature": 0, "num_predict": 8}
# The toy called long repeats itself after this prompt until it may not go on.
ENDLESS = {"model": "long", "prompt": "a", "raw": True,
           "options": {"temperature": 0, "repeat_penalty": 1, "num_predict": 60000}}
HELLO = [{"role": "user", "content": "Hello"}]


class OllamaTest(ClientTest):
    def setUp(self):
        self.client = ollama.Client(host=self.address)
        self.addCleanup(self.client.close)

    def fails(self, status, call, *words):
        with self.assertRaises(ollama.ResponseError) as caught:
            call()
        self.assertEqual(caught.exception.status_code, status, caught.exception)
        for word in words:
            self.assertIn(word, caught.exception.error)
        return caught.exception


class Answers(OllamaTest):
    def test_chat(self):
        answer = self.client.chat("toy", HELLO, options=GREEDY)
        self.assertEqual((answer.model, answer.done, answer.message.role), ("toy", True, "assistant"))
        self.assertTrue(answer.message.content)
        self.assertGreater(answer.eval_count, 0)
        self.assertGreater(answer.total_duration, 0)
        parts = list(self.client.chat("toy", HELLO, options=GREEDY, stream=True))
        self.assertEqual("".join(part.message.content for part in parts), answer.message.content)
        self.assertEqual([part.done for part in parts][-2:], [False, True])

    def test_generate(self):
        answer = self.client.generate("toy", "Hello", options=GREEDY)
        self.assertEqual((answer.model, answer.done), ("toy", True))
        self.assertIn(answer.done_reason, ("stop", "length"))
        parts = list(self.client.generate("toy", "Hello", options=GREEDY, stream=True))
        self.assertEqual("".join(part.response for part in parts), answer.response)
        again = self.client.generate("toy", "And then?", context=answer.context, options=GREEDY)
        self.assertGreater(len(again.context), len(answer.context))
        self.client.generate("toy", "Hello", raw=True, options=GREEDY)
        self.client.generate("toy", "Hello", system="Be brief.", options=GREEDY, keep_alive="5m")

    def test_logprobs(self):
        answer = self.client.chat("toy", HELLO, logprobs=True, top_logprobs=2, options=GREEDY)
        self.assertEqual(len(answer.logprobs), answer.eval_count)
        for token in answer.logprobs:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 2)

    def test_options_as_the_package_writes_them(self):
        options = ollama.Options(num_ctx=128, num_keep=4, seed=42, num_predict=4, top_k=20, top_p=0.9, typical_p=0.7,
                                 repeat_last_n=33, temperature=0.8, repeat_penalty=1.2, presence_penalty=1.5,
                                 frequency_penalty=1.0, stop=["never"], numa=False, num_batch=2, num_gpu=1, main_gpu=0,
                                 low_vram=False, use_mmap=True, num_thread=8)
        self.assertEqual(self.client.generate("toy", "Hello", options=options).response,
                         self.client.generate("toy", "Hello", options=options).response)

    def test_vectors(self):
        answer = self.client.embed("vectors", ["a fox", "a dog"])
        self.assertEqual(len(answer.embeddings), 2)
        for vector in answer.embeddings:
            self.assertAlmostEqual(math.fsum(value * value for value in vector), 1.0, places=3)
        self.assertEqual(len(self.client.embed("vectors", "a fox").embeddings), 1)
        self.assertEqual(len(self.client.embeddings("vectors", "a fox").embedding), len(answer.embeddings[0]))
        self.client.embed("vectors", "a fox", truncate=True, keep_alive=60, options={"num_ctx": 32})

    def test_models(self):
        listed = {model.model: model for model in self.client.list().models}
        self.assertLessEqual({"toy:latest", "vectors:latest"}, set(listed))
        self.assertEqual(listed["toy:latest"].details.format, "gguf")
        self.assertGreater(listed["toy:latest"].size, 0)
        shown = self.client.show("toy")
        self.assertIn("completion", shown.capabilities)
        self.assertEqual(shown.details.format, "gguf")
        self.assertTrue(shown.modelinfo)
        self.client.generate("toy", "Hello", options=GREEDY, keep_alive=300)
        loaded = {model.model: model for model in self.client.ps().models}
        self.assertGreater(loaded["toy:latest"].expires_at.timestamp(), time.time())
        self.assertEqual(loaded["toy:latest"].context_length > 0, True)

    def test_load_and_unload(self):
        self.assertEqual(self.client.generate("toy", keep_alive="1h").done_reason, "load")
        self.assertIn("toy:latest", [model.model for model in self.client.ps().models])
        self.assertEqual(self.client.generate("toy", keep_alive=0).done_reason, "unload")
        end = time.monotonic() + 30
        while "toy:latest" in [model.model for model in self.client.ps().models]:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_as_a_task(self):
        async def scene():
            client = ollama.AsyncClient(host=self.address)
            whole = await client.chat("toy", HELLO, options=GREEDY)
            parts = [part.message.content async for part in await client.chat("toy", HELLO, options=GREEDY, stream=True)]
            self.assertEqual("".join(parts), whole.message.content)
            answers = await asyncio.gather(*(client.generate("toy", "Hello", options=GREEDY) for _ in range(8)))
            self.assertEqual(len({answer.response for answer in answers}), 1)
            await client.close()
        asyncio.run(scene())


class Errors(OllamaTest):
    def test_what_is_not_there(self):
        self.fails(404, lambda: self.client.chat("nobody", HELLO), "nobody", "not found")
        self.fails(404, lambda: list(self.client.chat("nobody", HELLO, stream=True)), "not found")
        self.fails(404, lambda: self.client.show("nobody"))
        self.fails(404, lambda: self.client.delete("nobody"))

    def test_what_is_refused(self):
        self.fails(400, lambda: self.client.chat("toy", HELLO, format="json"), "format")
        self.fails(400, lambda: self.client.chat("toy", HELLO, think=True), "think")
        self.fails(400, lambda: self.client.chat("toy", HELLO, tools=[
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]), "tools")
        self.fails(400, lambda: self.client.generate("toy", "x", suffix="y"), "suffix")
        self.fails(400, lambda: self.client.generate("toy", "x", width=64, height=64), "width")
        self.fails(400, lambda: self.client.generate("toy", "x", options={"temprature": 1}), "temperature")
        self.fails(400, lambda: self.client.generate("toy", "word " * 5000))

    def test_neutral_values(self):
        self.client.chat("toy", HELLO, think=False, format="", tools=[], logprobs=False, options=GREEDY)

    def test_a_model_that_cannot_be_loaded(self):
        error = self.fails(500, lambda: self.client.generate("broken", "x"))
        self.assertNotIn(".gguf", error.error)

    def test_keys(self):
        server = self.start_server(self.toy, "--threads", "1", QUARREL_API_KEY="a-key-for-the-tests")
        address = f"http://127.0.0.1:{server.port}"
        wrong = ollama.Client(host=address)
        self.addCleanup(wrong.close)
        self.fails(401, wrong.list)
        right = ollama.Client(host=address, headers={"Authorization": "Bearer a-key-for-the-tests"})
        self.addCleanup(right.close)
        self.assertEqual(len(right.list().models), 1)

    def test_only_admins_change_models(self):
        keys = self.path("keys.json")
        guest, boss = self.make_key(keys, "guest"), self.make_key(keys, "boss", "--admin")
        server = self.start_server(self.toy, "--threads", "1", "--keys", keys)
        for key, status, word in ((guest, 403, "admin"), (boss, 400, "started with")):
            client = ollama.Client(host=f"http://127.0.0.1:{server.port}", headers={"Authorization": f"Bearer {key}"})
            self.addCleanup(client.close)
            self.assertEqual(len(client.list().models), 1)
            self.fails(status, lambda: client.delete("toy"), word)

    def test_nobody_there(self):
        server = self.start_server(self.toy, "--threads", "1")
        server.stop()
        with self.assertRaises(ConnectionError):
            ollama.Client(host=f"http://127.0.0.1:{server.port}").list()


class Cancellation(OllamaTest):
    """One answer at a time: the next one begins only when the one before has ended."""
    arguments = ("--threads", "1", "--parallel", "1", "--cache-tokens", "64k")

    def test_a_stream_that_is_closed(self):
        stream = self.client.generate(**ENDLESS, stream=True)
        for _, part in zip(range(5), stream):
            self.assertFalse(part.done)
        stream.close()
        begun = time.monotonic()
        self.client.generate("long", "Hello", options={"num_predict": 2})
        self.assertLess(time.monotonic() - begun, 20)

    def test_a_client_that_waits_no_longer(self):
        hasty = ollama.Client(host=self.address, timeout=1)
        self.addCleanup(hasty.close)
        with self.assertRaises(httpx.TimeoutException):
            hasty.generate(**ENDLESS)
        begun = time.monotonic()
        self.client.generate("long", "Hello", options={"num_predict": 2})
        self.assertLess(time.monotonic() - begun, 20)


class Store(OllamaTest):
    """Models come into the server's own store and go again: from a registry of this machine, and made of others."""

    @classmethod
    def prepare(cls):
        with open(cls.toy, "rb") as file:
            cls.weights = file.read()
        os.rename(cls.toy, cls.path("models/toy.gguf"))
        cls.models = []
        cls.registry = Registry()
        cls.addClassCleanup(cls.registry.close)
        cls.arguments = (*ClientTest.arguments, "--registry", cls.registry.url)

    def names(self):
        return {model.model for model in self.client.list().models}

    def test_pull(self):
        model = self.registry.add_blob("model", self.weights)
        self.registry.add_model("1b", model)
        self.assertEqual(self.client.pull("toy:1b").status, "success")
        self.assertIn("toy:1b", self.names())
        self.client.generate("toy:1b", "Hello", options=GREEDY)
        self.client.delete("toy:1b")
        self.assertNotIn("toy:1b", self.names())
        news = list(self.client.pull("toy:1b", stream=True))
        self.assertEqual((news[0].status, news[-1].status), ("pulling manifest", "success"))
        told = [each for each in news if each.digest == model["digest"]]
        self.assertEqual((told[-1].total, told[-1].completed), (len(self.weights), len(self.weights)))
        self.client.delete("toy:1b")
        self.fails(404, lambda: self.client.pull("toy:nowhere"))
        self.fails(400, lambda: self.client.pull("elsewhere.example/me/toy"), "elsewhere.example")

    def test_create(self):
        self.assertEqual(self.client.create("pirate", from_="toy", system="You are a pirate.",
                                            parameters={"temperature": 0, "num_predict": 3}).status, "success")
        self.assertIn("pirate:latest", self.names())
        self.assertIn("temperature", self.client.show("pirate").parameters)
        plain, pirate = (self.client.chat(name, HELLO, options=GREEDY) for name in ("toy", "pirate"))
        self.assertGreater(pirate.prompt_eval_count, plain.prompt_eval_count, "the system prompt counts")
        self.assertEqual([each.status for each in self.client.create("pirate", from_="toy", stream=True)][-1], "success")
        self.client.delete("pirate")
        self.assertNotIn("pirate:latest", self.names())
        self.fails(404, lambda: self.client.create("pirate", from_="nobody"))

    def test_copy_and_delete(self):
        self.client.copy("toy", "other")
        self.assertIn("other:latest", [model.model for model in self.client.list().models])
        self.client.generate("other", "Hello", options=GREEDY)
        self.client.delete("other")
        self.assertNotIn("other:latest", [model.model for model in self.client.list().models])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Models under control: which there are, loading and unloading, exchange under load, files that break, clients that die."""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest

from harness import TIMEOUT
from serve_harness import ServeTest

CONTEXT = 512


class ModelTest(ServeTest):
    """A server of the models in a store."""

    @classmethod
    def prepare(cls):
        cls.models = []
        cls.first = cls.make_toy("chat", "first.gguf", CONTEXT, 1)
        cls.second = cls.make_toy("chat", "second.gguf", CONTEXT, 2)
        shutil.copy(cls.first, cls.path("models/toy.gguf"))
        cls.make_toy("embed", "models/vectors.gguf")
        cls.arguments = ("--cache-tokens", "16k", "--threads", "2", "--text-threads", "2")

    def get(self, path):
        status, _, data = self.server.request("GET", path)
        return status, json.loads(data)

    def control(self, model, verb, **body):
        return self.server.post(f"/api/models/{model}/{verb}", body)

    def question(self, prompt, tokens=24, **options):
        return {"model": "toy", "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens, "temperature": 0,
                "logit_bias": {"0": -100, "2": -100}, **options}

    def ask(self, prompt, **options):
        status, answer = self.server.post("/v1/chat/completions", self.question(prompt, **options))
        self.assertEqual(status, 200, answer)
        return answer

    def text(self, prompt, **options):
        return self.ask(prompt, **options)["choices"][0]["message"]["content"]

    def wait_until(self, condition):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def put(self, source, name="toy"):
        """At once: whoever has the old file open keeps it."""
        shutil.copy(source, self.path("new"))
        os.rename(self.path("new"), self.path(f"models/{name}.gguf"))

    def loaded(self, name="toy"):
        return self.get(f"/api/models/{name}")[1]["loaded"]


class Listing(ModelTest):
    def test_all_and_one(self):
        status, models = self.get("/api/models")
        self.assertEqual(status, 200)
        self.assertEqual({model["name"] for model in models}, {"toy", "vectors"})
        for model in models:
            self.assertEqual(set(model), {"name", "loaded", "state", "parameters", "quantization", "size"})
            self.assertTrue(model["parameters"] and model["quantization"], model)
        self.assertEqual(self.control("toy", "load")[0], 200)
        status, toy = self.get("/api/models/toy")
        self.assertEqual((toy["loaded"], toy["state"], toy["context_length"]), (True, "loaded", CONTEXT))
        self.assertGreater(toy["memory_usage"], 0)
        self.assertEqual(toy["family"], "llama")
        self.assertEqual(toy["capabilities"], ["completion"])
        self.assertEqual(self.get("/api/models/vectors")[1]["capabilities"], ["embedding"])
        self.assertEqual(toy["size"], os.path.getsize(self.first))
        self.assertNotIn(self.folder, json.dumps([models, toy]))
        for name in ("nobody", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", self.first.replace("/", "%2f")):
            self.assertIn(self.server.request("GET", f"/api/models/{name}")[0], (400, 404), name)
            self.assertIn(self.server.request("POST", f"/api/models/{name}/load")[0], (400, 404), name)

    def test_methods_and_bodies(self):
        status, headers, _ = self.server.request("GET", "/api/models/toy/load")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertEqual(self.control("toy", "load", relod=True)[0], 400)
        self.assertEqual(self.control("toy", "unload", reload=True)[0], 400)


class Loading(ModelTest):
    def news(self, path, headers, **body):
        status, found, data = self.server.request("POST", path, {"stream": True, **body}, headers)
        self.assertEqual(status, 200, data)
        return found["Content-Type"], data.decode()

    def test_news_in_lines_and_in_events(self):
        self.control("toy", "unload")
        kind, text = self.news("/api/models/toy/load", {})
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertEqual(kind, "application/x-ndjson")
        self.assertEqual(lines[0], {"status": "loading"})
        self.assertIn({"status": "warming"}, lines)
        done = [line for line in lines if "completed" in line]
        self.assertEqual(done[-1]["completed"], done[-1]["total"])
        self.assertEqual((lines[-1]["status"], lines[-1]["model"], lines[-1]["context_length"]), ("ready", "toy", CONTEXT))
        kind, text = self.news("/api/models/toy/unload", {"Accept": "text/event-stream"})
        self.assertEqual(kind, "text/event-stream")
        events = [json.loads(frame[6:]) for frame in text.split("\n\n")[:-1]]
        self.assertEqual([event["status"] for event in events], ["unloading", "unloaded"])
        self.assertFalse(self.loaded())
        self.assertEqual(self.control("toy", "unload"), (200, {"status": "not_loaded", "model": "toy"}))

    def test_without_a_body_and_how_long_it_stays(self):
        status, _, data = self.server.request("POST", "/api/models/vectors/load")
        self.assertEqual((status, json.loads(data)["status"]), (200, "ready"))
        self.assertEqual(self.control("vectors", "load", keep_alive=0)[0], 200)
        self.wait_until(lambda: not self.loaded("vectors"))

    def test_unloading_waits_for_who_uses_it(self):
        self.control("toy", "load")
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/chat/completions", json.dumps(self.question("a", 300, stream=True)))
        answer = connection.getresponse()
        answer.readline()
        unloading = threading.Thread(target=self.control, args=("toy", "unload"))
        unloading.start()
        self.assertIn(b"[DONE]", answer.read())
        unloading.join(TIMEOUT)
        self.assertFalse(unloading.is_alive())
        self.assertFalse(self.loaded())

    def test_the_cache_is_cleared(self):
        prompt = "the fox and the dog " * 8
        cached = lambda: self.ask(prompt, tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
        cached()
        self.assertGreater(cached(), 0)
        status, _, data = self.server.request("DELETE", "/api/models/toy/cache")
        self.assertEqual((status, json.loads(data)), (200, {"status": "cleared", "model": "toy"}))
        self.assertEqual(cached(), 0)
        self.control("vectors", "unload")
        self.assertEqual(json.loads(self.server.request("DELETE", "/api/models/vectors/cache")[2])["status"], "not_loaded")


class Exchange(ModelTest):
    STREAMS = 100

    def stream(self, prompt, begun, results):
        connection = self.server.connect()
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(self.question(prompt, stream=True)))
            answer = connection.getresponse()
            pieces, reason, done = [], None, False
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    done = True
                elif line.startswith(b"data: "):
                    choice = json.loads(line[6:])["choices"][0]
                    pieces.append(choice["delta"].get("content", ""))
                    reason = choice["finish_reason"] or reason
                    begun.set()
            results[prompt] = ("".join(pieces), reason, done)
        finally:
            connection.close()

    def test_hot_swap_under_100_streams_loses_none(self):
        prompts = [f"the fox {number}" for number in range(self.STREAMS)]
        old = {prompt: self.text(prompt) for prompt in prompts}
        results, threads, begun = {}, [], [threading.Event() for _ in prompts]
        for prompt, event in zip(prompts, begun):
            threads.append(threading.Thread(target=self.stream, args=(prompt, event, results)))
            threads[-1].start()
        self.assertTrue(begun[0].wait(TIMEOUT))
        self.put(self.second)
        status, answer = self.control("toy", "load", reload=True)
        self.assertEqual((status, answer["status"]), (200, "ready"), answer)
        after = self.text(prompts[0])
        for thread in threads:
            thread.join(TIMEOUT)
        self.assertEqual(len(results), self.STREAMS)
        new = {prompt: self.text(prompt) for prompt in prompts}
        self.assertEqual(after, new[prompts[0]])
        self.assertNotEqual(after, old[prompts[0]])
        for prompt, (text, reason, done) in results.items():
            self.assertEqual((reason, done), ("length", True), prompt)
            self.assertIn(text, (old[prompt], new[prompt]), prompt)
        self.assertIn(old[prompts[0]], [text for text, _, _ in results.values()], "some were under way")

    def test_a_failed_load_leaves_the_old_model_serving(self):
        self.put(self.first)
        self.control("toy", "load", reload=True)
        before = self.text("the fox")
        with open(self.path("broken"), "wb") as file:
            file.write(b"GGUF and then nothing of use")
        self.put(self.path("broken"))
        status, answer = self.control("toy", "load", reload=True)
        self.assertEqual((status, answer["code"]), (500, "model_failed"))
        self.assertNotIn(self.folder, answer["error"])
        time.sleep(1.1)  # the list of the store is looked at anew
        self.assertEqual(self.text("the fox"), before)
        # What is served is told as far as it is known, and what has become of its file.
        status, told = self.get("/api/models/toy")
        self.assertEqual((status, told["state"], told["loaded"]), (200, "loaded", True), told)
        self.assertIn("cannot be read as a model", told["problem"])
        self.assertIn("goes on serving", told["problem"])
        self.assertGreater(told["memory_usage"], 0)
        self.assertNotIn(self.folder, json.dumps(told))
        status, running = self.get("/api/ps")
        self.assertEqual((status, [model["name"] for model in running["models"]]), (200, ["toy:latest"]), running)
        os.remove(self.path("models/toy.gguf"))
        status, told = self.get("/api/models/toy")
        self.assertEqual((status, told["state"]), (200, "loaded"), told)
        self.assertIn("not there any more", told["problem"])
        self.put(self.first)
        self.assertEqual(self.control("toy", "load", reload=True)[0], 200)
        self.assertNotIn("problem", self.get("/api/models/toy")[1])
        self.assertEqual(self.text("the fox"), before)

    def test_a_file_that_breaks_before_it_is_loaded(self):
        file = self.path("named.gguf")
        shutil.copy(self.first, file)
        server = self.start_server(file)
        with open(file, "wb") as broken:
            broken.write(b"GGUF and then nothing of use")
        status, _, data = server.request("GET", "/api/models/named")
        told = json.loads(data)
        self.assertEqual((status, told["state"], told["loaded"]), (200, "unloaded", False), told)
        self.assertIn("cannot be read as a model", told["problem"])
        self.assertNotIn("goes on serving", told["problem"])
        os.remove(file)
        self.assertEqual(server.request("GET", "/api/models/named")[0], 404)


class Faults(ModelTest):
    @classmethod
    def prepare(cls):
        super().prepare()
        shutil.copy(cls.first, cls.path("models/other.gguf"))
        cls.arguments += ("--no-repack",)  # computed from the mapped file itself

    def test_a_file_that_is_cut_short_ends_its_requests_alone(self):
        expected = self.text("the fox")
        self.assertEqual(self.text("the fox", model="other"), expected)
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/chat/completions", json.dumps(self.question("a", 450, stream=True)))
        answer = connection.getresponse()
        answer.readline()
        with open(self.path("models/toy.gguf"), "r+b") as file:
            file.truncate(4096)
        frames = answer.read()
        self.assertIn(b'"error"', frames)
        self.assertNotIn(self.folder.encode(), frames)
        self.assertEqual(self.text("the fox", model="other"), expected)
        status, refused = self.server.post("/v1/chat/completions", self.question("the fox"))
        self.assertGreaterEqual(status, 400)
        self.assertEqual(list(refused), ["error"])
        self.assertEqual(self.server.request("GET", "/healthz")[0], 200)
        self.put(self.first)
        self.assertEqual(self.text("the fox"), expected, "nobody has to ask for a reload")

    def test_kill_9_of_a_client_ends_only_its_request(self):
        log = self.path("killed.log")
        server = self.start_server(self.make_toy("chat", "long.gguf", 65536, 1), "--parallel", "2", "--cache-tokens", "128k",
                                   "--log-file", log)
        question = {**self.question("the fox", 64), "model": "long"}
        expected = server.post("/v1/chat/completions", question)[1]["choices"][0]
        # It reads all the while: nobody is cut off for not reading.
        client = subprocess.Popen([sys.executable, "-c", (
            "import http.client, sys\n"
            f"c = http.client.HTTPConnection('127.0.0.1', {server.port})\n"
            "c.request('POST', '/v1/chat/completions', sys.argv[1], {'x-request-id': 'killed'})\n"
            "answer = c.getresponse()\n"
            "answer.readline()\n"
            "print('begun', flush=True)\n"
            "answer.read()\n"), json.dumps({**question, "max_tokens": 60000, "stream": True})], stdout=subprocess.PIPE)
        self.addCleanup(client.stdout.close)
        self.assertEqual(client.stdout.readline(), b"begun\n")
        client.send_signal(signal.SIGKILL)
        client.wait()
        self.assertEqual(server.post("/v1/chat/completions", question)[1]["choices"][0], expected)
        self.wait_until(lambda: not json.loads(server.request("GET", "/api/models/long")[2])["in_use"])
        self.assertEqual(server.request("GET", "/healthz")[0], 200)
        self.assertEqual(server.stop()[0], 0)
        with open(log, encoding="utf-8") as file:
            killed = next(line for line in map(json.loads, file) if line.get("id") == "killed")
        self.assertEqual((killed["status"], killed["finish_reason"], "error" in killed), (200, "cancelled", False), killed)
        self.assertLess(killed["generated_tokens"], 60000)


if __name__ == "__main__":
    unittest.main()

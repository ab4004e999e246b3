#!/usr/bin/env python3
"""Models that come into the store over the network: pulled from a registry of this machine, and made of others."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import threading
import time
import unittest

from harness import QUARREL, TIMEOUT
from registry import Registry
from serve_harness import ServeTest


class StoreTest(ServeTest):
    """A server of the models in a store, and a registry that it may pull from."""

    @classmethod
    def prepare(cls):
        cls.models = []
        shutil.copy(cls.toy, cls.path("models/toy.gguf"))
        cls.make_toy("embed", "models/vectors.gguf")
        cls.registry = Registry()
        cls.addClassCleanup(cls.registry.close)
        cls.arguments = ("--registry", cls.registry.url, "--ctx", "256", "--cache-tokens", "1k", "--threads", "1")
        with open(cls.toy, "rb") as file:
            cls.weights = file.read()

    def setUp(self):
        self.registry.documents.clear()
        self.registry.requests.clear()
        self.registry.cut_after = self.registry.redirect_to = self.registry.hold = None
        self.registry.no_ranges = False

    def lines(self, path, **body):
        status, headers, data = self.server.request("POST", path, body)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/x-ndjson"), data)
        return [json.loads(line) for line in data.splitlines()]

    def refused(self, status, words, path, **body):
        found, answer = self.server.post(path, {"stream": False, **body})
        self.assertEqual(found, status, answer)
        self.assertLessEqual(set(answer), {"error", "code"})
        if self.folder not in json.dumps(body):  # what it was told it may say
            self.assertNotIn(self.folder, answer["error"])
        for word in words:
            self.assertIn(word, answer["error"])

    def names(self):
        return {model["name"] for model in json.loads(self.server.request("GET", "/api/models")[2])}

    def remove(self, name):
        self.assertEqual(self.server.request("DELETE", "/api/delete", {"model": name})[0], 200)

    def chat(self, model, **options):
        status, answer = self.server.post("/v1/chat/completions", {
            "model": model, "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 4, "temperature": 0,
            **options})
        self.assertEqual(status, 200, answer)
        return answer


class Pull(StoreTest):
    def test_a_model_comes_with_its_settings(self):
        model = self.registry.add_blob("model", self.weights)
        self.registry.add_model("1b", model, self.registry.add_blob("system", b"be a pirate"),
                                self.registry.add_blob("params", b'{"stop":["<end>"],"temperature":0}'),
                                self.registry.add_blob("template", b"{{ .Prompt }}"),
                                self.registry.add_blob("license", b"MIT"))
        lines = self.lines("/api/pull", model="toy:1b")
        self.assertEqual(lines[0], {"status": "pulling manifest"})
        self.assertEqual([line["status"] for line in lines[-3:]], ["verifying sha256 digest", "writing manifest", "success"])
        done = [line for line in lines if line.get("digest") == model["digest"]]
        self.assertEqual(done[-1], {"status": "pulling " + model["digest"][7:19], "digest": model["digest"],
                                    "total": len(self.weights), "completed": len(self.weights)})
        self.assertEqual([line.get("completed", 0) for line in done], sorted(line.get("completed", 0) for line in done))
        self.assertIn("toy:1b", self.names())
        shown = self.server.post("/api/show", {"model": "toy:1b"})[1]
        self.assertEqual((shown["system"], shown["license"]), ("be a pirate", "MIT"))
        tags = {each["name"]: each for each in json.loads(self.server.request("GET", "/api/tags")[2])["models"]}
        self.assertEqual(tags["toy:1b"]["digest"], model["digest"][7:])
        plain, pirate = self.chat("toy"), self.chat("toy:1b")
        self.assertGreater(pirate["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"], "the system prompt counts")
        self.remove("toy:1b")
        self.assertNotIn("toy:1b", self.names())

    def test_one_object_for_who_wants_no_stream(self):
        self.registry.add_model("latest", self.registry.add_blob("model", self.weights, "me/thing"),
                                repository="me/thing")
        self.assertEqual(self.server.post("/api/pull", {"name": "me/thing", "stream": False}),
                         (200, {"status": "success"}))
        status, _, data = self.server.request("GET", "/api/models/me%2Fthing")
        self.assertEqual((status, json.loads(data)["name"]), (200, "me/thing"))
        self.remove("me/thing")

    def test_a_broken_download_goes_on(self):
        model = self.registry.add_blob("model", self.weights)
        self.registry.add_model("cut", model)
        self.registry.cut_after = len(self.weights) // 2 + 1
        self.assertEqual(self.lines("/api/pull", model="toy:cut")[-1], {"status": "success"})
        ranges = [asked for path, asked in self.registry.requests if "/blobs/" in path]
        self.assertEqual(ranges, [None, f"bytes={self.registry.cut_after}-"])
        self.chat("toy:cut")
        self.remove("toy:cut")

    def requests_in_flight(self):
        connection = self.server.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return float(re.search(r"^quarrel_http_requests_in_flight (\S+)$", text, re.MULTILINE).group(1))

    def test_who_leaves_ends_the_pull_and_the_next_one_goes_on(self):
        model = self.registry.add_blob("model", self.weights)
        self.registry.add_model("gone", model)
        self.registry.hold = threading.Event()
        connection = self.server.connect()
        connection.request("POST", "/api/pull", json.dumps({"model": "toy:gone"}))
        answer = connection.getresponse()
        partial = self.path("models/.pull-" + model["digest"][7:])
        deadline = time.monotonic() + TIMEOUT
        while not (os.path.exists(partial) and os.path.getsize(partial) >= len(self.weights) // 2):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        answer.close()
        connection.close()
        while self.requests_in_flight() > 1:  # this one: the server has noticed that the other has gone
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.registry.hold.set()
        self.registry.hold = None
        self.assertEqual(self.lines("/api/pull", model="toy:gone")[-1], {"status": "success"})
        self.assertRegex(self.registry.requests[-1][1] or "", r"bytes=\d+-")
        self.assertFalse(os.path.exists(partial))
        self.remove("toy:gone")

    def test_what_is_not_as_its_digest_says_is_refused(self):
        model = self.registry.add_blob("model", self.weights)
        self.registry.add_model("bad", model)
        path = "/v2/library/toy/blobs/" + model["digest"]
        self.registry.documents[path] = self.weights[:-1] + bytes([self.weights[-1] ^ 1])
        self.assertIn("SHA-256", self.lines("/api/pull", model="toy:bad")[-1]["error"])
        self.refused(502, ["SHA-256"], "/api/pull", model="toy:bad")
        self.registry.add_model("bad", {**model, "digest": "sha256:../../../toy"})
        self.refused(502, ["digest"], "/api/pull", model="toy:bad")
        self.registry.add_model("bad", self.registry.add_blob("model", b"no model at all"))
        self.refused(502, ["GGUF"], "/api/pull", model="toy:bad")
        self.assertNotIn("toy:bad", self.names())
        self.assertEqual([name for name in os.listdir(self.path("models")) if name.startswith(".pull")], [])

    def test_only_hosts_of_the_settings_are_asked(self):
        other = Registry()
        self.addCleanup(other.close)
        model = self.registry.add_blob("model", self.weights)
        self.registry.add_model("away", model)
        other.documents = dict(self.registry.documents)
        self.registry.redirect_to = other.url
        self.refused(400, ["may not be fetched from"], "/api/pull", model="toy:away")
        self.refused(400, ["may not be fetched from"], "/api/pull", model=f"127.0.0.1:{other.port}/library/toy:away")
        self.assertEqual(other.requests, [])
        for name in ("toy:away", f"127.0.0.1:{self.registry.port}/library/toy:away"):
            server = self.start_server("--registry", self.registry.url, "--pull-host", f"127.0.0.1:{other.port}",
                                       QUARREL_MODELS=self.path("elsewhere"))
            self.assertEqual(server.post("/api/pull", {"model": name, "stream": False}), (200, {"status": "success"}))
            server.stop()
        self.assertEqual(len(other.requests), 1, "the second time the store has the weights")

    def test_a_registry_has_to_prove_who_it_is(self):
        certificate = self.path("registry.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", certificate + ".key", "-out",
                        certificate + ".crt"], check=True, stderr=subprocess.DEVNULL)
        with open(certificate, "wb") as both:
            for part in (".key", ".crt"):
                with open(certificate + part, "rb") as file:
                    both.write(file.read())
        secure = Registry(certificate)
        self.addCleanup(secure.close)
        secure.add_model("tls", secure.add_blob("model", self.weights))
        asked = {"model": "toy:tls", "stream": False}
        trusting = self.start_server("--registry", secure.url, QUARREL_MODELS=self.path("tls"),
                                     SSL_CERT_FILE=certificate + ".crt")
        self.assertEqual(trusting.post("/api/pull", asked), (200, {"status": "success"}))
        wary = self.start_server("--registry", secure.url, QUARREL_MODELS=self.path("wary"))
        status, answer = wary.post("/api/pull", asked)
        self.assertEqual(status, 502)
        self.assertIn("prove who it is", answer["error"])

    def test_what_the_disk_cannot_hold_is_no_fault_of_the_registry(self):
        layer = {**self.registry.add_blob("model", self.weights), "size": 2**43}
        self.registry.add_model("huge", layer)
        self.refused(507, ["bytes left", str(2**43)], "/api/pull", model="toy:huge")
        # A store that is no folder.
        with open(self.path("a-file"), "w", encoding="utf-8"):
            pass
        self.registry.add_model("whole", self.registry.add_blob("model", self.weights))
        nowhere = self.start_server(*self.arguments, QUARREL_MODELS=self.path("a-file/models"))
        status, answer = nowhere.post("/api/pull", {"model": "toy:whole", "stream": False})
        self.assertEqual(status, 500, answer)
        self.assertIn("the model store cannot be written: Not a directory", answer["error"])

    def test_what_cannot_be_pulled(self):
        self.refused(404, ["does not have"], "/api/pull", model="toy:absent")
        self.refused(400, ["default"], "/api/pull", model="default")
        for name in ("../toy", "a/../../b/c", "/etc/passwd", "http://127.0.0.1/a/b/c", "a b"):
            self.refused(400, [], "/api/pull", model=name)
        self.refused(400, ["insecure"], "/api/pull", model="toy", insecure=True)
        named = self.start_server(self.toy, "--registry", self.registry.url)
        self.assertEqual(named.post("/api/pull", {"model": "toy"})[0], 400)
        bare = self.start_server()
        status, answer = bare.post("/api/pull", {"model": "toy"})
        self.assertEqual(status, 400)
        self.assertIn("no registry", answer["error"])

    def test_a_pulled_model_takes_the_place_of_the_loaded_one(self):
        self.registry.add_model("swap", self.registry.add_blob("model", self.weights))
        self.lines("/api/pull", model="toy:swap")
        before = self.chat("toy:swap")
        self.registry.add_model("swap", self.registry.add_blob("model", self.weights),
                                self.registry.add_blob("system", b"the dog"))
        self.lines("/api/pull", model="toy:swap")
        deadline = time.monotonic() + TIMEOUT
        while self.chat("toy:swap")["usage"]["prompt_tokens"] == before["usage"]["prompt_tokens"]:
            self.assertLess(time.monotonic(), deadline)
        self.remove("toy:swap")


    def test_what_is_loaded_under_another_spelling_is_renewed_too(self):
        asked = {"model": "Beta", "messages": [{"role": "user", "content": "hi"}]}
        for way in ("create", "pull"):
            shutil.copy(self.toy, self.path("models/Beta.gguf"))
            before = self.server.post("/apply-template", asked)[1]["prompt"]
            if way == "create":
                self.lines("/api/create", model="bETA", **{"from": "toy"}, system="the dog")
            else:
                self.registry.add_model("latest", self.registry.add_blob("model", self.weights, "library/beta"),
                                        self.registry.add_blob("system", b"the dog", "library/beta"),
                                        repository="library/beta")
                self.lines("/api/pull", model="beta")
            deadline = time.monotonic() + TIMEOUT
            while self.server.post("/apply-template", asked)[1]["prompt"] == before:
                self.assertLess(time.monotonic(), deadline, way)
            self.remove("Beta")

    def test_nothing_is_called_like_a_part(self):
        name = "toy-00001-of-00002"
        self.registry.add_model("latest", self.registry.add_blob("model", self.weights, "library/" + name),
                                repository="library/" + name)
        for path, body in (("/api/pull", {"model": name, "stream": False}),
                           ("/api/create", {"model": name, "from": "toy", "stream": False}),
                           ("/api/copy", {"source": "toy", "destination": name})):
            status, answer = self.server.post(path, body)
            self.assertEqual((status, "part of another model" in answer["error"]), (400, True), answer)
        self.assertFalse([each for each in os.listdir(self.path("models")) if "-of-" in each])


class KeyedStoreTest(StoreTest):
    """The same with keys."""

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        cls.make_keys()

    @classmethod
    def make_keys(cls):
        raise NotImplementedError

    @classmethod
    def keys(cls, *arguments):
        return subprocess.run([QUARREL, "key", *arguments], env=cls.environment, capture_output=True, timeout=TIMEOUT,
                              check=True).stdout.decode().strip()


class PullWithAKey(KeyedStoreTest):
    @classmethod
    def make_keys(cls):
        cls.key = cls.keys("create", "puller", "--admin")

    def test_a_key_that_is_revoked_takes_its_pull_with_it(self):
        self.registry.add_model("late", self.registry.add_blob("model", self.weights))
        self.registry.hold = threading.Event()
        self.addCleanup(self.registry.hold.set)
        connection = self.server.connect()
        connection.request("POST", "/api/pull", json.dumps({"model": "toy:late"}),
                           {"Authorization": f"Bearer {self.key}"})
        answer = connection.getresponse()
        self.assertEqual(json.loads(answer.readline()), {"status": "pulling manifest"})
        self.keys("revoke", "puller")
        last = json.loads(answer.read().splitlines()[-1])
        self.assertEqual(last["error"], "the key is not good any more")
        self.assertNotIn("toy:late", os.listdir(self.path("models")))
        connection.close()


class KeyOfSomeModels(KeyedStoreTest):
    """An admin's key that is for certain models changes no others."""

    @classmethod
    def make_keys(cls):
        cls.boss = cls.keys("create", "boss", "--admin")
        cls.narrow = cls.keys("create", "narrow", "--admin", "--model", "toy", "--model", "mine")
        cls.spelled = cls.keys("create", "spelled", "--admin", "--model", "toy", "--model", "alpha", "--model",
                               "Alpha.gguf")

    def call(self, key, method, path, **body):
        status, _, data = self.server.request(method, path, body or None, {"Authorization": f"Bearer {key}"})
        return status, json.loads(data.splitlines()[-1]) if data else None

    def store(self):
        """Every file of the store, by what it is and holds."""
        found = {}
        for folder, _, names in os.walk(self.path("models")):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[path] = os.stat(path).st_ino, hashlib.sha256(file.read()).hexdigest()
        return found

    def test_it_makes_and_replaces_no_others(self):
        self.registry.add_model("latest", self.registry.add_blob("model", self.weights, "library/vectors"),
                                repository="library/vectors")
        before = self.store()
        self.assertEqual(self.call(self.boss, "POST", "/api/models/vectors/load")[0], 200)
        for target in ("vectors", "vectors:latest", "unheard-of"):
            for path, body in (("/api/create", {"model": target, "from": "toy", "system": "x", "stream": False}),
                               ("/api/create", {"name": target, "modelfile": "FROM toy", "stream": False}),
                               ("/api/copy", {"source": "toy", "destination": target}),
                               ("/api/pull", {"model": target, "stream": False})):
                status, answer = self.call(self.narrow, "POST", path, **body)
                self.assertEqual((status, answer.get("code")), (403, "model_not_allowed"), (path, target, answer))
        self.assertEqual(self.registry.requests, [])
        # What it may not use is not there, as a source too.
        for method, path, body in (("POST", "/api/create", {"model": "mine", "from": "vectors", "stream": False}),
                                   ("POST", "/api/create", {"model": "mine", "modelfile": "FROM vectors"}),
                                   ("POST", "/api/copy", {"source": "vectors", "destination": "mine"}),
                                   ("DELETE", "/api/delete", {"model": "vectors"}),
                                   ("POST", "/api/models/vectors/load", {}),
                                   ("POST", "/api/models/vectors/load", {"reload": True}),
                                   ("POST", "/api/models/vectors/unload", {}),
                                   ("DELETE", "/api/models/vectors/cache", {}),
                                   ("POST", "/api/embed", {"model": "vectors", "keep_alive": 0})):
            status, answer = self.call(self.narrow, method, path, **body)
            self.assertEqual(status, 404, (method, path, answer))
        self.assertEqual(self.store(), before)
        self.assertTrue(self.call(self.boss, "GET", "/api/models/vectors")[1]["loaded"])

    def test_it_replaces_no_other_spelling(self):
        """Letter case and the extension make no difference to the store."""
        shutil.copy(self.toy, self.path("models/Alpha.gguf"))
        self.addCleanup(os.remove, self.path("models/Alpha.gguf"))
        for target in ("alpha", "Alpha.gguf"):
            self.registry.add_model("latest", self.registry.add_blob("model", self.weights, "library/" + target),
                                    repository="library/" + target)
        before = self.store()
        for target in ("alpha", "alpha:latest", "Alpha.gguf"):
            for path, body in (("/api/create", {"model": target, "from": "toy", "system": "x", "stream": False}),
                               ("/api/copy", {"source": "toy", "destination": target}),
                               ("/api/pull", {"model": target, "stream": False})):
                status, answer = self.call(self.spelled, "POST", path, **body)
                self.assertEqual((status, answer.get("code")), (403, "model_not_allowed"), (path, target, answer))
        self.assertEqual(self.registry.requests, [])
        self.assertEqual(self.store(), before)

    def test_it_changes_its_own(self):
        self.registry.add_model("latest", self.registry.add_blob("model", self.weights, "library/mine"),
                                repository="library/mine")
        for path, body in (("/api/copy", {"source": "toy:latest", "destination": "mine:latest"}),
                           ("/api/create", {"model": "mine", "from": "toy", "system": "x", "stream": False}),
                           ("/api/pull", {"model": "mine", "stream": False})):
            self.assertEqual(self.call(self.narrow, "POST", path, **body)[0], 200, path)
            self.assertEqual(self.call(self.narrow, "DELETE", "/api/delete", model="mine")[0], 200, path)


class Create(StoreTest):
    def test_a_model_is_made_of_another(self):
        lines = self.lines("/api/create", model="pirate", **{"from": "toy"}, system="be a pirate",
                           parameters={"temperature": 0, "num_predict": 3, "stop": ["<end>"]})
        self.assertEqual(lines[-1], {"status": "success"})
        shown = self.server.post("/api/show", {"model": "pirate:latest"})[1]
        self.assertEqual(shown["system"], "be a pirate")
        self.assertRegex(shown["parameters"], r"num_predict +3")
        with_own = self.chat("pirate", messages=[{"role": "system", "content": "x"}, {"role": "user", "content": "y"}])
        self.assertGreater(self.chat("pirate")["usage"]["prompt_tokens"], self.chat("toy")["usage"]["prompt_tokens"])
        self.assertEqual(with_own["usage"]["prompt_tokens"], self.chat("toy", messages=[
            {"role": "system", "content": "x"}, {"role": "user", "content": "y"}])["usage"]["prompt_tokens"])
        # Its parameters count wherever a request has none of its own, on every path.
        asked = {"model": "pirate", "messages": [{"role": "user", "content": "the fox"}]}
        self.assertEqual(self.server.post("/v1/chat/completions", asked)[1]["usage"]["completion_tokens"], 3)
        self.assertEqual(self.server.post("/api/chat", {**asked, "stream": False})[1]["eval_count"], 3)
        self.assertEqual(self.server.post("/api/native/generate", {"model": "pirate", "prompt": "a"})[1]["tokens_generated"],
                         3)
        self.assertEqual(os.stat(self.path("models/toy.gguf")).st_nlink, 2, "no bytes are copied")
        self.remove("pirate")
        self.assertEqual([name for name in os.listdir(self.path("models")) if "pirate" in name], [])

    def test_what_is_told_of_it(self):
        """No digest that nobody has computed, and numbers as they were given."""
        lines = self.lines("/api/create", model="cool", **{"from": "toy"}, parameters={"temperature": 0.2, "top_p": 0.95})
        self.assertEqual(lines[0], {"status": "using existing layer"})
        status, _, data = self.server.request("GET", "/api/models/cool")
        self.assertEqual((status, json.loads(data)["recommended"]), (200, {"temperature": 0.2, "top_p": 0.95}))
        self.remove("cool")

    def test_variables_of_a_template_change_the_prompt(self):
        template = "{% if loud %}LOUD LOUD {% endif %}{{ messages[0].content }}"
        self.lines("/api/create", model="loud", **{"from": "toy"}, template=template)
        asked = {"model": "loud", "messages": [{"role": "user", "content": "hi"}]}
        read = []
        for given, prompt in (({}, "hi"), ({"loud": False}, "hi"), ({"loud": True}, "LOUD LOUD hi")):
            body = {**asked, "chat_template_kwargs": given}
            self.assertEqual(self.server.post("/apply-template", body)[1]["prompt"], prompt)
            status, answer = self.server.post("/v1/chat/completions", {**body, "max_tokens": 1})
            self.assertEqual(status, 200, answer)
            read.append(answer["usage"]["prompt_tokens"])
        self.assertEqual(read[0], read[1])
        self.assertGreater(read[2], read[1])
        self.remove("loud")

    def test_parameters_count_as_options_do(self):
        """A full context goes on behind what is kept, and one longer than the server's is refused."""
        endless = {"temperature": 0, "repeat_penalty": 0.5, "repeat_last_n": -1, "num_predict": 300}
        asked = {"prompt": "the fox", "raw": True, "stream": False}
        for given, length in (({}, "ends"), ({"num_keep": 4}, "goes on")):
            self.lines("/api/create", model="endless", **{"from": "toy"}, parameters={**endless, **given})
            counted = [self.server.post("/api/generate", {"model": "endless", **asked, **more})[1]["eval_count"]
                       for more in ({}, {"shift": False}, {"options": {"num_keep": 0}})]
            self.assertEqual([count == 300 for count in counted], [length == "goes on", False, False], counted)
            self.remove("endless")
        for given in ({"parameters": {"num_ctx": 257}}, {"modelfile": "PARAMETER num_ctx 257"}):
            self.refused(400, ["num_ctx", "--ctx"], "/api/create", model="long", **{"from": "toy"}, **given)
        self.refused(400, ["num_ctx", "--ctx"], "/api/generate", model="toy", prompt="a", options={"num_ctx": 257})
        self.lines("/api/create", model="short", **{"from": "toy"}, parameters={"num_ctx": 256})
        self.remove("short")

    def test_modelfiles_templates_and_inheritance(self):
        text = 'FROM toy\nSYSTEM """one\ntwo"""\nPARAMETER num_predict 2\nPARAMETER stop a\nPARAMETER stop b\n'
        self.assertEqual(self.server.post("/api/create", {"name": "first", "modelfile": text, "stream": False}),
                         (200, {"status": "success"}))
        template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        self.lines("/api/create", model="me/second:v1", **{"from": "first"}, template=template)
        prompt = self.server.post("/apply-template", {"model": "me/second:v1",
                                                      "messages": [{"role": "user", "content": "hi"}]})[1]["prompt"]
        self.assertEqual(prompt, "[system]one\ntwo[user]hi")
        shown = self.server.post("/api/show", {"model": "me/second:v1"})[1]
        self.assertEqual((shown["template"], shown["system"]), (template, "one\ntwo"))
        self.assertIn('stop                           "b"', shown["parameters"])
        # A new one of the same name takes the place of the old, which is loaded.
        self.lines("/api/create", model="me/second:v1", **{"from": "me/second:v1"}, system="three")
        asked = {"model": "me/second:v1", "messages": [{"role": "user", "content": "hi"}]}
        deadline = time.monotonic() + TIMEOUT
        while self.server.post("/apply-template", asked)[1]["prompt"] != "[system]three[user]hi":
            self.assertLess(time.monotonic(), deadline)
        self.remove("first")
        self.remove("me/second:v1")

    def test_what_is_refused(self):
        self.refused(404, ["not found"], "/api/create", model="a", **{"from": "nobody"})
        for path in (self.toy, "../toy", "models/toy.gguf", "./toy.gguf", "/etc/passwd"):
            self.refused(404, ["not found"], "/api/create", model="a", **{"from": path})
            self.refused(404, ["not found"], "/api/create", model="a", modelfile=f"FROM {path}")
        for name in ("../a", "/tmp/a", ".a", "default", "a/../b", "a" * 300):
            self.refused(400, [], "/api/create", model=name, **{"from": "toy"})
        self.refused(400, ["Jinja"], "/api/create", model="a", template="{{ .Prompt }}", **{"from": "toy"})
        self.refused(400, ["line"], "/api/create", model="a", template="{% if %}", **{"from": "toy"})
        self.refused(400, ["temprature"], "/api/create", model="a", parameters={"temprature": 1}, **{"from": "toy"})
        self.refused(400, ["files"], "/api/create", model="a", files={"a": "b"}, **{"from": "toy"})
        self.assertEqual(self.names(), {"toy", "vectors"})

    def test_an_ollama_store_is_read_and_never_written(self):
        root = self.path("their-ollama")
        os.makedirs(os.path.join(root, "blobs"))
        os.makedirs(os.path.join(root, "manifests/registry.example/library/theirs"))

        def blob(kind, data):
            digest = hashlib.sha256(data).hexdigest()
            with open(os.path.join(root, "blobs/sha256-" + digest), "wb") as file:
                file.write(data)
            return {"mediaType": "application/vnd.ollama.image." + kind, "digest": "sha256:" + digest, "size": len(data)}

        layers = [blob("model", self.weights), blob("system", b"be theirs"), blob("params", b'{"num_predict":2}')]
        config = blob("config", b'{"model_format":"gguf"}')
        with open(os.path.join(root, "manifests/registry.example/library/theirs/latest"), "w", encoding="utf-8") as file:
            json.dump({"schemaVersion": 2, "config": config, "layers": layers}, file)

        def state():
            return sorted((folder, name, os.stat(os.path.join(folder, name)).st_mtime_ns, os.stat(os.path.join(folder, name)).st_nlink)
                          for folder, _, names in os.walk(root) for name in names)

        before = state()
        server = self.start_server("--ctx", "256", OLLAMA_MODELS=root, QUARREL_MODELS=self.path("mine"))
        asked = {"model": "theirs:latest", "messages": [{"role": "user", "content": "hi"}]}
        answer = server.post("/v1/chat/completions", asked)[1]
        self.assertEqual(answer["usage"]["completion_tokens"], 2)
        rendered = server.post("/apply-template", asked)[1]["prompt"]
        self.assertIn("be theirs", rendered)
        self.assertEqual(server.post("/api/create", {"model": "mine", "from": "theirs", "stream": False})[0], 200)
        self.assertEqual(server.post("/apply-template", {**asked, "model": "mine"})[1]["prompt"], rendered)
        self.assertEqual(server.request("DELETE", "/api/delete", {"model": "theirs"})[0], 400)
        self.assertEqual(server.request("DELETE", "/api/delete", {"model": "mine"})[0], 200)
        server.stop()
        self.assertEqual(state(), before)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Texts through the server into a vector store and out again, against a server that behaves as Longbow does; against a real
one with QUARREL_LONGBOW=host:port (the meta port is the next one), but for what ends its store."""
import http.client
import json
import os
import random
import subprocess
import threading
import time
import unittest

from certificates import make_certificate
from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest

STORE = os.environ.get("LONGBOW_SERVER", "build/release/longbow_server")
REAL = os.environ.get("QUARREL_LONGBOW")


class LongbowTest(ServeTest):
    own_store = False  # one that it ends, or that is not like others
    store_arguments = ()
    scheme, host, suffix = "longbow", "127.0.0.1", ""

    @classmethod
    def prepare(cls):
        if not os.path.exists(STORE):
            raise unittest.SkipTest("there is no longbow_server: it is built with the Flight module (make flight)")
        cls.bert = cls.make_toy("embed", "vectors.gguf")
        cls.models = [cls.bert, cls.toy]
        if REAL and not cls.own_store:
            cls.host, port = REAL.rsplit(":", 1)
            cls.ports = [port, str(int(port) + 1)]
            cls.suffix = f"-{os.getpid()}-{cls.__name__}"  # it keeps what it has
        else:
            cls.store = cls.start_store(*cls.store_arguments)
        hosts = [flag for port in cls.ports for flag in ("--longbow-host", f"{cls.host}:{port}")]
        cls.arguments = ("--ctx", "256", "--threads", "1", *hosts, "--longbow-address", cls.address("usual"))

    @classmethod
    def start_store(cls, *arguments):
        store = subprocess.Popen([STORE, *arguments], stdout=subprocess.PIPE, text=True)

        def end():
            store.kill()
            store.wait()
            store.stdout.close()
        cls.addClassCleanup(end)
        words = store.stdout.readline().split()
        assert words[0] == "ready", words
        cls.ports = words[1:3]
        return store

    @classmethod
    def address(cls, dataset):
        return f"{cls.scheme}://{cls.host}:{cls.ports[0]}/{dataset}{cls.suffix}?meta={cls.ports[1]}"

    def post(self, path, **body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def figure(self, name):
        """Of the metrics."""
        lines = self.server.request("GET", "/metrics")[2].decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(name + " "))

    def search(self, dataset, query, **more):
        return self.post("/api/search", **{"from": self.address(dataset), "query": query, **more})["results"]


class Storing(LongbowTest):
    def test_texts_are_stored_once_and_found(self):
        texts = ["the fox", {"text": "a dog", "id": "d", "metadata": {"page": 7, "kind": "pet"}}, "one two three"]
        asked = {"to": self.address("once"), "texts": texts, "source": "here", "columns": ["kind"]}
        answer = self.post("/api/embed-to", **asked)
        self.assertEqual((answer["texts"], answer["stored"], answer["stored_before"]), (3, 3, 0))
        answer = self.post("/api/embed-to", **asked)
        self.assertEqual((answer["texts"], answer["stored"], answer["stored_before"]), (3, 0, 3))
        found = self.search("once", "a dog", k=2)
        self.assertEqual(len(found), 2)
        self.assertEqual((found[0]["text"], found[0]["doc_id"], found[0]["source"], found[0]["metadata"],
                          found[0]["kind"]), ("a dog", "d", "here", {"page": 7}, "pet"))
        self.assertEqual([hit["text"] for hit in self.search("once", "the fox", filters=["kind=pet"])], ["a dog"])

    def test_the_command_and_the_server_share_a_journal(self):
        path = self.path("lines.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"text": "the fox"}\n{"text": "a dog"}\n')
        self.succeed("embed", self.bert, "--file", path, "--to", self.address("shared"))
        answer = self.post("/api/embed-to", to=self.address("shared"), source="lines.jsonl", texts=["a dog", "a cat"])
        self.assertEqual((answer["stored"], answer["stored_before"]), (1, 1))
        shown = json.loads(self.succeed("datasets", self.address("shared"), "--json").out)
        self.assertEqual(shown["rows"], 3)

    def test_returned_vectors_are_stored(self):
        status, headers, body = self.server.request("POST", "/v1/embeddings", {"input": ["the fox", "a dog"]},
                                                    {"x-quarrel-store": self.address("returned")})
        self.assertEqual((status, headers["x-quarrel-stored"]), (200, "2"), body)
        self.assertEqual(len(json.loads(body)["data"]), 2)
        self.assertEqual(self.search("returned", "a dog", k=1)[0]["text"], "a dog")

    def test_the_usual_address(self):
        self.assertEqual(self.post("/api/embed-to", texts=["the fox"])["stored"], 1)
        self.assertEqual(self.post("/api/search", query="the fox")["results"][0]["text"], "the fox")

    def test_only_named_hosts(self):
        alias = "127.0.0.1" if self.host == "localhost" else "localhost"
        for address in (f"longbow://{self.host}:1/x", f"longbow://{alias}:{self.ports[0]}/x?meta={self.ports[1]}",
                        f"longbow://{self.host}:{self.ports[0]}/x?meta=22"):
            status, answer = self.server.post("/api/embed-to", {"to": address, "texts": ["a"]})
            self.assertEqual((status, answer["code"]), (403, "host_not_allowed"))
        status, answer = self.server.post("/v1/embeddings", {"input": "a"},
                                          headers={"x-quarrel-store": "longbow://other/x"})
        self.assertEqual((status, answer["error"]["code"]), (403, "host_not_allowed"))

    def test_no_such_dataset(self):
        status, answer = self.server.post("/api/search", {"from": self.address("nothing"), "query": "a"})
        self.assertEqual((status, answer["code"]), (404, "dataset_not_found"))

    def test_a_filter_of_no_column_is_refused(self):
        self.post("/api/embed-to", to=self.address("filtered"), texts=["the fox"])
        status, _ = self.server.post("/api/search",
                                     {"from": self.address("filtered"), "query": "a", "filters": ["nobody=1"]})
        self.assertEqual(status, 400)

    def test_a_chat_is_asked_with_texts(self):
        self.post("/api/embed-to", to=self.address("pets"), texts=[{"text": "the fox", "id": "f"}, "a dog"])
        asked = {"model": "toy", "messages": [{"role": "user", "content": "the fox"}], "max_tokens": 3,
                 "retrieval": {"from": self.address("pets"), "model": "vectors", "k": 1}}

        def expect_the_fox(sources):
            self.assertEqual([(each["number"], each["text"], each["doc_id"]) for each in sources], [(1, "the fox", "f")])
        expect_the_fox(self.post("/v1/chat/completions", **asked)["sources"])
        chunks = [json.loads(event) for event in self.server.events("/v1/chat/completions", {**asked, "stream": True})[:-1]]
        self.assertEqual(["sources" in chunk for chunk in chunks], [False] * (len(chunks) - 1) + [True])
        expect_the_fox(chunks[-1]["sources"])
        expect_the_fox(self.post("/api/generate", **asked)["sources"])
        last = json.loads(self.server.events("/api/stream", asked)[-1])
        self.assertTrue(last["complete"])
        expect_the_fox(last["sources"])
        asked["retrieval"]["from"] = "longbow://other/x"
        status, answer = self.server.post("/v1/chat/completions", asked)
        self.assertEqual((status, answer["error"]["code"], answer["error"]["param"]), (403, "host_not_allowed", "retrieval.from"))

    def test_metrics(self):
        self.post("/api/embed-to", to=self.address("metrics"), texts=["the fox"])
        for name, least in (("rows", 1), ("bytes", 128 * 4)):
            self.assertGreaterEqual(self.figure(f'quarrel_flight_{name}_total{{direction="sent"}}'), least)
        self.assertGreaterEqual(self.figure('quarrel_flight_duration_seconds_count{operation="put"}'), 1)


class Repeated(LongbowTest):
    """A store that refuses the first batch."""
    own_store = True
    store_arguments = ("--rate-limited", "1")

    def test_what_is_sent_again_is_counted_and_has_not_failed(self):
        self.assertEqual(self.post("/api/embed-to", texts=["the fox"])["stored"], 1)
        self.assertEqual(self.post("/api/search", query="the fox")["results"][0]["text"], "the fox")
        self.assertGreaterEqual(self.figure("quarrel_flight_retries_total"), 1)
        self.assertEqual(self.figure("quarrel_flight_failures_total"), 0)


class Busy(LongbowTest):
    """A store that is busy as a whole, and says so before it looks whether there is such a dataset."""
    own_store = True
    store_arguments = ("--busy-as-a-whole", "4")

    def test_a_new_dataset_is_stored(self):
        self.assertEqual(self.post("/api/embed-to", texts=["the fox"])["stored"], 1)
        self.assertEqual(self.post("/api/search", query="the fox")["results"][0]["text"], "the fox")


class Killed(LongbowTest):
    """The server is killed, at any moment of a request."""
    own_store = True
    store_arguments = ("--visible-after", "300")

    def kill_within(self, seconds, asked):
        """A server that is killed so long after a request came; whether that was in the middle of it."""
        server = self.start_server(*self.models, *self.arguments)

        def ask():
            try:
                server.post("/api/embed-to", asked)
            except (OSError, http.client.HTTPException):
                pass  # it was killed
        asking = threading.Thread(target=ask)
        asking.start()
        asking.join(seconds)
        in_the_middle = asking.is_alive()
        server.process.kill()
        server.process.wait()
        asking.join()
        return in_the_middle

    def test_the_same_request_stores_every_text_once(self):
        chance = random.Random(19)
        texts = [f"the dog number {i}" for i in range(300)]
        begun = time.monotonic()
        self.post("/api/embed-to", to=self.address("measured"), texts=texts)
        whole = time.monotonic() - begun
        self.server.stop()  # a dataset's journal has one user
        rounds, kills = 6, 0
        for number in range(rounds):
            asked = {"to": self.address(f"killed-{number}"), "texts": texts}
            kills += self.kill_within(whole * (number + 0.5) / rounds, asked)
            self.kill_within(chance.uniform(0, whole + 1), asked)  # this one looks twice first, a second apart
            server = self.start_server(*self.models, *self.arguments)
            status, answer = server.post("/api/embed-to", asked)
            self.assertEqual((status, answer["stored"] + answer["stored_before"]), (200, len(texts)), answer)
            status, found = server.post("/api/search", {"from": asked["to"], "query": "the dog", "k": 1000})
            server.stop()
            self.assertEqual(status, 200, found)
            self.assertEqual(sorted(hit["text"] for hit in found["results"]), sorted(texts))
            self.assertEqual(len({hit["id"] for hit in found["results"]}), len(texts))
        self.assertGreater(kills, 0, "none was in the middle")


class Guarded(LongbowTest):
    """A store behind TLS that asks for a token and a certificate: the settings name the files of both."""
    own_store = True
    scheme, host = "longbow+tls", "localhost"

    @classmethod
    def prepare(cls):
        certificate, key = make_certificate(cls.folder, "store")
        own, own_key = make_certificate(cls.folder, "server")
        token = cls.write("token", "a-secret\n")
        cls.store_arguments = ("--certificate", certificate, "--key", key, "--client-ca", own, "--token", "a-secret")
        super().prepare()
        files = {"token_file": token, "ca_file": certificate, "cert_file": own, "key_file": own_key}
        rows = "".join(f"{name} = {json.dumps(path)}\n" for name, path in files.items())
        cls.without, cls.token = cls.arguments, token
        cls.config = cls.write("guarded.toml", "[longbow]\n" + rows)
        cls.arguments = (*cls.arguments, "--config", cls.config)

    @classmethod
    def write(cls, name, text):
        with open(cls.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return cls.path(name)

    def test_texts_are_stored_and_found(self):
        self.assertEqual(self.post("/api/embed-to", texts=["the fox"])["stored"], 1)
        self.assertEqual(self.post("/api/search", query="the fox")["results"][0]["text"], "the fox")

    def test_without_these_files_it_is_not_reached(self):
        server = self.start_server(*self.models, *self.without)
        status, answer = server.post("/api/search", {"query": "the fox"})
        self.assertEqual((status, answer["code"]), (502, "store_failed"), answer)


    def test_a_token_that_the_store_does_not_know(self):
        wrong = self.write("wrong", "another\n")
        server = self.start_server(*self.models, *self.without, "--config", self.config, "--longbow-token-file", wrong)
        for path, body in (("/api/search", {"query": "the fox"}), ("/api/embed-to", {"texts": ["a dog"]})):
            status, answer = server.post(path, body)
            self.assertEqual((status, answer["code"]), (502, "store_failed"), answer)
            self.assertNotIn("token", answer["error"])
        said = server.stop()[1]
        self.assertEqual(said.count("no such token"), 2, said)

    def test_what_no_request_could_mend_is_told_at_the_start(self):
        remote = ("--longbow-host", "192.0.2.1", "--longbow-token-file", self.token)
        self.refuse(2, ["longbow.address", "longbow+tls://"], "serve", *self.models, *remote, "--longbow-address",
                    "longbow://192.0.2.1/x")
        self.refuse(2, ["longbow.cert_file", "belong together"], "serve", *self.models, *remote, "--longbow-key-file",
                    self.token)
        server = self.start_server(*self.models, *remote)
        status, answer = server.post("/api/search", {"from": "longbow://192.0.2.1/x", "query": "the fox"})
        self.assertEqual((status, answer["code"]), (400, "tls_required"), answer)


class Limited(LongbowTest):
    """Keys and limits are those of the other endpoints, and so is what is left of them."""

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        cls.keys = {}
        for name, *limits in (("few", "--requests-per-minute", "3"), ("words", "--tokens-per-minute", "20"),
                              ("questions", "--tokens-per-minute", "20"), ("retrieval", "--tokens-per-minute", "20"),
                              ("chat", "--model", "toy"), ("free",)):
            done = subprocess.run([QUARREL, "key", "create", name, *limits], env=cls.environment, capture_output=True,
                                  timeout=TIMEOUT, check=True)
            cls.keys[name] = done.stdout.decode().strip()

    def ask(self, name, path, **body):
        headers = {"Authorization": f"Bearer {self.keys[name]}"} if name else {}
        status, answer = self.server.post(path, {"model": "vectors", **body}, headers=headers)
        return status, answer.get("code")

    def embed(self, name, text="the fox"):
        return self.ask(name, "/api/embed-to", to=self.address("limited"), texts=[text])

    def search(self, name, query="a dog"):
        return self.ask(name, "/api/search", **{"from": self.address("limited"), "query": query})

    def expect_an_end(self, ask, status=200):
        """`ask(number)` has that status until a minute's worth is gone, which flows in again slowly."""
        answers = [ask(0)[0]]
        while len(answers) < 30 and answers[-1] != 429:
            answers.append(ask(len(answers))[0])
        self.assertEqual(answers, [status] * (len(answers) - 1) + [429])
        self.assertGreater(len(answers), 1)

    def test_without_a_key_nothing_is_stored_or_found(self):
        self.assertEqual(self.embed(None)[0], 401)
        self.assertEqual(self.search(None)[0], 401)

    def test_requests_are_counted(self):
        self.assertEqual(self.embed("free")[0], 200)
        self.expect_an_end(lambda _: self.embed("few"))
        self.assertEqual(self.search("few")[0], 429, "they have one limit")
        self.assertEqual(self.search("free")[0], 200)

    def test_tokens_are_counted(self):
        self.assertEqual(self.embed("free")[0], 200)
        self.expect_an_end(lambda number: self.embed("words", f"one two three {number}"))
        self.expect_an_end(lambda number: self.search("questions", f"one two three {number}"))

    def test_tokens_of_a_question_are_counted(self):
        """Also where nothing comes of it: the dataset is not there, and the question was read all the same."""
        retrieval = {"from": self.address("nothing"), "model": "vectors"}

        def chat(number):
            messages = [{"role": "user", "content": f"one two three {number}"}]
            return self.ask("retrieval", "/v1/chat/completions", model="toy", messages=messages, max_tokens=1,
                            retrieval=retrieval)
        self.expect_an_end(chat, 404)

    def test_a_key_has_its_models(self):
        self.assertEqual(self.embed("chat")[0], 404)
        self.assertEqual(self.search("chat")[0], 404)


class Gone(LongbowTest):
    own_store = True

    def test_a_store_that_is_gone(self):
        self.post("/api/embed-to", texts=["the fox"])
        self.store.kill()
        self.store.wait()
        for path, body in (("/api/embed-to", {"texts": ["a dog"]}), ("/api/search", {"query": "a"})):
            status, answer = self.server.post(path, body)
            self.assertEqual((status, answer["code"]), (502, "store_failed"), answer)
        self.assertEqual(self.server.post("/v1/embeddings", {"input": "a"})[0], 200, "the others go on")
        # Names of datasets that were never filled leave nothing behind.
        for name in ("first", "second"):
            self.assertEqual(self.server.post("/api/embed-to", {"to": self.address(name), "texts": ["a dog"]})[0], 502)
        journals = os.listdir(os.path.join(self.path("state"), "quarrel", "longbow"))
        self.assertEqual(len(journals), 1, journals)


if __name__ == "__main__":
    unittest.main()

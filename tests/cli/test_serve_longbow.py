#!/usr/bin/env python3
"""Texts through the server into a vector store and out again, against a server that behaves as Longbow does; against a real
one with QUARREL_LONGBOW=host:port (the meta port is the next one), but for what ends its store."""
import json
import os
import subprocess
import unittest

from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest

STORE = os.environ.get("LONGBOW_SERVER", "build/release/longbow_server")
REAL = os.environ.get("QUARREL_LONGBOW")


class LongbowTest(ServeTest):
    ends_its_store = False  # so it has to be its own

    @classmethod
    def prepare(cls):
        if not os.path.exists(STORE):
            raise unittest.SkipTest("there is no longbow_server: it is built with the Flight module (make flight)")
        cls.bert = cls.make_toy("embed", "vectors.gguf")
        cls.models = [cls.bert, cls.toy]
        cls.host, cls.suffix = "127.0.0.1", ""
        if REAL and not cls.ends_its_store:
            cls.host, port = REAL.rsplit(":", 1)
            cls.ports = [port, str(int(port) + 1)]
            cls.suffix = f"-{os.getpid()}-{cls.__name__}"  # it keeps what it has
        else:
            cls.store = cls.start_store()
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
        return f"longbow://{cls.host}:{cls.ports[0]}/{dataset}{cls.suffix}?meta={cls.ports[1]}"

    def post(self, path, **body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

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
        text = self.server.request("GET", "/metrics")[2].decode()
        for figure, least in (("rows", 1), ("bytes", 128 * 4)):
            found = [line for line in text.splitlines() if line.startswith(f'quarrel_flight_{figure}_total{{direction="sent"}}')]
            self.assertGreaterEqual(float(found[0].split()[1]), least)
        self.assertIn('quarrel_flight_duration_seconds_count{operation="put"}', text)
        self.assertIn("quarrel_flight_retries_total", text)


class Limited(LongbowTest):
    """Keys and limits are those of the other endpoints, and so is what is left of them."""

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        cls.keys = {}
        for name, *limits in (("few", "--requests-per-minute", "3"), ("words", "--tokens-per-minute", "20"),
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

    def search(self, name):
        return self.ask(name, "/api/search", **{"from": self.address("limited"), "query": "a dog"})

    def test_without_a_key_nothing_is_stored_or_found(self):
        self.assertEqual(self.embed(None)[0], 401)
        self.assertEqual(self.search(None)[0], 401)

    def test_requests_are_counted(self):
        self.assertEqual(self.embed("free")[0], 200)
        # A minute's worth is there at once, and flows in again slowly.
        answers = {self.embed("few")[0] for _ in range(15)} | {self.search("few")[0] for _ in range(15)}
        self.assertEqual(answers, {200, 429})
        self.assertEqual(self.search("free")[0], 200)

    def test_tokens_are_counted(self):
        answers = [self.embed("words", f"one two three {number}")[0] for number in range(30)]
        self.assertEqual(answers[0], 200)
        self.assertIn(429, answers)

    def test_a_key_has_its_models(self):
        self.assertEqual(self.embed("chat")[0], 404)
        self.assertEqual(self.search("chat")[0], 404)


class Gone(LongbowTest):
    ends_its_store = True

    def test_a_store_that_is_gone(self):
        self.post("/api/embed-to", texts=["the fox"])
        self.store.kill()
        self.store.wait()
        for path, body in (("/api/embed-to", {"texts": ["a dog"]}), ("/api/search", {"query": "a"})):
            status, answer = self.server.post(path, body)
            self.assertEqual((status, answer["code"]), (502, "store_failed"), answer)
        self.assertEqual(self.server.post("/v1/embeddings", {"input": "a"})[0], 200, "the others go on")


if __name__ == "__main__":
    unittest.main()

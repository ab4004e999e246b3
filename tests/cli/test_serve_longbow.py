#!/usr/bin/env python3
"""Texts through the server into a vector store and out again, against a server that behaves as Longbow does."""
import json
import os
import subprocess
import unittest

from serve_harness import ServeTest

STORE = os.environ.get("LONGBOW_SERVER", "build/release/longbow_server")


class LongbowTest(ServeTest):
    @classmethod
    def prepare(cls):
        if not os.path.exists(STORE):
            raise unittest.SkipTest("there is no longbow_server: it is built with the Flight module (make flight)")
        cls.bert = cls.make_toy("embed", "vectors.gguf")
        cls.models = [cls.bert, cls.toy]
        cls.store = cls.start_store()
        hosts = [flag for port in cls.ports for flag in ("--longbow-host", f"127.0.0.1:{port}")]
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
        return f"longbow://127.0.0.1:{cls.ports[0]}/{dataset}?meta={cls.ports[1]}"

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
        for address in ("longbow://127.0.0.1/x", f"longbow://localhost:{self.ports[0]}/x",
                        f"longbow://127.0.0.1:{self.ports[0]}/x?meta=22"):
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
        rows = [line for line in text.splitlines() if line.startswith('quarrel_flight_rows_total{direction="sent"}')]
        self.assertGreaterEqual(float(rows[0].split()[1]), 1)
        self.assertIn('quarrel_flight_duration_seconds_count{operation="put"}', text)
        self.assertIn("quarrel_flight_retries_total", text)


class Gone(LongbowTest):
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

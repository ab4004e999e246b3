#!/usr/bin/env python3
"""The end of a server that is at work: what is cut off is told why, on every kind of stream."""
import concurrent.futures
import json
import threading
import time
import unittest

from harness import TIMEOUT
from registry import Registry
from serve_harness import ServeTest
from websocket_client import Closed, WebSocketClient

# Says the same token again and again; some thousand a second.
LONG = {"prompt": "Hello there", "max_tokens": 60000, "temperature": 0, "repeat_penalty": 0.1}
OLLAMA = {"temperature": 0, "repeat_penalty": 0.1, "num_predict": 60000}
WHY = "the server is about to end"


class DrainTest(ServeTest):
    @classmethod
    def prepare(cls):
        cls.models = [cls.make_toy("chat", "toy.gguf", context=65536)]

    def serve(self, *arguments):
        """A server of the test's own: it ends."""
        return self.start_server(*self.models, "--cache-tokens", "512k", *arguments)

    def begin(self, server, path, body):
        """A stream that has begun; the rest of it is read at once: who does not read is cut off for that."""
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.readline())
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(answer.read)

    def open(self, server):
        client = WebSocketClient(server.port)
        self.addCleanup(client.cut)
        return client


class Reasons(DrainTest):
    """Each stream would go on for long after the server's patience."""

    def end_of(self, path, body):
        server = self.serve("--drain", "0")
        reading = self.begin(server, path, body)
        self.assertEqual(server.stop()[0], 0)
        return reading.result(TIMEOUT).decode()

    def test_ndjson(self):
        for path, body in (("/api/generate", {"prompt": "Hello there"}),
                           ("/api/chat", {"messages": [{"role": "user", "content": "Hello there"}]})):
            lines = self.end_of(path, {"model": "toy", "options": OLLAMA, **body}).splitlines()
            last = json.loads(lines[-1])
            self.assertIn(WHY, last.get("error", ""), (path, lines[-3:]))
            self.assertFalse(any(json.loads(line).get("done") for line in lines if line), "it was no end")

    def test_native_events(self):
        for body in (LONG, {**LONG, "resume": True}):
            frames = self.end_of("/api/stream", body).split("\n\n")
            self.assertEqual(frames.pop(), "")
            last = json.loads(frames[-1].split("data: ", 1)[1])
            self.assertIn(WHY, json.dumps(last), frames[-2:])
            self.assertEqual(last["code"], "draining", last)

    def test_websocket(self):
        for body in (LONG, {**LONG, "resume": True}):
            server = self.serve("--drain", "0")
            client = self.open(server)
            client.ask("a", **body)
            client.next("inference")

            def last_words(client=client):
                errors = []
                try:
                    while True:
                        if (message := client.receive())["type"] == "error":
                            errors.append(message)
                except Closed as closed:
                    return errors, closed

            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                reading = pool.submit(last_words)
                self.assertEqual(server.stop()[0], 0)
                errors, closed = reading.result(TIMEOUT)
            self.assertEqual([(error["id"], error["payload"]["code"]) for error in errors], [("a", "CONNECTION_LOST")])
            self.assertIn(WHY, errors[0]["payload"]["message"])
            self.assertEqual((closed.code, closed.reason), (1001, WHY))


class Pulls(DrainTest):
    """A registry that keeps the second half of a model to itself."""

    def setUp(self):
        self.registry = Registry()
        self.addCleanup(self.registry.close)
        with open(self.toy, "rb") as file:
            self.registry.add_model("late", self.registry.add_blob("model", file.read()))
        self.registry.hold = threading.Event()
        self.addCleanup(self.registry.hold.set)
        self.puller = self.start_server("--registry", self.registry.url, "--drain", "0",
                                        QUARREL_MODELS=self.path("pulled-" + self._testMethodName))

    def wait_for_the_blob(self):
        deadline = time.monotonic() + TIMEOUT
        while not any("/blobs/" in path for path, _ in self.registry.requests):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_news_end_with_the_reason(self):
        reading = self.begin(self.puller, "/api/pull", {"model": "toy:late"})
        self.wait_for_the_blob()
        self.assertEqual(self.puller.stop()[0], 0)
        lines = reading.result(TIMEOUT).splitlines()
        self.assertEqual(json.loads(lines[-1]), {"error": WHY, "code": "draining"}, lines)

    def test_one_object_has_it_too(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.puller.post, "/api/pull", {"model": "toy:late", "stream": False})
            self.wait_for_the_blob()
            self.assertEqual(self.puller.stop()[0], 0)
            self.assertEqual(asked.result(TIMEOUT), (503, {"error": WHY, "code": "draining"}))


class Sockets(DrainTest):
    def test_the_server_ends_with_open_websockets(self):
        server = self.serve("--drain", "20")
        idle, busy = self.open(server), self.open(server)
        busy.ask("a", **{**LONG, "max_tokens": 3000})
        busy.next("inference")
        server.process.terminate()
        with self.assertRaises(Closed) as closed:
            while True:
                idle.receive()
        self.assertEqual((closed.exception.code, closed.exception.reason), (1001, WHY))
        busy.ask("b", prompt="Hello there", max_tokens=24)
        code = None
        try:
            while True:
                message = busy.next("inference", "error")
                if message["type"] == "error":
                    code = message["payload"]["code"]
        except Closed as ended:
            self.assertEqual(ended.code, 1001)
        self.assertIn(code, (None, "CONNECTION_LOST"))
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    unittest.main()

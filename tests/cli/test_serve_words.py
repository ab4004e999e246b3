#!/usr/bin/env python3
"""What the default model says over every kind of connection: text and token ids are those of `quarrel run`, for a request that
is alone and for one among 64."""
import concurrent.futures
import json
import subprocess
import unittest

from harness import QUARREL
from serve_harness import ServeTest
from websocket_client import WebSocketClient, text_of, tokens_of

TOKENS = 16
QUESTIONS = ("What is the capital of France?", "Why is the sky blue?", "Tell me about the café in Zürich.", "Count to ten.")
PATIENCE = 300


def default_model():
    """Of the machine's own store, which the tests' environment hides."""
    found = subprocess.run([QUARREL, "inspect", "default", "--json"], capture_output=True, check=False)
    if found.returncode != 0:
        raise unittest.SkipTest("the default model is not here: " + found.stderr.decode().strip())
    return json.loads(found.stdout)["file"]


class Words(ServeTest):
    arguments = ("--parallel", "64", "--cache-tokens", "16k", "--ctx", "512")

    @classmethod
    def prepare(cls):
        cls.models = [default_model()]

    def told(self, number):
        done = subprocess.run([QUARREL, "run", self.models[0], QUESTIONS[number], "--local", "--json", "--seed", str(number + 1),
                               "-n", str(TOKENS)], stdin=subprocess.DEVNULL, capture_output=True, env=self.environment,
                              timeout=PATIENCE, check=True)
        answer = json.loads(done.stdout)
        return answer["text"], answer["tokens"]

    def native_body(self, number):
        return {"prompt": QUESTIONS[number], "seed": number + 1, "max_tokens": TOKENS}

    # Text and ids; None: the form has no ids.

    def socket(self, number):
        with WebSocketClient(self.server.port, timeout=PATIENCE) as client:
            client.ask("a", **self.native_body(number))
            messages = client.answer("a")
            return text_of(messages), tokens_of(messages)

    def events(self, number):
        events = [json.loads(event) for event in self.server.events("/api/stream", self.native_body(number))]
        return "".join(event["token"] for event in events), [each["token_id"] for each in events if each["token_id"] >= 0]

    def whole(self, number):
        status, answer = self.server.post("/api/native/generate", self.native_body(number))
        self.assertEqual(status, 200, answer)
        return answer["text"], None

    def ndjson(self, number):
        model = json.loads(self.server.request("GET", "/api/tags")[2])["models"][0]["name"]
        status, _, data = self.server.request("POST", "/api/chat", {
            "model": model, "messages": [{"role": "user", "content": QUESTIONS[number]}],
            "options": {"seed": number + 1, "num_predict": TOKENS}})
        self.assertEqual(status, 200, data)
        return "".join(json.loads(line)["message"]["content"] for line in data.splitlines()), None

    def sse(self, number):
        frames = self.server.events("/v1/chat/completions", {
            "messages": [{"role": "user", "content": QUESTIONS[number]}], "seed": number + 1, "max_tokens": TOKENS,
            "stream": True})[:-1]
        return "".join(json.loads(frame)["choices"][0]["delta"].get("content", "") for frame in frames), None

    def test_they_are_those_of_the_program(self):
        expected = [self.told(number) for number in range(len(QUESTIONS))]
        self.assertEqual(len({text for text, _ in expected}), len(QUESTIONS))
        self.assertIn("Paris", expected[0][0])
        self.assertEqual(max(len(tokens) for _, tokens in expected), TOKENS, "some end early, some do not")
        forms = (self.socket, self.events, self.whole, self.ndjson, self.sse)

        def check(form, number, said):
            text, tokens = expected[number]
            self.assertEqual(said[0], text, form.__name__)
            if said[1] is not None:
                self.assertEqual(said[1], tokens, form.__name__)

        for form in forms:
            for number in range(len(QUESTIONS)):
                check(form, number, form(number))
        calls = [(forms[i % len(forms)], i // len(forms) % len(QUESTIONS)) for i in range(64)]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            for (form, number), said in zip(calls, pool.map(lambda call: call[0](call[1]), calls)):
                check(form, number, said)


if __name__ == "__main__":
    unittest.main()

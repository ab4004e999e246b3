#!/usr/bin/env python3
"""`quarrel serve` as clients see it: OpenAI's endpoints, Quarrel's own, errors, the beginning and the end."""
import base64
import concurrent.futures
import json
import os
import re
import signal
import struct
import subprocess
import time
import unittest

from harness import TIMEOUT
from serve_harness import ServeTest
from websocket_client import WebSocketClient

GUIDE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "server.md")
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def asked(text="Hello there", **fields):
    return {"messages": [{"role": "user", "content": text}], "seed": 7, "max_tokens": 24, **fields}


def continued(prompt="Hello there", **fields):
    return {"prompt": prompt, "seed": 7, "max_tokens": 24, **fields}


class OpenAi(ServeTest):
    def chat(self, body):
        status, answer = self.server.post(CHAT, body)
        self.assertEqual(status, 200, answer)
        return answer

    def complete(self, body):
        status, answer = self.server.post(TEXT, body)
        self.assertEqual(status, 200, answer)
        return answer

    def test_a_chat_answers_as_the_program_does(self):
        answer = self.chat(asked())
        self.assertRegex(answer["id"], r"^chatcmpl-[A-Za-z0-9]{24}$")
        self.assertEqual((answer["object"], answer["model"]), ("chat.completion", "toy"))
        self.assertLess(abs(answer["created"] - time.time()), 3600)
        choice = answer["choices"][0]
        self.assertEqual((choice["index"], choice["message"]["role"], choice["logprobs"]), (0, "assistant", None))
        usage = answer["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        told = json.loads(self.succeed("run", self.toy, "Hello there", "--json", "--seed", "7", "-n", "24").out)
        self.assertEqual(choice["message"]["content"], told["text"])
        self.assertEqual(choice["finish_reason"], told["finish_reason"])
        self.assertEqual(usage["completion_tokens"], len(told["tokens"]))

    def test_streams_are_neither_kept_nor_held_up_on_their_way(self):
        messages = [{"role": "user", "content": "a"}]
        for path, body in ((CHAT, asked(stream=True)), (TEXT, continued(stream=True)),
                           ("/api/stream", {"prompt": "a", "max_tokens": 2}),
                           ("/api/chat", {"model": "toy", "messages": messages, "options": {"num_predict": 2}}),
                           ("/api/models/toy/load", {"stream": True})):
            status, headers, _ = self.server.request("POST", path, body)
            self.assertEqual((status, headers["Cache-Control"], headers["X-Accel-Buffering"]), (200, "no-cache", "no"), path)

    def test_the_model_is_called_as_it_was_asked_for(self):
        for name, told in (("toy:latest",) * 2, ("toy",) * 2, (None, "toy")):
            self.assertEqual(self.chat(asked(model=name))["model"], told)

    def test_a_stream_says_the_same_in_frames(self):
        whole = self.chat(asked())
        frames = self.server.events(CHAT, asked(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(frames[-1], "[DONE]")
        chunks = [json.loads(frame) for frame in frames[:-1]]
        self.assertEqual({(chunk["object"], chunk["model"]) for chunk in chunks}, {("chat.completion.chunk", "toy")})
        self.assertEqual(len({chunk["id"] for chunk in chunks}), 1)
        self.assertEqual(len({chunk["created"] for chunk in chunks}), 1)
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        last, usage = chunks[-2:]
        self.assertEqual(last["choices"][0]["delta"], {})
        self.assertEqual(last["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"])
        self.assertEqual(usage["choices"], [])
        for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
            self.assertEqual(usage["usage"][name], whole["usage"][name])
        self.assertTrue(all(chunk["usage"] is None for chunk in chunks[:-1]))
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-2]]
        self.assertEqual([delta["role"] for delta in deltas if "role" in delta], ["assistant"])
        self.assertEqual("".join(delta["content"] for delta in deltas), whole["choices"][0]["message"]["content"])
        plain = self.server.events(CHAT, asked(stream=True))
        self.assertNotIn("usage", "".join(plain))

    def test_answers_and_seeds(self):
        several = self.chat(asked(n=3))
        self.assertEqual([choice["index"] for choice in several["choices"]], [0, 1, 2])
        texts = [choice["message"]["content"] for choice in several["choices"]]
        self.assertEqual(len(set(texts)), 3)
        self.assertEqual(texts[0], self.chat(asked())["choices"][0]["message"]["content"])
        self.assertNotEqual(texts[0], self.chat(asked(seed=8))["choices"][0]["message"]["content"])
        streamed = ["", "", ""]
        for frame in self.server.events(CHAT, asked(n=3, stream=True))[:-1]:
            for choice in json.loads(frame)["choices"]:
                streamed[choice["index"]] += choice["delta"].get("content", "")
        self.assertEqual(streamed, texts)

    def test_a_stop_string_ends_the_answer_before_it(self):
        whole = self.complete(continued(temperature=0))["choices"][0]["text"]
        stop = whole[5:8]
        for body in (continued(temperature=0, stop=stop), continued(temperature=0, stop=["\u0001never", stop])):
            cut = self.complete(body)["choices"][0]
            self.assertEqual((cut["text"], cut["finish_reason"]), (whole[:whole.index(stop)], "stop"))

    def test_texts_ids_and_echo(self):
        text = self.complete(continued())
        self.assertRegex(text["id"], r"^cmpl-[A-Za-z0-9]{24}$")
        self.assertEqual(text["object"], "text_completion")
        ids = json.loads(self.succeed("tokenize", self.toy, "--special", input="Hello there").out)
        for prompt in (ids, [ids], ["Hello there"]):
            self.assertEqual(self.complete(continued(prompt))["choices"], text["choices"])
        echoed = self.complete(continued(echo=True))["choices"][0]["text"]
        self.assertEqual(echoed, "Hello there" + text["choices"][0]["text"])
        frames = self.server.events(TEXT, continued(echo=True, stream=True))
        self.assertEqual("".join(json.loads(frame)["choices"][0]["text"] for frame in frames[:-1]), echoed)
        # Ids may be bytes that are no character.
        for token in range(0, 259, 7):
            self.complete(continued([token], echo=True, max_tokens=1))

    def test_several_prompts(self):
        """Each is answered as it is alone; the answers to the first come first."""
        ids = json.loads(self.succeed("tokenize", self.toy, "--special", input="the fox").out)
        prompts = ["Hello there", "the fox", "a"]
        alone = [self.complete(continued(prompt, n=2, echo=True)) for prompt in prompts]
        for form in (prompts, ["Hello there", ids, "a"]):
            together = self.complete(continued(form, n=2, echo=True))
            self.assertEqual([choice["index"] for choice in together["choices"]], list(range(6)))
            self.assertEqual([choice["text"] for choice in together["choices"]],
                             [choice["text"] for answer in alone for choice in answer["choices"]])
            for name in ("prompt_tokens", "completion_tokens"):
                self.assertEqual(together["usage"][name], sum(answer["usage"][name] for answer in alone))
        texts = [""] * 6
        for frame in self.server.events(TEXT, continued(prompts, n=2, echo=True, stream=True))[:-1]:
            for choice in json.loads(frame)["choices"]:
                texts[choice["index"]] += choice["text"]
        self.assertEqual(texts, [choice["text"] for choice in together["choices"]])
        best = self.complete(continued(prompts[:2], best_of=3))
        self.assertEqual([choice["index"] for choice in best["choices"]], [0, 1])

    def test_how_likely_a_prompt_is(self):
        """As lm-eval asks: the prompt's tokens come with what each was given by those before it."""
        ids = json.loads(self.succeed("tokenize", self.toy, "--special", input="Hello there").out)
        for prompt, tokens in ((ids, 0), ("Hello there", 3), ([ids, "a"], 2)):
            choices = self.complete(continued(prompt, echo=True, logprobs=2, max_tokens=tokens))["choices"]
            lists = choices[0]["logprobs"]
            self.assertEqual({len(each) for each in lists.values()}, {len(ids) + tokens})
            self.assertIsNone(lists["token_logprobs"][0])
            self.assertIsNone(lists["top_logprobs"][0])
            self.assertTrue(all(value <= 0 for value in lists["token_logprobs"][1:]))
            self.assertTrue(all(len(top) == 2 for top in lists["top_logprobs"][1:]))
            self.assertEqual(lists["text_offset"], sorted(lists["text_offset"]))
            self.assertIn("Hello there", choices[0]["text"])
        scores = self.complete(continued(ids[:4], echo=True, logprobs=0, max_tokens=0))["choices"][0]["logprobs"]
        whole = self.complete(continued(ids, echo=True, logprobs=0, max_tokens=0))["choices"][0]["logprobs"]
        for one, other in zip(scores["token_logprobs"][1:], whole["token_logprobs"][1:]):
            self.assertAlmostEqual(one, other, places=3)

    def test_offsets_count_characters(self):
        """However many bytes and tokens they have."""
        choice = self.complete(continued("aé€😀b", echo=True, logprobs=0, max_tokens=0))["choices"][0]
        lists = choice["logprobs"]
        self.assertGreater(len(lists["tokens"]), len("aé€😀b"), "some characters have several tokens")
        self.assertEqual(choice["text"][lists["text_offset"][-1]:], "b")

    def test_logprobs(self):
        chat = self.chat(asked(logprobs=True, top_logprobs=3))
        entries = chat["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(entries), chat["usage"]["completion_tokens"])
        for entry in entries:
            self.assertEqual(len(entry["top_logprobs"]), 3)
            self.assertLessEqual(entry["logprob"], 0)
            self.assertEqual(bytes(entry["bytes"]).decode("utf-8", "replace"), entry["token"])
        streamed = []
        for frame in self.server.events(CHAT, asked(logprobs=True, top_logprobs=3, stream=True))[:-1]:
            streamed += (json.loads(frame)["choices"][0].get("logprobs") or {}).get("content", [])
        self.assertEqual(streamed, entries)
        legacy = self.complete(continued(logprobs=2, n=2))
        streams = [[], []]
        for frame in self.server.events(TEXT, continued(logprobs=2, n=2, stream=True))[:-1]:
            choice = json.loads(frame)["choices"][0]
            streams[choice["index"]] += (choice["logprobs"] or {}).get("text_offset", [])
        for choice in legacy["choices"]:
            lists = choice["logprobs"]
            self.assertEqual({len(each) for each in lists.values()}, {len(lists["tokens"])})
            self.assertEqual(lists["text_offset"], sorted(lists["text_offset"]))
            self.assertLessEqual(lists["text_offset"][-1], len(choice["text"]))
            self.assertEqual(streams[choice["index"]], lists["text_offset"])

    def test_the_best_of_several(self):
        best = self.complete(continued(best_of=3))
        self.assertEqual(len(best["choices"]), 1)
        self.assertGreater(best["usage"]["completion_tokens"], 24)  # of all three

    def test_models(self):
        status, _, data = self.server.request("GET", "/v1/models")
        listed = json.loads(data)
        self.assertEqual((status, listed["object"]), (200, "list"))
        self.assertEqual([(model["id"], model["object"]) for model in listed["data"]], [("toy", "model")])
        self.assertEqual(listed["data"][0]["size"], os.path.getsize(self.toy))
        self.assertEqual(listed["data"][0]["capabilities"], ["completion"])
        self.assertGreater(listed["data"][0]["meta"]["n_ctx_train"], 0)
        self.assertTrue(listed["data"][0]["parameters"] and listed["data"][0]["quantization"])
        self.chat(asked(model="toy", max_tokens=1))
        _, _, data = self.server.request("GET", "/v1/models/toy")
        told = json.loads(data)
        self.assertGreater(told["context_length"], 0)
        self.assertEqual({**listed["data"][0], "status": "loaded", "context_length": told["context_length"],
                          "max_model_len": told["context_length"]}, told)
        status, _, data = self.server.request("GET", "/v1/models/nobody")
        self.expect_error(404, (status, json.loads(data)), code="model_not_found")

    def test_errors_name_what_is_wrong(self):
        kind = "invalid_request_error"
        cases = [
            (asked(model="nobody"), 404, "not_found_error", "model", "model_not_found"),
            (asked(model="../toy"), 404, "not_found_error", "model", "model_not_found"),
            (asked(model=self.toy), 404, "not_found_error", "model", "model_not_found"),
            (asked(temprature=1), 400, kind, "temprature", "unsupported_parameter"),
            (asked(temperature="hot"), 400, kind, "temperature", "invalid_value"),
            (asked(temperature=3), 400, kind, "temperature", "invalid_value"),
            (asked(n=1000000), 400, kind, "n", "invalid_value"),
            (asked(tools=[{"type": "function"}]), 400, kind, "tools", "unsupported_parameter"),
            (asked(response_format={"type": "json_object"}), 400, kind, "response_format", "unsupported_parameter"),
            ({"messages": []}, 400, kind, "messages", "invalid_value"),
            ({"messages": [{"role": "king", "content": "x"}]}, 400, kind, "messages", "invalid_value"),
            ({}, 400, kind, "messages", "invalid_value"),
            (b"", 400, kind, None, "invalid_json"),
            (b"{", 400, kind, None, "invalid_json"),
            (b"[]", 400, kind, None, "invalid_json"),
            (b'{"seed":1e400}', 400, kind, None, "invalid_json"),
            (b"[" * 100000, 400, kind, None, "invalid_json"),
            (b'{"model":"\xff"}', 400, kind, None, "invalid_json"),
            (b'{"model":"\\ud800"}', 400, kind, None, "invalid_json"),
            (b'{"messages":[],"messages":[]}', 400, kind, None, "invalid_json"),
            (asked(logit_bias={"999999999": 1}), 400, kind, "logit_bias", "invalid_value"),
            (asked("word " * 5000), 400, kind, "messages", "context_length_exceeded"),
        ]
        for body, status, error, param, code in cases:
            with self.subTest(body=str(body)[:80]):
                answer = self.server.post(CHAT, body)
                wanted = {"type": error, "param": param}
                if code is not None:
                    wanted["code"] = code
                self.expect_error(status, answer, **wanted)
        for prompt in ([999999999], [], "", [-1], ["a", ""], ["a", [999999999]], ["a", []], ["a"] * 129):
            self.expect_error(400, self.server.post(TEXT, continued(prompt)), type=kind, param="prompt", code="invalid_value")
        self.expect_error(400, self.server.post(TEXT, continued(["a"] * 9, n=16)), type=kind, param="prompt")
        self.chat(asked(tools=[], response_format={"type": "text"}, user="me", tool_choice="none", modalities=["text"],
                        verbosity="medium"))


class Native(ServeTest):
    def test_generate_and_stream_agree(self):
        body = {"prompt": "Hello there", "max_tokens": 24, "seed": 7}
        status, whole = self.server.post("/api/generate", body)
        self.assertEqual(status, 200, whole)
        self.assertEqual((whole["tokens_generated"], whole["finish_reason"]), (24, "length"))
        self.assertEqual(self.server.post("/api/native/generate", {**body, "model": "toy"})[1]["text"], whole["text"])
        _, chat = self.server.post(CHAT, asked())
        self.assertEqual(whole["text"], chat["choices"][0]["message"]["content"])
        events = [json.loads(frame) for frame in self.server.events("/api/stream", body)]
        self.assertEqual("".join(event["token"] for event in events), whole["text"])
        self.assertEqual([event["complete"] for event in events], [False] * (len(events) - 1) + [True])
        self.assertEqual(len([event for event in events if event["token_id"] >= 0]), 24)
        self.assertEqual(events[-1]["finish_reason"], "length")

    def test_what_is_refused(self):
        for body in ({"prompt": "x", "stream": True}, {"prompt": ""}, {"messages": 5},
                     {"messages": ["x"]}, {"prompt": "x", "messages": []}, {"prompt": "x", "topk": -1},
                     {"prompt": "x", "stop": [""]}):
            status, answer = self.server.post("/api/generate", body)
            self.assertEqual(status, 400, answer)
            self.assertIsInstance(answer["error"], str)

    def test_the_call_of_the_guide_as_written(self):
        with open(GUIDE, encoding="utf-8") as file:
            command = re.search(r"^(curl -X POST localhost:8080/api/generate .*\n.*)$", file.read(), re.MULTILINE).group(1)
        self.assertIn("""-H 'Content-Type: application/json'""", command)
        self.assertIn("""-d '{"prompt": "Explain quantum computing", "max_tokens": 100}'""", command)
        command = command.replace("curl", "curl --silent", 1).replace("8080", str(self.server.port))
        done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=TIMEOUT, check=True)
        answer = json.loads(done.stdout)
        self.assertLessEqual({"text", "tokens_generated", "tokens_per_sec", "finish_reason"}, set(answer))
        self.assertLessEqual(answer["tokens_generated"], 100)

    def test_a_prompt_beyond_the_context_has_a_code(self):
        for path in ("/api/generate", "/api/native/generate", "/api/stream"):
            status, answer = self.server.post(path, {"prompt": "x " * 100000})
            self.assertEqual((status, answer["code"]), (400, "context_length_exceeded"), answer)
            self.assertRegex(answer["error"], r"\d+ tokens")

    def test_health(self):
        for path in ("/health", "/v1/health", "/api/health", "/healthz"):
            said = json.loads(self.server.request("GET", path)[2])
            self.assertEqual((said["status"], said["checks"]["engine"]["status"]), ("ok", "ok"))
            self.assertEqual(set(said), {"status", "version", "uptime", "timestamp", "checks"})
        self.assertEqual(self.server.request("GET", "/readyz")[0], 200)
        version = json.loads(self.server.request("GET", "/version")[2])["version"]
        self.assertIn(version, self.succeed("--version").out.decode())


class Embeddings(ServeTest):
    @classmethod
    def prepare(cls):
        cls.models = [cls.make_toy("embed", "words.gguf"), cls.toy]

    def embed(self, **body):
        status, answer = self.server.post("/v1/embeddings", body)
        self.assertEqual(status, 200, answer)
        return answer

    def test_floats_base64_and_the_program_agree(self):
        texts = ["the fox", "dog"]
        answer = self.embed(input=texts)
        self.assertEqual((answer["object"], answer["model"]), ("list", "words"))
        self.assertEqual(self.embed(model="words:latest", input="a")["model"], "words:latest")
        self.assertEqual([(each["object"], each["index"]) for each in answer["data"]],
                         [("embedding", 0), ("embedding", 1)])
        packed = self.embed(input=texts, encoding_format="base64")
        told = json.loads(self.succeed("embed", self.models[0], "--", *texts).out)
        for plain, coded, vector in zip(answer["data"], packed["data"], told):
            values = plain["embedding"]
            data = base64.b64decode(coded["embedding"], validate=True)
            narrow = [struct.unpack("<f", struct.pack("<f", value))[0] for value in values]
            self.assertEqual(list(struct.unpack(f"<{len(values)}f", data)), narrow)
            self.assertEqual(narrow, [struct.unpack("<f", struct.pack("<f", value))[0] for value in vector])
        self.assertEqual(self.embed(input="dog")["data"][0]["embedding"], answer["data"][1]["embedding"])
        self.assertGreater(answer["usage"]["prompt_tokens"], 1)

    def test_fewer_dimensions_are_the_first_ones_at_length_one(self):
        whole = self.embed(input="the fox")["data"][0]["embedding"]
        short = self.embed(input="the fox", dimensions=16)["data"][0]["embedding"]
        self.assertEqual((len(whole), len(short)), (128, 16))
        length = sum(value * value for value in whole[:16]) ** 0.5
        for value, first in zip(short, whole):
            self.assertAlmostEqual(value, first / length, places=5)

    def test_what_is_refused(self):
        for body in ({}, {"input": []}, {"input": [1, "a"]}, {"input": "a", "encoding_format": "int8"},
                     {"input": "a", "dimensions": 0}, {"input": "a", "dimensions": 1 << 20}, {"input": [999999999]},
                     {"input": ["dog"] * 2049}):
            with self.subTest(body=str(body)[:60]):
                self.expect_error(400, self.server.post("/v1/embeddings", body), type="invalid_request_error")
        self.expect_error(400, self.server.post("/v1/embeddings", {"input": [999999999]}), param="input",
                          code="invalid_value")
        self.expect_error(400, self.server.post(CHAT, asked()), type="invalid_request_error")


class Many(ServeTest):
    arguments = ("--parallel", "16", "--io-threads", "3")

    def test_64_streams_are_each_what_they_are_alone(self):
        bodies = [asked(f"Number {i}", seed=i, stream=True) for i in range(64)]

        def text(body):
            frames = self.server.events(CHAT, body)[:-1]
            return "".join(json.loads(frame)["choices"][0]["delta"].get("content", "") for frame in frames)

        alone = [text(body) for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            self.assertEqual(list(pool.map(text, bodies)), alone)
        self.assertGreater(len(set(alone)), 32)

    def test_every_form_among_64_is_what_the_program_says(self):
        def told(number):
            return json.loads(self.succeed("run", self.toy, f"Number {number}", "--json", "--seed", str(number), "-n",
                                           "8").out)["text"]

        def sse(number):
            frames = self.server.events(CHAT, asked(f"Number {number}", seed=number, max_tokens=8, stream=True))[:-1]
            return "".join(json.loads(frame)["choices"][0]["delta"].get("content", "") for frame in frames)

        def whole(number):
            answer = self.server.post(CHAT, asked(f"Number {number}", seed=number, max_tokens=8))[1]
            return answer["choices"][0]["message"]["content"]

        def ndjson(number):
            body = {"model": "toy", "prompt": f"Number {number}", "options": {"seed": number, "num_predict": 8}}
            return "".join(json.loads(line)["response"]
                           for line in self.server.request("POST", "/api/generate", body)[2].splitlines())

        def native(number):
            events = self.server.events("/api/stream", {"prompt": f"Number {number}", "seed": number, "max_tokens": 8})
            return "".join(json.loads(event)["token"] for event in events)

        def socket(number):
            with WebSocketClient(self.server.port) as client:
                client.ask("a", prompt=f"Number {number}", seed=number, max_tokens=8)
                return "".join(message["payload"]["token"] for message in client.answer("a"))

        forms = (sse, whole, ndjson, native, socket)
        expected = [told(number) for number in range(4)]
        calls = [(forms[i % len(forms)], i // len(forms) % 4) for i in range(64)]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            said = list(pool.map(lambda call: call[0](call[1]), calls))
        for (form, number), text in zip(calls, said):
            self.assertEqual(text, expected[number], form.__name__)
        self.assertEqual(len(set(expected)), 4)


class Ends(ServeTest):
    """Each test has a server of its own; the toy's long context makes answers that outlast them."""
    @classmethod
    def prepare(cls):
        cls.long = cls.make_toy("chat", "long.gguf", context=65536)

    def endless(self, server):
        """A stream that has begun, and would go on for very long."""
        connection = server.connect()
        bias = {str(token): -100 for token in self.ends}
        connection.request("POST", TEXT, json.dumps(continued(max_tokens=60000, stream=True, logit_bias=bias)))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.readline())
        return connection, answer

    def read_on(self, answer):
        """The rest of it, as it will be: whoever does not read is cut off for that."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(answer.read)

    def expect_reason(self, reading):
        """What is cut off is told why, and not left to wonder."""
        frames = reading.result(TIMEOUT).decode().split("\n\n")
        self.assertEqual(frames[-2:], ["data: [DONE]", ""])
        error = json.loads(frames[-3].strip().removeprefix("data: "))["error"]
        self.assertIn("about to end", error["message"])
        self.assertEqual(error["code"], "draining")  # as for those who come now

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ends = [258, 2, 0, 1]

    def test_a_client_that_leaves_ends_its_answer(self):
        server = self.start_server(self.long, "--parallel", "1", "--cache-tokens", "64k")
        connection, answer = self.endless(server)
        answer.close()
        connection.close()
        # One at a time: this is answered when the other one is over, and that did not come to its end.
        self.assertEqual(server.post(CHAT, asked(max_tokens=2))[0], 200)
        code, said = server.stop()
        self.assertEqual(code, 0)
        lines = [json.loads(line) for line in said.splitlines()]
        left = next(line for line in lines if line.get("route") == f"POST {TEXT}")
        self.assertEqual((left["finish_reason"], "error" in left), ("cancelled", False), left)
        self.assertLess(left["generated_tokens"], 60000)

    def test_sigterm_lets_an_answer_finish(self):
        server = self.start_server(self.long)
        connection = server.connect()
        connection.request("POST", CHAT, json.dumps(asked(max_tokens=400, stream=True)))
        answer = connection.getresponse()
        idle = server.socket()
        missed = server.connect()  # a connection that a refused request left open is idle too
        missed.request("GET", "/nowhere")
        missed.getresponse().read()
        server.process.send_signal(signal.SIGTERM)
        while server.process.poll() is None:
            try:
                status, headers, _ = server.request("GET", "/readyz")
            except OSError:
                break  # it was quick
            if status == 503:
                self.assertTrue(headers["Retry-After"])
                break
        frames = answer.read().decode().split("\n\n")
        self.assertEqual(frames[-2:], ["data: [DONE]", ""])
        code, said = server.stop()
        self.assertEqual(code, 0, said)
        self.assertNotIn("cut off", said)
        idle.close()
        missed.close()
        connection.close()

    def test_readiness_and_refusal_while_draining(self):
        server = self.start_server(self.long, "--drain", "4", "--cache-tokens", "64k")
        connection, answer = self.endless(server)
        reading = self.read_on(answer)
        server.process.send_signal(signal.SIGTERM)
        while server.request("GET", "/readyz")[0] != 503:
            time.sleep(0.01)
        self.expect_error(503, server.post(CHAT, asked()), code="draining")
        self.expect_reason(reading)
        code, said = server.stop()
        self.assertEqual(code, 0, said)
        self.assertIn("cut off", said)
        connection.close()

    def test_a_second_signal_ends_it_at_once(self):
        server = self.start_server(self.long, "--drain", "3600", "--cache-tokens", "64k")
        connection, answer = self.endless(server)
        reading = self.read_on(answer)
        server.process.send_signal(signal.SIGTERM)
        while server.request("GET", "/readyz")[0] != 503:
            time.sleep(0.01)
        code, said = server.stop()
        self.assertEqual(code, 0, said)
        self.expect_reason(reading)
        connection.close()

    def test_the_end_amid_many_requests(self):
        """Readiness goes, new ones are refused, and every stream that had begun says at its end why it ends."""
        server = self.start_server(self.long, "--drain", "0", "--cache-tokens", "64k", "--parallel", "4")
        streams = [self.endless(server) for _ in range(4)]
        readings = [self.read_on(answer) for _, answer in streams]
        waiting = []  # behind those four
        for _ in range(36):
            connection = server.connect()
            connection.request("POST", TEXT, json.dumps(continued(max_tokens=60000, stream=True)))
            waiting.append(connection)
        end = time.monotonic() + TIMEOUT
        while not re.search(rb"^quarrel_requests_waiting\{[^}]*\} 36$", server.request("GET", "/metrics")[2], re.MULTILINE):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        code, said = server.stop()
        self.assertEqual(code, 0, said)
        for reading in readings:
            self.expect_reason(reading)
        for connection, _ in streams:
            connection.close()
        for connection in waiting:
            self.expect_reason(self.read_on(connection.getresponse()))
            connection.close()

    def test_a_port_that_is_taken(self):
        self.refuse(1, ["cannot listen", str(self.server.port), "in use"], "serve", self.toy, "--port",
                    str(self.server.port))

    def test_what_cannot_be_served(self):
        self.refuse(1, ["nobody"], "serve", "nobody", "--port", "0")
        self.refuse(2, ["two", "toy"], "serve", self.toy, self.toy, "--port", "0")
        self.refuse(2, ["key"], "serve", self.toy, "--host", "0.0.0.0", "--port", "0")
        kept = self.path("kept.txt")
        with open(kept, "w", encoding="utf-8") as file:
            file.write("mine")
        self.refuse(2, ["socket"], "serve", self.toy, "--port", "0", "--unix-socket", kept)
        self.assertTrue(os.path.exists(kept))

    def test_a_damaged_model_is_refused_without_its_path(self):
        bad = self.path("bad.gguf")
        with open(bad, "wb") as file:
            file.write(b"GGUF" + bytes(100))
        server = self.start_server(bad, self.toy)
        answer = server.post(CHAT, asked())
        self.expect_error(500, answer, code="model_failed")
        self.assertNotIn("bad.gguf", answer[1]["error"]["message"])
        self.assertEqual(server.post(CHAT, asked(model="toy", max_tokens=1))[0], 200)
        self.assertIn("bad.gguf", server.stop()[1])


if __name__ == "__main__":
    unittest.main()

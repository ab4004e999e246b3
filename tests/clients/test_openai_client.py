#!/usr/bin/env python3
"""The `openai` package, unchanged, against the server: answers, streams, vectors, models, errors, cancellation."""
import asyncio
import math
import signal
import struct
import time
import unittest

import openai

from client_harness import TIMEOUT, ClientTest

HELLO = [{"role": "user", "content": "Hello"}]
KEY = "a-key-for-the-tests"


def greedy(**fields):
    return {"model": "toy", "messages": HELLO, "temperature": 0, "max_tokens": 8, **fields}


def endless(**fields):
    """A question whose answer takes long: what would end it cannot come."""
    return greedy(model="long", max_tokens=60000, logit_bias={str(token): -100 for token in (0, 1, 2, 258)}, **fields)


class OpenAiTest(ClientTest):
    def setUp(self):
        self.client = self.make_client()

    def make_client(self, server=None, kind=openai.OpenAI, **options):
        address = f"http://127.0.0.1:{(server or self.server).port}/v1"
        client = kind(**{"api_key": "none", "base_url": address, "max_retries": 0, **options})
        if kind is openai.OpenAI:
            self.addCleanup(client.close)
        return client

    def fails(self, kind, status, call, client=None):
        with self.assertRaises(openai.APIStatusError) as caught:
            call(client or self.client)
        error = caught.exception
        self.assertIs(type(error), kind, error)
        self.assertEqual(error.status_code, status)
        self.assertTrue(error.request_id, "x-request-id")
        return error


class Answers(OpenAiTest):
    def test_chat(self):
        answer = self.client.chat.completions.create(**greedy())
        self.assertEqual((answer.object, answer.model), ("chat.completion", "toy"))
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertTrue(answer.choices[0].message.content)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertLessEqual(abs(answer.created - time.time()), 60)
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertTrue(answer._request_id)

    def test_stream_is_the_same_answer(self):
        whole = self.client.chat.completions.create(**greedy())
        chunks = list(self.client.chat.completions.create(
            **greedy(stream=True, stream_options={"include_usage": True})))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
                         whole.choices[0].message.content)
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
                         whole.choices[0].finish_reason)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})

    def test_the_helper_for_streams(self):
        with self.client.chat.completions.stream(**greedy(max_tokens=128)) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertEqual(final.choices[0].message.content,
                         self.client.chat.completions.create(**greedy(max_tokens=128)).choices[0].message.content)
        with self.assertRaises(openai.LengthFinishReasonError):
            with self.client.chat.completions.stream(**greedy(max_tokens=2)) as stream:
                stream.until_done().get_final_completion()

    def test_the_helper_that_parses(self):
        answer = self.client.chat.completions.parse(**greedy(max_tokens=128))
        self.assertIsNotNone(answer.choices[0].message.content)

    def test_several_answers_with_logprobs(self):
        answer = self.client.chat.completions.create(
            **greedy(n=3, temperature=1.0, seed=5, logprobs=True, top_logprobs=2))
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        for choice in answer.choices:
            for token in choice.logprobs.content:
                self.assertLessEqual(token.logprob, 0)
                self.assertEqual(len(token.top_logprobs), 2)
                # A token may be half a character: its bytes say which half.
                self.assertEqual(bytes(token.bytes).decode(errors="replace"), token.token)

    def test_seed_stop_bias_and_what_has_no_effect(self):
        def text(**fields):
            return self.client.chat.completions.create(**greedy(temperature=1.0, **fields)).choices[0].message.content
        self.assertEqual(text(seed=3), text(seed=3))
        whole = text(seed=3)
        stopped = text(seed=3, stop=[whole[2:4]])
        self.assertTrue(whole.startswith(stopped))
        self.assertNotIn(whole[2:4], stopped)
        self.assertEqual(whole, text(seed=3, user="me", metadata={"a": "b"}, store=False, service_tier="auto",
                                     safety_identifier="s", prompt_cache_key="k", prompt_cache_retention="24h",
                                     parallel_tool_calls=True, response_format={"type": "text"}))
        text(logit_bias={"5": -100}, presence_penalty=0.5, frequency_penalty=0.5, top_p=0.9)

    def test_completions(self):
        ask = {"model": "toy", "prompt": "Once upon", "temperature": 0, "max_tokens": 6}
        answer = self.client.completions.create(**ask, logprobs=2)
        self.assertEqual(answer.object, "text_completion")
        logprobs = answer.choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), len(logprobs.text_offset))
        streamed = "".join(chunk.choices[0].text for chunk in self.client.completions.create(**ask, stream=True)
                           if chunk.choices)
        self.assertEqual(streamed, answer.choices[0].text)
        echoed = self.client.completions.create(**ask, echo=True)
        self.assertEqual(echoed.choices[0].text, "Once upon" + answer.choices[0].text)
        self.assertEqual(len(self.client.completions.create(**ask, n=2, best_of=3).choices), 2)
        self.client.completions.create(**{**ask, "prompt": [1, 5, 7]})
        several = self.client.completions.create(**{**ask, "prompt": ["Once upon", "the fox"]})
        self.assertEqual([choice.index for choice in several.choices], [0, 1])
        self.assertEqual(several.choices[0].text, answer.choices[0].text)

    def test_models(self):
        listed = list(self.client.models.list())
        self.assertEqual({model.id for model in listed}, {"toy", "vectors", "long", "broken"})
        self.assertTrue(all(model.object == "model" and model.owned_by and model.created > 0 for model in listed))
        self.assertEqual(self.client.models.retrieve("toy").id, "toy")

    def test_vectors(self):
        # Without encoding_format the package asks for base64 and decodes it itself.
        decoded = self.client.embeddings.create(model="vectors", input=["a fox", "a dog"])
        plain = self.client.embeddings.create(model="vectors", input=["a fox", "a dog"], encoding_format="float")
        packed = self.client.embeddings.create(model="vectors", input=["a fox", "a dog"], encoding_format="base64")
        self.assertEqual([item.index for item in plain.data], [0, 1])
        self.assertGreater(plain.usage.prompt_tokens, 0)
        for one, two, three in zip(decoded.data, plain.data, packed.data):
            self.assertAlmostEqual(math.fsum(value * value for value in two.embedding), 1.0, places=3)
            self.assertEqual(len(one.embedding), len(two.embedding))
            for a, b in zip(one.embedding, two.embedding):
                self.assertEqual(struct.pack("f", a), struct.pack("f", b))
            self.assertIsInstance(three.embedding, str)
        single = self.client.embeddings.create(model="vectors", input="a fox", user="me")
        self.assertEqual(len(single.data), 1)
        ids = self.client.embeddings.create(model="vectors", input=[[2, 5, 3], [2, 6, 3]])
        self.assertEqual(len(ids.data), 2)


class Errors(OpenAiTest):
    def test_bad_requests(self):
        create = self.client.chat.completions.create
        error = self.fails(openai.BadRequestError, 400, lambda c: create(**greedy(temperature=3)))
        self.assertEqual((error.param, error.code, error.type), ("temperature", "invalid_value", "invalid_request_error"))
        error = self.fails(openai.BadRequestError, 400, lambda c: create(**greedy(extra_body={"temprature": 1})))
        self.assertEqual((error.param, error.code), ("temprature", "unsupported_parameter"))
        error = self.fails(openai.BadRequestError, 400, lambda c: create(**greedy(
            tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])))
        self.assertEqual(error.param, "tools")
        error = self.fails(openai.BadRequestError, 400, lambda c: create(**greedy(
            response_format={"type": "json_object"})))
        self.assertEqual(error.param, "response_format")
        for name, value in (("verbosity", "low"), ("web_search_options", {"a": 1}), ("reasoning_effort", "low"),
                            ("moderation", {"model": "m"})):
            error = self.fails(openai.BadRequestError, 400, lambda c: create(**greedy(**{name: value})))
            self.assertEqual((error.param, error.code), (name, "unsupported_parameter"))
            self.assertNotIn("not a field", error.message)

    def test_a_prompt_beyond_the_context(self):
        error = self.fails(openai.BadRequestError, 400, lambda client: client.chat.completions.create(
            **greedy(messages=[{"role": "user", "content": "word " * 5000}])))
        self.assertEqual(error.code, "context_length_exceeded")
        # Before the stream begins, not inside it.
        self.fails(openai.BadRequestError, 400, lambda client: client.chat.completions.create(
            **greedy(messages=[{"role": "user", "content": "word " * 5000}], stream=True)))

    def test_what_is_not_there(self):
        error = self.fails(openai.NotFoundError, 404,
                           lambda client: client.chat.completions.create(**greedy(model="nobody")))
        self.assertEqual((error.code, error.param), ("model_not_found", "model"))
        self.fails(openai.NotFoundError, 404, lambda client: client.models.retrieve("nobody"))
        self.fails(openai.NotFoundError, 404, lambda client: client.moderations.create(input="x"))

    def test_keys(self):
        server = self.start_server(self.toy, "--threads", "1", QUARREL_API_KEY=KEY)
        error = self.fails(openai.AuthenticationError, 401, lambda client: client.models.list(),
                           self.make_client(server, api_key="wrong"))
        self.assertEqual(error.code, "invalid_api_key")
        self.assertEqual(len(list(self.make_client(server, api_key=KEY).models.list())), 1)

    def test_what_a_key_may(self):
        keys = self.path("keys.json")
        few = self.make_key(keys, "few", "--requests-per-minute", "2")
        limited = self.make_key(keys, "limited", "--model", "nobody")
        server = self.start_server(self.toy, "--threads", "1", "--keys", keys)
        client = self.make_client(server, api_key=few)
        for _ in range(2):
            client.models.list()
        error = self.fails(openai.RateLimitError, 429, lambda client: client.models.list(), client)
        self.assertEqual((error.type, error.code), ("rate_limit_error", "rate_limit_exceeded"))
        self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)
        self.assertEqual(error.response.headers["x-ratelimit-limit-requests"], "2")
        client = self.make_client(server, api_key=limited)
        self.assertEqual(list(client.models.list()), [])
        self.fails(openai.NotFoundError, 404, lambda client: client.chat.completions.create(**greedy()), client)

    def test_a_body_that_is_too_large(self):
        self.fails(openai.APIStatusError, 413, lambda client: client.chat.completions.create(
            **greedy(messages=[{"role": "user", "content": "x" * (17 << 20)}])))

    def test_a_model_that_cannot_be_loaded(self):
        error = self.fails(openai.InternalServerError, 500,
                           lambda client: client.chat.completions.create(**greedy(model="broken")))
        self.assertEqual((error.type, error.code), ("server_error", "model_failed"))
        self.assertNotIn("/", error.message)

    def test_vectors_that_a_model_does_not_have(self):
        error = self.fails(openai.BadRequestError, 400, lambda client: client.chat.completions.create(
            **greedy(model="vectors")))
        self.assertNotIn("/", error.message)

    def test_a_server_that_ends(self):
        server = self.start_server(self.path("long.gguf"), "--threads", "1", "--drain", "20", "--cache-tokens", "64k")
        client = self.make_client(server)
        stream = client.chat.completions.create(**endless(stream=True))
        next(iter(stream))
        server.process.send_signal(signal.SIGTERM)
        end = time.monotonic() + TIMEOUT
        while True:
            self.assertLess(time.monotonic(), end)
            try:
                client.models.list()
            except openai.APIConnectionError:
                continue  # it had kept a connection that the server has closed as idle
            except openai.InternalServerError as error:
                self.assertEqual((error.status_code, error.code), (503, "draining"))
                self.assertGreaterEqual(int(error.response.headers["retry-after"]), 1)
                break
        stream.close()
        server.stop()

    def test_nobody_there(self):
        server = self.start_server(self.toy, "--threads", "1")
        client = self.make_client(server)
        server.stop()
        with self.assertRaises(openai.APIConnectionError):
            client.models.list()


class Cancellation(OpenAiTest):
    """One answer at a time: the next one begins only when the one before has ended."""
    arguments = ("--threads", "1", "--parallel", "1", "--cache-tokens", "64k")

    def ask_next(self):
        begun = time.monotonic()
        self.client.chat.completions.create(**greedy(model="long", max_tokens=2))
        self.assertLess(time.monotonic() - begun, 20)

    def test_a_stream_that_is_closed(self):
        stream = self.client.chat.completions.create(**endless(stream=True))
        for _, chunk in zip(range(5), stream):
            self.assertTrue(chunk.choices)
        stream.close()
        self.ask_next()

    def test_a_client_that_waits_no_longer(self):
        with self.assertRaises(openai.APITimeoutError):
            self.client.chat.completions.create(**endless(), timeout=1.0)
        self.ask_next()

    def test_a_task_that_is_cancelled(self):
        async def scene():
            client = self.make_client(kind=openai.AsyncOpenAI)
            whole = await client.chat.completions.create(**greedy())
            parts = [chunk.choices[0].delta.content or ""
                     async for chunk in await client.chat.completions.create(**greedy(stream=True)) if chunk.choices]
            self.assertEqual("".join(parts), whole.choices[0].message.content)
            asked = asyncio.create_task(client.chat.completions.create(**endless()))
            await asyncio.sleep(0.5)
            asked.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await asked
            answers = await asyncio.gather(*(client.chat.completions.create(**greedy()) for _ in range(8)))
            self.assertEqual({answer.choices[0].message.content for answer in answers},
                             {whole.choices[0].message.content})
            await client.close()
        asyncio.run(scene())
        self.ask_next()


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""`/ws` as clients see it, and answers that are taken up again after a lost connection, over WebSocket and SSE."""
import base64
import concurrent.futures
import json
import random
import socket
import struct
import subprocess
import time
import unittest

from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest
from websocket_client import PING, TEXT, Closed, Refused, WebSocketClient, text_of, tokens_of

BODY = {"prompt": "Hello there", "max_tokens": 24, "seed": 7}
# Says the same token again and again; some thousand a second.
LONG = {"prompt": "Hello there", "max_tokens": 60000, "temperature": 0, "repeat_penalty": 0.1}


class SocketTest(ServeTest):
    @classmethod
    def prepare(cls):
        cls.models = [cls.make_toy("chat", "toy.gguf", context=65536)]

    def open(self, **options):
        client = WebSocketClient(self.server.port, **options)
        self.addCleanup(client.cut)
        return client

    def expect_code(self, client, code, identifier=None, **payload):
        """Without an id of its own a message is given one."""
        error = client.next("error")
        self.assertEqual(error["payload"]["code"], code, error)
        if identifier is None:
            self.assertRegex(error["id"], r"^answer-\d+$")
        else:
            self.assertEqual(error["id"], identifier, error)
        for name, value in payload.items():
            self.assertEqual(error["payload"].get(name), value, error)
        return error["payload"]

    def stream(self, body):
        return [json.loads(frame) for frame in self.server.events("/api/stream", body)]


class Queue(SocketTest):
    arguments = ("--parallel", "1")

    def ahead(self, client, identifier):
        """The next number that this request is told."""
        while True:
            message = client.next("status")
            if message.get("id") == identifier and message["payload"].get("state") == "queued":
                return message["payload"]["ahead"]

    def test_how_many_are_ahead(self):
        with self.open() as client:
            client.ask("first", **LONG)
            client.next("inference")
            client.ask("second", **LONG, progress=True)
            self.assertEqual(self.ahead(client, "second"), 0)
            client.ask("third", **BODY, progress=True)
            self.assertEqual(self.ahead(client, "third"), 1)
            client.send({"type": "stop", "id": "first"})
            self.assertEqual(self.ahead(client, "third"), 0)
            client.send({"type": "stop", "id": "second"})
            self.assertTrue(client.answer("third")[-1]["payload"]["complete"])

    def test_how_many_are_ahead_over_sse(self):
        with self.open() as client:
            client.ask("first", **LONG)
            client.next("inference")
            connection = self.server.connect()
            self.addCleanup(connection.close)
            connection.request("POST", "/api/stream", json.dumps({**BODY, "progress": True}))
            lines = iter(connection.getresponse().readline, b"")
            self.assertIn(b'data: {"state":"queued","ahead":0}\n', lines)
            client.send({"type": "stop", "id": "first"})
            self.assertIn(b'"complete":true', b"".join(lines))


class Answers(SocketTest):
    arguments = ("--parallel", "64", "--cache-tokens", "128k", "--ws-broadcast", "0.3")

    def test_the_message_of_the_guide(self):
        with self.open() as client:
            client.send_text('{"type":"inference","payload":{"prompt":"Hello,","stream":true}}')
            messages = client.answer()
        self.assertEqual({message["type"] for message in messages}, {"inference"})
        self.assertEqual(len({message["id"] for message in messages}), 1)
        for message in messages:
            self.assertLessEqual({"token", "token_id", "stream", "complete", "tokens_per_sec"}, set(message["payload"]))
            self.assertIs(message["payload"]["stream"], True)
        self.assertEqual([message["payload"]["complete"] for message in messages],
                         [False] * (len(messages) - 1) + [True])
        self.assertIn(messages[-1]["payload"]["finish_reason"], ("stop", "length"))

    def test_the_same_answer_as_everywhere(self):
        told = json.loads(self.succeed("run", self.toy, "Hello there", "--json", "--seed", "7", "-n", "24").out)
        events = self.stream(BODY)
        with self.open() as client:
            client.ask("a", **BODY)
            messages = client.answer("a")
            client.ask("b", **BODY, stream=False)
            whole = client.answer("b")
        self.assertEqual(text_of(messages), told["text"])
        self.assertEqual(tokens_of(messages), told["tokens"])
        self.assertEqual("".join(event["token"] for event in events), told["text"])
        self.assertEqual([event["token_id"] for event in events if event["token_id"] >= 0], told["tokens"])
        self.assertEqual(messages[-1]["payload"]["finish_reason"], told["finish_reason"])
        self.assertEqual(messages[-1]["payload"]["tokens_generated"], len(told["tokens"]))
        self.assertEqual(len(whole), 1)
        self.assertEqual((whole[0]["payload"]["token"], whole[0]["payload"]["stream"]), (told["text"], False))

    def test_64_on_one_connection_and_none_is_mixed(self):
        bodies = {f"n{i}": {"prompt": f"Number {i}", "seed": i, "max_tokens": 16} for i in range(64)}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            alone = dict(zip(bodies, pool.map(lambda body: self.server.post("/api/native/generate", body)[1]["text"],
                                              bodies.values())))
        self.assertGreater(len(set(alone.values())), 30)
        with self.open() as client:
            for identifier, body in bodies.items():
                client.ask(identifier, **body)
            texts, unfinished, ends = dict.fromkeys(bodies, ""), set(bodies), []
            while unfinished:
                message = client.next("inference", "error")
                self.assertEqual(message["type"], "inference", message)
                texts[message["id"]] += message["payload"]["token"]
                if message["payload"]["complete"]:
                    unfinished.remove(message["id"])
                    ends.append(message["id"])
        self.assertEqual(texts, alone)

    def test_how_much_of_the_prompt_is_read(self):
        with self.open() as client:
            client.ask("long", prompt="one two three " * 4000, max_tokens=1, progress=True)
            told = []
            while (message := client.next("status", "inference"))["type"] == "status":
                if message["payload"].get("state") == "reading":
                    told.append(message["payload"])
            client.ask("silent", prompt="four five six " * 4000, max_tokens=1)
            states = []
            while (message := client.next("status", "inference")).get("id") != "silent" or message["type"] == "status":
                states.append(message["payload"].get("state"))
        self.assertGreater(len(told), 2)
        read = [payload["prompt_tokens_read"] for payload in told]
        self.assertEqual(read, sorted(set(read)))
        self.assertEqual(len({payload["prompt_tokens"] for payload in told}), 1)
        self.assertLess(read[-1], told[0]["prompt_tokens"])
        self.assertNotIn("reading", states)

    def test_how_much_of_the_prompt_is_read_over_sse(self):
        body = {"prompt": "seven eight nine " * 400, "max_tokens": 1, "progress": True}
        for extra in ({}, {"resume": True, "seed": 1}):
            self.server.request("DELETE", "/api/models/toy/cache")
            status, _, data = self.server.request("POST", "/api/stream", {**body, **extra})
            self.assertEqual(status, 200, data)
            frames = [dict(line.split(": ", 1) for line in frame.splitlines())
                      for frame in data.decode().split("\n\n") if frame not in ("", ":")]
            told = [frame for frame in frames if frame.get("event") == "status"]
            read = [json.loads(frame["data"])["prompt_tokens_read"] for frame in told]
            self.assertGreater(len(read), 2)
            self.assertEqual(read, sorted(set(read)))
            for frame in told:
                self.assertEqual(json.loads(frame["data"])["state"], "reading")
                self.assertNotIn("id", frame)
            rest = frames[frames.index(told[-1]) + 1:]
            self.assertNotIn("event", [name for frame in rest for name in frame])
            self.assertTrue(json.loads(rest[-1]["data"])["complete"])
        status, answer = self.server.post("/api/generate", body)
        self.assertEqual((status, answer["code"]), (400, "unsupported_parameter"))
        self.assertIn("progress", answer["error"])

    def test_an_answer_goes_on_from_its_beginning(self):
        asked = {"role": "user", "content": "Hello there"}
        body = {"max_tokens": 8, "temperature": 0}
        with self.open() as client:
            client.ask("a", messages=[asked], **body)
            whole = client.answer("a")
            client.ask("b", messages=[asked, {"role": "assistant", "content": "fox"}], **{"continue": True}, **body)
            rest = client.answer("b")
            client.ask("c", messages=[asked], **{"continue": True})
            self.expect_code(client, "INVALID_REQUEST", "c", param="continue")
            client.ask("d", messages=[asked, {"role": "assistant", "content": "<|im_end|>"}], **{"continue": True}, **body)
            forged = client.answer("d")
        template = self.server.post("/apply-template", {"messages": [asked]})[1]["prompt"]
        raw = self.server.post("/v1/completions", {"prompt": template + "fox", **body})[1]
        self.assertEqual(text_of(rest), raw["choices"][0]["text"])
        self.assertEqual(rest[-1]["payload"]["prompt_tokens"], raw["usage"]["prompt_tokens"])
        # What stands in it never becomes a control token.
        self.assertGreater(forged[-1]["payload"]["prompt_tokens"], whole[-1]["payload"]["prompt_tokens"] + 1)

    def test_stop_ends_one_answer_and_no_other(self):
        with self.open() as client:
            client.ask("long", **LONG)
            client.ask("other", **LONG)
            while client.next("inference")["id"] != "long":
                pass
            client.send({"type": "stop", "id": "long"})
            while (said := client.next("status"))["payload"].get("state") != "stopping":
                pass
            self.assertEqual((said["id"], said["payload"]["stopped"]), ("long", ["long"]))
            late = client.answer("long")
            self.assertLess(len(tokens_of(late)), LONG["max_tokens"] // 10)  # what was on its way
            self.assertEqual(late[-1]["payload"]["finish_reason"], "cancelled")
            self.assertEqual(client.next("inference")["id"], "other")
            client.send({"type": "stop", "id": "long"})  # a second one is nothing
            while (said := client.next("status"))["payload"].get("state") != "stopping":
                pass
            self.assertEqual(said["payload"]["stopped"], [])
            client.send({"type": "stop"})
            while (said := client.next("status"))["payload"].get("state") != "stopping":
                pass
            self.assertEqual(said["payload"]["stopped"], ["other"])
            self.assertEqual(client.answer("other")[-1]["payload"]["finish_reason"], "cancelled")
            client.ask("long", **BODY)  # the id is free again
            self.assertEqual(len(tokens_of(client.answer("long"))), 24)

    def test_a_stop_right_behind_its_answer(self):
        with self.open() as client:
            for i in range(20):
                client.ask(f"a{i}", **LONG)
                client.send({"type": "stop", "id": f"a{i}"})
                self.assertEqual(client.answer(f"a{i}")[-1]["payload"]["finish_reason"], "cancelled")

    def test_status_and_ping(self):
        with self.open() as client:
            client.send({"type": "ping", "id": "p"})
            while "id" not in (said := client.next("status")):  # a broadcast
                pass
            self.assertEqual(said, {"type": "status", "id": "p", "payload": {"connected": True}})
            client.ask("x", **LONG)
            client.next("inference")
            client.send({"type": "status", "id": "s"})
            while (said := client.next("status")).get("id") != "s":
                pass
            self.assertEqual([answer["id"] for answer in said["payload"]["running"]], ["x"])
            self.assertEqual([(model["name"], model["state"]) for model in said["payload"]["models"]],
                             [("toy", "loaded")])
            self.assertIs(said["payload"]["ready"], True)

    def test_every_reply_has_an_id(self):
        """One that the server made, where the message has none; each of them another."""
        seen = set()
        with self.open() as client:
            for message, key in (({"type": "ping"}, "connected"), ({"type": "status"}, "running"),
                                 ({"type": "stop"}, "stopped")):
                client.send(message)
                while key not in (said := client.next("status"))["payload"]:
                    pass
                seen.add(said["id"])
            client.send({"type": "inference", "payload": {}})
            seen.add(client.next("error")["id"])
            client.send({"type": "inference", "payload": BODY})
            last = client.next("inference")
            seen.add(last["id"])
            self.assertEqual(len(seen), 5, seen)
            self.assertEqual(len(tokens_of([last] + client.answer(last["id"]))), 24)

    def test_a_lost_connection_ends_its_answers(self):
        client = self.open()
        client.ask(**LONG)
        client.next("inference")
        client.cut()
        deadline = time.monotonic() + 20
        with self.open() as watcher:
            while time.monotonic() < deadline:
                if watcher.next("metrics")["payload"]["running"] == 0:
                    return
        self.fail("the answer goes on")


class Hostile(SocketTest):
    def test_what_cannot_be_read_is_said_and_nothing_ends(self):
        cases = [
            ("", None, None), ("{", None, None), ("[]", None, None), ("null", None, None), ("[" * 50000, None, None),
            ('{"type":"ping","a":' + "[" * 200 + "]" * 200 + "}", None, None),
            ("{}", None, "type"), ('{"type":7}', None, "type"), ('{"type":"infer","id":"a"}', "a", "type"),
            ('{"type":"ping","id":{}}', None, "id"), ('{"type":"ping","id":"a","payload":[]}', "a", "payload"),
            ('{"type":"ping","id":"a","playload":{}}', "a", "playload"),
            ('{"type":"stop","id":"a","payload":{"now":1}}', "a", "now"),
            ('{"type":"inference","id":"a"}', "a", "prompt"),
            ('{"type":"inference","id":"a","payload":{"prompt":7}}', "a", "prompt"),
            ('{"type":"inference","id":"a","payload":{"prompt":"x","temprature":1}}', "a", "temprature"),
            ('{"type":"inference","id":"a","payload":{"prompt":"x","max_tokens":1e300}}', "a", "max_tokens"),
            ('{"type":"inference","id":"a","payload":{"prompt":"x","stream":"yes"}}', "a", "stream"),
            ('{"type":"inference","id":"a","payload":{"prompt":"x","resume":"yes"}}', "a", "resume"),
            ('{"type":"inference","id":"a","payload":{"messages":[{"role":"king"}]}}', "a", "messages"),
        ]
        with self.open() as client:
            for text, identifier, param in cases:
                with self.subTest(text=text[:80]):
                    client.send_text(text)
                    self.expect_code(client, "INVALID_REQUEST", identifier, param=param)
            client.ask("a", model="nobody", prompt="x")
            self.expect_code(client, "MODEL_NOT_FOUND", "a")
            client.ask("a", model="../toy", prompt="x")
            self.expect_code(client, "MODEL_NOT_FOUND", "a")
            client.ask("a", prompt="x" * 200000)
            self.expect_code(client, "INVALID_REQUEST", "a", reason="context_length_exceeded")
            client.ask("a", **LONG)
            client.ask("a", **BODY)
            self.expect_code(client, "INVALID_REQUEST", "a", param="id")
            client.send({"type": "stop"})
            client.ask("b", **BODY)
            self.assertEqual(len(tokens_of(client.answer("b"))), 24)

    def test_a_huge_message_closes_the_connection_alone(self):
        client = self.open()
        with self.assertRaises((Closed, OSError)) as ended:
            client.send_text('{"type":"inference","payload":{"prompt":"' + "x" * (3 << 20) + '"}}')
            while True:
                client.receive()
        if isinstance(ended.exception, Closed):
            self.assertIn(ended.exception.code, (1009, None))
        with self.open() as other:
            other.ask(**BODY)
            self.assertEqual(len(tokens_of(other.answer())), 24)

    def test_messages_of_all_connections_have_one_bound(self):
        server = self.start_server(*self.models, "--max-body-bytes-together", "1M")
        first, second, third = (WebSocketClient(server.port) for _ in range(3))
        for client in (first, second, third):
            self.addCleanup(client.cut)
        # The first frame of a message; half of the room is one address's.
        first.connection.sendall(struct.pack("!BBQ", TEXT, 0x80 | 127, 400_000) + bytes(4) + b" " * 400_000)
        first.send_frame(PING, b"")
        while first.pongs == 0:  # the server has read all of that
            first.receive()  # it tells those who are there how it is
        with self.assertRaises(Closed) as closed:
            second.send_text("{" + " " * 130_000)
            while True:
                second.receive()
        self.assertEqual((closed.exception.code, "too many large" in closed.exception.reason), (1013, True))
        first.send_frame(0, b"{")  # its end
        self.expect_code(first, "INVALID_REQUEST")
        # What the first held is given back a moment after its answer: who comes too early tries again, as it is told.
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                third.send_text(json.dumps({"type": "inference", "id": "a", "payload": BODY}) + " " * 400_000)
                self.assertEqual(len(tokens_of(third.answer("a"))), 24)
                break
            except Closed as refused:
                self.assertEqual(refused.code, 1013)
                self.assertLess(time.monotonic(), end, "the room is never given back")
                third = WebSocketClient(server.port)
                self.addCleanup(third.cut)
        self.assertEqual(server.stop()[0], 0)

    def test_a_long_message_keeps_its_place(self):
        with self.open() as client:
            client.send_text(json.dumps({"type": "inference", "id": "long", "payload": LONG}) + " " * 200000)
            client.send({"type": "stop", "id": "long"})
            self.assertEqual(client.answer("long")[-1]["payload"]["finish_reason"], "cancelled")

    def test_1000_messages_at_once(self):
        with self.open() as client:
            for i in range(1000):
                client.ask(f"m{i}", prompt="Hello", max_tokens=2, seed=1)
            ends = {}
            while len(ends) < 1000:
                message = client.next("inference", "error")
                if message["type"] == "error":
                    ends[message["id"]] = message["payload"]["code"]
                    self.assertGreaterEqual(message["payload"]["retry_after"], 1)
                elif message["payload"]["complete"]:
                    ends[message["id"]] = "done"
            self.assertEqual(set(ends), {f"m{i}" for i in range(1000)})
            codes = list(ends.values())
            self.assertLessEqual(set(codes), {"done", "RATE_LIMITED", "QUEUE_FULL"})
            self.assertGreater(codes.count("RATE_LIMITED"), 500)
            self.assertGreater(codes.count("done"), 10)

    def test_a_flood_of_large_messages_holds_nobody_up(self):
        large = '{"type":"ping","id":"large",' + ",".join(f'"{i:011}":1' for i in range(1000)) + "}"
        with self.open() as flood, self.open() as other:
            for i in range(20):
                other.ask(f"a{i}", **BODY)
                for _ in range(500):
                    flood.send_text(large)
                self.assertEqual(len(tokens_of(other.answer(f"a{i}"))), 24)
                errors = [flood.next("error") for _ in range(500)]
                refused = [error["id"] for error in errors if error["payload"]["code"] == "RATE_LIMITED"]
                self.assertTrue(refused and "large" not in refused, "what comes too fast is not even read")

    def test_only_so_many_run_at_once(self):
        with self.open() as client:
            for i in range(70):
                client.ask(f"m{i}", **LONG)
            self.expect_code(client, "QUEUE_FULL", "m64")
            client.send({"type": "stop"})

    def test_only_so_many_of_a_model_run_on_all_connections(self):
        server = self.start_server(*self.models, "--ws-running-of-model", "3")
        clients = [WebSocketClient(server.port) for _ in range(2)]
        for client in clients:
            self.addCleanup(client.cut)
        for i in range(3):
            clients[i % 2].ask(f"m{i}", **LONG)
            while clients[i % 2].next("inference")["id"] != f"m{i}":
                pass
        clients[1].ask("one-more", **LONG)
        self.expect_code(clients[1], "QUEUE_FULL", "one-more")
        # A place that was given up is another's.
        clients[0].send({"type": "stop", "id": "m0"})
        message = clients[0].next("inference")
        while message["id"] != "m0" or not message["payload"]["complete"]:
            message = clients[0].next("inference")
        end = time.monotonic() + TIMEOUT
        while True:  # the end is told a moment before the place is free
            clients[1].ask("again", **LONG)
            message = clients[1].next("inference", "error")
            while message.get("id") != "again":
                message = clients[1].next("inference", "error")
            if message["type"] == "inference":
                break
            self.assertLess(time.monotonic(), end)

    def test_other_origins_and_wrong_handshakes(self):
        for headers in ([("Origin", "http://elsewhere.example")], [("Origin", "null")]):
            with self.assertRaises(Refused) as refused:
                self.open(headers=headers)
            self.assertEqual(refused.exception.status, 403)
        self.open(headers=[("Origin", f"http://127.0.0.1:{self.server.port}")]).close()
        status, _, _ = self.server.request("GET", "/ws")
        self.assertEqual(status, 426)
        client = self.open(protocols=("other", "quarrel.v1"))
        self.assertEqual(client.headers["sec-websocket-protocol"], "quarrel.v1")
        self.assertNotIn("sec-websocket-protocol", self.open(protocols=("other",)).headers)


class Broadcast(SocketTest):
    arguments = ("--ws-broadcast", "0.3")

    def test_status_when_it_changes_and_metrics_every_time(self):
        with self.open() as client:
            first = client.next("status", "metrics")
            self.assertEqual((first["type"], "id" in first), ("status", False))
            self.assertEqual(first["payload"]["broadcast"], 0.3)
            metrics = client.next("metrics")["payload"]
            self.assertEqual(metrics["connections"], 1)
            client.ask(**BODY)
            client.answer()
            after = metrics
            while after["requests_total"] == metrics["requests_total"] or after["own"]["running"] > 0:
                after = client.next("metrics")["payload"]
            self.assertEqual(after["tokens_total"], metrics["tokens_total"] + 24)
            self.assertEqual(after["own"], {"running": 0, "requests_total": after["requests_total"],
                                            "tokens_total": after["tokens_total"]})

    def figures(self):
        status, _, body = self.server.request("GET", "/api/metrics")
        self.assertEqual(status, 200)
        return {family["name"]: family["metrics"] for family in json.loads(body)["metrics"]}

    def test_metrics_are_those_of_the_endpoint(self):
        def total(families, name, field="value", **labels):
            return sum(member[field] for member in families.get(name, [])
                       if labels.items() <= member["labels"].items())

        def grown(name, field="value", **labels):
            return total(after, name, field, **labels) - total(before, name, field, **labels)

        ended = total(self.figures(), "quarrel_webui_requests_total")
        self.assertEqual(self.server.post("/api/native/generate", BODY)[0], 200)  # the model has all its families then
        with self.open() as watcher, self.open() as client:
            idle = watcher.next("metrics")["payload"]
            while idle["requests_total"] == ended or idle["running"] > 0 or idle["interval"] is None:
                idle = watcher.next("metrics")["payload"]
            before = self.figures()
            self.assertEqual(self.server.post("/v1/completions", {"model": "none", "prompt": "a"})[0], 404)
            client.ask(**{**BODY, "prompt": "Something else"})
            client.answer()
            seen = []
            while not (seen and seen[-1]["requests_total"] > idle["requests_total"] and seen[-1]["running"] == 0
                       and seen[-1]["errors_total"] > idle["errors_total"]):
                seen.append(watcher.next("metrics")["payload"])
            after = self.figures()
        last = seen[-1]
        for field, name, labels in (
                ("running", "quarrel_requests_running", {}), ("waiting", "quarrel_requests_waiting", {}),
                ("requests_total", "quarrel_webui_requests_total", {}),
                ("tokens_total", "quarrel_webui_tokens_total", {"type": "generated"}),
                ("errors_total", "quarrel_webui_errors_total", {}), ("kv_usage", "quarrel_kv_cache_usage_ratio", {}),
                ("memory_bytes", "quarrel_model_memory_bytes", {})):
            self.assertEqual(last[field], total(after, name, **labels), field)
        self.assertGreater(last["process_memory_bytes"], 0)
        self.assertEqual([(model["name"], model["running"], model["waiting"], model["memory_bytes"])
                          for model in last["models"]], [("toy", 0, 0, last["memory_bytes"])])
        # Intervals are what came between two broadcasts, and nothing is left out or told twice.
        for field, name in (("time_to_first_token", "quarrel_time_to_first_token_seconds"),
                            ("token_gap", "quarrel_inter_token_latency_seconds")):
            self.assertEqual(sum(each[field]["count"] for each in seen), grown(name, "count"), field)
        self.assertAlmostEqual(sum(each["tokens_per_sec"] * each["interval"] for each in seen),
                               grown("quarrel_webui_tokens_total", type="generated"))
        hits, misses = (grown(f"quarrel_prefix_cache_{kind}_tokens_total") for kind in ("hit", "miss"))
        self.assertEqual([each["cache_hits"] for each in seen if each["cache_hits"] is not None],
                         [hits / (hits + misses)])
        # The one first token is in the middle of its bucket.
        first = [each["time_to_first_token"] for each in seen if each["time_to_first_token"]["count"] > 0]
        lower = 0
        for old, new in zip(*(families["quarrel_time_to_first_token_seconds"][0]["buckets"]
                              for families in (before, after))):
            if new["count"] > old["count"]:
                break
            lower = new["le"]
        self.assertEqual(len(first), 1)
        self.assertAlmostEqual(first[0]["p50"], (lower + new["le"]) / 2)

    def test_who_comes_is_told_at_once(self):
        server = self.start_server(self.models[0], "--ws-broadcast", "3600")
        with WebSocketClient(server.port) as one, WebSocketClient(server.port) as two:
            for client in (one, two):
                payload = client.next("metrics")["payload"]
                self.assertEqual((payload["interval"], payload["tokens_per_sec"]), (None, None))

    def test_none_where_it_is_switched_off(self):
        server = self.start_server(self.models[0], "--ws-broadcast", "0")
        with WebSocketClient(server.port) as client:
            client.send({"type": "status", "id": "s"})
            self.assertEqual(client.receive()["payload"]["broadcast"], 0)


class Resume(SocketTest):
    arguments = ("--parallel", "8")
    VARIED = {"prompt": "Number 3", "seed": 7, "max_tokens": 400, "temperature": 1, "repeat_penalty": 0.8, "topk": 0,
              "topp": 1}
    RESUMED = {**VARIED, "resume": True}

    def setUp(self):
        self.wanted = self.server.post("/api/native/generate", self.VARIED)[1]
        self.assertGreater(self.wanted["tokens_generated"], 100)

    def test_50_cuts_over_websocket(self):
        generator = random.Random(7)
        for cut in range(50):
            client = self.open()
            client.ask("a", **self.RESUMED)
            place, texts, tokens, complete = None, [], [], False
            for step in range(generator.randrange(0, 120)):
                message = client.next("status", "inference")
                place = message["payload"].get("resume", place)
                if message["type"] == "inference":
                    texts.append(message["payload"]["token"])
                    tokens += tokens_of([message])
                    complete = message["payload"]["complete"]
                    if complete:
                        break
            while place is None:
                place = client.receive()["payload"].get("resume")
            client.cut()
            if complete:
                continue
            other = self.open()
            other.ask("b", resume=place)
            rest = other.answer("b")
            other.cut()
            with self.subTest(cut=cut, place=place):
                self.assertEqual("".join(texts) + text_of(rest), self.wanted["text"])
                self.assertEqual(len(tokens) + len(tokens_of(rest)), self.wanted["tokens_generated"])
                self.assertEqual(rest[-1]["payload"]["finish_reason"], self.wanted["finish_reason"])

    def sse(self, body, headers=()):
        """A socket that has asked and read the answer's head."""
        connection = self.server.socket()
        self.addCleanup(connection.close)
        data = json.dumps(body).encode() if body is not None else b""
        lines = ["POST /api/stream HTTP/1.0", f"Content-Length: {len(data)}", *headers]
        connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        file = connection.makefile("rb")
        self.addCleanup(file.close)
        status = int(file.readline().split()[1])
        while file.readline().strip():
            pass
        return connection, file, status

    def events(self, file, most=None):
        """Pairs of an event's id and its data; an id without data has none."""
        event = {}
        while most is None or most > 0:
            line = file.readline()
            if not line:
                return
            line = line.decode().rstrip("\n")
            if line == ":":  # a slow machine's comment
                file.readline()
                continue
            if line:
                name, value = line.split(": ", 1)
                event[name] = value
                continue
            yield event.get("id"), json.loads(event["data"]) if "data" in event else None
            event = {}
            most = None if most is None else most - 1

    def test_50_cuts_over_sse(self):
        generator = random.Random(8)
        for cut in range(50):
            connection, file, status = self.sse(self.RESUMED)
            self.assertEqual(status, 200)
            got = list(self.events(file, generator.randrange(1, 120)))
            connection.shutdown(socket.SHUT_RDWR)
            place = got[-1][0]
            body = None if cut % 2 else self.RESUMED  # alone, or with the request that is repeated
            connection, file, status = self.sse(body, [f"Last-Event-ID: {place}"])
            self.assertEqual(status, 200)
            got += list(self.events(file))
            data = [event for _, event in got if event is not None]
            with self.subTest(cut=cut, place=place):
                self.assertEqual("".join(event["token"] for event in data), self.wanted["text"])
                self.assertEqual([event["complete"] for event in data], [False] * (len(data) - 1) + [True])
                self.assertEqual(len([event for event in data if event["token_id"] >= 0]),
                                 self.wanted["tokens_generated"])

    def test_cut_again_and_again_and_on_either_kind(self):
        connection, file, _ = self.sse(self.RESUMED)
        got = list(self.events(file, 2))
        connection.shutdown(socket.SHUT_RDWR)
        text, place = got[-1][1]["token"], got[-1][0]
        complete = False
        while not complete:
            with self.open() as client:
                client.ask("x", resume=place)
                for _ in range(7):
                    message = client.next("inference")
                    text += message["payload"]["token"]
                    place = message["payload"]["resume"]
                    complete = message["payload"]["complete"]
                    if complete:
                        break
            if complete:
                break
            connection, file, status = self.sse(None, [f"Last-Event-ID: {place}"])
            for identifier, event in self.events(file, 5):
                if event is not None:
                    text, place, complete = text + event["token"], identifier, event["complete"]
            connection.shutdown(socket.SHUT_RDWR)
        self.assertEqual(text, self.wanted["text"])
        self.assertEqual(self.sse(None, [f"Last-Event-ID: {place}"])[2], 204)
        with self.open() as client:
            client.ask("x", resume=place)
            self.assertEqual(client.next("status")["payload"], {"state": "complete"})

    def test_wrong_places(self):
        with self.open() as client:
            client.ask("a", **self.RESUMED)
            place = client.answer("a")[-1]["payload"]["resume"]
            identifier, number = place.split(":")
            unknown = "0" * 32 + ":0"
            messages = set()
            for wrong in (unknown, f"{identifier}:{int(number) + 1}", f"{identifier[::-1]}:0"):
                client.ask("b", resume=wrong)
                messages.add(self.expect_code(client, "CONNECTION_LOST", "b")["message"])
            self.assertEqual(len(messages), 1)
            client.ask("b", prompt="x", resume=unknown)
            self.expect_code(client, "INVALID_REQUEST", "b", param="resume")
        self.assertEqual(self.sse(None, [f"Last-Event-ID: {unknown}"])[2], 404)
        self.assertEqual(self.sse(None, ["Last-Event-ID: 17"])[2], 400)
        self.assertEqual(self.server.post("/api/generate", self.RESUMED)[0], 400)

    def test_a_stream_without_resume_has_no_ids(self):
        frames = self.server.events("/api/stream", BODY)
        self.assertTrue(all("resume" not in frame for frame in frames))

    def test_a_resumed_answer_can_be_stopped(self):
        with self.open() as client:
            client.ask("a", **LONG, resume=True)
            place = client.next("inference")["payload"]["resume"]
        with self.open() as client:
            client.ask("b", resume=place)
            client.next("inference")
            client.send({"type": "stop", "id": "b"})
            self.assertEqual(client.answer("b")[-1]["payload"]["finish_reason"], "cancelled")

    def test_an_answer_over_sse_can_be_stopped(self):
        with self.server.socket() as connection:
            body = json.dumps({**LONG, "resume": True}).encode()
            head = f"POST /api/stream HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            seen = b""
            while b"data:" not in seen:
                seen += connection.recv(65536)
            place = seen.split(b"\nid: ")[1].split(b"\n")[0].decode()
            self.assertEqual(self.server.request("DELETE", "/api/stream")[0], 400)
            wrong = {"Last-Event-ID": "0" * 32 + ":1"}
            self.assertEqual(self.server.request("DELETE", "/api/stream", headers=wrong)[0], 404)
            status, _, said = self.server.request("DELETE", "/api/stream", headers={"Last-Event-ID": place})
            self.assertEqual((status, json.loads(said)), (200, {"status": "stopped"}))
            while b'"finish_reason"' not in seen:
                seen += connection.recv(65536)
        self.assertIn(b'"finish_reason":"cancelled"', seen)

    def test_another_connection_takes_it_over(self):
        with self.open() as first, self.open() as second:
            first.ask("a", **LONG, resume=True)
            place = first.next("inference")["payload"]["resume"]
            second.ask("b", resume=place)
            second.next("inference")
            self.expect_code(first, "CONNECTION_LOST", "a")
            second.send({"type": "stop"})
            second.answer("b")


class Keys(SocketTest):
    arguments = ("--ws-broadcast", "0.3")

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        cls.one, cls.two = cls.make_key("one"), cls.make_key("two", "--concurrency", "2")
        cls.three = cls.make_key("three")

    @classmethod
    def make_key(cls, *arguments):
        done = subprocess.run([QUARREL, "key", "create", *arguments], env=cls.environment, capture_output=True,
                              timeout=TIMEOUT, check=True)
        return done.stdout.decode().strip()

    def open_with(self, key):
        return self.open(headers=[("Authorization", f"Bearer {key}")])

    def test_who_may_connect(self):
        for headers in ([], [("Authorization", "Bearer qk_wrong")]):
            with self.assertRaises(Refused) as refused:
                self.open(headers=headers)
            self.assertEqual(refused.exception.status, 401)
        offered = "quarrel.key." + base64.urlsafe_b64encode(self.one.encode()).decode().rstrip("=")
        with self.open(protocols=("quarrel.v1", offered)) as client:
            self.assertEqual(client.headers["sec-websocket-protocol"], "quarrel.v1")
            client.ask(**BODY)
            self.assertEqual(len(tokens_of(client.answer())), 24)

    def test_another_key_cannot_take_an_answer_up(self):
        with self.open_with(self.one) as owner, self.open_with(self.two) as other:
            owner.ask("a", **BODY, resume=True)
            place = owner.answer("a")[3]["payload"]["resume"]
            said = []
            for wrong in (place, "0" * 32 + ":0"):
                other.ask("b", resume=wrong)
                said.append(self.expect_code(other, "CONNECTION_LOST", "b"))
            self.assertEqual(said[0], said[1])
            owner.ask("c", resume=place)
            self.assertEqual(len(owner.answer("c")), 24 + 1 - 4)
        answers = []
        for wrong in (place, "0" * 32 + ":0"):
            headers = {"Authorization": f"Bearer {self.two}", "Last-Event-ID": wrong}
            answers.append(self.server.request("POST", "/api/stream", b"", headers))
        self.assertEqual([answer[0] for answer in answers], [404, 404])
        self.assertEqual(answers[0][2], answers[1][2])

    def test_broadcasts_show_no_other_key(self):
        with self.open_with(self.one) as one, self.open_with(self.two) as two:
            one.ask("secret-id", **LONG)
            one.next("inference")
            while (seen := two.next("metrics")["payload"])["running"] != 1:
                pass
            self.assertEqual(seen["own"]["running"], 0)
            self.assertNotIn("secret-id", json.dumps(seen))
            # Totals are for whoever has a key, as at the endpoint.
            headers = {"Authorization": f"Bearer {self.two}"}
            self.assertEqual(self.server.request("GET", "/api/metrics", headers=headers)[0], 200)
            while one.next("metrics")["payload"]["own"]["running"] != 1:
                pass
            two.send({"type": "stop", "id": "secret-id"})
            two.send({"type": "status", "id": "s"})
            while (said := two.next("status")).get("id") != "s":
                pass
            self.assertEqual(said["payload"]["running"], [])
            one.next("inference")  # it goes on
            one.send({"type": "stop"})
            one.answer("secret-id")

    def test_a_revoked_key_loses_its_connections(self):
        with self.open_with(self.three) as client, self.open_with(self.one) as other:
            client.ask("a", **LONG)
            client.next("inference")
            subprocess.run([QUARREL, "key", "revoke", "three"], env=self.environment, capture_output=True,
                           timeout=TIMEOUT, check=True)
            with self.assertRaises(Closed) as closed:
                while True:
                    client.receive()
            self.assertEqual(closed.exception.code, 1008)
            other.ask("b", **BODY)
            self.assertEqual(len(tokens_of(other.answer("b"))), 24)

    def test_a_key_has_its_own_limits(self):
        with self.open_with(self.two) as client:
            for identifier in ("a", "b", "c"):
                client.ask(identifier, **LONG)
            self.expect_code(client, "RATE_LIMITED", "c")
            client.send({"type": "stop"})
            client.answer("a")


if __name__ == "__main__":
    unittest.main()

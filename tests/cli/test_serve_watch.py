#!/usr/bin/env python3
"""What can be watched of a running server: metrics, the log, traces."""
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest
from websocket_client import WebSocketClient

CANARY_KEY = "qk_canary0123456789canary"
CANARY_PROMPT = "canaryprompt"
SAMPLE = re.compile(r'([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def continued(prompt="Hello there", **fields):
    return {"prompt": prompt, "seed": 7, "max_tokens": 24, "temperature": 1, **fields}


def samples_of(text):
    """{(name, frozenset of labels): value} of Prometheus' text."""
    samples = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        key = (name, frozenset(LABEL.findall(labels or "")))
        assert key not in samples, line
        samples[key] = float(value)
    return samples


def until(condition, what):
    """What the condition gives once it gives anything."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(what)


class WatchTest(ServeTest):
    def metrics(self, server=None, headers=None):
        status, head, body = (server or self.server).request("GET", "/metrics", headers=headers)
        self.assertEqual(status, 200, body)
        self.assertTrue(head["Content-Type"].startswith("text/plain; version=0.0.4"), head)
        return samples_of(body.decode())

    def value(self, name, server=None, **labels):
        return self.metrics(server).get((name, frozenset(labels.items())))

    def complete(self, server=None, **fields):
        status, answer = (server or self.server).post("/v1/completions", continued(**fields))
        self.assertEqual(status, 200, answer)
        return answer


class Metrics(WatchTest):
    @classmethod
    def prepare(cls):
        cls.models += [cls.make_toy("chat-mixtral", "experts.gguf"), cls.make_toy("chat-mamba2", "recurrent.gguf")]

    def test_requests_are_counted(self):
        before = self.metrics()
        answer = self.complete()
        self.server.events("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "stream": True,
                                                    "max_tokens": 8, "seed": 1})
        self.server.post("/v1/completions", continued(model="nobody"))
        self.server.request("GET", "/nowhere")
        self.assertEqual(self.server.request("GET", "/assets/nothing.js")[0], 404)
        self.assertEqual(self.server.request("GET", "/ws")[0], 426)
        toy = {"model": "toy"}
        # A request has ended when its answer is out, which its client may know first.
        until(lambda: self.value("quarrel_webui_requests_total", **toy) >= 2 + before.get(
            ("quarrel_webui_requests_total", frozenset(toy.items())), 0), "two requests")
        seen = self.metrics()

        def grown(name, **labels):
            key = (name, frozenset(labels.items()))
            return seen[key] - before.get(key, 0)

        self.assertEqual(grown("quarrel_webui_requests_total", **toy), 2)
        tokens = answer["usage"]["completion_tokens"]
        self.assertGreater(grown("quarrel_webui_tokens_total", **toy, type="generated"), tokens)
        self.assertGreater(grown("quarrel_webui_tokens_total", **toy, type="prompt"), answer["usage"]["prompt_tokens"])
        for name in ("quarrel_webui_inference_duration_seconds", "quarrel_time_to_first_token_seconds",
                     "quarrel_request_queue_time_seconds", "quarrel_request_prefill_time_seconds",
                     "quarrel_request_decode_time_seconds"):
            self.assertEqual(grown(name + "_count", **toy), 2, name)
            self.assertGreaterEqual(grown(name + "_sum", **toy), 0, name)
        # A gap lies between reports, and on a quick machine one report has all tokens: how many is the unit test's matter.
        self.assertIn(("quarrel_inter_token_latency_seconds_count", frozenset(toy.items())), seen)
        self.assertEqual(grown("quarrel_webui_errors_total", type="not_found_error"), 3)
        self.assertEqual(grown("quarrel_webui_errors_total", type="invalid_request_error"), 1, "of the WebSocket")
        self.assertEqual(grown("quarrel_http_requests_total", route="POST /v1/completions", status="404"), 1)
        self.assertEqual(grown("quarrel_http_requests_total", route="none", status="404"), 1)
        self.assertGreaterEqual(seen[("quarrel_webui_connections_active", frozenset())], 1)
        self.assertNotIn("nobody", str(seen.keys()))

    def test_models_tell_of_themselves(self):
        self.complete()
        until(lambda: self.value("quarrel_batch_size_sum", model="toy") > 8, "rows are counted")
        seen = self.metrics()
        for name in ("quarrel_kv_cache_usage_ratio", "quarrel_prefix_cache_hit_tokens_total",
                     "quarrel_prefix_cache_miss_tokens_total", "quarrel_preemptions_total",
                     "quarrel_batch_size_count", "quarrel_requests_running", "quarrel_requests_waiting",
                     "quarrel_model_memory_bytes"):
            self.assertIn((name, frozenset({("model", "toy")})), seen)
        self.assertGreaterEqual(seen[("quarrel_models_loaded", frozenset())], 1)

    def test_experts_are_told_one_by_one_and_timed(self):
        self.complete(model="experts", max_tokens=100)

        def chosen():
            return {key: value for key, value in self.metrics().items() if key[0] == "quarrel_moe_expert_selection"}

        until(lambda: sum(chosen().values()) > 100, "experts are counted")
        seen = self.metrics()
        labels = [dict(key[1]) for key in chosen()]
        self.assertEqual({label["expert"] for label in labels}, {str(i) for i in range(8)})
        self.assertEqual({label["model"] for label in labels}, {"experts"})
        for layer in {label["layer"] for label in labels}:
            shares = [value for key, value in seen.items()
                      if key[0] == "quarrel_moe_expert_utilization" and ("layer", layer) in key[1]]
            self.assertAlmostEqual(sum(shares), 1.0)
        for name in ("quarrel_moe_layer_latency_seconds", "quarrel_moe_routing_latency_seconds"):
            until(lambda name=name: self.value(name + "_count", model="experts"), name)
            self.assertGreater(self.value(name + "_sum", model="experts"), 0)

    def test_recurrent_layers_are_timed_and_their_state_is_measured(self):
        self.complete(model="recurrent", max_tokens=100)
        for name in ("quarrel_ssm_scan_latency_seconds", "quarrel_ssm_conv_latency_seconds"):
            until(lambda name=name: self.value(name + "_count", model="recurrent"), name)
        self.assertEqual(self.value("quarrel_ssm_divergence_total", model="recurrent"), 0)
        state = self.value("quarrel_ssm_state_size_bytes", model="recurrent")
        self.assertIsNotNone(state)
        self.assertIsNone(self.value("quarrel_ssm_state_size_bytes", model="toy"), "it has none")
        self.assertIsNone(self.value("quarrel_kv_cache_usage_ratio", model="recurrent"), "it has no such cache")

    def test_json_has_the_same_names(self):
        status, _, body = self.server.request("GET", "/api/metrics")
        self.assertEqual(status, 200)
        families = {family["name"] for family in json.loads(body)["metrics"]}
        self.assertIn("quarrel_webui_connections_active", families)
        names = {re.sub(r"_(?:bucket|sum|count)$", "", key[0]) for key in self.metrics()}
        self.assertLessEqual(families - names, {"quarrel_webui_errors_total"})


class KeyedMetrics(WatchTest):
    def test_metrics_need_the_key_unless_they_are_open(self):
        closed = self.start_server(self.toy, QUARREL_API_KEY=CANARY_KEY)
        opened = self.start_server(self.toy, "--public-metrics", QUARREL_API_KEY=CANARY_KEY)
        key = {"Authorization": "Bearer " + CANARY_KEY}
        for path in ("/metrics", "/api/metrics"):
            self.assertEqual(closed.request("GET", path)[0], 401)
            self.assertEqual(closed.request("GET", path, headers=key)[0], 200)
            self.assertEqual(opened.request("GET", path)[0], 200)
        self.assertEqual(opened.request("GET", "/v1/models")[0], 401)
        self.assertEqual(self.value("quarrel_webui_errors_total", server=opened, type="authentication_error"), 1)

    def test_a_key_for_some_models_sees_those_alone(self):
        data = {"XDG_DATA_HOME": self.path("data")}
        key = subprocess.run([QUARREL, "key", "create", "narrow", "--model", "toy"], env={**self.environment, **data},
                             capture_output=True, timeout=TIMEOUT, check=True).stdout.decode().strip()
        server = self.start_server(self.toy, self.make_toy("chat-mixtral", "hidden.gguf"), QUARREL_API_KEY=CANARY_KEY,
                                   **data)
        wide, narrow = ({"Authorization": "Bearer " + each} for each in (CANARY_KEY, key))
        for model in ("toy", "hidden"):
            self.assertEqual(server.post("/v1/completions", continued(model=model), headers=wide)[0], 200)
            counted = ("quarrel_webui_requests_total", frozenset({("model", model)}))
            until(lambda counted=counted: counted in self.metrics(server, wide), model)
        for path in ("/metrics", "/api/metrics"):
            self.assertIn(b"hidden", server.request("GET", path, headers=wide)[2])
            status, _, told = server.request("GET", path, headers=narrow)
            self.assertEqual(status, 200)
            self.assertIn(b"toy", told)
            self.assertNotIn(b"hidden", told)


class Logs(WatchTest):
    def log_of(self, path):
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_a_line_a_request_without_keys_and_prompts(self):
        path = self.path("requests.log")
        server = self.start_server(self.toy, "--log-file", path, "--log-level", "debug", QUARREL_API_KEY=CANARY_KEY)
        headers = {"Authorization": "Bearer " + CANARY_KEY, "x-request-id": "named-by-me"}
        status, _ = server.post("/v1/completions", continued(CANARY_PROMPT + " and so on"), headers=headers)
        self.assertEqual(status, 200)
        wrong = {"Authorization": "Bearer " + CANARY_KEY + "x"}
        self.assertEqual(server.post("/v1/completions", continued(CANARY_PROMPT), headers=wrong)[0], 401)
        self.assertEqual(server.post("/v1/completions", {"prompt": CANARY_PROMPT, CANARY_PROMPT: 1},
                                     headers={"Authorization": "ApiKey " + CANARY_KEY})[0], 400)
        server.request("POST", "/v1/completions", (CANARY_PROMPT + "{").encode(), headers)
        server.request("GET", "/v1/models/" + CANARY_PROMPT + "?api_key=" + CANARY_KEY, headers=headers)
        server.request("GET", "/healthz")
        until(lambda: len(self.log_of(path)) >= 6, "six lines")
        _, metrics = server.request("GET", "/metrics", headers=headers)[1:]
        code, said = server.stop()
        self.assertEqual(code, 0)
        with open(path, encoding="utf-8") as file:
            written = file.read()
        for place in (written, said, metrics.decode()):
            self.assertNotIn("canary", place)
        lines = [line for line in self.log_of(path) if line.get("event") == "request"]
        first = next(line for line in lines if line["id"] == "named-by-me")
        self.assertEqual((first["route"], first["status"], first["model"], first["generated_tokens"] > 0),
                         ("POST /v1/completions", 200, "toy", True))
        self.assertIn(first["finish_reason"], ("stop", "length"))
        for name in ("model_ms", "tokenise_ms", "queue_ms", "first_token_ms", "decode_ms", "duration_ms"):
            self.assertGreaterEqual(first[name], 0, name)
        refused = next(line for line in lines if line["status"] == 401)
        self.assertEqual(refused["error"], "authentication_error")
        self.assertEqual([line["level"] for line in lines if line["route"] == "GET /healthz"], ["debug"])

    def test_the_kind_of_a_request_is_its_priority(self):
        path = self.path("priorities.log")
        server = self.start_server(self.toy, self.make_toy("embed", "vectors.gguf"), "--log-file", path)
        messages = [{"role": "user", "content": "Hi"}]
        one, vectors = {"num_predict": 1}, {"model": "vectors"}
        asked = [
            ("/v1/chat/completions", {"messages": messages, "max_tokens": 1}, {}, "normal"),
            ("/v1/chat/completions", {"messages": messages, "max_tokens": 1, "stream": True}, {}, "interactive"),
            ("/v1/completions", {"prompt": "a", "max_tokens": 1}, {"x-quarrel-priority": "batch"}, "batch"),
            ("/api/generate", {"prompt": "a", "max_tokens": 1}, {}, "normal"),
            ("/api/stream", {"prompt": "a", "max_tokens": 1}, {}, "interactive"),
            ("/api/chat", {"model": "toy", "messages": messages, "options": one}, {}, "interactive"),
            ("/api/chat", {"model": "toy", "messages": messages, "options": one, "stream": False}, {}, "normal"),
            ("/v1/embeddings", {**vectors, "input": "a"}, {}, "batch"),
            ("/api/embed", {**vectors, "input": "a"}, {}, "batch"),
            ("/api/embeddings", {**vectors, "prompt": "a"}, {"x-quarrel-priority": "interactive"}, "interactive"),
            ("/rerank", {**vectors, "query": "a", "documents": ["b"]}, {}, "batch"),
        ]
        for number, (route, body, headers, _) in enumerate(asked):
            status, _, data = server.request("POST", route, body, {**headers, "x-request-id": f"n{number}"})
            self.assertEqual(status, 200, data)
        with WebSocketClient(server.port, headers=[("x-request-id", "socket")]) as client:
            client.ask("a", prompt="a", max_tokens=1)
            client.answer("a")
            client.ask("b", prompt="a", max_tokens=1, stream=False)
            client.answer("b")
        def lines():
            found = {line["id"]: line for line in self.log_of(path) if line.get("event") == "request"}
            return found if {"socket-1", "socket-2", *(f"n{number}" for number in range(len(asked)))} <= set(found) else None
        found = until(lines, "a line for each")
        for number, (route, _, _, priority) in enumerate(asked):
            self.assertEqual(found[f"n{number}"]["priority"], priority, route)
        self.assertEqual([found[f"socket-{n}"]["priority"] for n in (1, 2)], ["interactive"] * 2)

    def test_vectors_have_a_start_and_an_end(self):
        path = self.path("vectors.log")
        server = self.start_server(self.make_toy("embed", "vectors.gguf"), "--log-file", path)
        self.assertEqual(server.post("/v1/embeddings", {"input": ["a fox", "a dog"]})[0], 200)
        until(lambda: any(line.get("event") == "request" for line in self.log_of(path)), "a line")
        line = next(line for line in self.log_of(path) if line.get("event") == "request")
        self.assertEqual((line["finish_reason"], line["status"]), ("done", 200))
        self.assertGreaterEqual(line["queue_ms"], 0)
        self.assertEqual(self.value("quarrel_request_queue_time_seconds_count", server=server, model="vectors"), 1)
        self.assertEqual(self.value("quarrel_requests_finished_total", server=server, model="vectors", reason="done"), 1)

    def test_the_log_is_json_but_on_a_terminal(self):
        server = self.start_server(self.toy)
        self.complete(server)
        lines = [json.loads(line) for line in server.stop()[1].splitlines()]  # every one of them
        self.assertEqual(sorted(line["event"] for line in lines if "event" in line), ["ending", "request", "serving"])
        self.assertEqual((lines[0]["models"], lines[0]["addresses"]), (["toy"], [f"http://127.0.0.1:{server.port}"]))
        self.assertTrue(all("time" in line and "level" in line for line in lines))
        text = self.start_server(self.toy, "--log-format", "text")
        self.complete(text)
        self.assertRegex(text.stop()[1], r"info: POST /v1/completions 200 toy, .* tokens asked")
        # A file has it all; people see where the server is.
        path = self.path("both.log")
        both = self.start_server(self.toy, "--log-file", path)
        self.assertRegex(both.stop()[1], r"^Serving toy on http.*\nCtrl-C ends it\.\nEnding: .*\nAnother Ctrl-C .*\n$")
        self.assertEqual([line["event"] for line in self.log_of(path)], ["serving", "ending"])
        terminal = self.open_terminal("serve", self.toy, "--port", "0")
        terminal.expect("Serving toy on http://127.0.0.1:")
        port = int(terminal.expect("\r\n"))
        terminal.expect("Ctrl-C ends it.")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(continued()))
        self.assertEqual(connection.getresponse().status, 200)
        terminal.expect("info: POST /v1/completions 200 toy, ")
        terminal.type("\x03")
        terminal.expect("Another Ctrl-C ends it at once.")
        self.assertEqual(terminal.wait(), 0)

    def test_how_a_request_ended_is_told(self):
        path = self.path("ends.log")
        server = self.start_server(self.make_toy("chat", "long.gguf", context=65536), "--parallel", "1", "--cache-tokens",
                                   "64k", "--log-file", path)

        def line_of(identifier):
            return until(lambda: [line for line in self.log_of(path) if line.get("id") == identifier], identifier)[0]

        def leave(identifier, **fields):
            connection = server.connect()
            body = continued(max_tokens=60000, logit_bias={str(token): -100 for token in (258, 2, 0, 1)}, **fields)
            connection.request("POST", "/v1/completions", json.dumps(body), {"x-request-id": identifier})
            if fields:
                connection.getresponse().readline()
            else:
                until(lambda: self.value("quarrel_requests_running", server=server, model="long"), "it is computed")
            connection.sock.shutdown(socket.SHUT_RDWR)
            connection.close()
            line = line_of(identifier)
            self.assertNotIn("error", line)
            return line["status"], line["finish_reason"]

        self.assertEqual(leave("before-the-head"), (499, "cancelled"))
        self.assertEqual(leave("in-the-middle", stream=True), (200, "cancelled"))
        until(lambda: self.value("quarrel_requests_finished_total", server=server, model="long", reason="cancelled") == 2,
              "both are counted")
        with WebSocketClient(server.port, headers=[("x-request-id", "socket")]) as client:
            client.ask("a", prompt="word " * 80000, max_tokens=1)
            self.assertEqual(client.next("error")["payload"]["code"], "INVALID_REQUEST")
        line = line_of("socket-1")
        self.assertEqual((line["status"], line["error"], line["code"]),
                         (400, "invalid_request_error", "context_length_exceeded"))

    def test_a_full_disk_or_a_reader_that_sleeps_stops_nobody(self):
        full = self.start_server(self.toy, "--log-file", "/dev/full")
        for _ in range(5):
            self.complete(full)
        until(lambda: self.value("quarrel_log_lines_lost_total", server=full) >= 5, "lines are lost and counted")
        # Nobody reads this one's standard error until its end; a pipe holds 64 KiB.
        unread = self.start_server(self.toy, "--log-level", "debug")
        connection = unread.connect()
        for _ in range(1000):
            connection.request("GET", "/healthz")
            self.assertEqual(connection.getresponse().read() != b"", True)
        connection.close()
        until(lambda: self.value("quarrel_log_lines_lost_total", server=unread) > 0, "lines are lost and counted")
        self.complete(unread)
        self.assertEqual(unread.stop()[0], 0)

    def test_a_log_that_was_moved_away_begins_anew(self):
        path = self.path("moved.log")
        server = self.start_server(self.toy, "--log-file", path)
        self.complete(server)
        until(lambda: len(self.log_of(path)) == 2, "that it serves, and a request")
        os.rename(path, path + ".1")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: os.path.exists(path), "a new file")
        self.complete(server)
        until(lambda: self.log_of(path), "a line in the new file")
        self.assertEqual(len(self.log_of(path + ".1")), 2)

    def test_a_log_that_cannot_be_opened_is_refused(self):
        self.refuse(1, ["no/such/folder"], "serve", self.toy, "--log-file", self.path("no/such/folder"))


class Collector(http.server.ThreadingHTTPServer):
    """Takes OTLP's spans."""

    def __init__(self, status=200):
        self.spans, self.posts, self.status = [], 0, status
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def of_trace(self, trace):
        return {span["name"]: span for span in list(self.spans) if span["traceId"] == trace}


class CollectorHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts += 1
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.server.spans += scope["spans"]
        self.send_response(self.server.status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *arguments):
        pass


class Traces(WatchTest):
    def collector(self, **options):
        collector = Collector(**options)
        self.addCleanup(collector.server_close)
        self.addCleanup(collector.shutdown)
        return collector

    def test_a_request_is_a_span_with_its_parts(self):
        collector = self.collector()
        server = self.start_server(self.toy, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        status, head, _ = server.request("POST", "/v1/completions", continued(CANARY_PROMPT),
                                         {"traceparent": f"00-{trace}-{parent}-01"})
        self.assertEqual(status, 200)
        version, same, own, flags = head["traceparent"].split("-")
        self.assertEqual((version, same, flags), ("00", trace, "01"))
        spans = until(lambda: "decode" in collector.of_trace(trace) and collector.of_trace(trace), "spans")
        whole = spans["POST /v1/completions"]
        self.assertEqual((whole["spanId"], whole["parentSpanId"], whole["kind"]), (own, parent, 2))
        attributes = {each["key"]: list(each["value"].values())[0] for each in whole["attributes"]}
        self.assertEqual(attributes["gen_ai.request.model"], "toy")
        self.assertEqual(attributes["http.response.status_code"], "200")
        self.assertGreater(int(attributes["gen_ai.usage.output_tokens"]), 0)
        self.assertEqual(set(spans), {"POST /v1/completions", "acquire model", "tokenise", "queue", "prefill", "decode"})
        for name, span in spans.items():
            begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            self.assertLessEqual(begin, end, name)
            self.assertLess(abs(begin / 1e9 - time.time()), TIMEOUT)
            if span is not whole:
                self.assertEqual(span["parentSpanId"], own)
                self.assertGreaterEqual(begin, int(whole["startTimeUnixNano"]))
                self.assertLessEqual(end, int(whole["endTimeUnixNano"]))
        self.assertNotIn("canary", json.dumps(collector.spans))
        # Whoever does not record their trace does not want our part of it.
        silent = "1" * 32
        server.request("GET", "/v1/models", headers={"traceparent": f"00-{silent}-{parent}-00"})
        first = server.request("GET", "/nowhere", headers={"traceparent": "nonsense"})[1]["traceparent"]
        until(lambda: collector.of_trace(first.split("-")[1]), "a trace of our own")
        self.assertEqual(collector.of_trace(silent), {})

    def test_a_message_of_a_websocket_is_a_span(self):
        collector = self.collector()
        server = self.start_server(self.toy, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint)
        trace = "2" * 32
        with WebSocketClient(server.port, headers=[("traceparent", f"00-{trace}-{'3' * 16}-01")]) as client:
            for identifier in ("a", "b"):
                client.ask(identifier, prompt="Hello", max_tokens=8, seed=1)
                client.answer(identifier)

            def messages():
                found = [span for span in list(collector.spans) if span["name"] == "WS /ws"]
                return len(found) == 2 and found

            spans = until(messages, "two messages")
            self.assertEqual({span["traceId"] for span in spans}, {trace})
            decodes = [span["parentSpanId"] for span in collector.spans if span["name"] == "decode"]
            self.assertEqual(set(decodes), {span["spanId"] for span in spans})
        self.assertEqual(self.value("quarrel_webui_requests_total", server=server, model="toy"), 2)

    def test_what_is_left_is_sent_at_the_end(self):
        collector = self.collector()
        server = self.start_server(self.toy, "--otlp-endpoint", collector.endpoint + "/")
        server.request("GET", "/v1/models")
        self.assertEqual(server.stop()[0], 0)
        self.assertEqual([span["name"] for span in collector.spans], ["GET /v1/models"])

    def test_a_collector_that_fails_costs_a_count(self):
        for endpoint in ("http://127.0.0.1:1", self.collector(status=503).endpoint):
            server = self.start_server(self.toy, "--otlp-endpoint", endpoint)
            self.complete(server)
            until(lambda server=server: self.value("quarrel_trace_spans_dropped_total", server=server) >= 6, "drops")
            self.assertEqual(self.value("quarrel_trace_spans_sent_total", server=server), 0)
            self.complete(server)
            self.assertEqual(server.stop()[0], 0)

    def test_without_an_endpoint_there_are_none(self):
        head = self.server.request("GET", "/v1/models", headers={"traceparent": "00-" + "1" * 32 + "-" + "1" * 16 + "-01"})[1]
        self.assertNotIn("traceparent", head)
        self.refuse(2, ["http://localhost:4318"], "serve", self.toy, "--otlp-endpoint", "localhost:4318")


if __name__ == "__main__":
    unittest.main()

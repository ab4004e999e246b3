#!/usr/bin/env python3
"""The list of what attackers try, a row each: refused, logged, counted, and where it is guessing, slowed down.

The rows are named after the goals of the server: F1 nothing is open by accident, F2 a key check says nothing of the key,
F3 secrets stay out, F4 a web page cannot use the server, F5 limits are exact, F6 guessing is slow, F7 no key in a URL.
"""
import base64
import json
import re
import subprocess
import time
import unittest

from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest
from websocket_client import Refused, WebSocketClient

CHAT = "/v1/chat/completions"
CANARY = "a canary that sings in no log"
QUESTION = {"messages": [{"role": "user", "content": CANARY}], "max_tokens": 1}
UPGRADE = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]


def bearer(key):
    return f"Authorization: Bearer {key}"


class Try:
    """One request as its sender wrote it."""

    def __init__(self, *lines, method="GET", path="/v1/models", host="localhost", body=None, allowed=(401,)):
        data = b"" if body is None else json.dumps(body).encode()
        ends = [] if "Connection: Upgrade" in lines else ["Connection: close"]
        length = [] if body is None else [f"Content-Length: {len(data)}"]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *ends, *lines, *length, "", ""])
        self.bytes = head.encode("latin-1") + data
        self.allowed = allowed

    def status(self, server):
        with server.socket() as connection:
            connection.sendall(self.bytes)
            self.answer = connection.recv(65536)
        return int(self.answer.split(b" ", 2)[1])


class Row:
    def __init__(self, goal, name, tries, logged=None, counted=None, arguments=(), keys=True):
        self.goal, self.name, self.tries = goal, name, tries
        self.logged = logged  # a pattern, in a line of the log
        self.counted = counted  # a sample that has gone up
        self.arguments, self.keys = arguments, keys


def rows(keys):
    """`keys`: what they are, by name. Each row has a server of its own: guesses of one are in the way of others."""
    use, gone, old, admin = keys["user"], keys["gone"], keys["old"], keys["chief"]
    refused = "quarrel_admission_refused_total"
    bad = 'quarrel_http_requests_total{route="none",status="400"}'
    yield Row("F1", "no key", [Try(), Try(method="POST", path=CHAT, body=QUESTION), Try(path="/metrics"), Try(path="/ws")],
              logged=r'"status":401', counted='quarrel_webui_errors_total{type="authentication_error"}')
    yield Row("F1", "a wrong key", [Try(bearer(key)) for key in (use[:-1], use + "A", use.swapcase(), "qk_", "x",
                                                                 use[:13] + gone[13:])],
              logged="a wrong key came from 127.0.0.1", counted=f'{refused}{{reason="wrong_key"}}')
    yield Row("F1", "a revoked key", [Try(bearer(gone))], logged="the revoked key 'gone' came from",
              counted=f'{refused}{{reason="revoked_key"}}')
    yield Row("F1", "an expired key", [Try(bearer(old))], logged="the expired key 'old' came from",
              counted=f'{refused}{{reason="expired_key"}}')
    yield Row("F1", "a key of another role", [
        Try(bearer(use), method=method, path=path, body={"model": "toy"}, allowed=(403,))
        for method, path in (("POST", "/api/pull"), ("POST", "/api/create"), ("POST", "/api/copy"),
                             ("DELETE", "/api/delete"), ("POST", "/api/models/toy/load"),
                             ("POST", "/api/models/toy/unload"), ("DELETE", "/api/models/toy/cache"))],
        logged=r'"status":403', counted='quarrel_webui_errors_total{type="permission_error"}')
    yield Row("F1", "other methods", [
        Try(method=method, path=path, allowed=(400, 401, 404, 405))
        for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "get", "PROPFIND")
        for path in ("/v1/models", CHAT)], logged=r'"status":40', counted='quarrel_http_requests_total{route="none",status="405"}')
    yield Row("F1", "odd paths", [
        Try(path=path, allowed=(400, 401, 404))
        for path in ("//v1/models", "/v1//models", "/./v1/models", "/health/../v1/models", "/health/%2e%2e/v1/models",
                     "/v1%2fmodels/", "/V1/models", "/v1/models/", "/health;/v1/models", "/v1/models%00", "/v1\\models",
                     "http://localhost/v1/models", "/v1/models#", "*", "/%ff/models", "/v1/models%0d%0aX:y")],
        logged=r'"status":40', counted=bad)
    yield Row("F1", "headers that claim something", [
        Try(*lines) for lines in (
            [f"Authorization: {use}"], [f"Authorization: Basic {use}"], ["Authorization: Bearer"], [f"X-Api-Key: {use}"],
            [f"Proxy-Authorization: Bearer {use}"], [f"Cookie: key={use}"], ["X-Original-URL: /health"],
            ["X-Rewrite-URL: /health"], ["X-HTTP-Method-Override: HEAD"], ["X-Forwarded-For: 127.0.0.1"],
            ["X-Forwarded-Host: localhost", "Forwarded: for=127.0.0.1"], ["X-Real-IP: 127.0.0.1"])],
        logged=r'"status":401', counted='quarrel_webui_errors_total{type="authentication_error"}')
    yield Row("F1", "headers that two readers read in two ways", [
        Try(*lines, allowed=(400, 417, 501)) for lines in (
            [bearer(use), "Authorization: Bearer x"], [f"Authorization: Bearer {use}\x00"], ["Host: elsewhere"],
            ["Content-Length: 5", "Content-Length: 6"], ["Content-Length: 5", "Transfer-Encoding: chunked"],
            ["Transfer-Encoding: chunked, identity"], ["Content-Length: +5"], ["Content-Length: -1"], ["Bad Name: x"],
            ["X: a\nInjected: yes"], [" folded: x"])],
        logged=r'"status":4', counted=bad)
    yield Row("F1", "models by their paths", [
        Try(bearer(use), method="POST", path=path, body={**QUESTION, "model": name, **more}, allowed=(400, 404))
        for name in ("../toy", "/etc/passwd", "./toy.gguf", "..%2ftoy", "toy/../toy", "toy\0", "file:///etc/passwd", "~/toy")
        for path, more in ((CHAT, {}), ("/api/chat", {}))],
        logged=r'"status":40', counted='quarrel_webui_errors_total{type="not_found_error"}')
    yield Row("F2", "keys that are nearly right are answered like any other", [
        Try(bearer(key)) for key in ("Q" + use[1:], use[:3] + "z" * 53, use[:-1] + ("A" if use[-1] != "A" else "B"))],
        logged="a wrong key came from", counted=f'{refused}{{reason="wrong_key"}}')
    yield Row("F4", "a page of another origin", [
        Try(*lines, f"Origin: {origin}", bearer(use), path=path, allowed=(403,))
        for origin in ("http://evil.example", "null", "https://localhost.evil.example", "http://localhost:1",
                       "chrome-extension://x", "file://")
        for path, lines in (("/v1/models", []), ("/ws", UPGRADE))],
        logged=r'"status":403', counted=f'{refused}{{reason="foreign_page"}}')
    yield Row("F4", "a name that was pointed here", [
        Try(*lines, host=host, path=path, allowed=(403,))
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1", "127.1.evil", "[::2]")
        for path, lines in (("/v1/models", []), ("/ws", UPGRADE))],
        logged=r'"status":403', counted=f'{refused}{{reason="foreign_page"}}', keys=False)
    yield Row("F5", "ten times what a key may", [
        Try(bearer(keys["few"]), allowed=(200,) if i < 1 else (429,)) for i in range(10)],
        logged=r'"status":429', counted=f'{refused}{{reason="key_limit"}}')
    yield Row("F6", "guessing", [Try(bearer(f"qk_{i:053}"), allowed=(401,) if i < 10 else (429,)) for i in range(40)],
              logged="a wrong key came from 127.0.0.1", counted=f'{refused}{{reason="address_limit"}}')
    yield Row("F7", "a key in a URL", [
        Try(*lines, path=path + query, allowed=(400,))
        for query in (f"?api_key={use}", f"?key={use}", "?token=x", f"?a=b&x={admin}")
        for path, lines in (("/v1/models", []), ("/ws", UPGRADE))],
        logged=r'"status":400', counted='quarrel_http_requests_total{route="GET /v1/models",status="400"}')


class Attacks(ServeTest):
    @classmethod
    def prepare(cls):
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        options = {"user": [], "gone": [], "old": ["--expires", "1s"], "chief": ["--admin"],
                   "few": ["--requests-per-minute", "1"]}
        cls.keys = {name: cls.key("create", name, *more) for name, more in options.items()}
        cls.key("revoke", "gone")
        time.sleep(1.1)  # until the old one has expired

    @classmethod
    def key(cls, *arguments):
        return subprocess.run([QUARREL, "key", *arguments], env=cls.environment, capture_output=True, timeout=TIMEOUT,
                              check=True).stdout.decode().strip()

    def sample(self, server, name, key):
        text = server.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"} if key else {})[2].decode()
        found = re.search(f"^{re.escape(name)} (.*)$", text, re.MULTILINE)
        return float(found.group(1)) if found else 0.0

    def test_every_row(self):
        goals = set()
        for row in rows(self.keys):
            with self.subTest(goal=row.goal, name=row.name):
                self.check(row)
            goals.add(row.goal)
        # The other two are tests of their own: F3 looks at what all of these leave behind.
        self.assertEqual(goals, {"F1", "F2", "F4", "F5", "F6", "F7"})

    def check(self, row):
        log = self.path(f"{row.goal}-{row.name}.log".replace(" ", "-"))
        more = {} if row.keys else {"XDG_DATA_HOME": self.path("none")}
        server = self.start_server(self.toy, "--log-file", log, "--log-format", "json", "--log-level", "debug",
                                   *row.arguments, **more)
        admin = self.keys["chief"] if row.keys else None
        for each in row.tries:
            status = each.status(server)
            self.assertIn(status, each.allowed, each.bytes)
            if status == 429:
                self.assertRegex(each.answer, rb"(?i)\r\nretry-after: [1-9]")
            self.assert_no_secrets(each.answer.decode("latin-1"))
        self.assertGreater(self.sample(server, row.counted, admin), 0, row.counted)
        # Whoever has a good key is served all the while.
        headers = {"Authorization": f"Bearer {admin}"} if admin else {}
        self.assertEqual(server.request("POST", CHAT, QUESTION, headers)[0], 200)
        metrics = server.request("GET", "/metrics", headers=headers)[2].decode()
        code, said = server.stop()
        self.assertEqual(code, 0, said)
        with open(log, encoding="utf-8") as file:
            lines = file.read()
        self.assertRegex(lines, row.logged)
        for text in (lines, said, metrics):  # F3
            self.assert_no_secrets(text)

    def assert_no_secrets(self, text):
        for secret in (CANARY, *(key[13:] for key in self.keys.values())):
            self.assertNotIn(secret, text)
        self.assertNotIn(self.folder, text)

    def test_f1_every_route_is_as_its_description_says(self):
        """Those with no key needed are few, and named here: a new one has to be added."""
        public = {"/health", "/v1/health", "/api/health", "/healthz", "/readyz", "/openapi.json", "/openapi.yaml", "/docs",
                  "/docs/page.js", "/docs/page.css", "/", "/status", "/embeddings", "/assets/{name}"}
        server = self.start_server(self.toy)
        paths = json.loads(server.request("GET", "/openapi.json")[2])["paths"]
        self.assertGreater(len(paths), 30)
        for path, methods in paths.items():
            for method in methods:
                if method not in ("get", "post", "delete", "head"):
                    continue
                real = re.sub(r"\{[^}]*\}", "toy", path)
                status = server.request(method.upper(), real, {} if method == "post" else None)[0]
                if status == 401:
                    self.assertNotIn(path, public)
                else:
                    self.assertIn(path, public, (method, status))

    def test_f4_other_machines_need_a_key(self):
        self.refuse(2, ["other machines", "--open"], "serve", self.toy, "--host", "0.0.0.0", "--port", "0",
                    environment={"XDG_DATA_HOME": self.path("none")})

    def test_f7_a_websocket_takes_its_key_as_a_subprotocol(self):
        server = self.start_server(self.toy)
        for name, wanted in (("user", None), ("gone", 401)):
            offered = "quarrel.key." + base64.urlsafe_b64encode(self.keys[name].encode()).decode().rstrip("=")
            try:
                WebSocketClient(server.port, protocols=["quarrel.v1", offered]).cut()
                self.assertIsNone(wanted)
            except Refused as refused:
                self.assertEqual(refused.status, wanted)


if __name__ == "__main__":
    unittest.main()

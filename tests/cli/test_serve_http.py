#!/usr/bin/env python3
"""HTTP as it comes over a socket: what would let two readers disagree, limits, odd paths, hosts, origins and keys."""
import email.utils
import json
import os
import re
import socket
import time
import unittest

from serve_harness import ServeTest, read_all

HOST = b"Host: localhost\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + HOST


def get(path=b"/health", headers=HOST):
    return b"GET " + path + b" HTTP/1.1\r\n" + headers + b"\r\n"


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else None


class Framing(ServeTest):
    def expect_refused(self, status, data):
        """One answer, then the end, whatever follows the request."""
        answer = self.server.raw(data + get(b"/version"))
        self.assertEqual(status_of(answer), status, answer)
        self.assertEqual(answer.count(b"\r\nServer: "), 1, answer)
        self.assertIn(b"\r\nConnection: close\r\n", answer)

    def test_what_readers_could_disagree_on_is_refused(self):
        body = b"{}"
        for data in (
                POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n" + body,
                POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n" + body,
                POST + b"Content-Length: 2, 2\r\n\r\n" + body,
                POST + b"Content-Length: +2\r\n\r\n" + body,
                POST + b"Content-Length: -2\r\n\r\n" + body,
                POST + b"Content-Length: 0x2\r\n\r\n" + body,
                POST + b"Content-Length: 2 \r\nContent-Length : 2\r\n\r\n" + body,
                POST + b"Content-Length: 18446744073709551618\r\n\r\n" + body,
                POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
                POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
                POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
                b"GET /health HTTP/1.1\nHost: localhost\n\n",
                get(headers=HOST + b"X: a\nY: b\r\n"),
                get(headers=HOST + b"X: a\rY: b\r\n"),
                get(headers=HOST + b"X: a\r\n b\r\n"),
                get(headers=HOST + b"X: a\0b\r\n"),
                get(headers=HOST + b": a\r\n"),
                get(headers=HOST + b"X\r\n"),
                get(headers=HOST + HOST),
                get(headers=b""),
                get(headers=HOST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"),
                get(headers=HOST + b"X: a\r\n" * 101),
                b"\r\n" + get(),
                b"GET  /health HTTP/1.1\r\n" + HOST + b"\r\n",
                b"GET /health\r\n" + HOST + b"\r\n",
                b"hello\r\n\r\n"):
            with self.subTest(data=data[:120]):
                self.expect_refused(400, data)
        self.assertEqual(self.server.request("GET", "/health")[0], 200)

    def test_versions(self):
        for version in (b"HTTP/2.0", b"HTTP/1.2", b"HTTP/0.9"):
            self.expect_refused(505, get().replace(b"HTTP/1.1", version))
        old = self.server.raw(b"GET /readyz HTTP/1.0\r\n\r\n")
        self.assertTrue(old.startswith(b"HTTP/1.0 200 OK\r\n"), old)
        self.assertTrue(old.endswith(b'\r\n\r\n{"status":"ready"}'), old)
        body = json.dumps({"prompt": "a", "max_tokens": 4, "stream": True}).encode()
        stream = self.server.raw(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertNotIn(b"chunked", stream)
        self.assertTrue(stream.endswith(b"data: [DONE]\n\n"), stream)

    def test_sizes(self):
        self.expect_refused(431, get(headers=HOST + b"X: " + b"a" * 20000 + b"\r\n"))
        for length in (b"16777217", b"99999999999999", b"9223372036854775807"):
            self.expect_refused(413, POST + b"Content-Length: " + length + b"\r\n\r\n{}")
        self.expect_refused(413, POST + b"Expect: 100-continue\r\nContent-Length: 16777217\r\n\r\n")
        self.expect_refused(400, get(headers=HOST + b"Content-Length: 5\r\n") + b"hello")
        self.expect_refused(413, POST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n{}")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        self.expect_refused(413, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 17 + b"0\r\n\r\n")
        # All that is allowed is read.
        body = b'{"prompt":"a","max_tokens":1}'
        answer = self.server.raw(POST + b"Connection: close\r\nContent-Length: 16777216\r\n\r\n" +
                                 body + b" " * (16777216 - len(body)))
        self.assertEqual(status_of(answer), 200, answer[:300])

    def test_refusals_have_the_form_of_their_path(self):
        """What OpenAI's clients read is an object, what Ollama's and ours read is a text."""
        def post(path, rest):
            return b"POST " + path + b" HTTP/1.1\r\n" + HOST + rest
        for status, rest in ((413, b"Content-Length: 99999999\r\n\r\n"), (417, b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}"),
                             (415, b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"),
                             (400, b"Content-Length: 2, 2\r\n\r\n{}"), (400, b"X: a\nY: b\r\n\r\n"),
                             (400, b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), (431, b"X: " + b"a" * 20000 + b"\r\n\r\n")):
            for path, dialect in ((b"/v1/completions", dict), (b"/api/chat", str), (b"/api/stream", str)):
                with self.subTest(rest=rest[:40], path=path):
                    answer = self.server.raw(post(path, rest))
                    self.assertEqual(status_of(answer), status, answer)
                    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
                    self.assertIs(type(error), dialect, answer)
                    self.assertTrue(error["message"] if dialect is dict else error)

    def test_a_page_that_may_call_may_read_refusals(self):
        server = self.start_server(self.toy, "--allow-origin", "https://page.example")
        answer = server.raw(POST + b"Origin: https://page.example\r\nContent-Length: 99999999\r\n\r\n")
        self.assertEqual(status_of(answer), 413, answer)
        self.assertIn(b"\r\nAccess-Control-Allow-Origin: https://page.example\r\n", answer)

    def test_bodies_where_none_is_taken(self):
        for path, body, status, word in (("/api/models/toy/cache", b"{}", 200, '"status"'),
                                         ("/api/models/toy/cache", b'{"all":true}', 400, "'all'"),
                                         ("/api/stream", b"{}", 400, "Last-Event-ID")):
            answer = self.server.request("DELETE", path, body)
            self.assertEqual(answer[0], status, answer)
            self.assertIn(word, answer[2].decode())
        answer = self.server.request("GET", "/v1/models", b"{}")
        self.assertEqual((answer[0], json.loads(answer[2])["error"]["message"]), (400, "this request takes no body"))

    def test_every_answer_has_its_date(self):
        for data in (get(headers=HOST + b"Connection: close\r\n"), get(b"/nowhere", HOST + b"Connection: close\r\n"), b"hello\r\n\r\n"):
            answer = self.server.raw(data)
            date = email.utils.parsedate_to_datetime(re.search(rb"\r\nDate: ([^\r]* GMT)\r\n", answer)[1].decode())
            self.assertLess(abs(date.timestamp() - time.time()), 3600)

    def test_what_stands_around_chunks_is_bounded(self):
        """The parser itself would gather it until memory ends."""
        for endless in (b"1;" + b"a" * (1 << 20), b"0\r\n" + b"X: " + b"a" * (1 << 20)):
            self.expect_refused(400, POST + b"Transfer-Encoding: chunked\r\n\r\n" + endless)

    def test_a_connection_goes_on(self):
        body = b'{"prompt":"a","max_tokens":2}'
        requests = [get(), get(b"/nowhere"), POST + b"Content-Length: %d\r\n\r\n" % len(body) + body,
                    POST + b"Transfer-Encoding: chunked\r\n\r\n%x;a=b\r\n" % len(body) + body + b"\r\n0\r\nX: y\r\n\r\n",
                    b"HEAD /readyz HTTP/1.1\r\n" + HOST + b"\r\n",
                    get(b"/version", HOST + b"Connection: close\r\n")]
        together = self.server.raw(b"".join(requests))
        with self.server.socket() as connection:
            for byte in b"".join(requests):
                connection.sendall(bytes([byte]))
            apart = read_all(connection)
        for answers in (together, apart):
            parts = answers.split(b"HTTP/1.1 ")[1:]
            self.assertEqual([int(part[:3]) for part in parts], [200, 404, 200, 200, 200, 200], answers)
            head = parts[4]
            self.assertIn(b"Content-Length: 18\r\n", head)
            self.assertTrue(head.endswith(b"\r\n\r\n"), head)

    def test_expectations(self):
        body = b'{"prompt":"a","max_tokens":2}'
        with self.server.socket() as connection:
            connection.sendall(POST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" %
                               len(body))
            self.assertEqual(connection.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(body)
            self.assertEqual(status_of(read_all(connection)), 200)
        self.expect_refused(417, POST + b"Expect: tea\r\nContent-Length: 2\r\n\r\n{}")

    def test_request_ids(self):
        for given, kept in ((b"abc-1.2:3_4", True), (b"a b", False), (b"a" * 129, False), (b"<x>", False)):
            answer = self.server.raw(get(headers=HOST + b"Connection: close\r\nx-request-id: " + given + b"\r\n"))
            self.assertEqual(b"x-request-id: " + given + b"\r\n" in answer, kept, answer)

    def test_a_client_that_breaks_off_anywhere(self):
        whole = POST + b"Content-Length: 29\r\n\r\n" + b'{"prompt":"a","max_tokens":2}'
        for length in range(0, len(whole), 7):
            with self.server.socket() as connection:
                connection.sendall(whole[:length])
                if length % 2:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.assertEqual(self.server.request("GET", "/health")[0], 200)


class Rights(ServeTest):
    def test_paths_have_one_spelling(self):
        for path in (b"/v1/../health", b"/v1/%2e%2e/health", b"//health", b"/v1//models", b"/./health", b"/health\\x",
                     b"/health%00", b"/health%0d%0aX:y", b"/health%5c", b"/health%", b"/health%2", b"/health%zz",
                     b"http://localhost/health", b"*", b"health", b"/" + b"a" * 2000, b"/health#x"):
            with self.subTest(path=path[:40]):
                self.assertEqual(status_of(self.server.raw(get(path, HOST + b"Connection: close\r\n"))), 400)
        for path in ("/Health", "/health/", "/v1/models/", "/v1", "/%2fhealth%2f"):
            self.assertIn(self.server.request("GET", path)[0], (400, 404))
        self.assertEqual(self.server.request("GET", "/heal%74h?x=/../y")[0], 200)

    def test_methods(self):
        for method, path, allowed in (("GET", "/v1/chat/completions", "POST"), ("DELETE", "/v1/models/toy", "GET, HEAD"),
                                      ("HEAD", "/api/stream", "POST, DELETE"), ("PUT", "/health", "GET, HEAD"),
                                      ("OPTIONS", "/v1/completions", "POST")):
            status, headers, _ = self.server.request(method, path)
            self.assertEqual((status, headers["Allow"]), (405, allowed))

    def test_hosts_and_origins(self):
        port = self.server.port
        hosts = [("localhost", True), (f"LocalHost:{port}", True), ("127.0.0.1", True), (f"127.1.2.3:{port}", True),
                 (f"[::1]:{port}", True), ("evil.example", False), ("127.evil.example", False),
                 ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("evil.example:8080", False)]
        for host, known in hosts:
            for origin, trusted in ((None, True), (f"http://{host}", True), ("http://evil.example:1", False),
                                    ("null", False), (host, False), ("http://localhost:1", False)):
                headers = {"Host": host, **({"Origin": origin} if origin else {})}
                status, _, data = self.server.request("GET", "/v1/models", headers=headers)
                self.assertEqual(status, 200 if known and trusted else 403, (host, origin, data))

    def test_a_key(self):
        server = self.start_server(self.toy, "--allow-host", "Models.example", QUARREL_API_KEY="secret-1")
        public = {"/health", "/v1/health", "/api/health", "/healthz", "/readyz"}
        wrong = ("Bearer secret-2", "Bearer secret-", "Bearer secret-11", "Bearer  secret-1")
        for method, path in [("GET", path) for path in public] + [
                ("GET", "/version"), ("GET", "/api/version"), ("GET", "/v1/models"), ("GET", "/v1/models/toy"),
                ("POST", "/v1/chat/completions"),
                ("POST", "/v1/completions"), ("POST", "/v1/embeddings"), ("POST", "/api/generate"),
                ("POST", "/api/native/generate"), ("POST", "/api/stream")]:
            for given in (None, "", "Bearer", "Bearer ", "secret-1", "Basic secret-1", "Bearer secret-1",
                          "apikey secret-1", *(wrong if path in ("/v1/models", "/api/stream") else ())):
                headers = {} if given is None else {"Authorization": given}
                status, answered, data = server.request(method, path, b"{}" if method == "POST" else None, headers)
                if path in public or given in ("Bearer secret-1", "apikey secret-1"):
                    self.assertNotEqual(status, 401, (path, given))
                else:
                    self.assertEqual((status, answered["WWW-Authenticate"]), (401, "Bearer"), (path, given))
                    self.assertNotIn(b"secret-1", data)
        self.assertEqual(server.request("GET", "/v1/models?key=secret-1")[0], 400)
        self.assertNotIn("secret", server.stop()[1])


class Descriptors(ServeTest):
    def test_idle_connections_lock_nobody_out(self):
        """There are as many connections as descriptors allow; at that limit the oldest without a request makes room."""
        server = self.start_server(self.toy, descriptors=256)
        idle = [server.socket() for _ in range(400)]
        self.assertEqual(server.request("GET", "/healthz")[0], 200)
        for connection in idle:
            connection.close()
        self.assertEqual(server.stop()[0], 0)


class Threads(ServeTest):
    def test_connections_have_none_of_their_own(self):
        server = self.start_server(self.toy)
        def threads():
            return len(os.listdir(f"/proc/{server.process.pid}/task"))
        self.assertEqual(server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0], 200)
        connections = [server.socket()]
        connections[0].sendall(get())
        connections[0].recv(65536)
        few = threads()
        for _ in range(100):
            connections.append(server.socket())
            connections[-1].sendall(get())
            connections[-1].recv(65536)
        self.assertEqual(threads(), few)
        for connection in connections:
            connection.close()
        self.assertEqual(server.stop()[0], 0)


class UnixSocket(ServeTest):
    def test_a_socket_is_left_to_its_owner(self):
        path = self.path("s")
        server = self.start_server(self.toy, "--unix-socket", path)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(get(headers=HOST + b"Connection: close\r\n"))
            self.assertEqual(status_of(read_all(connection)), 200)
        self.refuse(1, ["another server"], "serve", self.toy, "--port", "0", "--unix-socket", path)
        server.kill()  # leaves the socket's file behind
        again = self.start_server(self.toy, "--unix-socket", path)
        self.assertEqual(again.stop()[0], 0)
        self.refuse(2, ["too long"], "serve", self.toy, "--port", "0", "--unix-socket", self.path("s" * 200))


if __name__ == "__main__":
    unittest.main()

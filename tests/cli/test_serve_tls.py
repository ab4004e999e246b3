#!/usr/bin/env python3
"""TLS by certificate files, reloaded while the server runs; a second port and a Unix socket beside it."""
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import time
import unittest

from certificates import make_certificate
from harness import TIMEOUT
from serve_harness import ServeTest, read_all

PROMPT = {"prompt": "a", "max_tokens": 8, "temperature": 0}


def trusting(*certificates, **versions):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for certificate in certificates:
        context.load_verify_locations(certificate)
    for name, version in versions.items():
        setattr(context, name, version)
    return context


class TlsTest(ServeTest):
    @classmethod
    def prepare(cls):
        cls.first = make_certificate(cls.folder, "first")
        cls.second = make_certificate(cls.folder, "second")
        cls.arguments = ("--tls-cert", cls.first[0], "--tls-key", cls.first[1])

    def ask(self, server, context, path="/readyz", body=None):
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=TIMEOUT, context=context)
        try:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


class Answers(TlsTest):
    def test_answers_and_streams(self):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(self.first[0], minimum_version=version, maximum_version=version)
            self.assertEqual(self.ask(self.server, context), (200, b'{"status":"ready"}'))
            status, whole = self.ask(self.server, context, "/v1/completions", PROMPT)
            self.assertEqual(status, 200)
            status, events = self.ask(self.server, context, "/v1/completions", {**PROMPT, "stream": True})
            self.assertTrue(events.endswith(b"data: [DONE]\n\n"), events)
            pieces = [json.loads(line[6:])["choices"][0]["text"]
                      for line in events.decode().split("\n\n") if line.startswith("data: {")]
            self.assertEqual("".join(pieces), json.loads(whole)["choices"][0]["text"])

    def test_who_is_not_trusted_is_not_spoken_to(self):
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.ask(self.server, trusting(self.second[0]))

    def test_without_tls_there_is_no_answer(self):
        with self.server.socket() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                answer = read_all(connection)
            except ConnectionResetError:
                answer = b""
        self.assertNotIn(b"HTTP/1", answer)
        self.assertEqual(self.ask(self.server, trusting(self.first[0]))[0], 200)

    def test_the_end_of_an_answer_is_said(self):
        """Whoever reads to the end can tell a whole answer from a cut one."""
        context = trusting(self.first[0])
        with self.server.socket() as plain:
            with context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as connection:
                connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
                self.assertTrue(read_all(connection).endswith(b'{"status":"ready"}'))

    def test_a_client_that_breaks_off_anywhere(self):
        context = trusting(self.first[0])
        for count in range(4):
            with self.server.socket() as plain:
                plain.sendall(b"\x16\x03\x01\x02\x00\x01"[:count * 2])
            with self.server.socket() as plain:
                connection = context.wrap_socket(plain, server_hostname="localhost")
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"[:count * 10])
                connection.close()
        self.assertEqual(self.ask(self.server, context)[0], 200)


class Reload(TlsTest):
    def issued_to(self, server):
        """Which of the two certificates a new connection sees."""
        context = trusting(self.first[0], self.second[0])
        with socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                seen = connection.getpeercert(binary_form=True)
        for name, (certificate, _) in (("first", self.first), ("second", self.second)):
            with open(certificate, encoding="ascii") as file:
                if ssl.PEM_cert_to_DER_cert(file.read()) == seen:
                    return name
        return None

    def test_a_new_certificate_is_taken_and_a_bad_one_is_not(self):
        used = [f"{self.folder}/used.crt", f"{self.folder}/used.key"]
        for source, target in zip(self.first, used):
            shutil.copy(source, target)
        log = self.path("reload.log")
        server = self.start_server(self.toy, "--tls-cert", used[0], "--tls-key", used[1], "--log-file", log)
        kept = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=TIMEOUT, context=trusting(self.first[0]))
        kept.request("GET", "/readyz")
        self.assertEqual(kept.getresponse().read(), b'{"status":"ready"}')
        self.assertEqual(self.issued_to(server), "first")

        for source, target in zip(self.second, used):
            shutil.copy(source, target)
        self.assertEqual(self.issued_to(server), "first")  # only when it is told
        server.process.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.issued_to(server) == "second")
        kept.request("GET", "/readyz")  # a connection from before goes on
        self.assertEqual(kept.getresponse().read(), b'{"status":"ready"}')
        kept.close()

        def refused():
            with open(log, encoding="utf-8") as file:
                return [line for line in file if "the certificate from before stays in use" in line]

        shutil.copy(self.first[1], used[1])  # a key that is another's
        server.process.send_signal(signal.SIGHUP)
        self.wait_for(lambda: len(refused()) == 1)
        self.assertEqual(self.issued_to(server), "second")
        os.remove(used[0])
        server.process.send_signal(signal.SIGHUP)
        self.wait_for(lambda: len(refused()) == 2)
        self.assertEqual(self.issued_to(server), "second")
        self.assertEqual(server.stop()[0], 0)
        self.assertEqual(len(refused()), 2, refused())
        self.assertIn(used[0], "".join(refused()))

    def wait_for(self, condition):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)


class Files(TlsTest):
    def test_what_cannot_be_used_is_refused(self):
        protected = make_certificate(self.folder, "protected", password="secret")
        nothing = f"{self.folder}/nothing"
        for certificate, key, named in ((nothing, self.first[1], nothing), (self.first[0], nothing, nothing),
                                        (self.first[1], self.first[1], self.first[1]),
                                        (self.first[0], self.second[1], self.second[1]),
                                        (*protected, protected[1])):
            self.refuse(2, [named], "serve", self.toy, "--port", "0", "--tls-cert", certificate, "--tls-key", key)
        for half in (("--tls-cert", self.first[0]), ("--tls-key", self.first[1])):
            self.refuse(2, ["go together"], "serve", self.toy, "--port", "0", *half)


class Commands(TlsTest):
    def test_ps_and_stop_ask_who_is_there(self):
        context = trusting(self.first[0])
        self.assertEqual(self.ask(self.server, context, "/api/chat", {"model": "toy", "messages": []})[0], 200)
        for host in ("localhost", "127.0.0.1"):
            address = ("--host", f"https://{host}:{self.server.port}")
            self.refuse(1, ["does not prove who it is", "--ca-file"], "ps", *address)
            self.refuse(1, ["does not prove who it is"], "ps", *address, "--ca-file", self.second[0])
            self.refuse(2, ["cannot be read"], "ps", *address, "--ca-file", self.path("nothing.crt"))
            self.assertIn(b"toy", self.succeed("ps", *address, "--ca-file", self.first[0]).out)
        # One that is trusted, but is somebody else's.
        other = make_certificate(self.folder, "other", names="DNS:elsewhere.example")
        elsewhere = self.start_server(self.toy, "--tls-cert", other[0], "--tls-key", other[1])
        self.refuse(1, ["does not prove who it is"], "ps", "--host", f"https://127.0.0.1:{elsewhere.port}", "--ca-file",
                    other[0])
        for nonsense in ("https://", "ftp://localhost", "https://a/b"):
            self.refuse(2, ["not the address of a server"], "ps", "--host", nonsense)
        # The settings that the server was started with say it as well.
        known = {"QUARREL_TLS_CERT": self.first[0], "QUARREL_PORT": str(self.server.port)}
        self.refuse(1, ["does not prove who it is"], "ps", environment=known)
        self.assertIn("toy is unloaded", self.succeed("stop", "toy", "--ca-file", self.first[0], environment=known).err)


class Ports(TlsTest):
    def test_several_listeners_are_one_server(self):
        path = f"{self.folder}/s"
        server = self.start_server(self.toy, "--ollama-port", "0", "--unix-socket", path)
        ports = server.ports
        self.assertEqual(len(set(ports)), 2)
        for port in ports:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
            connection.request("GET", "/api/version")
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertTrue(read_all(connection).startswith(b"HTTP/1.1 200 "))
        self.refuse(1, [str(ports[1])], "serve", self.toy, "--port", "0", "--ollama-port", str(ports[1]))

    def test_a_unix_socket_needs_no_tls(self):
        path = f"{self.folder}/t"
        self.start_server(self.toy, "--unix-socket", path, *self.arguments)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertTrue(read_all(connection).startswith(b"HTTP/1.1 200 "))


if __name__ == "__main__":
    unittest.main()

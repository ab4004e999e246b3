#!/usr/bin/env python3
"""The page at /: part of the program, small, kept by browsers, and with a policy that lets nothing come from elsewhere."""
import gzip
import os
import re
import socket
import subprocess
import time
import unittest

from certificates import make_certificate
from harness import QUARREL, TIMEOUT, ProgramTest
from serve_harness import SETTINGS, ServeTest
from test_docs_page import Page

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Accept-Encoding": "gzip, deflate, br"}
MOST_BYTES = 120_000


class ThePage(ServeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.closed = cls.start_server(cls.toy, QUARREL_API_KEY="a-key-for-the-tests")

    def get(self, path, expected=200, **headers):
        status, answered, data = self.closed.request("GET", path, headers={**BROWSER, **headers})
        self.assertEqual(status, expected, path)
        return answered, data

    def files(self):
        """Paths and packed bytes of all that the page is made of, found as a browser finds it."""
        found, waiting = {}, ["/"]
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            headers, data = self.get(path)
            self.assertEqual(headers["Content-Encoding"], "gzip", path)
            found[path] = data
            text = gzip.decompress(data).decode()
            links = [name for name in Page(text).files if name.startswith("/assets/")] if path == "/" else []
            names = re.findall(r"""["'`](?:\./|/?assets/)([\w.-]+\.(?:js|css|svg))["'`]""", text)
            waiting += links + ["/assets/" + name for name in names]
        return found

    def test_browsers_get_the_page_and_ollamas_clients_what_they_look_for(self):
        headers, data = self.get("/")
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        text = gzip.decompress(data).decode()
        self.assertIn('<div id="app"', text)
        self.assertEqual(Page(text).inline, [])
        for path in ("/status", "/embeddings"):
            self.assertEqual(self.get(path)[1], data, path)
            self.assertEqual(self.get(path, Accept="*/*")[1], data, path)
        for method, accept in (("GET", "*/*"), ("GET", "application/json"), ("HEAD", BROWSER["Accept"])):
            status, headers, body = self.closed.request(method, "/", headers={"Accept": accept})
            self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; charset=utf-8"))
            self.assertEqual(body, b"" if method == "HEAD" else b"Ollama is running")

    def test_it_is_small_whole_and_kept(self):
        files = self.files()
        self.assertGreaterEqual(len(files), 4)
        self.assertLess(sum(len(data) for data in files.values()), MOST_BYTES)
        for path in files:
            headers, _ = self.get(path)
            kept = "no-cache" if path == "/" else "public, max-age=31536000, immutable"
            self.assertEqual(headers["Cache-Control"], kept, path)
            again, data = self.get(path, 304, **{"If-None-Match": headers["ETag"]})
            self.assertEqual((data, again["ETag"], again["Content-Length"]), (b"", headers["ETag"], None))
            self.get(path, **{"If-None-Match": '"another"'})
        self.assertEqual(self.closed.request("GET", "/assets/index.js")[0], 404)
        self.assertEqual(self.closed.request("GET", "/assets/")[0], 404)

    def test_who_takes_no_gzip_gets_it_unpacked(self):
        for path, data in self.files().items():
            headers, plain = self.get(path, **{"Accept-Encoding": "identity"})
            self.assertIsNone(headers["Content-Encoding"])
            self.assertEqual(plain, gzip.decompress(data), path)

    def test_nothing_comes_from_elsewhere_and_nothing_is_told(self):
        for path in self.files():
            headers, _ = self.get(path)
            policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
            self.assertEqual(policy["default-src"], "'none'")
            for name in ("script-src", "style-src", "img-src", "connect-src"):
                self.assertEqual(policy[name], "'self'", name)
            self.assertEqual(policy["frame-ancestors"], "'none'")
            self.assertEqual(policy["require-trusted-types-for"], "'script'")
            self.assertNotIn("unsafe", headers["Content-Security-Policy"])
            self.assertEqual(headers.get_all("X-Content-Type-Options"), ["nosniff"])
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(headers["X-DNS-Prefetch-Control"], "off")


SCRIPT = os.path.join(os.path.dirname(__file__), "../../scripts/serve")


def free_port(host="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class ThePageIsOpened(ProgramTest):
    """scripts/serve, with a desktop whose xdg-open writes down what it is asked to open."""

    def setUp(self):
        self.bin = os.path.join(self.folder, "bin-" + self.id().rsplit(".", 1)[1])
        os.makedirs(self.bin)
        self.opened = os.path.join(self.bin, "opened")
        opener = os.path.join(self.bin, "xdg-open")
        with open(opener, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$1" >> "{self.opened}"\n')
        os.chmod(opener, 0o755)

    def start(self, **settings):
        environment = {name: value for name, value in self.environment.items() if name not in SETTINGS}
        environment |= {"DISPLAY": ":7", "PATH": f"{self.bin}:{environment['PATH']}", **settings}
        process = subprocess.Popen([SCRIPT, QUARREL, self.toy], env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def addresses(self):
        if not os.path.exists(self.opened):
            return []
        with open(self.opened, encoding="utf-8") as file:
            return file.read().splitlines()

    def first_address(self, process):
        end = time.monotonic() + TIMEOUT
        while not self.addresses():
            self.assertIsNone(process.poll(), "the server ended")
            self.assertLess(time.monotonic(), end, "no page was opened")
            time.sleep(0.02)
        return self.addresses()

    def test_it_is_opened_once_at_the_port_in_force(self):
        port = free_port()
        process = self.start(QUARREL_PORT=str(port))
        self.assertEqual(self.first_address(process), [f"http://127.0.0.1:{port}/"])
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT):
            pass

    def test_a_server_with_a_certificate_is_opened_by_https(self):
        certificate, key = make_certificate(self.folder, "page")
        port = free_port()
        process = self.start(QUARREL_PORT=str(port), QUARREL_TLS_CERT=certificate, QUARREL_TLS_KEY=key)
        self.assertEqual(self.first_address(process), [f"https://127.0.0.1:{port}/"])

    def test_the_settings_file_counts_and_every_address_is_this_machine(self):
        port = free_port()
        path = os.path.join(self.bin, "config.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[server]\nhost = "0.0.0.0"\nport = {port}\nopen = true\n')
        process = self.start(QUARREL_CONFIG=path)
        self.assertEqual(self.first_address(process), [f"http://127.0.0.1:{port}/"])

    def test_nothing_is_opened_where_another_server_has_the_port(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            process = self.start(QUARREL_PORT=str(other.getsockname()[1]))
            self.assertNotEqual(process.wait(timeout=TIMEOUT), 0)
        self.assertEqual(self.addresses(), [])

    def test_broken_settings_are_told_by_the_program(self):
        path = os.path.join(self.bin, "config.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("[server]\nport = many\n")
        process = self.start(QUARREL_CONFIG=path)
        self.assertEqual(process.wait(timeout=TIMEOUT), 2)
        self.assertIn(path.encode(), process.stderr.read())
        self.assertEqual(self.addresses(), [])

    def test_without_a_desktop_nothing_is_opened(self):
        process = self.start(QUARREL_PORT="0", DISPLAY="", WAYLAND_DISPLAY="")
        while b"Serving " not in process.stderr.readline():
            self.assertIsNone(process.poll(), "the server ended")
        self.assertEqual(self.addresses(), [])


if __name__ == "__main__":
    unittest.main()

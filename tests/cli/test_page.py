#!/usr/bin/env python3
"""The page at /: part of the program, small, kept by browsers, and with a policy that lets nothing come from elsewhere."""
import gzip
import re
import unittest

from serve_harness import ServeTest
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


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The description of the server and the page that shows it: open to everybody, whole, and with nothing from elsewhere."""
import html.parser
import json
import unittest

from serve_harness import ServeTest


class Page(html.parser.HTMLParser):
    """What a page refers to, and what a strict policy would not run."""

    def __init__(self, text):
        super().__init__()
        self.files, self.inline, self.inside = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag
        for name, value in attrs:
            if name in ("src", "href"):
                self.files.append(value)
            if name == "style" or name.startswith("on"):
                self.inline.append((tag, name))

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in ("script", "style") and data.strip():
            self.inline.append((self.inside, data))


class DocsPage(ServeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.closed = cls.start_server(cls.toy, QUARREL_API_KEY="a-key-for-the-tests")

    def get(self, path):
        status, headers, data = self.closed.request("GET", path)
        self.assertEqual(status, 200, path)
        return headers, data.decode()

    def test_the_page_and_its_files(self):
        headers, text = self.get("/docs")
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        page = Page(text)
        self.assertEqual(page.inline, [])
        self.assertIn("/docs/page.js", page.files)
        for path in page.files:
            self.assertTrue(path.startswith("/"), path)
            self.get(path)
        _, strict, _ = self.closed.request("GET", "/status")  # the chat's page, whose own test says what is in it
        for path in ("/docs", "/docs/page.js", "/docs/page.css"):
            headers, text = self.get(path)
            for name in ("Content-Security-Policy", "Referrer-Policy", "Cross-Origin-Opener-Policy"):
                self.assertEqual(headers[name], strict[name], path)
            self.assertEqual(headers.get_all("X-Content-Type-Options"), ["nosniff"])
            self.assertNotIn("//", text.replace("// ", ""), "nothing comes from elsewhere")
            self.assertNotIn("innerHTML", text)

    def test_the_description(self):
        headers, text = self.get("/openapi.json")
        self.assertEqual(headers["Content-Type"], "application/json")
        api = json.loads(text)
        self.assertEqual(api["openapi"], "3.1.0")
        self.assertIn("post", api["paths"]["/v1/chat/completions"])
        headers, text = self.get("/openapi.yaml")
        self.assertEqual(headers["Content-Type"], "application/yaml")
        self.assertTrue(text.startswith('openapi: "3.1.0"\n'))
        # What is said to be open is open, what needs a key needs one.
        for path, item in api["paths"].items():
            if "get" in item and "{" not in path:
                status = self.closed.request("GET", path)[0]
                self.assertEqual(status == 401, item["get"]["security"] != [], path)


if __name__ == "__main__":
    unittest.main()

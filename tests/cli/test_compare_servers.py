#!/usr/bin/env python3
"""The load generator against servers that are not ours, and the tool that compares two servers with it."""
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
import unittest
from contextlib import redirect_stderr, redirect_stdout

from harness import TIMEOUT
from serve_harness import ServeTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools"))
import compare_servers  # noqa: E402

LOAD = os.environ.get("QUARREL_LOAD", "build/release/quarrel_load")


class OtherServer:
    """Speaks OpenAI's streams in the ways that others do: lines that end in CR LF, no space behind "data:", nulls, no
    usage, a connection for each answer."""

    def __init__(self, pieces=5, usage=None, whole=True):
        self.pieces, self.usage, self.whole = pieces, usage, whole
        self.bodies = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def events(self, path):
        def piece(text):
            if path == "/v1/chat/completions":
                return {"choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "text": None}]}
            return {"choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": None}], "usage": None}

        yield piece(None)
        for number in range(self.pieces):
            yield piece(f" {number}")
        yield {"choices": [], "usage": self.usage} if self.usage else piece("")

    def _handler(other):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                other.bodies.append((self.path, body))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for event in other.events(self.path):
                    self.wfile.write(b"data:" + json.dumps(event).encode() + b"\r\n\r\n")
                if other.whole:
                    self.wfile.write(b"data:[DONE]\r\n\r\n")

            def log_message(self, *_):
                pass
        return Handler


class OtherServers(unittest.TestCase):
    def other(self, **options):
        server = OtherServer(**options)
        self.addCleanup(server.close)
        return server

    def load(self, server, *arguments, code=0):
        done = subprocess.run([LOAD, "--port", str(server.port), "--json", "--clients", "2", "--requests", "6", "--words", "4",
                               "--output", "5", *arguments], stdout=subprocess.PIPE, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, code, done.stdout)
        return json.loads(done.stdout.splitlines()[-1])

    def test_without_usage_pieces_are_counted(self):
        for path, arguments in (("/v1/completions", []), ("/v1/chat/completions", ["--chat"])):
            server = self.other()
            run = self.load(server, *arguments)
            self.assertEqual((run["answered"], run["failed"], run["tokens"]), (6, 0, 30), run)
            self.assertGreater(run["first_token"]["p50"], 0)
            self.assertEqual({asked for asked, _ in server.bodies}, {path})
            self.assertEqual(all(("messages" in body) == (path != "/v1/completions") for _, body in server.bodies), True)

    def test_usage_counts_where_there_is_one(self):
        run = self.load(self.other(usage={"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}))
        self.assertEqual((run["answered"], run["tokens"], run["prompt_tokens"]), (6, 42, 9))

    def test_an_answer_that_never_ends_is_no_answer(self):
        run = self.load(self.other(whole=False), code=1)
        self.assertEqual((run["answered"], run["failed"]), (0, 1))


class Compare(ServeTest):
    arguments = ("--parallel", "4", "--cache-tokens", "4k", "--ctx", "256")
    TINY = ("--clients", "1,2", "--requests", "2,4", "--prompts", "4,8", "--output", "6", "--rounds", "2", "--load", LOAD)

    def compare(self, *arguments, code=0):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                found = compare_servers.main(arguments)
            except SystemExit as end:
                found = end.code
        self.assertEqual(found, code, (out.getvalue(), err.getvalue()))
        return out.getvalue(), err.getvalue()

    def url(self, port=None):
        return f"http://127.0.0.1:{port or self.server.port}"

    def test_two_servers_by_turns(self):
        other = OtherServer(pieces=3)
        self.addCleanup(other.close)
        report = self.path("runs.json")
        # Tokens that end the toy's answers.
        out, err = self.compare(*self.TINY, "--labels", "ours,theirs", "--models", "toy,their-name", "--forbid", "258,2,0,1",
                                "--json", report, self.url(), f"http://localhost:{other.port}/v1")
        rows = [line for line in out.splitlines() if re.match(r"\| \d", line)]
        self.assertEqual([row.split("|")[1:3] for row in rows],
                         [[" 1 ", " 4 "], [" 2 ", " 4 "], [" 1 ", " 8 "], [" 2 ", " 8 "]])
        for row in rows:
            self.assertRegex(row, r"^\| \d \| \d (\| \d+ \(\d+ to \d+\) ){2}\| \d+\.\d\dx (\| \d+ \(\d+ to \d+\) ){2}\| \d+\.\d\d \|$")
        # Whose answers are short is told, and only that one's are.
        self.assertIn("theirs: answers to 2 clients with prompts of 8 had 3.0 tokens on average, not 6", out)
        self.assertNotIn("ours: answers", out)
        with open(report, encoding="utf-8") as file:
            cells = json.load(file)
        self.assertEqual([len(cell["runs"][label]) for cell in cells for label in ("ours", "theirs")], [2] * 8)
        # Each goes first in every cell once.
        turns = re.findall(r"round (\d): (\d) clients, prompts of (\d): (\w+) ", err)
        self.assertEqual(len(turns), 16)
        for one, two in zip(turns[:8:2], turns[8::2]):
            self.assertEqual(one[1:3], two[1:3])
            self.assertNotEqual(one[3], two[3])
        # No question comes twice, apart from the one that begins each run.
        prompts = [body["prompt"] for _, body in other.bodies]
        self.assertEqual(len([prompt for prompt in prompts if prompts.count(prompt) == 1]), 2 * (2 + 4) * 2)
        self.assertEqual({body["model"] for _, body in other.bodies}, {"their-name"})

    def test_a_server_that_does_not_answer_ends_it(self):
        _, err = self.compare(*self.TINY, self.url(), self.url(1), code=1)
        self.assertIn("error: second answered 0 of", err)

    def test_what_makes_no_sense_is_refused(self):
        for arguments in (("https://127.0.0.1:1", self.url()), ("127.0.0.1:8080", self.url()), (self.url() + "/x", self.url()),
                          (self.url(), self.url(), "--requests", "1"), (self.url(), self.url(), "--labels", "a,a"),
                          (self.url(),)):
            self.compare(*arguments, code=2)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The load generator against a server with a toy: what it counts, and that answers under load are those given alone."""
import json
import os
import subprocess
import unittest

from harness import TIMEOUT
from serve_harness import ServeTest

LOAD = os.environ.get("QUARREL_LOAD", "build/release/quarrel_load")


class Load(ServeTest):
    arguments = ("--parallel", "4", "--cache-tokens", "4k", "--ctx", "256")

    def load(self, *arguments, port=None, code=0):
        done = subprocess.run([LOAD, "--port", str(port or self.server.port), "--json", "--words", "8", "--output", "12",
                               "--pid", str(self.server.process.pid), *arguments], stdout=subprocess.PIPE,
                              timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, code, done.stdout)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]

    def test_closed_loop(self):
        (run,) = self.load("--clients", "8", "--requests", "40", "--check")
        self.assertEqual((run["asked"], run["answered"], run["failed"], run["differing"]), (40, 40, 0, 0))
        self.assertGreater(run["tokens_per_second"], 0)
        self.assertLessEqual(run["first_token"]["p50"], run["first_token"]["p99"])
        self.assertGreater(run["resident_most"], 0)
        self.assertTrue(1 <= run["streaming_at_once"] <= 8, "no more than there are clients")
        self.assertIn("quarrel-engine", run["threads"])

    def test_what_ends_answers_is_forbidden_over_both_protocols(self):
        """The toy's ends of answers; without it some answers are shorter."""
        for protocol in ((), ("--websocket",), ("--chat",)):
            (run,) = self.load("--clients", "2", "--requests", "32", "--forbid", "258,2,0,1", *protocol)
            self.assertEqual((run["answered"], run["tokens"]), (32, 32 * 12), protocol)

    def test_an_end_that_is_likely_shows_what_forbidding_does(self):
        (run,) = self.load("--clients", "2", "--requests", "32", "--websocket")
        self.assertLess(run["tokens"], 32 * 12)

    def test_open_loop(self):
        (run,) = self.load("--rate", "100", "--requests", "50", "--check")
        self.assertEqual((run["answered"] + run["refused"], run["failed"], run["differing"]), (50, 0, 0))
        self.assertGreaterEqual(run["seconds"], 0.49)

    def test_a_server_that_is_not_there(self):
        (run,) = self.load(port=1, code=1)
        self.assertEqual((run["answered"], run["failed"]), (0, 1))
        self.assertIn("no connection", run["first_error"])


if __name__ == "__main__":
    unittest.main()

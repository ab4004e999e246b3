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
        self.assertIn("quarrel-engine", run["threads"])

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

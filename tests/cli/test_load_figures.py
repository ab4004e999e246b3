#!/usr/bin/env python3
"""The server's figures under load, with the default model: nothing mixed or lost, how much memory, what is left of the
goodput when ten times as much is asked as can be answered, and what the server's own threads take.

The loads are those of docs/performance.md. Shares of a machine's time are judged by the best of some tries: a neighbour that
takes the processor for a while is not the server's fault.
"""
import json
import os
import subprocess
import unittest

from harness import QUARREL
from serve_harness import ServeTest

LOAD = os.environ.get("QUARREL_LOAD", "build/release/quarrel_load")
MOST_BYTES = 300_000_000  # beyond the model and its KV pool
LEAST_GOODPUT = 0.9
MOST_OF_THREADS = 0.05
TRIES = 3
SERVER_THREADS = ("quarrel-io", "quarrel-text")
STEP_THREADS = ("quarrel-engine", "quarrel-worker")
PATIENCE = 3600  # seconds for a load, on a slow machine
# Tokens that end the default model's answers: each is as long as it is asked for.
ENDLESS = ("--forbid", "0,2")
LOADS = {
    "closed": ("--clients", "8", "--requests", "64"),
    "open": ("--rate", "20", "--requests", "400"),
    "overload": ("--clients", "16", "--requests", "160"),
    "idle": ("--idle", "1000", "--clients", "200", "--requests", "200", "--words", "24", "--output", "96"),
    "streams": ("--clients", "64", "--requests", "192"),
}


def model_file():
    """Of the machine's own store, which the tests' environment hides."""
    found = subprocess.run([QUARREL, "inspect", "default", "--json"], capture_output=True, check=False)
    if found.returncode != 0:
        raise unittest.SkipTest("the default model is not here: " + found.stderr.decode().strip())
    return json.loads(found.stdout)["file"]


class LoadFigures(ServeTest):
    arguments = ("--parallel", "64", "--cache-tokens", "32k")

    @classmethod
    def prepare(cls):
        cls.models = [model_file()]

    def load(self, name, *arguments, server=None):
        """What each run of the load came to."""
        server = server or self.server
        done = subprocess.run([LOAD, "--port", str(server.port), "--json", "--pid", str(server.process.pid), *ENDLESS,
                               *LOADS[name], *arguments], stdout=subprocess.PIPE, timeout=PATIENCE, check=False)
        runs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        for run in runs:
            print(name, json.dumps(run))
            self.assertEqual((run["failed"], run["first_error"]), (0, ""))
            self.assertEqual(run["refused_with_retry_after"], run["refused"])
        return runs

    def model_bytes(self, server):
        families = json.loads(server.request("GET", "/api/metrics")[2])["metrics"]
        memory = next(family for family in families if family["name"] == "quarrel_model_memory_bytes")
        return sum(member["value"] for member in memory["metrics"])

    def test_answers_are_those_given_alone(self):
        (run,) = self.load("closed", "--check")
        self.assertEqual((run["answered"], run["refused"], run["differing"]), (run["asked"], 0, 0))

    def test_requests_that_wait_for_nobody(self):
        (run,) = self.load("open")
        self.assertEqual(run["answered"] + run["refused"], run["asked"])
        self.assertGreater(run["answered"], 0)

    def test_idle_connections_beside_streams(self):
        server = self.start_server(*self.models, "--parallel", "200", "--cache-tokens", "32k")
        (run,) = self.load("idle", "--websocket", "--check", server=server)
        self.assertEqual((run["answered"], run["refused"], run["differing"], run["idle_lost"]), (run["asked"], 0, 0, 0))
        self.assertEqual(run["tokens"], 200 * 96, "every answer has its full length")
        self.assertEqual(run["streaming_at_once"], 200)
        self.assertLess(run["resident_most"], self.model_bytes(server) + MOST_BYTES)

    def test_ten_times_as_much_as_can_be_answered(self):
        server = self.start_server(*self.models, "--parallel", "16", "--cache-tokens", "32k", "--queue", "32")
        shares = []
        while len(shares) < TRIES and max(shares, default=0) < LEAST_GOODPUT:
            peak, flooded = self.load("overload", "--overload", server=server)
            # What could not be answered was refused in time, and by far most of it could not.
            self.assertEqual(flooded["answered"] + flooded["refused"], flooded["asked"])
            self.assertGreater(flooded["refused"], flooded["asked"] // 2)
            shares.append(flooded["tokens_per_second"] / peak["tokens_per_second"])
        self.assertGreaterEqual(max(shares), LEAST_GOODPUT, shares)

    def test_what_the_servers_threads_take(self):
        shares = []
        while len(shares) < TRIES and min(shares, default=1) >= MOST_OF_THREADS:
            (run,) = self.load("streams")
            self.assertEqual(run["answered"], run["asked"])
            own, steps = (sum(run["threads"].get(name, 0) for name in names) for names in (SERVER_THREADS, STEP_THREADS))
            self.assertGreater(steps, 0)
            shares.append(own / steps)
        self.assertLess(min(shares), MOST_OF_THREADS, shares)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""schemathesis on the server's own description: requests made up from the schemas, right and wrong ones. Answers are of a
documented status and form, nothing wrong is taken, nothing ends with 500, and 503 says when to try again."""
import json
import os
import re
import subprocess
import sys
import unittest

from client_harness import ClientTest

CASES = int(os.environ.get("QUARREL_SCHEMATHESIS_CASES") or 300)
PATIENCE = max(170, CASES)  # seconds
# Fields exclude each other in ways that schemas do not say: 400 for what a schema allows is no fault.
LEFT_OUT = "not_a_server_error,positive_data_acceptance"


class Schemathesis(ClientTest):
    @classmethod
    def prepare(cls):
        # No damaged file among them: schemathesis asks for whatever the lists of models name.
        cls.models = [cls.toy, cls.make_toy("embed", "vectors.gguf")]

    def run_against(self, *options):
        st = os.path.join(os.path.dirname(sys.executable), "st")
        environment = {**os.environ, "QUARREL_TEST_MODELS": "toy,vectors", "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
                       "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
        return subprocess.run([sys.executable, st, "--no-color", "run", f"{self.address}/openapi.json", "--checks", "all",
                               "--exclude-checks", LEFT_OUT, "--warnings", "off", "--seed", "1", "--workers", "1",
                               "--suppress-health-check", "all", *options],
                              cwd=self.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)

    def test_the_description(self):
        status, _, data = self.server.request("GET", "/openapi.json")
        self.assertEqual(status, 200)
        # Those that take nothing have one case each.
        taking = sum("requestBody" in operation or "parameters" in operation
                     for item in json.loads(data)["paths"].values() for operation in item.values())
        phases = "examples,fuzzing" if CASES < 1000 else "examples,coverage,fuzzing"
        done = self.run_against("--phases", phases, "--max-examples", str(CASES // taking + 5))
        said = done.stdout + done.stderr
        made = re.search(r"Test cases:\s*([\d,]+) generated", said) or re.search(r"([\d,]+) generated", said)
        self.assertEqual(done.returncode, 0, said)
        self.assertIsNotNone(made, said)
        print(f"{made.group(1)} cases", file=sys.stderr)
        self.assertGreaterEqual(int(made.group(1).replace(",", "")), CASES)
        self.assertEqual(self.server.request("GET", "/healthz")[0], 200)


if __name__ == "__main__":
    unittest.main()

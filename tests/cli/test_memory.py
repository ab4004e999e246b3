"""What the process holds while it answers: at most the file, the KV cache and 200 MB."""
import json
import os
import resource
import subprocess
import unittest

QUARREL = os.environ["QUARREL"]


class Memory(unittest.TestCase):
    def test_the_default_model_stays_within_its_bound(self):
        inspected = subprocess.run([QUARREL, "inspect", "default", "--json"], capture_output=True, text=True)
        if inspected.returncode != 0:
            self.skipTest("the default model is not here: " + inspected.stderr.strip())
        path = subprocess.run([QUARREL, "pull", "default"], capture_output=True, text=True, check=True).stdout.strip()
        context = 2048
        subprocess.run([QUARREL, "run", "default", "Count to ten.", "--ctx", str(context), "-n", "32"],
                       capture_output=True, check=True)
        held = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        # 30 layers, 3 heads of 64, keys and values in F16.
        cache = context * 30 * 3 * 64 * 2 * 2
        self.assertLessEqual(held, os.path.getsize(path) + cache + 200_000_000)
        print(json.dumps({"held": held, "file": os.path.getsize(path), "cache": cache}))


if __name__ == "__main__":
    unittest.main()

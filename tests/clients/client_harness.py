"""The server under clients that others wrote: what their tests share. Run with the environment of `scripts/setup clients`."""
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))

from harness import QUARREL, TIMEOUT  # noqa: E402
from serve_harness import ServeTest, Server  # noqa: E402

__all__ = ["QUARREL", "TIMEOUT", "ClientTest", "DefaultModelTest", "Server"]


class ClientTest(ServeTest):
    """One server a class: a toy that chats, one that embeds, one with room for an answer that takes long, and a file that
    is none."""
    arguments = ("--threads", "1", "--parallel", "2", "--cache-tokens", "64k")

    @classmethod
    def prepare(cls):
        vectors = cls.make_toy("embed", "vectors.gguf")
        long = cls.make_toy("chat", "long.gguf", 65536)
        broken = cls.path("broken.gguf")
        shutil.copy(cls.toy, broken)
        os.truncate(broken, os.path.getsize(broken) // 2)
        cls.models = [cls.toy, vectors, long, broken]

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.port}"

    def make_key(self, file, name, *options):
        return self.succeed("key", "create", name, "--keys", file, *options).out.decode().split()[-1]


class DefaultModelTest(ServeTest):
    """One server a class with the default model."""

    @classmethod
    def setUpClass(cls):
        inspected = subprocess.run([QUARREL, "inspect", "default"], capture_output=True, text=True, check=False)
        if inspected.returncode != 0:
            raise unittest.SkipTest("the default model is not here: " + inspected.stderr.strip())
        cls.server = Server(dict(os.environ), "default", "--cache-tokens", "4k")
        cls.addClassCleanup(cls.server.kill)

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.port}"

"""The program and the library say the same: both stand on one layer, and this keeps them there."""
import array
import json
import os
import subprocess
import tempfile
import unittest

QUARREL = os.environ.get("QUARREL", "build/release/quarrel")
CLIENT = os.environ.get("API_CLIENT", "build/release/api_client")
MAKE_TOY = os.environ.get("MAKE_TOY", "build/release/make_toy")


class Program(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = {}
        for kind in ("chat", "embed"):
            cls.models[kind] = os.path.join(cls.folder.name, f"{kind}.gguf")
            subprocess.run([MAKE_TOY, kind, cls.models[kind]], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def output(self, *command):
        result = subprocess.run(command, capture_output=True, timeout=120, stdin=subprocess.DEVNULL)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_tokens_are_the_same(self):
        for answers, seed, temperature in ((1, 7, 0), (1, 7, 1.5), (3, 11, 1.2)):
            program = json.loads(self.output(
                QUARREL, "generate", self.models["chat"], "--tokens", "65,66,67,68", "-n", "24", "--seqs", str(answers),
                "--seed", str(seed), "--temperature", str(temperature), "--ignore-eos", "-t", "2", "--json"))
            library = json.loads(self.output(
                CLIENT, "generate", self.models["chat"], "65,66,67,68", "24", str(answers), str(seed), str(temperature)))
            self.assertEqual([sequence["tokens"] for sequence in program["sequences"]], library)
            self.assertEqual(len(library), answers)
            self.assertEqual({len(tokens) for tokens in library}, {24})

    def test_conversations_are_the_same(self):
        for temperature in ("0", "1.1"):
            program = json.loads(self.output(
                QUARREL, "run", self.models["chat"], "Hello world", "-n", "40", "--seed", "5", "--temperature",
                temperature, "--top-k", "30", "--top-p", "0.9", "--min-p", "0.02", "--repeat-penalty", "1.2",
                "--repeat-last-n", "32", "-t", "2", "--json"))
            library = self.output(CLIENT, "chat", self.models["chat"], "Hello world", "40", "5", temperature)
            self.assertEqual(program["text"], library.decode())
            self.assertGreater(len(library), 20)

    def test_vectors_are_the_same(self):
        for model in self.models.values():
            program = self.output(QUARREL, "embed", model, "a fox and a dog", "-t", "2", "--format", "f32")
            library = json.loads(self.output(CLIENT, "embed", model, "a fox and a dog"))
            self.assertEqual(program, array.array("f", library).tobytes())
            self.assertEqual(len(library), 128)


if __name__ == "__main__":
    unittest.main()

"""The examples as a reader would run them, on a toy that chats."""
import os
import subprocess
import tempfile
import unittest

EXAMPLES = os.environ.get("EXAMPLES", "build/release/examples")
MAKE_TOY = os.environ.get("MAKE_TOY", "build/release/make_toy")


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "toy.gguf")
        subprocess.run([MAKE_TOY, "chat", cls.model], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_example(self, name, *arguments):
        return subprocess.run([os.path.join(EXAMPLES, name), *arguments], capture_output=True, timeout=60)

    def test_hello_says_the_same_in_both_languages(self):
        first = self.run_example("hello", self.model, "Hello world")
        second = self.run_example("hello_c", self.model, "Hello world")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertGreater(len(first.stdout.strip()), 10)
        self.assertEqual(first.stdout, second.stdout)
        self.assertEqual(first.stderr, second.stderr)
        self.assertRegex(first.stderr, rb"^\d+ tokens in, \d+ out\n$")

    def test_threads_agree(self):
        result = self.run_example("threads", self.model)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(b"Each is the same alone.", result.stdout)

    def test_event_loops_bring_the_same_answers(self):
        loop = self.run_example("event_loop", self.model, "Hello", "Hello world")
        self.assertEqual(loop.returncode, 0, loop.stderr)
        answers = sorted(loop.stdout.split(b"\n---\n"))
        self.assertEqual(len(answers), 3)
        in_c = [self.run_example("event_loop_c", self.model, prompt) for prompt in ("Hello", "Hello world")]
        self.assertEqual(answers, sorted([b""] + [one.stdout.removesuffix(b"\n---\n") for one in in_c]))

    def test_best_of_shows_the_best_first(self):
        result = self.run_example("best_of", self.model, "Hello")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count(b"Hello"), 2, result.stdout)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 2, result.stderr)
        likelihoods = [float(line.split()[0]) for line in lines]
        self.assertGreaterEqual(likelihoods[0], likelihoods[1])

    def test_mistakes_are_told(self):
        for name in ("best_of", "event_loop", "event_loop_c", "hello", "hello_c", "threads"):
            result = self.run_example(name, os.path.join(self.folder.name, "nowhere.gguf"))
            self.assertEqual(result.returncode, 1, name)
            self.assertIn(b"nowhere.gguf", result.stderr, name)
            self.assertEqual(self.run_example(name).returncode, 2, name)


if __name__ == "__main__":
    unittest.main()

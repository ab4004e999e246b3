#!/usr/bin/env python3
"""What the default model says to a new user: eight simple questions, four seeds, default settings, every instruction set.

One chat a level asks them all, so that a prompt is read once and only answers are computed for each seed; the prefix cache
does not change a bit of them. Answers end after 32 tokens at the latest: the scalar level is slow.
"""
import os
import re
import subprocess
import time
import unittest

from harness import Terminal

QUARREL = os.environ["QUARREL"]
SEEDS = (1, 2, 3, 4)
ENOUGH = 24  # of 32
PATIENCE = 300  # seconds for an answer, on the slowest level of a busy machine
QUESTIONS = (
    ("What is the capital of France?", r"\bParis\b"),
    ("What is 2 + 2?", r"\b(4|four)\b"),
    ("How many days are there in a week?", r"\b(7|seven)\b"),
    ("What colour is a clear sky?", r"\bblue\b"),
    ("What is the opposite of hot?", r"\bcold\b"),
    ("Which animal says meow?", r"\bcats?\b"),
    ("Which planet is the largest in the solar system?", r"\bJupiter\b"),
    ("What are the three primary colours?", r"\bred\b"),
)


def levels():
    version = subprocess.run([QUARREL, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"SIMD: ([^)]+)\)", version).group(1).split()


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        inspected = subprocess.run([QUARREL, "inspect", "default"], capture_output=True, text=True, check=False)
        if inspected.returncode != 0:
            raise unittest.SkipTest("the default model is not here: " + inspected.stderr.strip())

    def ask(self, level):
        """How many answers to each question are right."""
        environment = {**os.environ, "TERM": "dumb", "QUARREL_HISTORY": "0", "QUARREL_ISA": level}
        chat = Terminal([QUARREL, "run", "default", "-n", "32"], environment, columns=200)
        self.addCleanup(chat.close)
        self.assertIn(level, chat.expect(">>> "))
        right = []
        for question, pattern in QUESTIONS:
            right.append(0)
            for seed in SEEDS:
                for line in ("/clear", f"/set seed {seed}", question):
                    chat.type(line + "\n")
                    chat.expect("\n")  # of the line itself, which the terminal shows
                    answer = chat.expect(">>> ", PATIENCE)
                right[-1] += bool(re.search(pattern, answer, re.IGNORECASE))
        chat.type("\x04")
        self.assertEqual(chat.wait(), 0)
        return right

    def test_simple_questions(self):
        for level in levels():
            with self.subTest(level=level):
                start = time.monotonic()
                right = self.ask(level)
                print(f"{level}: {sum(right)} of {len(SEEDS) * len(QUESTIONS)}, {right}, {time.monotonic() - start:.0f} s")
                self.assertGreaterEqual(sum(right), ENOUGH)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""What the default model says through the packages of others, where the words matter: the same as `quarrel run` says."""
import subprocess
import unittest

import ollama
import openai

from client_harness import QUARREL, DefaultModelTest

QUESTION = "What is the capital of France?"
MESSAGES = [{"role": "user", "content": QUESTION}]


class Words(DefaultModelTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        said = subprocess.run([QUARREL, "run", "default", QUESTION, "--seed", "1", "-n", "24"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=True).stdout
        cls.said = said.rstrip("\n")

    def test_openai(self):
        client = openai.OpenAI(api_key="none", base_url=self.address + "/v1")
        self.addCleanup(client.close)
        ask = {"model": "default", "seed": 1, "max_tokens": 24, "messages": MESSAGES}
        self.assertIn("Paris", self.said)
        self.assertEqual(client.chat.completions.create(**ask).choices[0].message.content, self.said)
        chunks = client.chat.completions.create(**ask, stream=True)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), self.said)

    def test_ollama(self):
        client = ollama.Client(host=self.address)
        self.addCleanup(client.close)
        ask = {"model": "default", "options": {"seed": 1, "num_predict": 24}}
        self.assertEqual(client.chat(messages=MESSAGES, **ask).message.content, self.said)
        parts = client.chat(messages=MESSAGES, stream=True, **ask)
        self.assertEqual("".join(part.message.content for part in parts), self.said)
        self.assertEqual(client.generate(prompt=QUESTION, **ask).response, self.said)


if __name__ == "__main__":
    unittest.main()

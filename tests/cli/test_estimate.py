#!/usr/bin/env python3
"""quarrel estimate, and the budgets that every command takes: what is said, kept and refused."""
import json
import unittest

from harness import ProgramTest


class Estimate(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.dense = cls.make_toy("llama", "llama.gguf")
        cls.experts = cls.make_toy("mixtral", "mixtral.gguf")
        cls.encoder = cls.make_toy("bert", "bert.gguf")
        cls.hybrid = cls.make_toy("granitehybrid", "hybrid.gguf")

    def estimate(self, *arguments):
        return json.loads(self.succeed("estimate", *arguments, "--json").out)

    def test_the_parts_add_up(self):
        value = self.estimate(self.hybrid, "--ctx", "256", "--parallel", "3", "--kv", "f32")
        parts = value["bytes"]
        anonymous = sum(parts[name] for name in ("prepared", "kv", "state", "expert_workspace", "workspace"))
        self.assertEqual(parts["anonymous"], anonymous)
        mapped = parts["shared_weights"] + parts["expert_weights"] - parts["released"]
        self.assertEqual(parts["total"], anonymous + mapped)
        # One attention layer of four: 2 heads of 16 for keys and values, F32, 256 tokens for three.
        self.assertEqual(parts["kv"], 2 * 2 * 16 * 4 * 256 * 3)
        # Three recurrent layers: a convolution of 4 over 384 channels, 256 x 32 of scan; two slots a sequence.
        self.assertEqual(parts["state"], 3 * (3 * 384 + 256 * 32) * 4 * 2 * 3)
        self.assertEqual((value["context"], value["sequences"], value["kv_type"]), (256, 3, "f32"))

    def test_an_encoder_is_loaded_for_many_short_texts(self):
        # `embed` loads it so; one sequence would be an estimate of something else.
        value = self.estimate(self.encoder)
        self.assertGreater(value["sequences"], 1)
        self.assertGreater(value["bytes"]["kv"], 0)

    def test_a_table_for_people(self):
        text = self.succeed("estimate", self.hybrid).out.decode()
        for word in ("weights", "experts", "KV cache", "state", "expert buffers", "workspace", "total"):
            self.assertIn(word, text)

    def test_budgets(self):
        whole = self.estimate(self.experts)["bytes"]
        half = whole["total"] - whole["expert_weights"] // 2
        kept = self.estimate(self.experts, "--memory-budget", str(half))
        self.assertTrue(kept["expert_cache"])
        self.assertLessEqual(kept["bytes"]["total"], half)
        self.refuse(1, ["--memory-budget", "needs"], "estimate", self.dense, "--memory-budget", "100k")
        self.refuse(1, ["--expert-memory", "at once"], "estimate", self.experts, "--expert-memory", "1k")
        self.refuse(1, ["tokens", "would fit"], "estimate", self.dense, "--ctx", "60M")
        for size in ("much", "-1", "0", "1X", "1e30", "nan", ""):
            if size:
                self.refuse(2, ["--memory-budget"], "estimate", self.dense, "--memory-budget", size)

    def test_fewer_experts_in_memory_give_the_same_tokens(self):
        arguments = ("generate", self.experts, "--tokens", "1,2,3,4,5,6,7", "-n", "20", "--temperature", "0", "--json")
        free = json.loads(self.succeed(*arguments).out)["sequences"]
        whole = self.estimate(self.experts)["bytes"]["expert_weights"]
        for memory in (whole // 2, whole // 10):
            tight = json.loads(self.succeed(*arguments, "--expert-memory", str(memory)).out)
            self.assertEqual(free, tight["sequences"])
            cache = tight["expert_cache"]
            self.assertLessEqual(cache["bytes"], memory)
            # Three layers, two experts for each of 7 + 19 rows; rows of one step that share an expert ask for it once.
            self.assertLessEqual(cache["hits"] + cache["misses"], 3 * 2 * 26)
            self.assertGreater(cache["misses"], 0)


if __name__ == "__main__":
    unittest.main()

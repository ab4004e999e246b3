#!/usr/bin/env python3
"""`bench --serve`: the engine under load. What is counted is checked; how long it took is nobody's business here."""
import json
import unittest

from harness import ProgramTest


class ServeBench(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.llama = cls.make_toy("llama", "llama.gguf")

    def measure(self, *arguments, model=None):
        value = json.loads(self.succeed("bench", model or self.llama, "--serve", "--json", *arguments).out)
        self.assertFalse(value["serve"]["interrupted"])
        self.assertIsNone(value["serve"]["error"])
        return value["settings"], value["serve"]

    def check_times(self, result, requests, tokens):
        """Every answer has all its tokens: a first one each, and a gap before each of the others."""
        self.assertEqual(result["requests"], {"finished": requests, "refused": 0, "failed": 0, "unfinished": 0})
        for name, count in (("first_token_ms", requests), ("latency_ms", requests), ("gap_ms", tokens - requests)):
            times = result[name]
            self.assertEqual(times["count"], count, name)
            self.assertLessEqual(times["p50"], times["p95"])
            self.assertLessEqual(times["p95"], times["p99"])
            self.assertLessEqual(times["p99"], times["max"])
            self.assertGreater(times["p50"], 0)
        self.assertGreaterEqual(result["latency_ms"]["max"], result["first_token_ms"]["max"])
        self.assertGreater(result["seconds"], 0)

    def test_clients(self):
        settings, result = self.measure("--clients", "3", "--prompt-tokens", "5:40", "--output-tokens", "6")
        self.assertEqual((settings["loop"], settings["clients"], settings["rate"]), ("closed", 3, None))
        self.assertEqual((settings["requests"], settings["sequences"]), (12, 3))
        self.assertEqual(settings["cache_tokens"], 3 * 48)
        self.check_times(result, 12, 72)
        self.assertEqual(result["generated_tokens"], 72)
        # The first token comes out of the prompt's last row, every other out of a row of its own.
        self.assertEqual(result["generated_rows"], 60)
        self.assertEqual(result["prompt_rows"], result["prompt_tokens"] - result["cache"]["hit_tokens"])
        self.assertLessEqual(result["running_peak"], 3)
        self.assertLessEqual(result["queue_peak"], 3)
        self.assertGreater(result["kv_peak_share"], 0)
        self.assertLessEqual(result["kv_peak_share"], 1)
        self.assertGreaterEqual(result["steps"], 6)
        self.assertAlmostEqual(result["rows_per_step"],
                               (result["prompt_rows"] + result["generated_rows"]) / result["steps"])
        self.assertEqual(result["failed_steps"], 0)

    def test_another_model_beside(self):
        bert = self.make_toy("bert", "bert.gguf")
        out = self.succeed("bench", self.llama, "--serve", "--json", "--clients", "2", "--output-tokens", "20",
                           "--beside", bert, "--beside-texts", "8", "--beside-tokens", "30").out
        value = json.loads(out)
        self.check_times(value["serve"], 8, 160)
        self.assertGreater(value["beside"]["texts"], 0)

    def test_a_rate(self):
        settings, result = self.measure("--rate", "500", "--requests", "10", "--prompt-tokens", "16", "--output-tokens",
                                        "2:9", "--seed", "5")
        self.assertEqual((settings["loop"], settings["clients"], settings["rate"]), ("open", None, 500))
        self.assertEqual(settings["sequences"], 64)
        self.check_times(result, 10, result["generated_tokens"])
        self.assertEqual(result["prompt_tokens"], 160)
        # The seed alone decides the lengths.
        _, again = self.measure("--rate", "500", "--requests", "10", "--prompt-tokens", "16", "--output-tokens", "2:9",
                                "--seed", "5")
        self.assertEqual(again["generated_tokens"], result["generated_tokens"])

    def test_a_shared_prefix_is_computed_once(self):
        arguments = ("--clients", "2", "--requests", "6", "--prompt-tokens", "72", "--output-tokens", "2",
                     "--shared-prefix", "64")
        _, result = self.measure(*arguments)
        self.assertEqual(result["cache"]["hit_tokens"] + result["cache"]["miss_tokens"], 6 * 72)
        # The two that begin together may both compute it; the four that follow find all of its blocks.
        self.assertGreaterEqual(result["cache"]["hit_tokens"], 4 * 64)
        self.assertGreater(result["cache"]["hit_rate"], 0.5)
        self.assertLess(result["prompt_rows"], 6 * 72)
        _, without = self.measure(*arguments, "--no-prefix-cache")
        self.assertEqual(without["cache"]["hit_rate"], 0)
        self.assertEqual(without["prompt_rows"], 6 * 72)
        self.check_times(without, 6, 12)

    def test_a_long_prompt_stays_out_of_the_times(self):
        settings, result = self.measure("--clients", "4", "--requests", "8", "--prompt-tokens", "8", "--output-tokens",
                                        "10", "--long-prompt", "300", "--chunk", "64")
        self.assertEqual(settings["sequences"], 5)
        self.assertEqual(result["requests"]["finished"], 9)
        self.assertEqual(result["first_token_ms"]["count"], 8)
        self.assertEqual(result["gap_ms"]["count"], 8 * 9)
        self.assertEqual(result["generated_tokens"], 90)
        self.assertEqual(result["prompt_tokens"], 8 * 8 + 300)
        self.assertEqual(result["long_prompt"]["tokens"], 300)
        self.assertGreaterEqual(result["long_prompt"]["latency_ms"], result["long_prompt"]["first_token_ms"])

    def test_a_cache_for_less_than_all_finishes_all(self):
        _, result = self.measure("--clients", "8", "--prompt-tokens", "30", "--output-tokens", "60", "--requests", "16",
                                 "--cache-tokens", "128")
        self.check_times(result, 16, 16 * 60)
        _, result = self.measure("--clients", "8", "--prompt-tokens", "8", "--output-tokens", "4", "--sequences", "1")
        self.check_times(result, 32, 128)
        self.assertEqual(result["running_peak"], 1)

    def test_recurrent_models(self):
        _, result = self.measure("--clients", "3", "--prompt-tokens", "20", "--output-tokens", "5",
                                 model=self.make_toy("mamba", "mamba.gguf"))
        self.check_times(result, 12, 60)
        self.assertEqual(result["kv_peak_share"], 0)

    def test_table(self):
        out = self.succeed("bench", self.llama, "--serve", "--clients", "2", "--prompt-tokens", "8:16",
                           "--output-tokens", "4").out.decode()
        for words in ("8 requests of 2 clients", "prompts of 8 to 16 tokens", "8 finished, 0 refused, 0 failed",
                      "generated a second", "to the first token", "between tokens", "whole answers", "p99"):
            self.assertIn(words, out)

    def test_mistakes(self):
        for words, arguments in ((["--clients", "--serve"], ("--clients", "3")),
                                 (["--no-prefix-cache", "--serve"], ("--no-prefix-cache",)),
                                 (["--serve", "--batch"], ("--serve", "--batch", "2")),
                                 (["--serve", "--profile"], ("--serve", "--profile")),
                                 (["--clients", "--rate"], ("--serve", "--clients", "2", "--rate", "1")),
                                 (["--rate"], ("--serve", "--rate", "0")),
                                 (["--rate"], ("--serve", "--rate", "nan")),
                                 (["--clients"], ("--serve", "--clients", "0")),
                                 (["--prompt-tokens", "'1:x'"], ("--serve", "--prompt-tokens", "1:x")),
                                 (["--output-tokens", "smaller"], ("--serve", "--output-tokens", "9:3")),
                                 (["200", "128"], ("--serve", "--shared-prefix", "200")),
                                 (["3 requests", "8 clients"], ("--serve", "--requests", "3")),
                                 (["100 tokens", "192"], ("--serve", "--cache-tokens", "100")),
                                 (["--sequences"], ("--serve", "--sequences", "1000"))):
            with self.subTest(arguments):
                self.refuse(2, words, "bench", self.llama, *arguments)
        self.refuse(2, ["664", "512"], "bench", self.llama, "--serve", "--prompt-tokens", "600")
        self.refuse(1, ["embeds"], "bench", self.make_toy("bert", "bert.gguf"), "--serve", "--prompt-tokens", "8",
                    "--output-tokens", "4")

    def test_ctrl_c_tells_what_was_measured(self):
        # Years of requests: only the interrupt ends it.
        terminal = self.open_terminal("bench", self.llama, "--serve", "--rate", "0.001", "--requests", "100000",
                                      "--prompt-tokens", "8", "--output-tokens", "4")
        terminal.expect("requests")
        terminal.type("\x03")
        terminal.expect("unfinished")
        terminal.expect("interrupted")
        self.assertEqual(terminal.wait(), 130)


if __name__ == "__main__":
    unittest.main()

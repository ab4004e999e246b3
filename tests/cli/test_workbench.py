#!/usr/bin/env python3
"""The commands that measure and compare models: logits, generate, perplexity, bench, regress."""
import array
import json
import math
import os
import re
import time
import unittest

from harness import DATA, INTERRUPT, ProgramTest

VOCABULARY = 320


def golden_tokens(count=48):
    """The tokens that the golden logits were made with."""
    state, ids = 12345, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        ids.append((state >> 16) % VOCABULARY)
    return ids


def read_f32(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def nmse(values, truth):
    return sum((a - b)**2 for a, b in zip(values, truth)) / sum(b * b for b in truth)


def listed(ids):
    return ",".join(str(i) for i in ids)


class WorkbenchTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.llama = cls.make_toy("llama", "llama.gguf")
        cls.tokens = listed(golden_tokens())

    def json(self, *arguments, **options):
        return json.loads(self.succeed(*arguments, "--json", **options).out)

    def write(self, name, text):
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def logits(self, name, *arguments):
        out = self.path(name)
        self.succeed("logits", self.llama, "--out", out, *arguments)
        with open(out, "rb") as file:
            return file.read()


class Logits(WorkbenchTest):
    def test_reference_matches_the_golden_logits(self):
        truth = read_f32(os.path.join(DATA, "arch", "llama.f32"))
        self.logits("a.f32", "--tokens", self.tokens, "--backend", "reference", "--kv", "f32")
        values = read_f32(self.path("a.f32"))
        self.assertEqual(len(values), 48 * VOCABULARY)
        self.assertLessEqual(nmse(values, truth), 1e-9)

    def test_chunks_change_no_bit(self):
        for row_class in ("prompt", "generated"):
            common = ("--tokens", self.tokens, "--class", row_class)
            whole = self.logits("whole.f32", *common)
            self.assertEqual(len(whole), 48 * VOCABULARY * 4)
            self.assertEqual(self.logits("seven.f32", *common, "--chunk", "7"), whole, row_class)
            self.assertEqual(self.logits("one.f32", *common, "--chunk", "1"), whole, row_class)

    def test_long_inputs_come_in_slices(self):
        ids = golden_tokens(200)
        self.write("long.json", json.dumps(ids))
        whole = self.logits("long.f32", "--tokens", "@" + self.path("long.json"))
        self.assertEqual(len(whole), 200 * VOCABULARY * 4)
        self.assertEqual(whole[:48 * VOCABULARY * 4], self.logits("start.f32", "--tokens", self.tokens))

    def test_mistakes_get_a_sentence_and_leave_no_file(self):
        out = self.path("none.f32")
        common = ("logits", self.llama, "--out", out)
        self.refuse(2, ["320", "vocabulary"], *common, "--tokens", "1,320")
        self.refuse(2, ["empty"], *common, "--tokens", "")
        self.refuse(2, ["banana"], *common, "--tokens", "1,banana")
        self.refuse(1, ["absent"], *common, "--tokens", "@" + self.path("absent"))
        self.refuse(1, ["513", "512"], *common, "--tokens", " ".join(["7"] * 513))
        self.refuse(2, ["--class"], *common, "--tokens", "1", "--class", "third")
        self.refuse(2, ["--chunk"], *common, "--tokens", "1", "--chunk", "0")
        self.refuse(1, ["nowhere"], "logits", self.llama, "--tokens", "1", "--out", self.path("nowhere/a.f32"))
        self.refuse(1, ["bert"], "logits", self.make_toy("bert", "bert.gguf"), "--tokens", "1", "--out", out)
        self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("none.f32")])

    def test_json_says_what_was_written(self):
        value = self.json("logits", self.llama, "--tokens", "1,2", "--out", self.path("b.f32"), "--kv", "f32")
        self.assertEqual((value["rows"], value["vocabulary"], value["kv"]), (2, VOCABULARY, "f32"))


class Generate(WorkbenchTest):
    def generate(self, *arguments, **options):
        return self.json("generate", options.get("model", self.llama), "--tokens", self.tokens, "-n", "12", *arguments)

    def test_greedy_is_deterministic_and_follows_the_logits(self):
        first = self.generate()["sequences"]
        self.assertEqual(self.generate()["sequences"], first)
        self.assertEqual(len(first), 1)
        self.assertEqual(len(first[0]["tokens"]), 12)
        self.assertEqual(len(first[0]["logprobs"]), 12)
        self.assertEqual(first[0]["finish"], "length")
        self.logits("greedy.f32", "--tokens", self.tokens)
        row = read_f32(self.path("greedy.f32"))[-VOCABULARY:]
        best = max(range(VOCABULARY), key=lambda i: row[i])
        self.assertEqual(first[0]["tokens"][0], best)
        total = math.log(sum(math.exp(x - row[best]) for x in row))
        self.assertAlmostEqual(first[0]["logprobs"][0], -total, places=4)

    def test_sequences_together_are_those_alone(self):
        for sampling in ((), ("--temperature", "1", "--top-k", "50", "--repeat-penalty", "1.2")):
            together = self.generate("--seqs", "3", "--seed", "5", *sampling)["sequences"]
            seeds = [str((5 + i * 0x9e3779b97f4a7c15) % 2**64) for i in range(3)]
            alone = [self.generate("--seed", seed, *sampling)["sequences"][0] for seed in seeds]
            self.assertEqual(together, alone)
        self.assertNotEqual(together[0]["tokens"], together[1]["tokens"])

    def test_plain_output_is_a_line_a_sequence(self):
        out = self.succeed("generate", self.llama, "--tokens", "1 2 3", "-n", "4", "--seqs", "2").out.decode()
        lines = out.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[0], lines[1])
        self.assertEqual([len(line.split(" ")) for line in lines], [4, 4])

    def test_the_context_is_the_end(self):
        reply = self.json("generate", self.llama, "--tokens", self.tokens, "-n", "100", "--ctx", "50")["sequences"][0]
        self.assertEqual((reply["finish"], len(reply["tokens"])), ("context", 2))
        plain = self.succeed("generate", self.llama, "--tokens", self.tokens, "-n", "100", "--ctx", "50")
        self.assertRegex(plain.err, r"the context of 50 tokens is full \(--ctx 50; the model was trained for \d+\)")

    def test_end_tokens_stop_unless_ignored(self):
        arguments = ("generate", self.toy, "--tokens", "1,2,3", "-n", "300", "--temperature", "3", "--seqs", "4")
        free = self.json(*arguments, "--ignore-eos")["sequences"]
        stopped = self.json(*arguments)["sequences"]
        for reply, whole in zip(stopped, free):
            self.assertEqual(whole["finish"], "length")
            self.assertEqual(whole["tokens"][:len(reply["tokens"])], reply["tokens"])
        self.assertIn("stop", [reply["finish"] for reply in stopped])

    def test_mistakes(self):
        self.refuse(2, ["400"], "generate", self.llama, "--tokens", "400")
        self.refuse(1, ["48", "40"], "generate", self.llama, "--tokens", self.tokens, "--ctx", "40")
        self.refuse(2, ["temperature"], "generate", self.llama, "--tokens", "1", "--temperature", "-1")
        self.refuse(2, ["--max-tokens"], "generate", self.llama, "--tokens", "1", "-n", "0")
        self.refuse(2, ["--seqs"], "generate", self.llama, "--tokens", "1", "--seqs", "0")


class Perplexity(WorkbenchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(DATA, "wikitext", "wikitext-2-test-head.txt"), encoding="utf-8") as file:
            text = file.read(3000)
        cls.text = cls.path("text.txt")
        with open(cls.text, "w", encoding="utf-8") as file:
            file.write(text)

    def perplexity(self, *arguments):
        return self.json("perplexity", self.toy, "--file", self.text, "--window", "64", *arguments)

    def test_windows_and_backends_agree(self):
        two = self.perplexity("--windows", "2")
        self.assertEqual(len(two["windows"]), 2)
        self.assertEqual(two["scored_tokens"], 2 * 31)
        self.assertAlmostEqual(math.log(two["perplexity"]), sum(map(math.log, two["windows"])) / 2, places=5)
        self.assertGreater(two["error"], 0)
        one = self.perplexity("--windows", "1")
        self.assertEqual(one["windows"], two["windows"][:1])
        reference = self.perplexity("--windows", "2", "--backend", "reference")
        self.assertAlmostEqual(reference["perplexity"] / two["perplexity"], 1, places=2)

    def test_the_value_is_that_of_the_logits(self):
        with open(self.text, "rb") as file:
            ids = json.loads(self.succeed("tokenize", self.toy, input=file.read()).out)[:64]
        self.succeed("logits", self.toy, "--tokens", listed(ids), "--out", self.path("text.f32"))
        values = read_f32(self.path("text.f32"))
        width = len(values) // 64
        loss = 0.0
        for position in range(32, 63):
            row = values[position * width:(position + 1) * width]
            loss += math.log(sum(map(math.exp, row))) - row[ids[position + 1]]
        self.assertAlmostEqual(self.perplexity("--windows", "1")["perplexity"], math.exp(loss / 31), delta=0.01)

    def test_progress_goes_to_standard_error(self):
        result = self.succeed("perplexity", self.toy, "--file", self.text, "--window", "64", "--windows", "5")
        self.assertRegex(result.out.decode(), r"^perplexity \d+\.\d+ ± \d+\.\d+ \(5 windows of 64\)\n$")
        self.assertEqual([line.split(":")[0] for line in result.err.splitlines()],
                         ["window 1 of 5"], "a line every ten seconds at most")
        self.assertIn(b"(1 window of 64)", self.succeed("perplexity", self.toy, "--file", self.text, "--window", "64",
                                                        "--windows", "1").out)

    def test_mistakes(self):
        short = self.write("short.txt", "A few words.")
        self.refuse(1, ["64"], "perplexity", self.toy, "--file", short, "--window", "64")
        self.refuse(2, ["100000"], "perplexity", self.toy, "--file", self.text, "--window", "100000")
        self.refuse(1, ["absent"], "perplexity", self.toy, "--file", self.path("absent"))
        self.refuse(2, ["--window"], "perplexity", self.toy, "--file", self.text, "--window", "2")
        self.refuse(1, ["vocabulary"], "perplexity", self.llama, "--file", self.text)


class Bench(WorkbenchTest):
    ARGUMENTS = ("-p", "16", "-n", "4", "--repeat", "2")

    def test_json(self):
        value = self.json("bench", self.llama, *self.ARGUMENTS, "--depth", "8", "--batch", "2", "--profile")
        for part, tokens in (("prefill", 16), ("decode", 8)):
            self.assertEqual(value[part]["tokens"], tokens)
            self.assertGreater(value[part]["tokens_per_s"], 0)
            self.assertGreaterEqual(value[part]["tokens_per_s_deviation"], 0)
            self.assertEqual(len(value[part]["seconds"]), 2)
            ops = value[part]["profile"]
            self.assertTrue(ops)
            self.assertAlmostEqual(sum(op["share"] for op in ops), 1, places=6)
            self.assertEqual([op["seconds"] for op in ops], sorted((op["seconds"] for op in ops), reverse=True))
            self.assertGreater(value[part]["share_of_limit"], 0)
            by_name = {op["op"]: op for op in ops}
            for name in ("qkv", "attend", "attention out", "glu", "down", "head", "norms and int8", "sampling"):
                self.assertIn(name, by_name)
            for name in ("qkv", "attend", "head"):
                self.assertGreater(by_name[name]["bytes"], 0)
                self.assertGreater(by_name[name]["macs"], 0)
                self.assertGreater(by_name[name]["share_of_limit"], 0)
                self.assertIn(by_name[name]["limit"], ("reading", "arithmetic"))
            self.assertIsNone(by_name["sampling"]["share_of_limit"])
            # Whatever is above its limit says why, and nothing else does.
            for holder in [value[part], *ops]:
                for name, share in holder.items():
                    if name.startswith("share_of_") and not name.endswith("_reason"):
                        self.assertEqual(name + "_reason" in holder, share is not None and share > 1, holder)
        self.assertGreater(value["prefill"]["share_of_peak"], 0)
        self.assertGreater(value["decode"]["share_of_read_bandwidth"], 0)
        # All of the file's weights but the embedding, which is looked up.
        self.assertLess(value["decode"]["weight_bytes_per_step"], value["model"]["file_bytes"])
        self.assertGreater(value["decode"]["weight_bytes_per_step"], value["model"]["file_bytes"] * 0.7)
        self.assertGreater(value["machine"]["read_bytes_per_s"], 1e8)
        self.assertGreater(value["machine"]["f32_fma_flops_per_s"], 1e8)
        for name in ("integer", "int8_tiles", "bf16_tiles"):
            speed = value["machine"][name]
            if speed is not None:
                self.assertGreater(speed["macs_per_s"], 1e8)
                self.assertTrue(speed["instructions"])
        self.assertGreater(value["load_seconds"], 0)
        self.assertEqual(value["model"]["architecture"], "llama")
        self.assertIn("cpu", value["device"]["description"])

    def test_float_weights_are_held_to_what_multiplies_them(self):
        for kind, multiplications in (("F16", 3), ("BF16", 1)):
            path = self.path(f"bench-{kind}.gguf")
            self.succeed("quantize", self.toy, path, kind)
            value = self.json("bench", path, "-p", "16", "-n", "0", "--repeat", "1")
            machine = value["machine"]
            peak, expected = machine["f32_fma_flops_per_s"] / 2, machine["f32_fma_instructions"]
            tiles = machine["bf16_tiles"]
            if tiles is not None and tiles["macs_per_s"] / multiplications > peak:
                peak = tiles["macs_per_s"] / multiplications
                expected = tiles["instructions"] + (f"/{multiplications}" if multiplications > 1 else "")
            prefill = value["prefill"]
            self.assertEqual(prefill["peak"], expected)
            # All matrices of the toy's layers have the same type, so all of its work is held to one peak.
            self.assertAlmostEqual(prefill["share_of_peak"] / (prefill["flops_per_s"] / 2 / peak), 1, places=6)

    def test_parts_can_be_left_out(self):
        value = self.json("bench", self.llama, "-p", "0", "-n", "2", "--repeat", "1")
        self.assertIsNone(value["prefill"])
        self.assertGreater(value["decode"]["tokens_per_s"], 0)
        self.assertNotIn("profile", value["decode"])

    def test_table(self):
        out = self.succeed("bench", self.llama, *self.ARGUMENTS, "--profile").out.decode()
        for word in ("prefill of 16", "decode of 4", "F32 FMA peak", "read bandwidth", "loaded in", "of the limit", "set by"):
            self.assertIn(word, out)
        for kind, words in (("peak", "prefill is above the peak: "), ("read bandwidth", "decode reads faster than memory: ")):
            share = float(re.search(rf"([\d.]+) % of the (?:\S+ )*{kind}", out).group(1))
            if share != 100.0:  # a rounded one may be either
                self.assertEqual(words in out, share > 100.0, out)

    def test_mistakes(self):
        self.refuse(2, ["600", "512"], "bench", self.llama, "-p", "600")
        self.refuse(2, ["nothing"], "bench", self.llama, "-p", "0", "-n", "0")
        self.refuse(2, ["--compare cpu", "already"], "bench", self.llama, "--compare", "cpu")
        self.refuse(2, ["--compare deterministic", "always on the cpu"], "bench", self.llama, "--compare", "deterministic")
        self.refuse(2, ["--compare", "gpu"], "bench", self.llama, "--compare", "gpu")
        self.refuse(2, ["--repeat"], "bench", self.llama, "--repeat", "0")

    def test_the_same_elsewhere(self):
        arguments = ("bench", "--compare", "cpu", self.llama, *self.ARGUMENTS, "--backend", "reference")
        value = self.json(*arguments)
        [other] = value["comparisons"]
        self.assertEqual(other["way"], "cpu")
        self.assertIn("cpu", other["device"])
        self.assertGreater(other["prefill_tokens_per_s"], 0)
        self.assertGreater(other["decode_tokens_per_s"], 0)
        out = self.succeed(*arguments).out.decode()
        self.assertRegex(out, r"(?m)^  prefill on the CPU +[0-9.]+ +0\.00 +[0-9.]+ times that$")
        self.assertRegex(out, r"(?m)^  decode on the CPU +[0-9.]+ +0\.00 +[0-9.]+ times that$")


class Regress(WorkbenchTest):
    LENIENT = "[coherence]\nmax_looped = 1\nmax_repeated = 1\nmax_foreign = 1\nmax_mixed_words = 1\nmax_noise = 1000\nmin_letters = 0\n"
    PROMPT = '[[prompts]]\nname = "hello"\ntext = "Hello there"\nmax_tokens = 12\n'

    def logit_suite(self, limit):
        golden = os.path.join(DATA, "arch", "llama.f32")
        return (f'[[models]]\nname = "llama.gguf"\nprompts = []\n[[models.logits]]\ntokens = {golden_tokens()}\n'
                f'golden = "{golden}"\nmax_nmse = {limit}\nbackend = "reference"\nkv = "f32"\n')

    def test_pass_and_miss(self):
        good = self.write("good.toml", self.LENIENT + self.PROMPT + self.logit_suite("1e-9"))
        result = self.succeed("regress", good, "--report", self.path("report.json"))
        self.assertIn("all 1 checks passed", result.out.decode())
        with open(self.path("report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.assertTrue(report["passed"])
        self.assertLessEqual(report["checks"][0]["nmse"], 1e-9)

        bad = self.write("bad.toml", self.LENIENT + self.PROMPT + self.logit_suite("0"))
        result = self.run_program("regress", bad, "--json")
        self.assertEqual(result.code, 1, result)
        report = json.loads(result.out)
        self.assertEqual((report["passed"], report["missed"]), (False, 1))

    def test_answers_and_perplexity(self):
        text = self.write("words.txt", "the quick brown fox jumps over the lazy dog and runs away from it " * 20)
        suite = (self.LENIENT + self.PROMPT + '[[models]]\nname = "toy.gguf"\n'
                 f'[[models.perplexity]]\ntext = "{text}"\nwindow = 32\nwindows = 2\nmax = 1e6\n'
                 '[[models.logits]]\ntext = "the fox"\nmax_nmse = 0.01\n')
        report = self.json("regress", self.write("whole.toml", suite))
        self.assertEqual([check["check"] for check in report["checks"]], ["logits", "perplexity", "answer"])
        self.assertEqual(len(report["checks"][2]["tokens"]), 12)

        wants = suite.replace('max_tokens = 12', 'max_tokens = 12\nmust_contain = ["no toy says this"]')
        result = self.run_program("regress", self.write("wants.toml", wants))
        self.assertEqual(result.code, 1, result)
        self.assertIn("no toy says this", result.out.decode())

    def test_models_of_the_environment(self):
        suite = self.LENIENT + self.PROMPT + ('[[models]]\nname = "absent"\n[generic]\nprompts = []\n'
                                              '[[generic.logits]]\nrandom_tokens = 8\nmax_nmse = 0.01\n')
        path = self.write("generic.toml", suite)
        report = self.json("regress", path, environment={"QUARREL_TEST_MODELS": f"{self.llama}, {self.toy}"})
        self.assertEqual([check["model"] for check in report["checks"]], [self.llama, self.toy])
        result = self.run_program("regress", path)
        self.assertEqual(result.code, 1, result)
        self.assertIn("MISS  absent: load", result.out.decode())

    def test_a_device_is_compared_with_the_reference_and_not_with_itself(self):
        suite = self.LENIENT + ('[[models]]\nname = "toy.gguf"\nprompts = []\n'
                                '[[models.logits]]\ntext = "the fox"\nmax_nmse = 0.01\n')
        path = self.write("device.toml", suite)
        plain, named = self.json("regress", path), self.json("regress", path, "--device", "cpu")
        self.assertEqual((plain["backend"], named["backend"]), ("cpu", "cpu"))
        self.assertGreater(plain["checks"][0]["nmse"], 0)
        self.assertEqual(named["checks"][0]["nmse"], plain["checks"][0]["nmse"])

    def test_optional_models_are_skipped_where_they_are_absent(self):
        optional = '[[models]]\nname = "absent"\noptional = true\n'
        suite = self.LENIENT + self.PROMPT + optional + self.logit_suite("1e-9")
        path = self.write("optional.toml", suite)
        out = self.succeed("regress", path).out.decode()
        self.assertIn("skip  absent: there is no such model here\n", out)
        self.assertTrue(out.endswith("all 1 checks passed; 1 model is not here\n"), out)
        report = self.json("regress", path)
        self.assertEqual((report["passed"], report["missed"], report["skipped"]), (True, 0, 1))
        self.assertEqual([check.get("skipped", False) for check in report["checks"]], [True, False])
        alone = self.succeed("regress", self.write("alone.toml", self.PROMPT + optional)).out.decode()
        self.assertTrue(alone.endswith("no check was made; 1 model is not here\n"), alone)
        # One that is there and damaged is a miss.
        damaged = self.write("damaged.gguf", "notes")
        result = self.run_program("regress", self.write("damaged.toml", self.PROMPT + optional.replace("absent", damaged)))
        self.assertEqual(result.code, 1, result)
        self.assertIn("MISS", result.out.decode())

    def test_mistakes_in_the_suite(self):
        self.refuse(1, ["line 1", "did you mean 'prompts'"], "regress", self.write("a.toml", "prompt = []\n"))
        self.refuse(1, ["no models"], "regress", self.write("b.toml", ""))
        self.refuse(1, ["absent.toml"], "regress", self.path("absent.toml"))


class Interrupt(WorkbenchTest):
    def test_ctrl_c_ends_cleanly(self):
        out = self.path("interrupted.f32")
        ids = " ".join(["7"] * 500)
        for arguments in (("logits", self.llama, "--tokens", ids, "--out", out, "--chunk", "1"),
                          ("bench", self.llama, "-p", "0", "-n", "500", "--repeat", "1000")):
            process = self.start(*arguments, "--backend", "reference")
            self.addCleanup(process.stderr.close)
            self.addCleanup(process.stdout.close)
            if arguments[0] == "logits":
                while process.poll() is None and not [n for n in os.listdir(self.folder) if "interrupted" in n]:
                    time.sleep(0.005)
            else:
                time.sleep(2)
            process.send_signal(INTERRUPT)
            process.wait(60)
            if process.returncode != 0:  # it may have been done before
                self.assertEqual(process.returncode, 130, process.stderr.read())
                self.assertFalse([name for name in os.listdir(self.folder) if "interrupted" in name])


if __name__ == "__main__":
    unittest.main()

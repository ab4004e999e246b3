#!/usr/bin/env python3
"""The tools of `make bench`: models without meaning of every type, the picture, and the check of a program's levels."""
import json
import math
import os
import struct
import subprocess
import sys
import unittest
import xml.etree.ElementTree

from harness import MAKE_TOY, QUARREL, ProgramTest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools"))
import bench_aims  # noqa: E402
import check_levels  # noqa: E402
import make_speed_model  # noqa: E402
import run_bench  # noqa: E402


def measured(name, decode, prefill):
    """A report of one model as `quarrel bench --json` gives it, as far as the picture needs it."""
    return {"type": name,
            "settings": {"prompt": 128, "generated": 32},
            "machine": {"threads": 2, "read_bytes_per_s": 30e9, "f32_fma_flops_per_s": 300e9,
                        "integer": {"macs_per_s": 500e9, "instructions": "avx512-vnni"}, "int8_tiles": None,
                        "bf16_tiles": None},
            "decode": {"tokens_per_s": 20.0, "share_of_read_bandwidth": decode},
            "prefill": {"tokens_per_s": 300.0, "share_of_peak": prefill}}


class Aims(ProgramTest):
    LIMITS = {"copy_bytes_per_s": 4e12, "gemm_f16_flops_per_s": 8e14}
    RUN = {"arguments": ["-p", "16", "-n", "4"], "aims": {"prefill": 40000, "decode": 600}}

    def run_tool(self, models, *arguments, code=0):
        plan = self.path("aims.json")
        with open(plan, "w", encoding="utf-8") as file:
            json.dump({"limits": self.LIMITS, "arguments": ["--repeat", "1"], "models": models}, file)
        ended = subprocess.run([sys.executable, bench_aims.__file__, "--program", QUARREL, "--aims", plan, *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(ended.returncode, code, ended.stderr)
        return ended.stdout.decode().splitlines()

    def test_aims_scale_with_the_machine(self):
        report = {"machine": {"copy_bytes_per_s": 2e12, "gemm_f16_flops_per_s": 4e14},
                  "prefill": {"tokens_per_s": 30000}, "decode": {"tokens_per_s": 270.4, "bytes_per_s": 1.5e12}}
        self.assertEqual(bench_aims.row("a 7B", self.RUN, report, self.LIMITS),
                         "| a 7B, `-p 16 -n 4` | 30000 | 150 % | 270 | 90 % | 75 % | 2000 | 400 |\n")
        report["prefill"] = None
        self.assertEqual(bench_aims.row("a 7B", {**self.RUN, "aims": {}}, report, self.LIMITS),
                         "| a 7B, `-p 16 -n 4` |  |  | 270 |  | 75 % | 2000 | 400 |\n")

    def test_models_are_made_measured_and_removed(self):
        maker = self.path("maker")
        with open(maker, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "$3" >> "{self.path("made")}"\nexec "{MAKE_TOY}" "$1" "$3"\n')
        os.chmod(maker, 0o755)
        models = [{"name": name, "shape": "llama", "type": "F32", "runs": [self.RUN]} for name in ("one", "other")]
        lines = self.run_tool(models, "--maker", maker, "--only", "one")
        self.assertEqual(len(lines), 3)
        self.assertRegex(lines[2], r"^\| one, `-p 16 -n 4` \| [0-9.]+ \| [0-9]+ % \| [0-9.]+ \| [0-9]+ % \|")
        with open(self.path("made"), encoding="utf-8") as file:
            [made] = file.read().splitlines()
        self.assertFalse(os.path.exists(made))

    def test_a_model_that_cannot_be_made_is_told_too(self):
        models = [{"name": "none", "shape": "llama", "type": "F32", "runs": [self.RUN]}]
        for maker in ("false", self.path("no-such-maker")):
            lines = self.run_tool(models, "--maker", maker, code=1)
            self.assertRegex(lines[2], r"^\| none \| failed: ")

    def test_a_run_that_fails_is_told_and_the_others_go_on(self):
        models = [{"name": "none", "runs": [self.RUN]}, {"name": "toy", "runs": [self.RUN]}]
        subprocess.run([MAKE_TOY, "llama", self.path("toy.gguf")], check=True)
        lines = self.run_tool(models, "--models", self.path("."), code=1)
        self.assertIn("failed: error", lines[2])
        self.assertIn("none.gguf", lines[2])
        self.assertNotIn("failed", lines[3])


class SpeedModels(ProgramTest):
    def setUp(self):
        shape = dict(WIDTH=256, INNER=512, HEADS=4, KV_HEADS=2, VOCABULARY=64)
        for name, value in shape.items():
            self.addCleanup(setattr, make_speed_model, name, getattr(make_speed_model, name))
            setattr(make_speed_model, name, value)

    def test_every_type_runs_and_gives_numbers(self):
        for name in make_speed_model.TYPES:
            with self.subTest(name):
                model, out = self.path(f"{name}.gguf"), self.path(f"{name}.f32")
                make_speed_model.write(name, model, 0.5)
                self.succeed("logits", model, "--tokens", "1,2,3", "--out", out)
                with open(out, "rb") as file:
                    data = file.read()
                values = struct.unpack(f"<{len(data) // 4}f", data)
                self.assertEqual(len(values), 3 * 64)
                self.assertTrue(all(math.isfinite(value) for value in values))
                self.assertGreater(max(values), min(values))

    def test_the_size_is_about_the_one_asked_for(self):
        for name in ("Q4_0", "F16"):
            path = self.path("sized.gguf")
            make_speed_model.write(name, path, 4)
            self.assertGreater(os.path.getsize(path), 3e6)
            self.assertLess(os.path.getsize(path), 5e6)

    def test_the_same_bytes_each_time(self):
        contents = []
        for _ in range(2):
            make_speed_model.write("Q4_K", self.path("again.gguf"), 0.5)
            with open(self.path("again.gguf"), "rb") as file:
                contents.append(file.read())
        self.assertEqual(contents[0], contents[1])

    def test_a_model_is_measured(self):
        make_speed_model.write("Q4_0", self.path("speed-Q4_0.gguf"), 0.5)
        (result,) = run_bench.run_models(os.path.dirname(QUARREL), self.folder, ["Q4_0"], 1)
        self.assertEqual(result["type"], "Q4_0")
        self.assertGreater(result["decode"]["share_of_limit"], 0)
        self.assertIn("Q4_0", run_bench.draw({"processor": "one", "models": [result]}))


class Picture(unittest.TestCase):
    def bars(self, models):
        tree = xml.etree.ElementTree.fromstring(run_bench.draw({"processor": "a <b> & c", "models": models}))
        name = "{http://www.w3.org/2000/svg}"
        texts = [text.text for text in tree.iter(f"{name}text")]
        colours = run_bench.COLOURS
        bars = {part: [float(r.get("width")) for r in tree.iter(f"{name}rect")
                       if r.get("fill") == colours[part] and r.get("height") == str(run_bench.BAR)]
                for part in colours}
        return bars, texts

    def test_bars_are_as_long_as_the_shares(self):
        bars, texts = self.bars([measured("Q4_0", 0.5, 0.25), measured("F16", 0.9, 0.1)])
        plot = run_bench.WIDTH - run_bench.LEFT - run_bench.RIGHT
        self.assertEqual(bars["decode"], [round(0.5 * plot, 1), round(0.9 * plot, 1)])
        self.assertEqual(bars["prefill"], [round(0.25 * plot, 1), round(0.1 * plot, 1)])
        for word in ("Q4_0", "F16", "50.0 %, 20.0 tokens/s", "25.0 %, 300.0 tokens/s"):
            self.assertIn(word, texts)
        self.assertTrue(any("a <b> & c" in text for text in texts))

    def test_a_share_above_all_stays_in_the_picture(self):
        bars, _ = self.bars([measured("Q4_0", 7.0, 0.0)])
        self.assertLessEqual(run_bench.LEFT + bars["decode"][0], run_bench.WIDTH - 60)
        self.assertGreater(bars["prefill"][0], 0)

    def test_a_report_can_be_drawn_again(self):
        report = {"processor": "one", "models": [measured("Q4_0", 0.5, 0.25)]}
        self.assertEqual(run_bench.draw(json.loads(json.dumps(report))), run_bench.draw(report))


class Levels(unittest.TestCase):
    def test_wide_instructions_outside_their_place_are_found(self):
        kernel = "0000000000001000 <quarrel::avx512_level::add_row(float*, float const*, unsigned long)>:\n"
        other = "0000000000002000 <quarrel::sample_row(std::span<float const>)>:\n"
        wide = "  1004:\tvaddps %zmm0,%zmm1,%zmm2\n"
        plain = "  2004:\taddps  %xmm0,%xmm1\n  2008:\tverr   %ax\n"
        self.assertEqual(check_levels.breaches([kernel, wide, other, plain]), ({}, 1))
        for line in (wide, "  2004:\tvaddss %xmm0,%xmm1,%xmm2\n", "  2004:\tkmovq  %k1,%rax\n",
                     "  2004:\ttilezero %tmm3\n"):
            found, _ = check_levels.breaches([kernel, wide, other, line])
            self.assertEqual(list(found), ["quarrel::sample_row(std::span<float const>)"], line)


if __name__ == "__main__":
    unittest.main()

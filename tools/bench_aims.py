#!/usr/bin/env python3
"""Measures a list of models on a GPU and holds each figure against its aim, scaled to what the GPU does in the same run.

    bench_aims.py [--program FILE] [--aims FILE] [--models FOLDER | --maker COMMAND] [--only WORD] [--out FILE]

Models are FOLDER/NAME.gguf; with --maker, `COMMAND SHAPE TYPE FILE` makes each one before it is measured, and it is
removed after it. The table is Markdown, on standard output or in --out, which gains a line after each run. Aims for
prefill scale with the F16 GEMM, those for decode with the copy bandwidth, over those of the list. Exits 1 if a run
failed. Needs nothing but Python and the program.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEAD = """| run | prefill | of its aim | decode | of its aim | of copy | copies, GB/s | GEMM, TFLOP/s |
|---|---|---|---|---|---|---|---|
"""


def say(text):
    print(f"aims: {text}", file=sys.stderr, flush=True)


def line(cells):
    return f"| {' | '.join(cells)} |\n"


def failure(what, error):
    said = (str(error).strip() or type(error).__name__).splitlines()[-1].replace("|", "/")
    return line([what, f"failed: {said}", *[""] * 6])


def measure(program, model, arguments):
    command = [program, "bench", model, "--json", *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if ended.returncode != 0:
        raise RuntimeError(ended.stderr.decode(errors="replace").strip() or f"it ended with {ended.returncode}")
    return json.loads(ended.stdout)


def figure(report, part, aim, scale):
    """A speed, and its share of the aim; the machine's limit in `scale` times what the aim was set for."""
    if report[part] is None:
        return "", ""
    speed = report[part]["tokens_per_s"]
    shown = f"{speed:.0f}" if speed >= 100 else f"{speed:.1f}"
    return shown, f"{100 * speed / (aim * scale):.0f} %" if aim else ""


def row(name, run, report, limits):
    machine = report["machine"]
    copies, gemm = machine.get("copy_bytes_per_s"), machine.get("gemm_f16_flops_per_s")
    aims = run.get("aims", {})
    prefill = figure(report, "prefill", aims.get("prefill"), gemm / limits["gemm_f16_flops_per_s"] if gemm else 1)
    decode = figure(report, "decode", aims.get("decode"), copies / limits["copy_bytes_per_s"] if copies else 1)
    decoded = copies and report["decode"] is not None
    cells = [f"{name}, `{' '.join(run['arguments'])}`", *prefill, *decode,
             f"{100 * report['decode']['bytes_per_s'] / copies:.0f} %" if decoded else "",
             f"{copies / 1e9:.0f}" if copies else "", f"{gemm / 1e12:.0f}" if gemm else ""]
    return line(cells)


def make(maker, model, folder):
    path = os.path.join(folder, f"{model['name']}.gguf")
    say(f"making {model['name']}")
    subprocess.run([*shlex.split(maker), model["shape"], model["type"], path], check=True, stdout=sys.stderr)
    return path


def measure_model(options, plan, model, path, put):
    """Puts a line for each run; the number that failed."""
    failed = 0
    for run in model["runs"]:
        arguments = [*plan["arguments"], *run["arguments"]]
        try:
            say(f"{model['name']} {' '.join(arguments)}")
            put(row(model["name"], run, measure(options.program, path, arguments), plan["limits"]))
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            failed += 1
            put(failure(f"{model['name']}, `{' '.join(run['arguments'])}`", error))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "cuda", "quarrel"))
    parser.add_argument("--aims", default=os.path.join(ROOT, "bench", "gpu_aims.json"))
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--models", metavar="FOLDER")
    source.add_argument("--maker", metavar="COMMAND")
    parser.add_argument("--only", metavar="WORD", default="", help="models whose name has it")
    parser.add_argument("--out", metavar="FILE")
    options = parser.parse_args()
    with open(options.aims, encoding="utf-8") as file:
        plan = json.load(file)
    models = [model for model in plan["models"] if options.only in model["name"]]
    if not models:
        parser.error(f"no model of {options.aims} has '{options.only}' in its name")
    failed = 0
    with open(options.out, "w", encoding="utf-8") if options.out else os.fdopen(os.dup(1), "w") as out:
        def put(text):
            out.write(text)
            out.flush()
        put(HEAD)
        for model in models:
            if options.models:
                failed += measure_model(options, plan, model, os.path.join(options.models, f"{model['name']}.gguf"), put)
                continue
            with tempfile.TemporaryDirectory(prefix="quarrel-aims-") as folder:
                try:
                    path = make(options.maker, model, folder)
                except (OSError, subprocess.CalledProcessError) as error:
                    failed += 1
                    put(failure(model["name"], error))
                    continue
                failed += measure_model(options, plan, model, path, put)
    if failed:
        say(f"{failed} of the runs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures the kernels and one model a weight type, and draws how near the machine's limit they come.

    run_bench.py [--build FOLDER] [--out FOLDER] [--types "Q4_0 Q4_K"] [--repeat N] [--no-kernels]
    run_bench.py --draw bench.json bench.svg

Writes bench.json and bench.svg into the folder `out`; the models are made there once, 200 MB a type. Needs nothing but
Python and the programs of the build.
"""
import argparse
import glob
import json
import os
import subprocess
import sys
import time
from xml.sax.saxutils import escape

import make_speed_model

# Of the types that are decoded by tables, two stand for all: they behave alike, and take their time.
DEFAULT_TYPES = ("F32 F16 BF16 Q8_0 Q6_K Q5_K Q5_1 Q5_0 Q4_K Q4_1 Q4_0 IQ4_XS IQ4_NL MXFP4 Q3_K IQ3_S IQ3_XXS Q2_K IQ2_S "
                 "IQ2_XS IQ2_XXS TQ2_0 TQ1_0 IQ1_S")
PROMPT, GENERATED = 128, 16


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


# ---- Measuring ----

def run_kernels(build, out):
    """What the Google Benchmark programs of the build say: {program: [benchmark, …]}."""
    results = {}
    for program in sorted(glob.glob(os.path.join(build, "*_bench"))):
        name = os.path.basename(program)
        say(name)
        path = os.path.join(out, f"{name}.json")
        subprocess.run([program, f"--benchmark_out={path}", "--benchmark_out_format=json"], check=True,
                       stdout=sys.stderr)
        with open(path, encoding="utf-8") as file:
            results[name] = json.load(file)["benchmarks"]
    return results


def run_model(quarrel, model, repeat):
    command = [quarrel, "bench", model, "-p", str(PROMPT), "-n", str(GENERATED), "--repeat", str(repeat), "--profile",
               "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def run_models(build, out, types, repeat):
    results = []
    for name in types:
        path = os.path.join(out, f"speed-{name}.gguf")
        if not os.path.exists(path):
            make_speed_model.write(name, path)
        value = run_model(os.path.join(build, "quarrel"), path, repeat)
        results.append({"type": name, **value})
        say("{:8} prefill {:8.2f} tokens/s, {:5.1f} % of the {} peak; decode {:7.2f} tokens/s, {:5.1f} % of the read "
            "bandwidth".format(name, value["prefill"]["tokens_per_s"], 100 * value["prefill"]["share_of_peak"],
                               value["prefill"]["peak"], value["decode"]["tokens_per_s"],
                               100 * value["decode"]["share_of_read_bandwidth"]))
    return results


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown processor"


# ---- Drawing ----

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 960, 92, 190, 112, 40, 14
COLOURS = {"decode": "#2f6fb2", "prefill": "#d9822b"}
GREY, DARK, LINE = "#666666", "#222222", "#dddddd"


def shares(model):
    """(part, share of the limit, label) of a measured model, decode first."""
    decode, prefill = model["decode"], model["prefill"]
    yield "decode", decode["share_of_read_bandwidth"], "{:.1f} %, {:.1f} tokens/s".format(
        100 * decode["share_of_read_bandwidth"], decode["tokens_per_s"])
    yield "prefill", prefill["share_of_peak"], "{:.1f} %, {:.1f} tokens/s".format(
        100 * prefill["share_of_peak"], prefill["tokens_per_s"])


def element(x, y, content, size=13, colour=DARK, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{escape(content)}</text>')


def machine_line(machines):
    """The machine in words; each model measured it again, so numbers are ranges."""
    def span(values, form):
        low, high = form.format(min(values)), form.format(max(values))
        return low if low == high else f"{low} to {high}"

    parts = ["reads {} GB/s".format(span([m["read_bytes_per_s"] / 1e9 for m in machines], "{:.1f}")),
             "F32 {} GMAC/s".format(span([m["f32_fma_flops_per_s"] / 2e9 for m in machines], "{:.0f}"))]
    for key in ("integer", "int8_tiles", "bf16_tiles"):
        found = [m[key] for m in machines if m.get(key)]
        if found:
            rates = span([one["macs_per_s"] / 1e9 for one in found], "{:.0f}")
            parts.append(f"{found[0]['instructions']} {rates} GMAC/s")
    return ", ".join(parts)


def legend(x, y):
    parts = []
    for part, meaning in (("decode", "decode, share of the read bandwidth"),
                          ("prefill", "prefill, share of the arithmetic peak (F32 for floats, else 8-bit integers)")):
        parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="2" fill="{COLOURS[part]}"/>')
        parts.append(element(x + 18, y, meaning, 12))
        x += 260
    return parts


def draw(report):
    """The picture: a group of two bars a weight type."""
    models = report["models"]
    # More than the limit is a moment in which the machine was faster than when the limit was measured.
    most = max(1.0, *(share for model in models for _, share, _ in shares(model)))
    plot = (WIDTH - LEFT - RIGHT) / most
    height = TOP + ROW * len(models) + 46
    bottom = TOP + ROW * len(models)
    machine = models[0]["machine"]
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
             f'height="{height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             element(24, 34, "How near the machine's limit each weight type comes", 19, weight="bold"),
             element(24, 55, f"{report['processor']}, {machine['threads']} threads; "
                             f"{machine_line([m['machine'] for m in models])}", 12, GREY),
             *legend(24, 82)]
    for percent in range(0, 101, 20):
        x = LEFT + plot * percent / 100
        lines.append(f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="{LINE}"/>')
        lines.append(element(x, bottom + 18, f"{percent} %", 12, GREY, "middle"))
    for index, model in enumerate(models):
        y = TOP + ROW * index
        lines.append(element(LEFT - 12, y + BAR + 5, model["type"], 13, anchor="end", weight="bold"))
        for place, (part, share, label) in enumerate(shares(model)):
            top = y + place * (BAR + 2)
            length = plot * share
            lines.append(f'<rect x="{LEFT}" y="{top}" width="{max(length, 1):.1f}" height="{BAR}" rx="2" '
                         f'fill="{COLOURS[part]}"/>')
            lines.append(element(LEFT + length + 6, top + BAR - 3, label, 11))
    settings = models[0]["settings"]
    lines.append(element(24, height - 10, f"Prefill of {settings['prompt']} tokens, decode of {settings['generated']}; "
                         "models of 200 MB in the shape of TinyLlama; the limit is measured beside each.", 11, GREY))
    lines.append("</svg>")
    return "\n".join(lines) + "\n"


def write_picture(report, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write(draw(report))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--out", default="build/bench")
    parser.add_argument("--types", default=DEFAULT_TYPES)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--no-kernels", action="store_true")
    parser.add_argument("--draw", nargs=2, metavar=("JSON", "SVG"))
    options = parser.parse_args()
    if options.draw:
        with open(options.draw[0], encoding="utf-8") as file:
            write_picture(json.load(file), options.draw[1])
        return 0
    types = options.types.upper().split()
    unknown = [name for name in types if name not in make_speed_model.TYPES]
    if unknown or not types:
        parser.error(f"unknown types {' '.join(unknown)}; there are {' '.join(make_speed_model.TYPES)}")
    os.makedirs(options.out, exist_ok=True)
    report = {"date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
              "version": subprocess.run([os.path.join(options.build, "quarrel"), "--version"], check=True,
                                        stdout=subprocess.PIPE, text=True).stdout.strip(),
              "processor": processor(),
              "models": run_models(options.build, options.out, types, options.repeat),
              "kernels": {} if options.no_kernels else run_kernels(options.build, options.out)}
    target = os.path.join(options.out, "bench.json")
    with open(target, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    write_picture(report, os.path.join(options.out, "bench.svg"))
    print(f"{target}\n{os.path.join(options.out, 'bench.svg')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

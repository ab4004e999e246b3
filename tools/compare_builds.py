#!/usr/bin/env python3
"""Runs the same work with several builds by turns, and prints each one's median, its spread and its gain.

The gain is the median over the rounds of each round's own quotient: what slows a whole round down is not in it. Give a copy
of the first program as well: its gain is what the machine's noise alone comes to.

    compare_builds.py [--model MODEL] [--rounds N] PROGRAM PROGRAM…
    compare_builds.py --cpu-time PROGRAM PROGRAM…

By turns, because a machine is not as fast in one minute as in the next; the first program is what the others are
compared with. With --cpu-time one thread does the work and its processor time is what counts: for a machine that others
use too, where seconds on the clock say nothing.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys


def tokens_per_second(program, options):
    """Of `quarrel bench`, the better of two repetitions: whatever else runs only takes time away."""
    command = [program, "bench", options.model, "-p", str(options.prompt), "-n", str(options.generate), "--repeat", "2",
               "--json"]
    value = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {part: value[part]["tokens"] / min(value[part]["seconds"]) for part in ("prefill", "decode")}


def processor_seconds(command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def tokens_per_processor_second(program, options):
    def rate(prompt, generated, tokens):
        ids = ",".join(str(1000 + i % 500) for i in range(prompt))
        return tokens / processor_seconds([program, "generate", options.model, "--tokens", ids, "-n", str(generated),
                                           "--ignore-eos", "--threads", "1"])
    return {"prefill": rate(options.prompt, 1, options.prompt), "decode": rate(1, options.generate, options.generate)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--model", default="default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    measure = tokens_per_processor_second if options.cpu_time else tokens_per_second
    results = {program: [] for program in options.programs}
    for turn in range(options.rounds):
        # Who comes first finds nobody's warm caches, so that changes too.
        for program in options.programs if turn % 2 == 0 else reversed(options.programs):
            results[program].append(measure(program, options))
    for part in ("prefill", "decode"):
        base = [value[part] for value in results[options.programs[0]]]
        for program in options.programs:
            values = [value[part] for value in results[program]]
            gain = statistics.median(value / other for value, other in zip(values, base))
            print(f"{part:8} {program:26} median {statistics.median(values):8.2f} tokens/s, {min(values):.2f} to "
                  f"{max(values):.2f}, {100 * (gain - 1):+.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks that a shared library shows its public interface and nothing else: check_exports.py LIBRARY."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CPP = re.compile(r"(?:(?:typeinfo|typeinfo name|vtable) for )?quarrel::api::(?!Model::Impl::|CancelToken::State::)")


def main(library):
    listing = subprocess.run(["nm", "--dynamic", "--defined-only", "--demangle", library], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    shown = [line.split(" ", 2)[2] for line in listing.splitlines()]
    with open(os.path.join(ROOT, "include/quarrel/quarrel_c.h"), encoding="utf-8") as header:
        promised = set(re.findall(r"QUARREL_C_API [^;(]*?(quarrel_\w+)\(", header.read()))
    complaints = [f"it does not show {name}" for name in sorted(promised - set(shown))]
    complaints += [f"it shows {name}" for name in shown if name not in promised and not CPP.match(name)]
    if not any(CPP.match(name) for name in shown):
        complaints.append("it shows nothing of the C++ interface")
    for complaint in complaints:
        print(f"{library}: {complaint}")
    return 1 if complaints or not promised else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

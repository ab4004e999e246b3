#!/usr/bin/env python3
"""Checks that a program runs on any x86-64: wide instructions may stand in the functions made for them and nowhere else.

    check_levels.py PROGRAM

A build that optimises across files could inline a kernel into its caller, or merge two copies of one function; then the
program would die on an older processor. Needs objdump, and a program that still has its symbols.
"""
import re
import subprocess
import sys

# The kernels of a level lie in its namespace; the loops that measure a peak bear the name of their instructions.
ALLOWED = re.compile(r"\bquarrel::(?:avx2_level|avx512_level|amx_level)::"
                     r"|\bquarrel::\(anonymous namespace\)::(?:\w+_avx2|\w+_avx512|avx2_loop|vnni_loop|\w+_tile_loop)\(")
# Registers of 256 and 512 bits and tiles, masks, and what only the newer encodings have: names that begin with v.
WIDE = re.compile(r"%[yzt]mm\d|%k[0-7]\b|^\s*[0-9a-f]+:\s+v[a-z]")
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
# Instructions of the first x86-64 processors that have such a name.
OLD = re.compile(r"^\s*[0-9a-f]+:\s+ver[rw]\b")


def breaches(lines):
    """The functions that hold what they may not, each with its first such instruction, and how many may."""
    found, allowed, function = {}, set(), ""
    for line in lines:
        match = FUNCTION.match(line)
        if match:
            function = match.group(1)
        elif WIDE.search(line) and not OLD.search(line):
            if ALLOWED.search(function):
                allowed.add(function)
            else:
                found.setdefault(function, line.strip())
    return found, len(allowed)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with subprocess.Popen(["objdump", "-d", "-C", "--no-show-raw-insn", "-j", ".text", sys.argv[1]], text=True,
                          stdout=subprocess.PIPE) as objdump:
        found, allowed = breaches(objdump.stdout)
    if objdump.returncode != 0 or allowed == 0:
        sys.exit(f"check_levels.py: {sys.argv[1]} could not be read, or has no kernels")
    for function, instruction in sorted(found.items()):
        print(f"{function}: {instruction}")
    if found:
        sys.exit(f"check_levels.py: {len(found)} functions of {sys.argv[1]} need a newer processor")
    return 0


if __name__ == "__main__":
    sys.exit(main())

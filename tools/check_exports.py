#!/usr/bin/env python3
"""Checks that a shared library shows its public interface and nothing else: check_exports.py LIBRARY."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CPP = re.compile(r"(?:(?:typeinfo|typeinfo name|vtable) for )?"
                 r"quarrel::api::(?!Model::Impl::|Generation::Impl::|CancelToken::State::)")


CLASS = re.compile(r"class QUARREL_API (\w+)[^{;]*\{(.*?)\n\};", re.DOTALL)
MEMBER = re.compile(r"^  (?:static |explicit |const )*(?:[\w:<>,&* ]+[ &*])?(\w+)\([^;]*\)(?: const)?(?: noexcept)?;",
                    re.MULTILINE)


def promised_members():
    """Public members of the C++ classes that are not written in the header itself, as Class::name."""
    folder = os.path.join(ROOT, "include/quarrel")
    for name in sorted(os.listdir(folder)):
        if name == "quarrel_c.h":
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as header:
            text = re.sub(r"//[^\n]*", "", header.read())
        for owner, body in CLASS.findall(text):
            for member in MEMBER.findall(body.split("\n private:")[0]):
                yield f"{owner}::{member}"


def main(library):
    listing = subprocess.run(["nm", "--dynamic", "--defined-only", "--demangle", library], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
    shown = [line.split(" ", 2)[2] for line in listing.splitlines()]
    with open(os.path.join(ROOT, "include/quarrel/quarrel_c.h"), encoding="utf-8") as header:
        promised = set(re.findall(r"QUARREL_C_API [^;(]*?(quarrel_\w+)\(", header.read()))
    complaints = [f"it does not show {name}" for name in sorted(promised - set(shown))]
    complaints += [f"it shows {name}" for name in shown if name not in promised and not CPP.match(name)]
    members = set(promised_members())
    shown_members = {re.split(r"[(\[]", name)[0] for name in shown}
    complaints += [f"it does not show quarrel::api::{member}" for member in sorted(members)
                   if f"quarrel::api::{member}" not in shown_members]
    if not members:
        complaints.append("the C++ headers promise nothing")
    for complaint in complaints:
        print(f"{library}: {complaint}")
    return 1 if complaints or not promised else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))

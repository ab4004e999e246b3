#!/usr/bin/env python3
"""Checks that the subjects of new commits are short. New are those after START that the upstream branch, or origin's, does
not have: what is public already is never complained about. Without git there is nothing to check.

    check_commits.py               prints commit: complaint; exits 1 if there is any
    check_commits.py --self-test   tries it on repositories made for it
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 72  # a subject is shorter
START = "3dbd946cfa57295c2c6f969d518fb93b8c9115eb"  # some subjects up to it are longer, and history stays as it is


def git(folder, *arguments):
    """What git prints; None where it fails or there is none."""
    try:
        return subprocess.run(["git", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=True).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.CalledProcessError):
        return None


def new_commits(folder, start):
    """(hash, subject) of each commit after `start` that is not public yet."""
    def known(name):
        return git(folder, "rev-parse", "--verify", "--quiet", name + "^{commit}") is not None

    public = next((base for base in ("@{upstream}", "origin/HEAD", "origin/main") if known(base)), None)
    before = ["^" + base for base in (public, start) if base and known(base)]
    listing = git(folder, "log", "--no-merges", "--format=%h %s", "HEAD", *before) or ""
    return [line.split(" ", 1) for line in listing.splitlines()]


def complaints(folder, start=START):
    return [f"{commit}: the subject has {len(subject)} characters: make it shorter than {LIMIT}"
            for commit, subject in new_commits(folder, start) if len(subject) >= LIMIT]


def self_test():
    right = []
    with tempfile.TemporaryDirectory() as folder:
        right.append(complaints(folder) == [])  # no repository
        shared, own = os.path.join(folder, "shared"), os.path.join(folder, "own")

        def commit(where, subject):
            git(where, "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false", "commit",
                "--allow-empty", "-m", subject)

        git(folder, "init", "-b", "main", shared)
        commit(shared, "o" * 100)
        right.append(len(complaints(shared)) == 1)  # no remote, nor a start that is known
        first = git(shared, "rev-parse", "HEAD").strip()
        right.append(complaints(shared, first) == [])
        commit(shared, "s" * LIMIT)
        right.append(len(complaints(shared, first)) == 1)  # no remote: what comes after the start
        git(folder, "clone", shared, own)
        right.append(complaints(own) == [])  # a long one that is public
        commit(own, "é" * (LIMIT - 1))
        right.append(complaints(own) == [])
        commit(own, "n" * LIMIT)
        right.append(len(complaints(own)) == 1 and "72 characters" in complaints(own)[0])
    print(f"check_commits.py: {sum(right)} of {len(right)} cases right")
    return 0 if all(right) else 1


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--self-test"]):
        sys.exit(__doc__)
    if sys.argv[1:]:
        sys.exit(self_test())
    found = complaints(ROOT)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)

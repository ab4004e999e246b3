#!/usr/bin/env python3
"""Checks that the subjects of commits are short: of all after START, whatever branches a remote has. Without git, or in a
clone whose history does not reach back to START, there is nothing to check.

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
    """(hash, subject) of each commit after `start`; none where the history does not have it."""
    if git(folder, "rev-parse", "--verify", "--quiet", start + "^{commit}") is None:
        return []
    listing = git(folder, "log", "--no-merges", "--format=%h %s", "HEAD", "^" + start) or ""
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
        right.append(complaints(shared) == [])  # a history that does not reach back to the start
        first = git(shared, "rev-parse", "HEAD").strip()
        right.append(complaints(shared, first) == [])
        commit(shared, "é" * (LIMIT - 1))
        right.append(complaints(shared, first) == [])
        commit(shared, "s" * LIMIT)
        right.append(len(complaints(shared, first)) == 1 and "72 characters" in complaints(shared, first)[0])
        git(folder, "clone", shared, own)
        right.append(len(complaints(own, first)) == 1)  # that a remote has it does not make it shorter
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

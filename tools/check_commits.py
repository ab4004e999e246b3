#!/usr/bin/env python3
"""Checks that commits have a short subject, and a body that says why: all after START, whatever branches a remote has.
Without git, or in a clone whose history does not reach back to START, there is nothing to check.

    check_commits.py               prints commit: complaint; exits 1 if there is any
    check_commits.py --self-test   tries it on repositories made for it
"""
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 72  # a subject is shorter
START = "f68ba6469a16f3752d17a48d21b4d281c968bdf3"  # some up to it lack a body, and history stays as it is


def git(folder, *arguments):
    """What git prints; None where it fails or there is none."""
    try:
        return subprocess.run(["git", *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=True).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.CalledProcessError):
        return None


def new_commits(folder, start):
    """(hash, subject, body) of each commit after `start`; none where the history does not have it."""
    if git(folder, "rev-parse", "--verify", "--quiet", start + "^{commit}") is None:
        return []
    listing = git(folder, "log", "--no-merges", "-z", "--format=%h%n%s%n%b", "HEAD", "^" + start) or ""
    return [entry.split("\n", 2) for entry in listing.split("\0") if entry]


def complaints(folder, start=START):
    found = []
    for commit, subject, body in new_commits(folder, start):
        if len(subject) >= LIMIT:
            found.append(f"{commit}: the subject has {len(subject)} characters: make it shorter than {LIMIT}")
        if not body.strip():
            found.append(f"{commit}: there is no body: say why the change was made")
    return found


def self_test():
    right = []
    with tempfile.TemporaryDirectory() as folder:
        right.append(complaints(folder) == [])  # no repository
        shared, own = os.path.join(folder, "shared"), os.path.join(folder, "own")

        def commit(where, subject, body="Because."):
            git(where, "-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false", "commit",
                "--allow-empty", "-m", subject, "-m", body)

        git(folder, "init", "-b", "main", shared)
        commit(shared, "o" * 100)
        right.append(complaints(shared) == [])  # a history that does not reach back to the start
        first = git(shared, "rev-parse", "HEAD").strip()
        right.append(complaints(shared, first) == [])
        commit(shared, "é" * (LIMIT - 1))
        right.append(complaints(shared, first) == [])
        commit(shared, "s" * LIMIT)
        right.append(len(complaints(shared, first)) == 1 and "72 characters" in complaints(shared, first)[0])
        commit(shared, "s", "")
        right.append(len(complaints(shared, first)) == 2 and "no body" in complaints(shared, first)[0])
        git(folder, "clone", shared, own)
        right.append(len(complaints(own, first)) == 2)  # that a remote has it does not make it shorter
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

#!/usr/bin/env python3
"""Puts two running servers of OpenAI's API under the same load by turns, and prints a Markdown table.

    compare_servers.py [--rounds N] [--labels OURS,THEIRS] http://127.0.0.1:8080 http://127.0.0.1:8081

For each number of clients and each length of prompts: the tokens a second that were written and the time to the first token
(p95), as the median of the rounds with the least and the most of them, and the ratio of the medians. By turns, because a
machine is not as fast in one minute as in the next; who goes first changes from run to run. One load generator asks both
(bench/load, `quarrel_load`), each with the same questions, and never the same question twice, so that nobody answers from a
cache. --forbid names the tokens that end an answer (0,2 for the default model), so that all answers have their full length: a
server whose answers end early is pointed out below the table.
"""
import argparse
import ipaddress
import json
import os
import socket
import statistics
import subprocess
import sys
import urllib.parse

LOAD = os.environ.get("QUARREL_LOAD", "build/release/quarrel_load")
KEPT = ("answered", "tokens", "prompt_tokens", "tokens_per_second", "first_token", "gap", "seconds")


def numbers(text):
    return [int(each) for each in text.split(",")]


def listening_address(host, port):
    """That of a name's addresses where somebody listens: `localhost` is two, and a server may have one of them."""
    try:
        with socket.create_connection((host, port), timeout=10) as connection:
            return connection.getpeername()[:2]
    except OSError as fault:
        raise ValueError(f"nobody answers at {host}:{port}: {fault}") from fault


def address_of(url):
    """Host, as a number, and port. Raises ValueError."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path.rstrip("/") not in ("", "/v1") or parts.query:
        raise ValueError(f"'{url}' is not the address of a server: give it as http://HOST:PORT")
    try:
        return str(ipaddress.ip_address(parts.hostname)), parts.port or 80
    except ValueError:
        return listening_address(parts.hostname, parts.port or 80)


def cells_of(options):
    """Clients, prompt and requests of each cell, in the table's order."""
    if len(options.requests) != len(options.clients):
        raise ValueError("--requests has a number for each of --clients")
    return [(clients, prompt, requests) for prompt in options.prompts
            for clients, requests in zip(options.clients, options.requests)]


def measure(server, cell, first, options):
    """What one run of the load generator came to. Raises RuntimeError where a question was not answered."""
    clients, prompt, requests = cell
    command = [options.load, "--json", "--host", server["host"], "--port", str(server["port"]), "--clients", str(clients),
               "--requests", str(requests), "--words", str(prompt), "--output", str(options.output), "--first", str(first),
               "--temperature", str(options.temperature)]
    command += ["--model", server["model"]] if server["model"] else []
    command += ["--forbid", options.forbid] if options.forbid else []
    command += ["--chat"] if options.chat else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    if done.returncode != 0 or not lines or lines[-1]["answered"] != requests:
        said = lines[-1] if lines else {}
        raise RuntimeError(f"{server['label']} answered {said.get('answered', 0)} of {requests} questions of {clients} "
                           f"clients (refused: {said.get('refused', 0)}); {said.get('first_error', 'no report')}")
    return {name: lines[-1][name] for name in KEPT}


def measure_all(servers, options):
    """The runs of each cell, by the servers' labels."""
    results = {cell: {server["label"]: [] for server in servers} for cell in cells_of(options)}
    first = options.first
    turn = 0
    for number in range(options.rounds):
        for cell, found in results.items():
            for server in servers if turn % 2 == 0 else reversed(servers):
                run = measure(server, cell, first, options)
                found[server["label"]].append(run)
                print(f"round {number + 1}: {cell[0]} clients, prompts of {cell[1]}: {server['label']} "
                      f"{run['tokens_per_second']:.1f} tokens/s, first token {run['first_token']['p95'] * 1e3:.0f} ms",
                      file=sys.stderr, flush=True)
            turn += 1
            first += cell[2]
        turn += 1 if len(results) % 2 == 0 else 0  # in the next round the other one is first in each cell
    return results


def spread(values, digits=0):
    least, middle, most = min(values), statistics.median(values), max(values)
    if len(values) == 1:
        return f"{middle:.{digits}f}"
    return f"{middle:.{digits}f} ({least:.{digits}f} to {most:.{digits}f})"


def figures(runs):
    return ([run["tokens_per_second"] for run in runs], [run["first_token"]["p95"] * 1e3 for run in runs])


def table(results, labels):
    """The lines of the table, and how many of its cells the first server leads in each figure."""
    lines = [f"| clients | prompt | tokens/s, {labels[0]} | {labels[1]} | ratio | first token, p95, ms, {labels[0]} "
             f"| {labels[1]} | ratio |", "|---|---|---|---|---|---|---|---|"]
    ahead = [0, 0]
    for (clients, prompt, _), found in results.items():
        (ours, our_first), (theirs, their_first) = (figures(found[label]) for label in labels)
        rate = statistics.median(ours) / max(statistics.median(theirs), 1e-9)
        wait = statistics.median(our_first) / max(statistics.median(their_first), 1e-9)
        ahead[0] += rate > 1
        ahead[1] += wait < 1
        lines.append(f"| {clients} | {prompt} | {spread(ours)} | {spread(theirs)} | {rate:.2f}x | {spread(our_first)} | "
                     f"{spread(their_first)} | {wait:.2f} |")
    return lines, ahead


def remarks(results, labels, output):
    """Where the two did not do the same work."""
    said = []
    for (clients, prompt, requests), found in results.items():
        lengths = {}
        for label in labels:
            written = sum(run["tokens"] for run in found[label]) / len(found[label]) / requests
            lengths[label] = statistics.mean(run["prompt_tokens"] for run in found[label])
            if abs(written - output) > 0.01 * output:
                said.append(f"{label}: answers to {clients} clients with prompts of {prompt} had {written:.1f} tokens on "
                            f"average, not {output}")
        ours, theirs = (lengths[label] for label in labels)
        if abs(ours - theirs) > 2 and min(ours, theirs) > 0:
            said.append(f"prompts of {prompt} words were {ours:.0f} tokens to {labels[0]} and {theirs:.0f} to {labels[1]}")
    return said


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs=2, metavar="URL", help="a running server, as http://HOST:PORT")
    parser.add_argument("--labels", default="first,second", help="what the table calls them")
    parser.add_argument("--models", default=",", help="what requests name as the model, for each; default: nothing")
    parser.add_argument("--clients", type=numbers, default=[1, 8, 32])
    parser.add_argument("--requests", type=numbers, default=[16, 32, 64], help="of all clients together, for each of --clients")
    parser.add_argument("--prompts", type=numbers, default=[64, 512], help="words, which are tokens")
    parser.add_argument("--output", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--forbid", default="", help="ids of tokens that end answers, as 0,2")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--chat", action="store_true", help="chats in place of completions")
    parser.add_argument("--first", type=int, default=0, help="number of the first question: another one for another run")
    parser.add_argument("--load", default=LOAD, help="the load generator")
    parser.add_argument("--json", metavar="FILE", help="every run, for programs")
    options = parser.parse_args(arguments)
    options.labels, options.models = options.labels.split(","), options.models.split(",")
    if len(options.labels) != 2 or len(set(options.labels)) != 2 or len(options.models) != 2:
        parser.error("--labels and --models have two names each, and labels differ")
    try:
        cells_of(options)
        addresses = [address_of(url) for url in options.urls]
    except (ValueError, OSError) as error:
        parser.error(str(error))
    servers = [{"label": label, "model": model, "host": host, "port": port}
               for label, model, (host, port) in zip(options.labels, options.models, addresses)]
    return options, servers


def main(arguments=None):
    options, servers = options_of(arguments)
    try:
        results = measure_all(servers, options)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    lines, ahead = table(results, options.labels)
    print("\n".join(lines))
    print(f"\n{options.labels[0]} is ahead in {ahead[0]} of {len(results)} cells in tokens/s, and in {ahead[1]} in the time to "
          f"the first token. Medians of {options.rounds} rounds, answers of {options.output} tokens.")
    for remark in remarks(results, options.labels, options.output):
        print(f"Note: {remark}.")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump([{"clients": cell[0], "prompt": cell[1], "requests": cell[2], "runs": found}
                       for cell, found in results.items()], file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

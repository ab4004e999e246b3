#!/usr/bin/env python3
"""Stores vectors with this client and with pyarrow's, in turns, in the same server: `make bench-flight`.

    bench_flight.py [--build FOLDER] [--rows N] [--dimension N] [--batch N] [--rounds N] [--store HOST:PORT]
                    [--model NAME] [--texts N]

Run it with the Python of .venv-flight. The server is the test server of the build, or a Longbow that is told by --store. Each
round writes a dataset of its own, which is removed afterwards. Both clients have their batches before the clock starts; prints
each one's median MB/s and their quotient. Then this client alone, which fills one batch again and again while the clock runs: the
time for storing, and the most memory it held, of so many rows and of a quarter of them. Then `quarrel embed --to` stores texts with
their vectors: what share of the time for embedding so many rows the time for storing them is, and the memory of a run and of one
four times as long. --texts 0 leaves that out.

A figure that has a limit is printed with it; one that misses it makes the exit code 1.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
from pyarrow import flight


LEAST_QUOTIENT = 0.95  # of pyarrow's throughput
MOST_SHARE = 0.10  # of the time for embedding
MOST_GROWTH = 1.10  # of memory, for four times as much to store


class Limits:
    """What was measured against what it has to be."""

    def __init__(self):
        self.missed = 0

    def check(self, what, holds, limit):
        self.missed += not holds
        print(f"{'ok    ' if holds else 'MISSED'}  {what} (limit: {limit})", flush=True)


def pyarrow_put(host, port, dataset, rows, dimension, batch_rows):
    """Seconds to send all batches and close the stream. The columns are there before the clock starts, so that Python's loops are
    not counted."""
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), dimension)), ("timestamp", pa.timestamp("ns"))])
    values = pa.array([i % 97 / 97 for i in range(dimension * batch_rows)], pa.float32()).buffers()[1]
    batches = []
    for first in range(0, rows, batch_rows):
        count = min(batch_rows, rows - first)
        # Memory of its own, as vectors have: what was sent a moment ago would still be in the processor's cache.
        floats = pa.Array.from_buffers(pa.float32(), count * dimension, [None, pa.py_buffer(bytes(values))])
        columns = [pa.array(range(first, first + count), pa.int64()),
                   pa.FixedSizeListArray.from_arrays(floats, dimension),
                   pa.array(range(count), pa.timestamp("ns"))]
        batches.append(pa.record_batch(columns, schema=schema))
    with flight.connect(f"grpc+tcp://{host}:{port}") as client:
        list(client.do_action(flight.Action("check_readiness", b"{}")))
        start = time.perf_counter()
        writer, reader = client.do_put(flight.FlightDescriptor.for_path(dataset), schema)
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()
        while reader.read() is not None:
            pass
        writer.close()
        return time.perf_counter() - start


def quarrel_put(options, host, port, dataset, rows, *mode):
    """Seconds, and the most memory that the client held, in MB."""
    said = subprocess.run([os.path.join(options.build, "flight_put"), f"longbow://{host}:{port}/{dataset}", str(rows),
                           str(options.dimension), str(options.batch), *mode],
                          check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    remove(host, port, dataset)
    return float(said[0]), int(said[1])


def remove(host, port, dataset):
    with flight.connect(f"grpc+tcp://{host}:{port}") as client:
        list(client.do_action(flight.Action("delete-dataset", json.dumps({"dataset": dataset}).encode())))


def embed_texts(options, address, folder, count):
    """Texts a second of the whole pipeline, and the most memory it held, in MB."""
    path = os.path.join(folder, f"{count}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"The report of day {i} tells of {i * 7 % 1000} ships in the harbour and of the weather.\n"
                        for i in range(count))
    process = subprocess.Popen([os.path.join(options.build, "quarrel"), "embed", options.model, "--file", path, "--to", address,
                                "--journal", os.path.join(folder, f"{count}.journal")], stdout=subprocess.PIPE, text=True)
    most = 0
    while process.poll() is None:
        most = max(most, most_memory(process.pid))
        time.sleep(0.02)
    said = process.stdout.read()
    process.stdout.close()
    if process.returncode != 0:
        raise SystemExit(f"embedding failed with exit code {process.returncode}")
    rate, thousands = re.search(r"([\d.]+)(k?) texts/s", said).groups()
    return float(rate) * (1000 if thousands else 1), most


def most_memory(process):
    """In MB, so far. What a process is said to have used once it has ended includes the memory of whoever started it."""
    try:
        with open(f"/proc/{process}/status", encoding="utf-8") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) / 1024
    except (OSError, AttributeError):  # it has just ended
        return 0


def compare_with_embedding(options, host, port, meta, store_seconds, limits):
    with tempfile.TemporaryDirectory() as folder:
        seen = {}
        for count in (options.texts // 4, options.texts):
            dataset = f"bench-{os.getpid()}-{count}-texts"
            seen[count] = embed_texts(options, f"longbow://{host}:{port}/{dataset}?meta={meta}", folder, count)
            remove(host, port, dataset)
    rate, memory = seen[options.texts]
    # The rate is that of the whole pipeline. As if nothing of storing overlapped with embedding: the share is at most this.
    embed_seconds = options.rows / rate - store_seconds
    share = store_seconds / embed_seconds
    few = seen[options.texts // 4][1]
    limits.check(f"{options.model}: {rate:.0f} texts/s with storing, so embedding {options.rows} rows takes {embed_seconds:.0f} s "
                 f"or more; storing their vectors alone takes {store_seconds:.2f} s: {100 * share:.1f} %", share < MOST_SHARE, f"{100 * MOST_SHARE:.0f} %")
    limits.check(f"most memory of {options.texts // 4} texts {few:.0f} MB, of {options.texts} {memory:.0f} MB: {memory / few:.2f} "
                 "times", memory <= MOST_GROWTH * few, f"{MOST_GROWTH:.2f} times")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--store")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", type=int, default=8000)
    options = parser.parse_args()
    server = None
    if options.store:
        host, port = options.store.rsplit(":", 1)
        meta = int(port) + 1
    else:
        server = subprocess.Popen([os.path.join(options.build, "longbow_server")], stdout=subprocess.PIPE, text=True)
        host, (port, meta) = "127.0.0.1", server.stdout.readline().split()[1:3]
    ours, theirs, storing, memory = [], [], [], 0
    limits = Limits()
    try:
        for number in range(options.rounds):
            dataset = f"bench-{os.getpid()}-{number}"
            ours.append(quarrel_put(options, host, port, dataset, options.rows, "ready")[0])
            theirs.append(pyarrow_put(host, port, dataset, options.rows, options.dimension, options.batch))
            remove(host, port, dataset)
        size = options.rows * options.dimension * 4 / 1e6
        mine, other = size / statistics.median(ours), size / statistics.median(theirs)
        print(f"{options.rows} vectors of {options.dimension} floats, {options.batch} a batch, {options.rounds} rounds in turns")
        print(f"quarrel {mine:.0f} MB/s, pyarrow {other:.0f} MB/s")
        limits.check(f"quotient {mine / other:.2f}", mine / other >= LEAST_QUOTIENT, f"{LEAST_QUOTIENT}")
        for number in range(options.rounds):
            seconds, held = quarrel_put(options, host, port, f"bench-{os.getpid()}-filled-{number}", options.rows)
            storing.append(seconds)
            memory = max(memory, held)
        print(f"quarrel {size / statistics.median(storing):.0f} MB/s with its batches filled meanwhile")
        few = quarrel_put(options, host, port, f"bench-{os.getpid()}-few", options.rows // 4)[1]
        limits.check(f"most memory of {options.rows // 4} vectors {few} MB, of {options.rows} {memory} MB: {memory / few:.2f} times",
                     memory <= MOST_GROWTH * few, f"{MOST_GROWTH:.2f} times")
        if options.texts:
            compare_with_embedding(options, host, port, meta, statistics.median(storing), limits)
    finally:
        if server:
            server.terminate()
            server.wait()
    return 1 if limits.missed else 0


if __name__ == "__main__":
    sys.exit(main())

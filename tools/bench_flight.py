#!/usr/bin/env python3
"""Stores vectors with this client and with pyarrow's, in turns, in the same server: `make bench-flight`.

    bench_flight.py [--build FOLDER] [--rows N] [--dimension N] [--batch N] [--rounds N] [--store HOST:PORT]

Run it with the Python of .venv-flight. The server is the test server of the build, or a Longbow that is told by --store. Each
round writes a dataset of its own, which is removed afterwards. Prints each client's median MB/s, their quotient, and the most
memory that this client held.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

import pyarrow as pa
from pyarrow import flight


def pyarrow_put(host, port, dataset, rows, dimension, batch_rows):
    """Seconds, measured as bench/flight_put.cpp does it: the columns are filled, sent, and the stream is closed."""
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), dimension)), ("timestamp", pa.timestamp("ns"))])
    vectors = pa.py_buffer(bytes(4 * dimension * batch_rows))
    with flight.connect(f"grpc+tcp://{host}:{port}") as client:
        list(client.do_action(flight.Action("check_readiness", b"{}")))
        start = time.perf_counter()
        writer, reader = client.do_put(flight.FlightDescriptor.for_path(dataset), schema)
        for first in range(0, rows, batch_rows):
            count = min(batch_rows, rows - first)
            values = pa.Array.from_buffers(pa.float32(), count * dimension, [None, vectors])
            columns = [pa.array(range(first, first + count), pa.int64()), pa.FixedSizeListArray.from_arrays(values, dimension),
                       pa.array(range(count), pa.timestamp("ns"))]
            writer.write_batch(pa.record_batch(columns, schema=schema))
        writer.done_writing()
        while reader.read() is not None:
            pass
        writer.close()
        return time.perf_counter() - start


def remove(host, port, dataset):
    with flight.connect(f"grpc+tcp://{host}:{port}") as client:
        list(client.do_action(flight.Action("delete-dataset", json.dumps({"dataset": dataset}).encode())))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--store")
    options = parser.parse_args()
    server = None
    if options.store:
        host, port = options.store.rsplit(":", 1)
    else:
        server = subprocess.Popen([os.path.join(options.build, "longbow_server")], stdout=subprocess.PIPE, text=True)
        host, port = "127.0.0.1", server.stdout.readline().split()[1]
    ours, theirs, memory = [], [], 0
    try:
        for number in range(options.rounds):
            dataset = f"bench-{os.getpid()}-{number}"
            said = subprocess.run([os.path.join(options.build, "flight_put"), f"longbow://{host}:{port}/{dataset}",
                                   str(options.rows), str(options.dimension), str(options.batch)],
                                  check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            ours.append(float(said[0]))
            memory = max(memory, int(said[1]))
            remove(host, port, dataset)
            theirs.append(pyarrow_put(host, port, dataset, options.rows, options.dimension, options.batch))
            remove(host, port, dataset)
    finally:
        if server:
            server.terminate()
            server.wait()
    size = options.rows * options.dimension * 4 / 1e6
    mine, other = size / statistics.median(ours), size / statistics.median(theirs)
    print(f"{options.rows} vectors of {options.dimension} floats, {options.batch} a batch, {options.rounds} rounds in turns")
    print(f"quarrel {mine:8.0f} MB/s   most memory {memory} MB")
    print(f"pyarrow {other:8.0f} MB/s   quotient {mine / other:.2f}")


if __name__ == "__main__":
    main()

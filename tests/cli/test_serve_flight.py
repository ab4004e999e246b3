#!/usr/bin/env python3
"""Vectors over Arrow Flight, asked for by pyarrow."""
import json
import os
import re
import struct
import subprocess
import time
import unittest

import pyarrow
import pyarrow.ipc
from pyarrow import flight

from certificates import make_certificate
from harness import QUARREL
from raw_grpc import RawGrpc
from serve_harness import TIMEOUT, ServeTest


class Flight(ServeTest):
    @classmethod
    def prepare(cls):
        cls.models = [cls.make_toy("embed", "vectors.gguf")]
        key = os.path.join(cls.folder, "key")
        with open(key, "w", encoding="utf-8") as file:
            file.write("a-secret\n")
        cls.arguments = ("--ctx", "256", "--threads", "1", "--flight-port", "0", "--api-key-file", key)

    @classmethod
    def flight_port(cls, server=None):
        return int(re.search(rb"Flight on grpc://127\.0\.0\.1:(\d+)", (server or cls.server).first).group(1))

    @classmethod
    def client(cls, server=None):
        return flight.connect(f"grpc://127.0.0.1:{cls.flight_port(server)}")

    @staticmethod
    def options(key="a-secret"):
        return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {key}".encode())])

    def embed(self, batches, command=b"{}", key="a-secret"):
        schema = pyarrow.schema([("id", pyarrow.int64()), ("text", pyarrow.utf8())])
        with self.client() as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), self.options(key))
            with writer:
                writer.begin(schema)
                vectors = []
                for texts in batches:
                    writer.write_batch(pyarrow.record_batch([list(range(len(texts))), texts], schema=schema))
                    vectors.append(reader.read_chunk().data)
                writer.done_writing()
            return vectors

    def test_the_vectors_of_http(self):
        batches = self.embed([["the fox", "a dog"], ["one two three"]], json.dumps({"model": "vectors"}).encode())
        self.assertEqual([batch.num_rows for batch in batches], [2, 1])
        status, answer = self.server.post("/v1/embeddings", {"input": ["the fox", "a dog", "one two three"]},
                                          headers={"Authorization": "Bearer a-secret"})
        self.assertEqual(status, 200)
        got = [row for batch in batches for row in batch.column("vector").to_pylist()]
        for mine, theirs in zip(got, (item["embedding"] for item in answer["data"])):
            self.assertEqual(pyarrow.array(mine, pyarrow.float32()), pyarrow.array(theirs, pyarrow.float32()))

    def test_a_batch_without_rows_is_answered(self):
        batches = self.embed([[], ["the fox"], []])
        self.assertEqual([batch.num_rows for batch in batches], [0, 1, 0])
        self.assertEqual(batches[0].schema, batches[1].schema)

    def test_faults(self):
        with self.assertRaises(flight.FlightUnauthenticatedError):
            self.embed([["a"]], key="wrong")
        with self.assertRaises(pyarrow.ArrowKeyError):
            self.embed([["a"]], b'{"model": "nobody"}')
        with self.assertRaises(pyarrow.ArrowInvalid):
            self.embed([["a", None]])
        with self.assertRaises(pyarrow.ArrowInvalid):
            self.embed([["a"]], b"not JSON")
        with self.client() as client, self.assertRaises(pyarrow.ArrowNotImplementedError):
            list(client.list_flights(options=self.options()))
        with self.client() as client, self.assertRaises(flight.FlightUnauthenticatedError):
            list(client.list_flights())

    def test_offsets_that_lie_are_refused(self):
        # The second text would have three bytes less than none.
        offsets = pyarrow.py_buffer(struct.pack("<iii", 0, 5, 2))
        texts = pyarrow.StringArray.from_buffers(2, offsets, pyarrow.py_buffer(b"hello"))
        batch = pyarrow.RecordBatch.from_arrays([texts], names=["text"])
        with self.client() as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"), self.options())
            writer.begin(batch.schema)
            writer.write_batch(batch)
            with self.assertRaises(pyarrow.ArrowInvalid):
                reader.read_chunk()
        self.assertEqual(len(self.embed([["the fox"]])), 1, "the server goes on")

    def most_memory(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmHWM:\s+(\d+) kB", file.read()).group(1)) * 1024

    def test_calls_that_say_nothing_are_counted(self):
        key = {"authorization": "Bearer a-secret"}
        with RawGrpc(self.flight_port(), TIMEOUT) as raw:
            for _ in range(40):
                raw.call("DoExchange", key)
            self.assertEqual(len(raw.await_ends(8)), 8, "a key has 32 calls")
            with self.assertRaises(flight.FlightUnavailableError):
                self.embed([["the fox"]])
        deadline = time.monotonic() + TIMEOUT
        while True:  # the server has to hear of the end first
            try:
                self.assertEqual(len(self.embed([["the fox"]])), 1)
                break
            except flight.FlightUnavailableError:
                self.assertLess(time.monotonic(), deadline)

    def test_a_compressed_message_is_not_read(self):
        size = 50 << 20
        self.embed([["the fox"]])
        before = self.most_memory()
        message = b"\x0a\x06\x08\x02\x12\x02{}" + b"\x1a\x80\x80\x80\x19" + bytes(size)  # a command, and zeros
        with RawGrpc(self.flight_port(), TIMEOUT) as raw:
            raw.send_compressed(raw.call("DoExchange", {"authorization": "Bearer a-secret", "grpc-encoding": "deflate"}),
                                message)
            raw.await_ends(1)
        self.assertLess(self.most_memory() - before, size)

    def test_a_compressed_batch_is_not_read(self):
        size = 1 << 28
        self.embed([["the fox"]])
        texts = pyarrow.StringArray.from_buffers(1, pyarrow.py_buffer(struct.pack("<ii", 0, size)),
                                                 pyarrow.py_buffer(bytes(size)))
        batch = pyarrow.RecordBatch.from_arrays([texts], names=["text"])
        for codec in ("zstd", "lz4"):
            before = self.most_memory()
            with self.client() as client:
                writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"), self.options())
                writer.begin(batch.schema, options=pyarrow.ipc.IpcWriteOptions(compression=codec))
                writer.write_batch(batch)
                with self.assertRaisesRegex(pyarrow.ArrowInvalid, "compressed"):
                    reader.read_chunk()
            self.assertLess(self.most_memory() - before, size)

    def test_an_open_stream_does_not_hold_up_the_end(self):
        server = self.start_server(*self.models, *self.arguments)
        with self.client(server) as client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"), self.options())
            writer.begin(pyarrow.schema([("text", pyarrow.utf8())]))
            writer.write_batch(pyarrow.record_batch([["the fox"]], names=["text"]))
            self.assertEqual(reader.read_chunk().data.num_rows, 1)
            self.assertEqual(server.stop()[0], 0)

    def test_tables(self):
        with self.client() as client:
            models = client.do_get(flight.Ticket(b"models"), self.options()).read_all()
            self.assertEqual(models.column("name").to_pylist(), ["vectors"])
            figures = client.do_get(flight.Ticket(b"stats"), self.options()).read_all()
            self.assertIn("quarrel_build_info", figures.column("name").to_pylist())


class Encrypted(ServeTest):
    """The certificate of HTTP is that of Flight."""

    @classmethod
    def prepare(cls):
        cls.models = [cls.make_toy("embed", "vectors.gguf")]
        cls.certificate, key = make_certificate(cls.folder, "own")
        cls.other, _ = make_certificate(cls.folder, "other")
        cls.arguments = ("--ctx", "256", "--threads", "1", "--flight-port", "0", "--tls-cert", cls.certificate, "--tls-key", key)

    def names(self, scheme, trusted=None):
        """Of the models, asked for by somebody who trusts that certificate."""
        told = re.search(rb"Flight on grpc\+tls://127\.0\.0\.1:(\d+)", self.server.first)
        self.assertIsNotNone(told, self.server.first)
        options = {}
        if trusted:
            with open(trusted, "rb") as file:
                options["tls_root_certs"] = file.read()
        limit = flight.FlightCallOptions(timeout=TIMEOUT)
        with flight.connect(f"{scheme}://localhost:{int(told.group(1))}", **options) as client:
            return client.do_get(flight.Ticket(b"models"), limit).read_all().column("name").to_pylist()

    def test_whoever_trusts_it_is_answered(self):
        self.assertEqual(self.names("grpc+tls", self.certificate), ["vectors"])

    def test_who_does_not_trust_it_does_not_go_on(self):
        with self.assertRaises(flight.FlightUnavailableError) as failed:
            self.names("grpc+tls", self.other)
        self.assertRegex(str(failed.exception).lower(), "certificate.verify.failed")

    def test_nothing_is_said_in_the_clear(self):
        with self.assertRaises((flight.FlightUnavailableError, flight.FlightTimedOutError)):
            self.names("grpc")
        self.assertEqual(self.names("grpc+tls", self.certificate), ["vectors"], "the others go on")

    def test_vectors(self):
        told = re.search(rb"Flight on grpc\+tls://127\.0\.0\.1:(\d+)", self.server.first)
        with open(self.certificate, "rb") as file:
            client = flight.connect(f"grpc+tls://localhost:{int(told.group(1))}", tls_root_certs=file.read())
        with client:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"{}"))
            writer.begin(pyarrow.schema([("text", pyarrow.utf8())]))
            writer.write_batch(pyarrow.record_batch([["the fox", "a dog"]], names=["text"]))
            self.assertEqual(reader.read_chunk().data.num_rows, 2)
            writer.close()


class Limited(ServeTest):
    """Keys have the limits that they have over HTTP, and one account for both."""

    @classmethod
    def prepare(cls):
        cls.models = [cls.make_toy("embed", "vectors.gguf"), cls.toy]
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        cls.keys = {}
        for name, *limits in (("few", "--requests-per-minute", "4"), ("shared", "--requests-per-minute", "4"),
                              ("words", "--tokens-per-minute", "40"), ("vectors", "--model", "vectors"),
                              ("chat", "--model", "toy"), ("free",)):
            done = subprocess.run([QUARREL, "key", "create", name, *limits], env=cls.environment, capture_output=True,
                                  timeout=TIMEOUT, check=True)
            cls.keys[name] = done.stdout.decode().strip()
        cls.arguments = ("--ctx", "256", "--threads", "1", "--flight-port", "0")

    def embed(self, name, batches, command=b"{}"):
        """How many batches of one stream are answered, and what ended it."""
        options = Flight.options(self.keys[name])
        answered = 0
        with Flight.client(self.server) as client:
            try:
                writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command), options)
                writer.begin(pyarrow.schema([("text", pyarrow.utf8())]))
                for texts in batches:
                    writer.write_batch(pyarrow.record_batch([texts], names=["text"]))
                    answered += reader.read_chunk().data.num_rows == len(texts)
                writer.close()
            except pyarrow.ArrowException as error:
                return answered, error
        return answered, None

    def test_a_key_has_its_models(self):
        asked = b'{"model": "vectors"}'
        answered, error = self.embed("chat", [["the fox"]], asked)
        self.assertEqual(answered, 0)
        self.assertIsInstance(error, pyarrow.ArrowKeyError)
        self.assertEqual(self.embed("vectors", [["the fox"]], asked), (1, None))
        for name, models in (("chat", ["toy"]), ("vectors", ["vectors"]), ("free", ["toy", "vectors"])):
            with Flight.client(self.server) as client:
                table = client.do_get(flight.Ticket(b"models"), Flight.options(self.keys[name])).read_all()
            self.assertEqual(sorted(table.column("name").to_pylist()), models)

    def test_the_texts_of_a_batch_have_the_room_of_a_body(self):
        answered, error = self.embed("free", [["the fox"], ["a" * (1 << 20)] * 16 + ["the fox"]])
        self.assertEqual(answered, 1)
        self.assertIsInstance(error, pyarrow.ArrowInvalid)
        self.assertIn("bytes", str(error))

    def test_a_batch_is_a_request(self):
        # The call itself is the first of four; a minute's worth is there at once, and flows in again slowly.
        answered, error = self.embed("few", [["the fox"]] * 30)
        self.assertIn(answered, range(3, 30))
        self.assertIsInstance(error, flight.FlightUnavailableError)
        self.assertIn("requests", str(error))
        self.assertEqual(self.embed("free", [["the fox"]] * 30), (30, None), "the others go on")

    def test_requests_of_http_count(self):
        status = 200
        for _ in range(30):
            if status == 200:
                status = self.server.post("/v1/embeddings", {"input": "the fox"},
                                          headers={"Authorization": f"Bearer {self.keys['shared']}"})[0]
        self.assertEqual(status, 429)
        answered, error = self.embed("shared", [["the fox"]] * 30)
        self.assertLess(answered, 3)
        self.assertIsInstance(error, flight.FlightUnavailableError)

    def test_tokens_count(self):
        answered, error = self.embed("words", [["one two three four five six"]] * 60)
        self.assertIn(answered, range(1, 60))
        self.assertIsInstance(error, flight.FlightUnavailableError)
        self.assertIn("tokens", str(error))


if __name__ == "__main__":
    unittest.main()

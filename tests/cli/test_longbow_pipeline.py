#!/usr/bin/env python3
"""From a text to a row of a store: embedded and stored by the program, read back by pyarrow."""
import json
import time
import unittest

import pyarrow
from pyarrow import flight

from test_embed_to import StoreTest


class Pipeline(StoreTest):
    def setUp(self):
        self.start_store()

    def table(self, dataset):
        with flight.connect(f"grpc://{self.host}:{self.ports[0]}") as client:
            return client.do_get(flight.Ticket(self.name(dataset).encode())).read_all()

    def wait_for_row(self, dataset):
        """A stream that was taken shows later."""
        for _ in range(600):
            if self.rows(dataset):
                return
            time.sleep(0.05)
        self.fail("it never came")

    def test_hello_world(self):
        file = self.write("hello.jsonl", json.dumps({"id": "greeting", "text": "Hello World", "version": "1.5"}) + "\n")
        self.embed(file, "hello")
        with flight.connect(f"grpc://{self.host}:{self.ports[1]}") as meta:
            info = meta.get_flight_info(flight.FlightDescriptor.for_path(self.name("hello")))
            self.assertEqual(info.descriptor.path, [self.name("hello").encode()])
            self.assertEqual(info.total_records, 1, "record batches")
        rows = self.table("hello")
        self.assertEqual(rows.column_names, ["id", "vector", "timestamp", "text", "doc_id", "source", "metadata"])
        row = rows.drop_columns("timestamp").to_pylist()[0]
        self.assertEqual((rows.num_rows, row["id"], row["text"], row["doc_id"], row["source"], row["metadata"]),
                         (1, 0, "Hello World", "greeting", "hello.jsonl", '{"version":"1.5"}'))
        printed = json.loads(self.succeed("embed", self.bert, "Hello World").out)[0]
        self.assertEqual(rows.schema.field("vector").type, pyarrow.list_(pyarrow.float32(), len(printed)))
        self.assertEqual(pyarrow.array(row["vector"], pyarrow.float32()), pyarrow.array(printed, pyarrow.float32()))

    def test_rows_of_others_are_found(self):
        printed = json.loads(self.succeed("embed", self.bert, "the fox").out)[0]
        schema = pyarrow.schema([("id", pyarrow.int64()), ("vector", pyarrow.list_(pyarrow.float32(), len(printed))),
                                 ("text", pyarrow.utf8())])
        with flight.connect(f"grpc://{self.host}:{self.ports[0]}") as client:
            writer, _ = client.do_put(flight.FlightDescriptor.for_path(self.name("theirs")), schema)
            writer.write_batch(pyarrow.record_batch([[41], [printed], ["a fox of theirs"]], schema=schema))
            writer.close()
        self.wait_for_row("theirs")
        hit = self.search("theirs", "the fox")[0]
        self.assertEqual((hit["id"], hit["text"]), (41, "a fox of theirs"))
        self.assertAlmostEqual(hit["score"], 1, places=4)


if __name__ == "__main__":
    unittest.main()

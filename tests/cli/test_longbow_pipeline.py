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

    def put_rows(self, dataset, texts):
        """As another program does: the ids by their texts, all with the vector of one text."""
        printed = json.loads(self.succeed("embed", self.bert, "the fox").out)[0]
        schema = pyarrow.schema([("id", pyarrow.int64()), ("vector", pyarrow.list_(pyarrow.float32(), len(printed))),
                                 ("text", pyarrow.utf8())])
        with flight.connect(f"grpc://{self.host}:{self.ports[0]}") as client:
            writer, _ = client.do_put(flight.FlightDescriptor.for_path(self.name(dataset)), schema)
            writer.write_batch(pyarrow.record_batch([list(texts), [printed] * len(texts), list(texts.values())],
                                                    schema=schema))
            writer.close()
        self.wait_for_row(dataset)

    def test_rows_that_were_deleted_are_no_other_programs(self):
        """The one with the highest id: a scan without filters hides it, and its id is not free."""
        self.put_rows("thinned", {0: "a fox", 1: "a dog", 2: "a cat"})
        with flight.connect(f"grpc://{self.host}:{self.ports[0]}") as client:
            body = json.dumps({"dataset": self.name("thinned"), "id": "2"}).encode()
            answers = [each.body.to_pybytes() for each in client.do_action(flight.Action("delete", body))]
        self.assertEqual(answers, [b"deleted"])
        file = self.write("more.jsonl", json.dumps({"text": "one two"}) + "\n" + json.dumps({"text": "three"}) + "\n")
        self.assertIn(b"2 stored", self.embed(file, "thinned", "--append").out)
        self.assertIn(b"2 there before", self.embed(file, "thinned").out)
        self.assertEqual(sorted(self.table("thinned").column("id").to_pylist()), [0, 1, 3, 4])

    def test_rows_of_others_are_found(self):
        self.put_rows("theirs", {41: "a fox of theirs"})
        hit = self.search("theirs", "the fox")[0]
        self.assertEqual((hit["id"], hit["text"]), (41, "a fox of theirs"))
        self.assertAlmostEqual(hit["score"], 1, places=4)


if __name__ == "__main__":
    unittest.main()

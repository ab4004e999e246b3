"""The other side of pyarrow_test.cpp: pyarrow_peer.py read|write HOST PORT DATASET, and says as JSON what it saw or sent."""
import json
import sys

import pyarrow as pa
from pyarrow import flight


def read(client, dataset):
    table = client.do_get(flight.Ticket(json.dumps({"name": dataset}))).read_all()
    rows = [dict(zip(table.column_names, values))
            for values in zip(*(column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type)
                                else column.to_pylist() for column in table.columns))]
    return {"types": [str(field.type) for field in table.schema], "rows": rows}


def write(client, dataset):
    """In the columns of Longbow's own Python client."""
    rows = [{"id": i, "vector": [0.5 + i, -1.0, 0.1 * i], "timestamp": 1_700_000_000_000_000_000 + i,
             "metadata": json.dumps({"source": f"päge {i}"}), "year": None if i == 2 else 1900 + i} for i in range(3)]
    schema = pa.schema([("id", pa.int64()), ("vector", pa.list_(pa.float32(), 3)), ("timestamp", pa.timestamp("ns")),
                        ("metadata", pa.string()), ("year", pa.int64())])
    table = pa.Table.from_pylist(rows, schema=schema)
    writer, reader = client.do_put(flight.FlightDescriptor.for_path(dataset), schema)
    writer.write_table(table)
    writer.done_writing()
    assert reader.read() is None, "an acknowledgement that Longbow does not send"
    writer.close()
    return [{**row, "vector": vector} for row, vector in zip(rows, table["vector"].to_pylist())]


def main():
    task, host, port, dataset = sys.argv[1:]
    with flight.connect(f"grpc+tcp://{host}:{port}") as client:
        print(json.dumps({"read": read, "write": write}[task](client, dataset)))


if __name__ == "__main__":
    main()

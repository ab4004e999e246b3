"""A client of gRPC that does what no library lets one do: calls that say nothing, messages that are compressed."""
import socket
import struct
import zlib

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4


class RawGrpc:
    def __init__(self, port, timeout):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.socket.sendall(PREFACE + self.frame(SETTINGS, 0, 0, b""))
        self.streams = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def call(self, method, headers):
        """Begins a call with its headers alone; its stream."""
        stream = 2 * self.streams + 1
        self.streams += 1
        said = {":method": "POST", ":scheme": "http", ":path": f"/arrow.flight.protocol.FlightService/{method}",
                ":authority": "127.0.0.1", "content-type": "application/grpc", "te": "trailers", **headers}
        block = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
                         for name, value in said.items())
        self.socket.sendall(self.frame(HEADERS, END_HEADERS, stream, block))
        return stream

    def send_compressed(self, stream, message):
        """As much as a connection takes before it is granted more: some 60 kB."""
        squeezed = zlib.compress(message, 9)
        data = b"\1" + struct.pack(">I", len(squeezed)) + squeezed
        assert len(data) < 65536, len(data)
        for first in range(0, len(data), 16384):
            self.socket.sendall(self.frame(DATA, 0, stream, data[first:first + 16384]))

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server has closed the connection")
            data += more
        return data

    def await_ends(self, count):
        """Reads until so many calls have been ended by the server; their streams."""
        ended = set()
        while len(ended) < count:
            head = self.read(9)
            self.read(int.from_bytes(head[:3], "big"))
            if head[3] == RST_STREAM or (head[3] in (DATA, HEADERS) and head[4] & END_STREAM):
                ended.add(int.from_bytes(head[5:], "big"))
        return ended

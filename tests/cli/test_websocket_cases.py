#!/usr/bin/env python3
"""The WebSocket protocol, case by case: Autobahn's published list, sections 1 to 10, against a server that echoes.

Strict: every answer is the one that the list calls right, in order, and the connection ends as it should. Two things are
ours: binary messages are refused (1003), and messages of more than 1 MiB too (1009)."""
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

from certificates import make_certificate

ECHO = os.environ["WEBSOCKET_ECHO"]
TIMEOUT = 60
LIMIT = 1 << 20

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

HANDSHAKE = (b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")


def frame(opcode, payload=b"", fin=True, rsv=0, mask=b"\x12\x34\x56\x78"):
    if isinstance(payload, str):
        payload = payload.encode()
    length = len(payload)
    head = bytes([fin << 7 | rsv << 4 | opcode])
    if length <= 125:
        head += bytes([0x80 | length])
    elif length <= 0xFFFF:
        head += b"\xfe" + struct.pack(">H", length)
    else:
        head += b"\xff" + struct.pack(">Q", length)
    stretched = (mask * (length // 4 + 1))[:length]
    masked = (int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")).to_bytes(length, "big")
    return head + mask + masked


def text(payload=b"", **how):
    return frame(TEXT, payload, **how)


def close(code=1000, reason=b""):
    return frame(CLOSE, struct.pack(">H", code) + reason)


def fragments(payload, size, opcode=TEXT):
    """A message in frames of so many bytes."""
    pieces = [payload[i:i + size] for i in range(0, len(payload), size)] or [b""]
    return [frame(opcode if i == 0 else CONTINUATION, piece, fin=i == len(pieces) - 1)
            for i, piece in enumerate(pieces)]


def said(payload):
    return ("text", payload.encode() if isinstance(payload, str) else payload)


def pong(payload=b""):
    return ("pong", payload)


def closed(code):
    return ("close", code)


class Echo:
    """The server, and the connections that are made to it."""

    def __init__(self, certificate=None, key=None):
        files = [certificate, key] if certificate else []
        self.tls = ssl.create_default_context(cafile=certificate) if certificate else None
        self.process = subprocess.Popen([ECHO, *files], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        code = self.process.wait(TIMEOUT)
        self.process.stdout.close()
        return code

    def connect(self, handshake=HANDSHAKE):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            connection = self.tls.wrap_socket(connection, server_hostname="localhost")
        connection.sendall(handshake)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            if not byte:
                break
            head += byte
        return connection, head


class Frames:
    """What a server sends: its frames are unmasked, final, without reserved bits, and have the shortest length."""

    def __init__(self, connection):
        self.connection = connection
        self.buffer = b""

    def exactly(self, count):
        while len(self.buffer) < count:
            piece = self.connection.recv(1 << 16)
            if not piece:
                return None
            self.buffer += piece
        piece, self.buffer = self.buffer[:count], self.buffer[count:]
        return piece

    def next(self):
        head = self.exactly(2)
        if head is None:
            if self.buffer:
                raise AssertionError("the connection ends within a frame")
            return None
        opcode, length = head[0] & 15, head[1]
        if head[0] & 0xF0 != 0x80 or length & 0x80:
            raise AssertionError(f"a server's frame begins with {head.hex()}")
        if length > 125:
            extended = int.from_bytes(self.exactly(2 if length == 126 else 8), "big")
            if extended <= (125 if length == 126 else 0xFFFF):
                raise AssertionError("a length is longer than need be")
            length = extended
        payload = self.exactly(length)
        if opcode == CLOSE:
            payload[2:].decode()
            return closed(int.from_bytes(payload[:2], "big") if payload else None)
        return ({TEXT: "text", PING: "ping", PONG: "pong"}[opcode], payload)

    def all(self):
        """Until the end, which comes right after a close."""
        events = []
        while event := self.next():
            events.append(event)
        return events


def whole(pieces):
    return [b"".join(pieces)]


def octets(pieces):
    return [bytes([byte]) for byte in b"".join(pieces)]


def chopped(size):
    def chop(pieces):
        data = b"".join(pieces)
        return [data[i:i + size] for i in range(0, len(data), size)]
    return chop


def framewise(pieces):
    return pieces


def basic_cases():
    sizes = (0, 125, 126, 127, 128, 65535, 65536)
    for number, size in enumerate(sizes, 1):
        yield f"1.1.{number}", [text(b"*" * size)], [said(b"*" * size)], whole
        yield f"1.2.{number}", [frame(BINARY, b"\xfe" * size)], closed(1003), whole
    yield "1.1.8", [text(b"*" * 65536)], [said(b"*" * 65536)], chopped(997)
    yield "1.2.8", [frame(BINARY, b"\xfe" * 65536)], closed(1003), chopped(997)

    yield "2.1", [frame(PING)], [pong()], whole
    yield "2.2", [frame(PING, b"Hello, world!")], [pong(b"Hello, world!")], whole
    binary = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
    yield "2.3", [frame(PING, binary)], [pong(binary)], whole
    yield "2.4", [frame(PING, b"\xfe" * 125)], [pong(b"\xfe" * 125)], whole
    yield "2.5", [frame(PING, b"\xfe" * 126)], closed(1002), whole
    yield "2.6", [frame(PING, b"\xfe" * 125)], [pong(b"\xfe" * 125)], octets
    yield "2.7", [frame(PONG)], [], whole
    yield "2.8", [frame(PONG, b"unsolicited pong payload")], [], whole
    yield "2.9", [frame(PONG, b"unsolicited"), frame(PING, b"ping payload")], [pong(b"ping payload")], whole
    pings = [frame(PING, b"payload-%d" % i) for i in range(10)]
    yield "2.10", pings, [pong(b"payload-%d" % i) for i in range(10)], whole
    yield "2.11", pings, [pong(b"payload-%d" % i) for i in range(10)], octets

    hello = text(b"Hello, world!")
    echo = said(b"Hello, world!")
    yield "3.1", [text(b"Hello, world!", rsv=1)], closed(1002), whole
    yield "3.2", [hello, text(b"Hello, world!", rsv=2), frame(PING)], [echo, closed(1002)], whole
    yield "3.3", [hello, text(b"Hello, world!", rsv=3), frame(PING)], [echo, closed(1002)], framewise
    yield "3.4", [hello, text(b"Hello, world!", rsv=4), frame(PING)], [echo, closed(1002)], octets
    yield "3.5", [frame(BINARY, b"\x00\xff\xfe", rsv=5)], closed(1002), whole
    yield "3.6", [frame(PING, b"Hello", rsv=6)], closed(1002), whole
    yield "3.7", [frame(CLOSE, b"\x03\xe8", rsv=7)], closed(1002), whole

    for group, first in ((1, 3), (2, 11)):
        yield f"4.{group}.1", [frame(first)], closed(1002), whole
        yield f"4.{group}.2", [frame(first + 1, b"reserved opcode payload")], closed(1002), whole
        yield f"4.{group}.3", [hello, frame(first + 2), frame(PING)], [echo, closed(1002)], whole
        yield f"4.{group}.4", [hello, frame(first + 3, b"payload"), frame(PING)], [echo, closed(1002)], framewise
        yield f"4.{group}.5", [hello, frame(first + 4, b"payload"), frame(PING)], [echo, closed(1002)], octets


def fragmentation_cases():
    first, second = text(b"fragment1", fin=False), frame(CONTINUATION, b"fragment2")
    both = said(b"fragment1fragment2")
    yield "5.1", [frame(PING, b"a", fin=False), frame(CONTINUATION, b"b")], closed(1002), whole
    yield "5.2", [frame(PONG, b"a", fin=False), frame(CONTINUATION, b"b")], closed(1002), whole
    for number, how in ((3, whole), (4, framewise), (5, octets)):
        yield f"5.{number}", [first, second], [both], how
    for number, how in ((6, whole), (7, framewise), (8, octets)):
        yield f"5.{number}", [first, frame(PING, b"ping"), second], [pong(b"ping"), both], how
    for number, how in ((9, whole), (10, framewise), (11, octets)):
        yield f"5.{number}", [frame(CONTINUATION, b"a"), text(b"b")], closed(1002), how
    for number, how in ((12, whole), (13, framewise), (14, octets)):
        yield f"5.{number}", [frame(CONTINUATION, b"a", fin=False), text(b"b")], closed(1002), how
    yield "5.15", [first, second, frame(CONTINUATION, b"c", fin=False), text(b"d")], [both, closed(1002)], whole
    for number, final in ((16, False), (17, True)):
        yield (f"5.{number}", [frame(CONTINUATION, b"a", fin=final), text(b"b", fin=False),
                               frame(CONTINUATION, b"c")] * 2, closed(1002), whole)
    yield "5.18", [first, text(b"fragment2")], closed(1002), whole
    parts = [text(b"fragment1", fin=False), frame(CONTINUATION, b"fragment2", fin=False), frame(PING, b"one"),
             frame(CONTINUATION, b"fragment3", fin=False), frame(CONTINUATION, b"fragment4", fin=False),
             frame(PING, b"two"), frame(CONTINUATION, b"fragment5")]
    five = said(b"fragment1fragment2fragment3fragment4fragment5")
    yield "5.19", parts, [pong(b"one"), pong(b"two"), five], whole
    yield "5.20", parts, [pong(b"one"), pong(b"two"), five], framewise


KOSME = "κόσμε".encode()
VALID = "Hello-µ@ßöäüàá-UTF-8!!".encode()
INVALID = KOSME + b"\xed\xa0\x80" + b"edited"


def utf8_texts():
    """Sections 6.5 to 6.23; whether a text is right is what Python's own decoder says."""
    yield "6.5", [KOSME, b"\xf0\x90\x80\x80", "Hello-µ".encode(), "€".encode(), "𐍈".encode()]
    yield "6.6", [KOSME[:i] for i in range(1, len(KOSME) + 1)]
    yield "6.7", [b"\0", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"]
    yield "6.8", [b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80"]
    yield "6.9", [b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"]
    yield "6.10", [b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf"]
    yield "6.11", [b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd", b"\xf4\x8f\xbf\xbf", b"\xf4\x90\x80\x80"]
    yield "6.12", [b"\x80", b"\xbf", b"\x80\xbf", b"\x80\xbf\x80", b"\x80\xbf\x80\xbf", b"\x80\xbf\x80\xbf\x80",
                   b"\x80\xbf\x80\xbf\x80\xbf", bytes(range(0x80, 0xc0))]
    yield "6.13", [b"".join(bytes([byte, 0x20]) for byte in group) for group in
                   (range(0xc0, 0xe0), range(0xe0, 0xf0), range(0xf0, 0xf8), range(0xf8, 0xfc), range(0xfc, 0xfe))]
    incomplete = [b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xf8\x80\x80\x80", b"\xfc\x80\x80\x80\x80",
                  b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf", b"\xfb\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf"]
    yield "6.14", incomplete
    yield "6.15", [b"".join(incomplete)]
    yield "6.16", [b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"]
    yield "6.17", [b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf",
                   b"\xfc\x80\x80\x80\x80\xaf"]
    yield "6.18", [b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf",
                   b"\xfc\x83\xbf\xbf\xbf\xbf"]
    yield "6.19", [b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80",
                   b"\xfc\x80\x80\x80\x80\x80"]
    yield "6.20", [b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80",
                   b"\xed\xbe\x80", b"\xed\xbf\xbf"]
    yield "6.21", [high + low for high in (b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf")
                   for low in (b"\xed\xb0\x80", b"\xed\xbf\xbf")]
    yield "6.22", [chr(plane << 16 | last).encode() for plane in range(17) for last in (0xFFFE, 0xFFFF)]
    yield "6.23", [chr(code).encode() for code in range(0xFFF9, 0xFFFE)] + [b"\xef\xbf\xbe", b"\xef\xbf\xbf"]


def utf8_cases():
    yield "6.1.1", [text()], [said(b"")], whole
    yield "6.1.2", [text(fin=False), frame(CONTINUATION, fin=False), frame(CONTINUATION)], [said(b"")], whole
    yield ("6.1.3", [text(fin=False), frame(CONTINUATION, b"middle", fin=False), frame(CONTINUATION)],
           [said(b"middle")], whole)
    yield "6.2.1", [text(VALID)], [said(VALID)], whole
    yield "6.2.2", fragments(VALID, 12), [said(VALID)], whole
    yield "6.2.3", fragments(VALID, 1), [said(VALID)], whole
    yield "6.2.4", fragments(KOSME, 1), [said(KOSME)], whole
    yield "6.3.1", [text(INVALID)], closed(1007), whole
    yield "6.3.2", fragments(INVALID, 1), closed(1007), whole
    for section, payloads in utf8_texts():
        for number, payload in enumerate(payloads, 1):
            try:
                payload.decode()
                expected = [said(payload)]
            except UnicodeDecodeError:
                expected = closed(1007)
            yield f"{section}.{number}", [text(payload)], expected, whole
            yield f"{section}.{number} in fragments", fragments(payload, 1), expected, whole


def closing_cases():
    """Frames after a close have no effect; codes and reasons are checked."""
    hello, echo = text(b"Hello World!"), said(b"Hello World!")
    yield "7.1.1", [hello, close()], [echo, closed(1000)], whole
    yield "7.1.2", [close(), close()], [closed(1000)], whole
    yield "7.1.3", [close(), frame(PING)], [closed(1000)], whole
    yield "7.1.4", [close(), hello], [closed(1000)], whole
    yield "7.1.5", [text(b"fragment1", fin=False), close(), frame(CONTINUATION, b"fragment2")], [closed(1000)], whole
    large = b"BAsd7&jh23" * 26215
    yield ("7.1.6", [text(large), hello, close(), frame(PING)], [said(large), echo, closed(1000)], whole)
    yield "7.3.1", [frame(CLOSE)], [closed(None)], whole
    yield "7.3.2", [frame(CLOSE, b"a")], [closed(1002)], whole
    yield "7.3.3", [close()], [closed(1000)], whole
    yield "7.3.4", [close(1000, b"Hello World!")], [closed(1000)], whole
    yield "7.3.5", [close(1000, b"*" * 123)], [closed(1000)], whole
    yield "7.3.6", [close(1000, b"*" * 124)], [closed(1002)], whole
    yield "7.5.1", [close(1000, INVALID)], [closed(1007)], whole
    good = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    for number, code in enumerate(good, 1):
        yield f"7.7.{number}", [close(code)], [closed(code)], whole
    bad = (0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999)
    for number, code in enumerate(bad, 1):
        yield f"7.9.{number}", [close(code)], [closed(1002)], whole
    for number, code in enumerate((5000, 65535), 1):
        yield f"7.13.{number}", [close(code)], [closed(1002)], whole


def limit_cases():
    """Large messages, in large and small pieces. What is beyond 1 MiB is refused when its length is seen."""
    for number, size in enumerate((1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24), 1):
        payload = b"*" * size
        expected = [said(payload)] if size <= LIMIT else closed(1009)
        yield f"9.1.{number}", [text(payload)], expected, whole
        yield f"9.2.{number}", [frame(BINARY, payload)], closed(1003), whole
    for number, size in enumerate((64, 256, 1024, 4096, 1 << 14, 1 << 16, 1 << 18, 1 << 20), 1):
        yield f"9.3.{number}", fragments(b"*" * LIMIT, size), [said(b"*" * LIMIT)], whole
        yield f"9.3.{number} beyond", fragments(b"*" * (LIMIT * 4), size), closed(1009), whole
        yield f"9.4.{number}", fragments(b"*" * LIMIT, size, BINARY), closed(1003), whole
    for number, size in enumerate((64, 128, 256, 512, 1024, 2048), 1):
        yield f"9.5.{number}", [text(b"*" * LIMIT)], [said(b"*" * LIMIT)], chopped(size)
        yield f"9.6.{number}", [frame(BINARY, b"*" * LIMIT)], closed(1003), chopped(size)
    yield "10.1.1", fragments(b"*" * 65536, 1300), [said(b"*" * 65536)], whole


def strictness_cases():
    """What the list leaves out and RFC 6455 demands."""
    for number, (size, length) in enumerate(((5, b"\xfe\x00\x05"), (125, b"\xfe\x00\x7d"),
                                             (5, b"\xff" + bytes(7) + b"\x05"),
                                             (0xFFFF, b"\xff" + bytes(6) + b"\xff\xff")), 1):
        yield f"length.{number}", [b"\x81" + length + b"\0\0\0\0" + b"a" * size], closed(1002), whole
    yield "length.negative", [b"\x81\xff\x80" + bytes(7) + b"\0\0\0\0"], closed(1002), whole
    yield "length.huge", [b"\x81\xff\x7f" + b"\xff" * 7 + b"\0\0\0\0"], closed(1009), whole
    yield "unmasked", [b"\x81\x05Hello"], closed(1002), whole
    yield "unmasked close", [b"\x88\x02\x03\xe8"], closed(1002), whole
    for code in (1012, 1013, 1014):
        yield f"registered {code}", [close(code)], [closed(code)], whole
    for code in (1015,):
        yield f"reserved {code}", [close(code)], [closed(1002)], whole


class EchoTest(unittest.TestCase):
    @classmethod
    def make_echo(cls):
        return Echo()

    @classmethod
    def setUpClass(cls):
        cls.echo = cls.make_echo()

    @classmethod
    def tearDownClass(cls):
        if cls.echo.stop() != 0:
            raise AssertionError("the server did not end well")

    def check(self, pieces, expected, how):
        if not isinstance(expected, list):
            expected = [expected]
        if not expected or expected[-1][0] != "close":
            pieces, expected = pieces + [close()], expected + [closed(1000)]
        connection, head = self.echo.connect()
        with connection:
            self.assertTrue(head.startswith(b"HTTP/1.1 101 "), head)
            frames = Frames(connection)
            if how is framewise:
                self.assertEqual(self.framewise(connection, frames, pieces, len(expected)), expected)
                return
            try:
                for piece in how(pieces):
                    connection.sendall(piece)
            except OSError:
                pass  # it has heard enough
            self.assertEqual(frames.all(), expected)

    def framewise(self, connection, frames, pieces, count):
        """Every frame in a segment of its own."""
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.002)
        return frames.all()

    def check_close_behind_an_answer(self):
        """What breaks the rules arrives while a long answer is on its way: the answer comes, and the close behind it."""
        connection, _ = self.echo.connect()
        with connection:
            connection.sendall(text(b"long"))
            time.sleep(0.2)
            connection.sendall(frame(3))
            time.sleep(0.2)
            self.assertEqual([(kind, len(what) if kind == "text" else what) for kind, what in Frames(connection).all()],
                             [("text", 16 << 20), closed(1002)])

    def run_cases(self, cases, at_least):
        count = 0
        for name, pieces, expected, how in cases:
            with self.subTest(case=name):
                self.check(pieces, expected, how)
            count += 1
        self.assertGreaterEqual(count, at_least)


class Cases(EchoTest):
    def test_1_to_4_frames_pings_reserved_bits_and_opcodes(self):
        self.run_cases(basic_cases(), 44)

    def test_5_fragmentation(self):
        self.run_cases(fragmentation_cases(), 20)

    def test_6_utf8(self):
        self.run_cases(utf8_cases(), 200)

    def test_6_4_a_wrong_byte_is_not_waited_for(self):
        """The rest of the message is never sent, and the connection fails all the same."""
        for name, pieces in (("6.4.1", [text(KOSME, fin=False), frame(CONTINUATION, b"\xf4\x90\x80\x80", fin=False)]),
                             ("6.4.2", [text(KOSME + b"\xf4", fin=False), frame(CONTINUATION, b"\x90", fin=False)]),
                             ("6.4.3", [text(KOSME + b"\xf4\x90\x80\x80edited")[:-6]]),
                             ("6.4.4", [text(KOSME + b"\xf4\x90\x80\x80edited")[:-8]])):
            with self.subTest(case=name):
                connection, _ = self.echo.connect()
                with connection:
                    connection.sendall(b"".join(pieces))
                    self.assertEqual(Frames(connection).all(), [closed(1007)])

    def test_7_closing(self):
        self.run_cases(closing_cases(), 35)

    def test_9_and_10_limits(self):
        self.run_cases(limit_cases(), 40)

    def test_9_7_messages_there_and_back(self):
        for size in (0, 16, 64, 256, 1024, 4096):
            connection, _ = self.echo.connect()
            with connection:
                frames = Frames(connection)
                message = text(b"*" * size)
                for _ in range(1000):
                    connection.sendall(message)
                    self.assertEqual(frames.next(), said(b"*" * size))
                connection.sendall(close())
                self.assertEqual(frames.all(), [closed(1000)])

    def test_a_close_behind_an_answer(self):
        self.check_close_behind_an_answer()

    def test_what_the_list_leaves_out(self):
        self.run_cases(strictness_cases(), 11)

    def test_handshakes(self):
        for old, new, status in ((b"Upgrade: websocket\r\n", b"", 426), (b"Connection: Upgrade", b"Connection: close", 426),
                                 (b"Version: 13", b"Version: 8", 426), (b"Version: 13", b"Version: 13, 8", 426),
                                 (b"dGhlIHNhbXBsZSBub25jZQ==", b"short", 400), (b"GET", b"HEAD", 400),
                                 (b"HTTP/1.1", b"HTTP/1.0", 400),
                                 (b"Sec-WebSocket-Key", b"Sec-WebSocket-Key: x\r\nSec-WebSocket-Key", 400)):
            connection, head = self.echo.connect(HANDSHAKE.replace(old, new))
            with connection:
                self.assertEqual(head.split(b" ")[1], b"%d" % status, (old, new, head))
                self.assertEqual(b"\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" in head, status == 426, head)
        connection, head = self.echo.connect(HANDSHAKE.replace(b"Upgrade: websocket", b"upgrade: h2c, WebSocket"))
        with connection:
            self.assertTrue(head.startswith(b"HTTP/1.1 101 "), head)
            self.assertIn(b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", head)
            self.assertNotIn(b"Extensions", head)

    def test_compression_is_not_offered_and_protocols_are_chosen(self):
        for offered, chosen in ((b"echo, other", True), (b"other", False)):
            extra = (b"Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: " + offered + b"\r\n\r\n")
            connection, head = self.echo.connect(HANDSHAKE[:-2] + extra)
            with connection:
                self.assertNotIn(b"Extensions", head)
                self.assertEqual(b"\r\nSec-WebSocket-Protocol: echo\r\n" in head, chosen, head)

    def test_a_client_that_does_not_wait_for_the_answer(self):
        connection, head = self.echo.connect(HANDSHAKE + text(b"early"))
        with connection:
            self.assertTrue(head.startswith(b"HTTP/1.1 400 "), head)


class OverTls(EchoTest):
    @classmethod
    def make_echo(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        return Echo(*make_certificate(folder.name, "echo"))

    def test_the_same_cases(self):
        self.run_cases(basic_cases(), 44)
        self.run_cases(fragmentation_cases(), 20)
        self.run_cases(closing_cases(), 35)

    def test_a_close_behind_an_answer(self):
        self.check_close_behind_an_answer()


if __name__ == "__main__":
    unittest.main()

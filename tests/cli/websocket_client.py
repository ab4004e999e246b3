"""A WebSocket client of our own for tests (RFC 6455, text alone): small enough to see what it sends, and able to be cut
off at any byte."""
import base64
import hashlib
import json
import os
import socket
import struct

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


class Refused(Exception):
    """The handshake was answered with something else than 101."""

    def __init__(self, status, head, body):
        super().__init__(status, head, body)
        self.status, self.head, self.body = status, head, body


class Closed(Exception):
    """The other side has closed, with this code and reason; None: without a word."""

    def __init__(self, code=None, reason=""):
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class WebSocketClient:
    def __init__(self, port, path="/ws", headers=(), protocols=(), timeout=60):
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.buffer = b""
        self.pongs = 0
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Protocol: {', '.join(protocols)}"] if protocols else []
        lines += [f"{name}: {value}" for name, value in headers]
        self.connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        while b"\r\n\r\n" not in self.buffer:
            self._receive()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        head = head.decode()
        status = int(head.split()[1])
        self.headers = {name.lower(): value.strip() for name, value in
                        (line.split(":", 1) for line in head.split("\r\n")[1:])}
        if status != 101:
            while len(self.buffer) < int(self.headers.get("content-length", 0)):
                self._receive()
            self.connection.close()
            raise Refused(status, self.headers, self.buffer)
        wanted = base64.b64encode(hashlib.sha1((key + MAGIC).encode()).digest()).decode()
        if self.headers["sec-websocket-accept"] != wanted:
            raise AssertionError(self.headers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut()

    def _receive(self):
        piece = self.connection.recv(65536)
        if not piece:
            raise Closed()
        self.buffer += piece

    def _take(self, count):
        while len(self.buffer) < count:
            self._receive()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send_frame(self, kind, data):
        length = len(data)
        if length < 126:
            head = struct.pack("!BB", 0x80 | kind, 0x80 | length)
        elif length < 65536:
            head = struct.pack("!BBH", 0x80 | kind, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 0x80 | 127, length)
        mask = os.urandom(4)
        repeated = (mask * (length // 4 + 1))[:length]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")
        self.connection.sendall(head + mask + masked)

    def send_text(self, text):
        self.send_frame(TEXT, text if isinstance(text, bytes) else text.encode())

    def send(self, message):
        self.send_text(json.dumps(message))

    def ask(self, identifier=None, **payload):
        self.send({"type": "inference", "payload": payload, **({"id": identifier} if identifier else {})})

    def receive(self):
        """The next message, whatever it is."""
        while True:
            first, second = self._take(2)
            length = second & 0x7F
            if length == 126:
                length = struct.unpack("!H", self._take(2))[0]
            elif length == 127:
                length = struct.unpack("!Q", self._take(8))[0]
            data = self._take(length)
            if first & 0x0F == TEXT:
                return json.loads(data)
            if first & 0x0F == PING:
                self.send_frame(PONG, data)
            elif first & 0x0F == PONG:
                self.pongs += 1
            elif first & 0x0F == CLOSE:
                code = struct.unpack("!H", data[:2])[0] if data else None
                raise Closed(code, data[2:].decode())

    def next(self, *types):
        """The next message of these types."""
        while True:
            message = self.receive()
            if message["type"] in types:
                return message

    def answer(self, identifier=None):
        """All `inference` messages of one answer, to its end."""
        messages = []
        while not messages or not messages[-1]["payload"]["complete"]:
            message = self.next("inference", "error")
            if identifier is not None and message.get("id") != identifier:
                continue
            if message["type"] == "error":
                raise AssertionError(message)
            messages.append(message)
        return messages

    def cut(self):
        """Without a word, as when a cable is pulled."""
        self.connection.close()

    def close(self):
        self.send_frame(CLOSE, struct.pack("!H", 1000))
        try:
            while True:
                self.receive()
        except Closed as closed:
            return closed.code
        finally:
            self.cut()


def text_of(messages):
    return "".join(message["payload"]["token"] for message in messages)


def tokens_of(messages):
    return [message["payload"]["token_id"] for message in messages if message["payload"]["token_id"] >= 0]

"""A server of its own for tests: started on a free port, asked by http.client or by bytes on a socket."""
import http.client
import json
import re
import resource
import signal
import socket
import subprocess

from harness import QUARREL, TIMEOUT, ProgramTest

SETTINGS = ("QUARREL_API_KEY", "QUARREL_KEYS", "QUARREL_PORT", "WEBUI_PORT")


class Server:
    def __init__(self, environment, *arguments, descriptors=None):
        def limit_descriptors():
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        self.process = subprocess.Popen([QUARREL, "serve", "--port", "0", *arguments], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment,
                                        bufsize=0,  # `communicate` knows nothing of lines that a buffer holds
                                        preexec_fn=limit_descriptors)
        self.first = b""  # what it said before it served: its log is on standard error too
        self.ports = []
        while not self.ports:
            line = self.process.stderr.readline()
            if not line:
                raise AssertionError(self.first.decode())
            self.first += line
            if line.startswith(b"Serving ") or b'"event":"serving"' in line:
                self.ports = [int(port) for port in re.findall(r"https?://127\.0\.0\.1:(\d+)", line.decode())]
        self.port = self.ports[0]

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)

    def request(self, method, path, body=None, headers=None):
        """Status, headers and body of an answer on a connection of its own."""
        connection = self.connect()
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def post(self, path, body, **options):
        status, _, data = self.request("POST", path, body, **options)
        return status, json.loads(data)

    def events(self, path, body):
        """The data of a stream's events, as they came."""
        status, headers, data = self.request("POST", path, body)
        if status != 200 or headers["Content-Type"] != "text/event-stream":
            raise AssertionError((status, data))
        frames = [frame for frame in data.decode().split("\n\n") if frame != ":"]  # a slow machine's comments
        if frames.pop() != "" or not all(frame.startswith("data: ") for frame in frames):
            raise AssertionError(data)
        return [frame[6:] for frame in frames]

    def raw(self, data):
        """All that comes back for these bytes until the server closes; nothing is sent after them."""
        with self.socket() as connection:
            connection.sendall(data)
            return read_all(connection)

    def stop(self):
        """The exit code, and what it said."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=TIMEOUT)
        return self.process.returncode, (self.first + said).decode()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()


def read_all(connection):
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


class ServeTest(ProgramTest):
    """One server a class, with a toy that chats."""
    arguments = ()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in SETTINGS:
            cls.environment.pop(name, None)
        cls.models = [cls.toy]
        cls.prepare()
        cls.server = cls.start_server(*cls.models, *cls.arguments)

    @classmethod
    def prepare(cls):
        """For classes that want more files."""

    @classmethod
    def start_server(cls, *arguments, descriptors=None, **environment):
        server = Server({**cls.environment, **environment}, *arguments, descriptors=descriptors)
        cls.addClassCleanup(server.kill)
        return server

    def expect_error(self, status, answer, **fields):
        self.assertEqual(answer[0], status, answer)
        self.assertEqual(set(answer[1]), {"error"})
        self.assertEqual(set(answer[1]["error"]), {"message", "type", "param", "code"})
        for name, value in fields.items():
            self.assertEqual(answer[1]["error"][name], value, answer)

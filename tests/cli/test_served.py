#!/usr/bin/env python3
"""Commands that talk to a running server: ps, stop, and run where a server holds the model."""
import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import unittest

from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest

QUESTION = ("--seed", "7", "-n", "24", "--temp", "0.9")


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def stream_chunk(text=None, kind=None, **fields):
    """A piece of an answer's text, or an event of another kind."""
    data = fields if text is None else {"token": text, "token_id": 7, "complete": False, **fields}
    event = (f"event: {kind}\n" if kind else "") + f"data: {json.dumps(data)}\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event.encode())


def json_answer(value):
    """A whole answer."""
    body = json.dumps(value).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


STREAM_END = stream_chunk("", complete=True, finish_reason="stop", tokens_generated=1, prompt_tokens=40) + b"0\r\n\r\n"


class Served(ServeTest):
    @classmethod
    def prepare(cls):
        cls.socket_path = cls.path("quarrel.sock")
        cls.arguments = ("--unix-socket", cls.socket_path)
        cls.environment["QUARREL_UNIX_SOCKET"] = cls.socket_path

    def load(self):
        status, answer = self.server.post("/api/chat", {"model": "toy", "messages": []})
        self.assertEqual((status, answer["done_reason"]), (200, "load"), answer)

    def last_use(self, server=None):
        """The time that the server's model goes moves with each use."""
        return json.loads((server or self.server).request("GET", "/api/ps")[2])["models"][0]["expires_at"][:22]  # two clocks differ by a microsecond now and then

    def run_toy(self, *arguments, **options):
        return self.succeed("run", self.toy, "Say something", *QUESTION, *arguments, **options)

    def test_ps_and_stop(self):
        self.load()
        text = self.succeed("ps").out.decode()
        self.assertRegex(text, r"NAME +SIZE +CONTEXT +STAYS\ntoy +\S+ \S+ +\d+ +\S")
        listed = json.loads(self.succeed("ps", "--json").out)
        self.assertEqual([model["name"] for model in listed], ["toy:latest"])
        # Over TCP as well.
        plain = {"QUARREL_UNIX_SOCKET": "", "QUARREL_PORT": str(self.server.port)}
        self.assertEqual(self.succeed("ps", environment=plain).out.decode().split()[4], "toy")
        self.refuse(1, ["does not hold 'toi'", "did you mean toy?"], "stop", "toi")
        self.assertIn("toy is unloaded", self.succeed("stop", "toy").err)
        result = self.succeed("ps")
        self.assertIn("holds no model", result.err)
        self.assertEqual(json.loads(self.succeed("ps", "--json").out), [])
        self.refuse(1, ["does not hold 'toy'"], "stop", "toy")

    def test_where_no_server_runs(self):
        nobody = {"QUARREL_UNIX_SOCKET": self.path("nobody.sock"), "QUARREL_PORT": "1"}
        for command in (("ps",), ("stop", "toy")):
            self.refuse(1, ["no server runs at", "nobody.sock or 127.0.0.1 port 1", "quarrel serve"], *command,
                        environment=nobody)

    def test_a_server_that_holds_the_model_answers(self):
        self.load()
        before = self.last_use()
        local = self.run_toy("--local")
        self.assertEqual(self.last_use(), before)
        served = self.run_toy()
        self.assertEqual(served.out, local.out)
        self.assertEqual(served.err, "")
        self.assertGreater(self.last_use(), before)
        # With a system prompt and more of the parameters.
        for more in (("--system", "Be brief."), ("--top-k", "5", "--repeat-penalty", "1.3"), ("--mirostat", "2"),
                     ("--stop", "e"), ("--presence-penalty", "0.7", "--repeat-last-n", "8"), ("-n", "3")):
            with self.subTest(more=more):
                self.assertEqual(self.run_toy(*more).out, self.run_toy("--local", *more).out)
        timings = self.run_toy("--verbose").err
        for line in ("total duration", "prompt eval count", "eval count:           24 tokens", "seed"):
            self.assertIn(line, timings)

    def test_what_a_server_cannot_do_is_done_here(self):
        self.load()
        before = self.last_use()
        with_tokens = json.loads(self.run_toy("--json").out)
        self.assertEqual(len(with_tokens["tokens"]), 24)
        self.run_toy("--raw")
        self.run_toy("--logit-bias", "5=3")
        # Beyond what a server takes.
        for more in (("--seed", str(2**60)), ("--temp", "2.5"), ("--presence-penalty", "2.5"),
                     ("--frequency-penalty", "-2.5")):
            with self.subTest(more=more):
                self.assertEqual(self.run_toy(*more).err, "")
        on_one = self.run_toy("--threads", "1").out
        self.assertEqual(self.last_use(), before)
        self.assertEqual(self.run_toy().out, on_one)

    def test_a_server_without_the_model_is_left_alone(self):
        other = self.make_toy("chat", "third.gguf")
        self.load()
        self.succeed("run", other, "Say something", *QUESTION)
        listed = json.loads(self.succeed("ps", "--json").out)
        self.assertEqual([model["name"] for model in listed], ["toy:latest"])

    def test_a_socket_of_others_is_not_used(self):
        path = self.path("open.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            os.chmod(path, 0o777)
            listener.listen()
            environment = {"QUARREL_UNIX_SOCKET": path}
            result = self.run_toy(environment=environment)
            self.assertIn("the running server cannot be used: ", result.err)
            self.assertIn("others may open it", result.err)
            self.assertEqual(result.out, self.run_toy("--local").out)
            self.refuse(2, ["others may open it"], "ps", environment=environment)

    def test_a_server_that_breaks_off(self):
        """One that says nonsense, and one that ends in the middle of an answer."""
        path = self.path("broken.sock")
        environment = {"QUARREL_UNIX_SOCKET": path}
        self.serve_bytes(path, [self.listing(), STREAM_HEAD + stream_chunk("half")])
        result = self.run_program("run", self.toy, "Say something", *QUESTION, environment=environment)
        self.assertEqual((result.code, result.out), (1, b"half"), result)
        self.assertIn("broke", result.err)
        self.serve_bytes(path, [json_answer([])])
        result = self.run_toy(environment=environment)
        self.assertIn("is not a Quarrel server", result.err)
        self.serve_bytes(path, [b"\0\0\0\r\n\r\n"])
        self.assertIn("broke", self.run_toy(environment=environment).err)

    def test_a_busy_server_is_told_of_and_no_second_copy_is_loaded(self):
        path = self.path("busy.sock")
        environment = {"QUARREL_UNIX_SOCKET": path}
        for status, code in (("429 Too Many Requests", "rate_limit_exceeded"), ("503 Service Unavailable", "queue_full")):
            with self.subTest(code):
                self.serve_bytes(path, [self.listing(), self.refusal(status, code)])
                self.refuse(1, ["the server is busy (so it is)", "--local"], "run", self.toy, "Say something", *QUESTION,
                            environment=environment)
        self.serve_bytes(path, [self.listing(), self.refusal("503 Service Unavailable", "draining")])
        result = self.succeed("run", self.toy, "Say something", *QUESTION, environment=environment)
        self.assertIn("the model is loaded here", result.err)

    @staticmethod
    def refusal(status, code):
        body = json.dumps({"error": {"message": "so it is", "type": "unavailable_error", "code": code}}).encode()
        return f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    def test_a_malformed_answer_does_not_end_a_chat(self):
        """What it tells is JSON, but not of the types that an answer has."""
        path = self.path("malformed.sock")
        malformed = [stream_chunk(token=None), stream_chunk("x", token_id="seven"), stream_chunk("x", complete=1),
                     stream_chunk(kind="status", state=7), stream_chunk("", complete=True, prompt_tokens="many")]
        self.serve_bytes(path, [self.listing(), *(STREAM_HEAD + event for event in malformed),
                                json_answer({"template": 7})])
        chat = self.open_terminal("run", self.toy, environment={"QUARREL_UNIX_SOCKET": path}, columns=200)
        chat.expect("the server at")
        chat.expect(">>> ")
        chat.type("/set overflow stop\r")  # or the server is asked for the length of the prompt first
        chat.expect(">>> ")
        for event in malformed:
            with self.subTest(event):
                chat.type("Say something\r")
                self.assertIn("the server sent something that is not part of an answer", chat.expect(">>> "))
        chat.type("/show template\r")
        self.assertIn("its answer to /api/show cannot be read", chat.expect(">>> "))
        chat.type("/bye\r")
        self.assertEqual(chat.wait(), 0)

    def test_a_changed_file_is_told_of_though_a_server_answers(self):
        model, stamp, path = self.path("models/parrot.gguf"), self.path("models/.parrot.gguf.verified"), self.path("own.sock")
        shutil.copy(self.toy, model)
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(f"1 1.000000000 {'0' * 64}\n")
        for file in (model, stamp):
            self.addCleanup(os.remove, file)
        server = self.start_server("parrot", "--unix-socket", path)
        self.assertEqual(server.post("/api/chat", {"model": "parrot", "messages": []})[0], 200)
        before = self.last_use(server)
        told = self.succeed("run", "parrot", "Say something", *QUESTION, environment={"QUARREL_UNIX_SOCKET": path}).err
        self.assertIn("has changed since it was put into the store", told)
        self.assertEqual(told.count("warning: "), 1)
        self.assertGreater(self.last_use(server), before)
        self.assertEqual(server.stop()[0], 0)

    def listing(self):
        """The answer of a server that holds the toy."""
        digest = json.loads(self.server.request("GET", "/api/tags")[2])["models"][0]["digest"]
        return json_answer({"models": [{"name": "toy:latest", "digest": digest, "context_length": 64}]})

    def serve_bytes(self, path, answers):
        """A connection for each of these answers, which it gets for what it sends; then it is closed. One that is
        iterated over is sent until the other side has gone."""
        if os.path.exists(path):
            os.unlink(path)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen()

        def answer():
            with listener:
                for data in answers:
                    with listener.accept()[0] as connection:
                        connection.recv(65536)
                        try:
                            for piece in [data] if isinstance(data, bytes) else data:
                                connection.sendall(piece)
                        except OSError:
                            pass
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        self.addCleanup(thread.join, TIMEOUT)

    def test_a_chat_is_answered_by_the_server(self):
        self.load()
        before = self.last_use()
        wanted = re.findall("[A-Za-z]{3,}", self.run_toy("--local").out.decode())
        self.assertTrue(wanted)
        chat = self.open_terminal("run", self.toy, *QUESTION)
        chat.expect("the server at")
        chat.expect(">>> ")
        chat.type("Say something\r")
        shown = chat.expect(">>> ")
        for word in wanted:
            self.assertIn(word, shown)
        self.assertGreater(self.last_use(), before)
        chat.type("/show info\r")
        self.assertIn("the server's", chat.expect(">>> "))
        chat.type("/show template\r")
        self.assertIn("im_start", chat.expect(">>> "))
        chat.type("/bye\r")
        self.assertEqual(chat.wait(), 0)

    def test_it_tells_how_much_of_the_prompt_is_read(self):
        path = self.path("slow.sock")
        seen = threading.Event()

        def slowly():
            yield STREAM_HEAD + stream_chunk(kind="status", state="queued", ahead=1)
            yield stream_chunk(kind="status", state="reading", prompt_tokens=40, prompt_tokens_read=8)
            seen.wait(TIMEOUT)
            yield stream_chunk("Done.") + STREAM_END

        self.serve_bytes(path, [self.listing(), slowly()])
        terminal = self.open_terminal("run", self.toy, "Say something", environment={"QUARREL_UNIX_SOCKET": path})
        terminal.expect("reading the prompt: 8 of 40 tokens")
        seen.set()
        self.assertEqual(terminal.wait(), 0)
        self.assertEqual(terminal.screen.lines(), ["Done."])

    def test_an_answer_that_is_cut_names_what_shrank_the_context(self):
        plan = json.loads(self.succeed("estimate", self.toy, "--ctx", "256", "--json").out)
        config = self.path("short.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("[models.toy]\nctx = 64\n")
        ways = ((("--config", config), ["64 tokens", "its setting ctx = 64; the model was trained for 512"]),
                (("--parallel", "1", "--cache-tokens", "64", "--memory-budget", str(plan["bytes"]["total"])),
                 ["the memory budget of ", "the model was trained for 512"]), ((), ["512 tokens that the server has"]))
        for number, (arguments, words) in enumerate(ways):
            with self.subTest(arguments=arguments):
                path = self.path(f"cut{number}.sock")
                server = self.start_server(self.toy, "--unix-socket", path, *arguments)
                self.assertEqual(server.post("/api/chat", {"model": "toy", "messages": []})[0], 200)
                # The toy hardly ever ends an answer; of several seeds one fills the context.
                for seed in range(20):
                    result = self.succeed("run", self.toy, "Hello", "--seed", str(seed), "--temp", "2",
                                          environment={"QUARREL_UNIX_SOCKET": path})
                    if result.err:
                        break
                self.assertIn("the answer was cut: the context of", result.err)
                for word in words:
                    self.assertIn(word, result.err)
                self.assertEqual(server.stop()[0], 0)

    def test_a_chat_survives_its_server(self):
        path = self.path("mortal.sock")
        server = self.start_server(self.toy, "--unix-socket", path)
        self.assertEqual(server.post("/api/chat", {"model": "toy", "messages": []})[0], 200)
        chat = self.open_terminal("run", self.toy, *QUESTION, environment={"QUARREL_UNIX_SOCKET": path})
        chat.expect("the server at")
        chat.expect(">>> ")
        chat.type("Say something\r")
        chat.expect(">>> ")
        server.kill()
        chat.type("And again\r")
        chat.expect("the model is loaded here")
        chat.expect(">>> ")
        chat.type("/show messages\r")
        self.assertEqual(chat.expect(">>> ").count("user:"), 2)
        chat.type("/bye\r")
        self.assertEqual(chat.wait(), 0)

    def test_without_a_setting_the_socket_is_in_the_runtime_folder(self):
        runtime = self.path("runtime")
        os.mkdir(runtime, 0o700)
        environment = {"XDG_RUNTIME_DIR": runtime, "QUARREL_UNIX_SOCKET": ""}
        server = self.start_server(self.toy, **environment)
        folder = os.path.join(runtime, "quarrel")
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        self.assertEqual(os.stat(os.path.join(folder, "server.sock")).st_mode & 0o777, 0o600)
        self.assertEqual(server.post("/api/chat", {"model": "toy", "messages": []})[0], 200)
        self.assertIn(b"toy", self.succeed("ps", environment=environment).out)
        before = self.last_use(server)
        self.run_toy(environment=environment)
        self.assertGreater(self.last_use(server), before)
        # A second server does without, and so does one whose folder is not its own.
        second = self.start_server(self.toy, **environment)
        self.assertIn("another server does", second.stop()[1])
        self.assertIn(b"toy", self.succeed("ps", environment=environment).out)
        self.assertEqual(server.stop()[0], 0)
        os.chmod(folder, 0o755)
        third = self.start_server(self.toy, **environment)
        self.assertIn("closed to others", third.stop()[1])
        none = self.start_server(self.toy, "--unix-socket", "none", **environment)
        self.assertEqual(none.stop()[0], 0)
        self.assertEqual(os.listdir(folder), [])

    def test_whoever_names_a_port_means_the_server_there(self):
        """Two servers: one has the usual socket, the other one has to do without."""
        runtime = self.path("shared")
        os.mkdir(runtime, 0o700)
        environment = {"XDG_RUNTIME_DIR": runtime, "QUARREL_UNIX_SOCKET": ""}
        usual = self.start_server(self.toy, **environment)
        other = self.start_server(self.toy, **environment)

        def held(server):
            return [model["name"] for model in json.loads(server.request("GET", "/api/ps")[2])["models"]]

        config = self.path("other.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"[server]\nport = {other.port}\n")
        ways = [(("--port", str(other.port)), {}), (("--host", f"http://127.0.0.1:{other.port}"), {}),
                ((), {"QUARREL_PORT": str(other.port)}), (("--config", config), {})]
        for arguments, variables in ways:
            with self.subTest(arguments=arguments, variables=variables):
                for server in (usual, other):
                    self.assertEqual(server.post("/api/chat", {"model": "toy", "messages": []})[0], 200)
                everything = {**environment, **variables}
                self.assertIn(b"toy", self.succeed("ps", *arguments, environment=everything).out)
                self.succeed("stop", "toy", *arguments, environment=everything)
                self.assertEqual((held(usual), held(other)), (["toy:latest"], []))
        self.refuse(1, ["no server runs at 127.0.0.1 port 1;"], "ps", "--port", "1", environment=environment)
        # A socket that is named as well is tried first.
        path = os.path.join(runtime, "quarrel", "server.sock")
        self.assertIn(b"toy", self.succeed("ps", "--port", "1", "--unix-socket", path, environment=environment).out)

    def test_help_is_that_of_a_command_that_asks(self):
        for command in ("ps", "stop"):
            text = self.succeed(command, "--help").out.decode()
            self.assertIn("Where the server is", text)
            self.assertNotIn("isten on this socket", text)
            self.assertNotIn("Address to listen on", text)

    def test_an_interrupt_ends_the_answer(self):
        """However fast it comes."""
        path = self.path("endless.sock")
        self.serve_bytes(path, [self.listing(), itertools.chain([STREAM_HEAD], itertools.repeat(stream_chunk("more ")))])
        process = subprocess.Popen([QUARREL, "run", self.toy, "Say something", "-n", "-1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, env={**self.environment, "QUARREL_UNIX_SOCKET": path})
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.read(5), b"more ")
        process.send_signal(signal.SIGINT)
        while process.stdout.read(65536):
            continue
        self.assertEqual(process.wait(TIMEOUT), 130)


if __name__ == "__main__":
    unittest.main()

"""What the tests of the program share: running it with an environment of its own, alone or on a pseudo-terminal."""
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest

from screen import Screen

QUARREL = os.environ.get("QUARREL", "build/release/quarrel")
MAKE_TOY = os.environ.get("MAKE_TOY", "build/release/make_toy")
DATA = os.environ.get("QUARREL_TEST_DATA", os.path.join(os.path.dirname(os.path.dirname(__file__)), "data"))
TIMEOUT = 60


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"code {self.code}\n--- out\n{self.out!r}\n--- err\n{self.err!r}"


class Terminal:
    """The program on a pseudo-terminal, driven by what it shows: the bytes as they come, and the screen they make."""

    def __init__(self, command, environment, columns=80, rows=24):
        self.master, slave = pty.openpty()
        self.screen = Screen(columns, rows)
        self._set_size(columns, rows)

        def take_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment,
                                        preexec_fn=take_terminal)
        os.close(slave)
        self.shown = ""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def _set_size(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        """What was written before is on the screen by then: call it when the screen has settled."""
        self.screen.resize(columns, rows)
        self._set_size(columns, rows)

    def expect(self, text, timeout=TIMEOUT):
        """Reads until `text` was shown; gives what came before it and keeps what came after."""
        self._read_until(lambda: text in self.shown, timeout, lambda: f"{text!r} did not come; shown: {self.shown!r}")
        before, self.shown = self.shown.split(text, 1)
        return before

    def expect_screen(self, seen, timeout=TIMEOUT):
        """Reads until the screen is as `seen` wants it: lines it ends with, or a function of it."""
        if not callable(seen):
            wanted = list(seen)
            def seen(screen):
                return screen.lines()[-len(wanted):] == wanted
        self._read_until(lambda: seen(self.screen), timeout, lambda: "the screen is\n" + self.screen.text())
        self.shown = ""

    def _read_until(self, done, timeout, complaint):
        end = time.monotonic() + timeout
        while not done():
            left = end - time.monotonic()
            if left <= 0 or not self._read(left):
                raise AssertionError(complaint())

    def _read(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        text = self.decoder.decode(data)
        self.shown += text
        self.screen.write(text)
        return bool(data)

    def type(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        # Long texts: the program must be read from while it is written to.
        while data:
            readable, writable, _ = select.select([self.master], [self.master], [], TIMEOUT)
            if readable:
                self._read(0)
            if writable:
                data = data[os.write(self.master, data[:1024]):]
            if not readable and not writable:
                raise AssertionError("the program does not read")

    def settings(self):
        """Of the terminal: the letters that are shown, the lines that are waited for, the signals that keys send."""
        flags = termios.tcgetattr(self.master)[3]
        return tuple(bool(flags & flag) for flag in (termios.ECHO, termios.ICANON, termios.ISIG))

    def wait(self):
        while self._read(TIMEOUT):
            pass
        return self.process.wait(TIMEOUT)

    def hang_up(self):
        """Closes the window."""
        os.close(self.master)
        self.master = -1
        return self.process.wait(TIMEOUT)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


class ProgramTest(unittest.TestCase):
    """A folder, stores and a home of its own for each class of tests, and a toy that chats."""

    @classmethod
    def setUpClass(cls):
        cls.folder_object = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder_object.cleanup)
        cls.folder = cls.folder_object.name
        cls.environment = {**os.environ, "HOME": cls.folder, "QUARREL_MODELS": cls.path("models"),
                           "OLLAMA_MODELS": cls.path("ollama"), "XDG_STATE_HOME": cls.path("state"),
                           "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        for name in ("NO_COLOR", "QUARREL_HISTORY", "QUARREL_ISA", "QUARREL_LOG", "QUARREL_CONFIG", "XDG_CONFIG_HOME",
                     "XDG_RUNTIME_DIR"):
            cls.environment.pop(name, None)
        os.mkdir(cls.path("models"))
        cls.toy = cls.make_toy("chat", "toy.gguf")

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def make_toy(cls, name, file, context=None, seed=None):
        path = cls.path(file)
        numbers = [str(number) for number in (context, seed) if number]
        subprocess.run([MAKE_TOY, name, path, *numbers], check=True)
        return path

    def run_program(self, *arguments, input=b"", environment=None):
        if isinstance(input, str):
            input = input.encode()
        done = subprocess.run([QUARREL, *arguments], input=input, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**self.environment, **(environment or {})}, timeout=TIMEOUT, check=False)
        return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def succeed(self, *arguments, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.code, 0, result)
        return result

    def refuse(self, code, words, *arguments, **options):
        """The program ends with `code`, nothing on standard output and one sentence that holds all `words`."""
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.code, code, result)
        self.assertEqual(result.out, b"", result)
        lines = result.err.splitlines()
        self.assertEqual(len([line for line in lines if line.startswith("error: ")]), 1, result)
        for word in words:
            self.assertIn(word, lines[-1])
        return result

    def command_names(self):
        """The commands as the help lists them, without their other names."""
        name = "[a-z][a-z0-9_-]*"
        return re.findall(rf"(?m)^  ({name})(?:, {name})*  ", self.succeed("--help").out.decode())

    def start(self, *arguments):
        return subprocess.Popen([QUARREL, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment)

    def open_terminal(self, *arguments, environment=None, program=None, **size):
        terminal = Terminal([program or QUARREL, *arguments], {**self.environment, **(environment or {})}, **size)
        self.addCleanup(terminal.close)
        return terminal


INTERRUPT = signal.SIGINT

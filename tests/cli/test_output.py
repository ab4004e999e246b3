#!/usr/bin/env python3
"""Where commands write: files appear whole, and what is no regular file is written to and never replaced."""
import os
import select
import signal
import stat
import subprocess
import time
import unittest

from harness import QUARREL, TIMEOUT, ProgramTest


class OutputPaths(ProgramTest):
    def logits(self, out):
        return ("logits", self.toy, "--tokens", "1,2", "--out", out)

    def shell(self, text):
        """Runs a line of bash in which $quarrel is the program."""
        done = subprocess.run(["bash", "-c", text], env={**self.environment, "quarrel": QUARREL, "toy": self.toy},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT, check=False)
        self.assertEqual(done.returncode, 0, done)
        return done.stdout

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = cls.path("whole.f32")
        subprocess.run([QUARREL, "logits", cls.toy, "--tokens", "1,2", "--out", cls.whole], env=cls.environment,
                       check=True)
        cls.size = os.path.getsize(cls.whole)

    def test_a_full_device_is_an_error_and_stays_a_device(self):
        # By a link, so that a mistake replaces the link and not the machine's device.
        link = self.path("full")
        os.symlink("/dev/full", link)
        for command in (self.logits(link), ("embed", self.make_toy("bert", "bert.gguf"), "--tokens", "1,2", "--out", link),
                        ("quantize", self.toy, link, "Q8_0")):
            result = self.refuse(1, [f"cannot write '{link}'", "No space left"], *command)
            self.assertNotIn("partial", result.err)
        self.assertTrue(os.path.islink(link))
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))

    def test_process_substitution(self):
        out = self.shell('"$quarrel" logits "$toy" --tokens 1,2 --out >(wc -c) | cat')
        self.assertEqual(int(out), self.size)

    def test_standard_output_by_name(self):
        out = self.shell('"$quarrel" logits "$toy" --tokens 1,2 --out /dev/stdout | wc -c')
        self.assertEqual(int(out), self.size)
        self.assertEqual(int(self.shell('cd "$(mktemp -d)"; "$quarrel" logits "$toy" --tokens 1,2 --out - | wc -c; ls')), self.size)
        for command in (("quantize", self.toy, "-", "Q8_0"), ("convert", self.folder, "-o", "-"),
                        ("regress", self.toy, "--report", "-"), ("logits", self.toy, "--tokens", "1", "--out", "-", "--json")):
            self.refuse(2, ["standard output"], *command)
        log = self.path("log")
        self.shell(f'echo first > {log}; "$quarrel" logits "$toy" --tokens 1,2 --out /dev/stdout >> {log}')
        with open(log, "rb") as file:
            text = file.read()
        self.assertTrue(text.startswith(b"first\n"))
        self.assertEqual(len(text), len(b"first\n") + self.size)

    def test_a_fifo(self):
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        with subprocess.Popen(["wc", "-c", fifo], stdout=subprocess.PIPE) as reader:
            self.succeed(*self.logits(fifo))
            self.assertEqual(int(reader.stdout.read().split()[0]), self.size)
        self.assertTrue(stat.S_ISFIFO(os.stat(fifo).st_mode))

    def test_a_reader_that_stalls_does_not_keep_the_program_from_being_stopped(self):
        fifo = self.path("stalled")
        os.mkfifo(fifo)
        process = self.start("logits", self.toy, "--tokens", ",".join(["1"] * 400), "--out", fifo)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        for access in (os.O_RDONLY, os.O_WRONLY):  # the second one shows whether more would go in
            descriptor = os.open(fifo, access)
            self.addCleanup(os.close, descriptor)
        room = select.poll()
        room.register(descriptor, select.POLLOUT)
        deadline = time.monotonic() + TIMEOUT
        while room.poll(0) or not self.sleeps(process.pid):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(TIMEOUT), 130)

    @staticmethod
    def sleeps(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(") ", 1)[1].startswith("S")

    def test_a_name_may_be_as_long_as_the_file_system_allows(self):
        out = self.path("n" * 255)
        self.succeed(*self.logits(out))
        self.assertEqual(os.path.getsize(out), self.size)

    def test_a_link_stays(self):
        os.mkdir(self.path("elsewhere"))
        os.symlink("elsewhere/real.f32", self.path("link.f32"))
        for _ in range(2):
            self.succeed(*self.logits(self.path("link.f32")))
            self.assertTrue(os.path.islink(self.path("link.f32")))
            self.assertEqual(os.path.getsize(self.path("elsewhere/real.f32")), self.size)
        self.assertEqual(os.listdir(self.path("elsewhere")), ["real.f32"])

    def test_a_model_goes_through_a_pipe_too(self):
        plain = self.path("plain.gguf")
        self.succeed("quantize", self.toy, plain, "Q8_0")
        out = self.shell('"$quarrel" quantize "$toy" >(wc -c) Q8_0 | cat')
        self.assertIn(str(os.path.getsize(plain)).encode(), out.split())
        self.refuse(2, ["already exists", "--force"], "quantize", self.toy, plain, "Q8_0")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Texts into a vector store and out of it again, against a server that behaves as Longbow does: every text once, whatever
is killed. With QUARREL_LONGBOW=host:port (the meta port is the next one) tests that need no fault use a real Longbow."""
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
import unittest

from certificates import make_certificate
from harness import QUARREL, ProgramTest

SERVER = os.environ.get("LONGBOW_SERVER", "build/release/longbow_server")
REAL = os.environ.get("QUARREL_LONGBOW")


class StoreTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        if not os.path.exists(SERVER):
            raise unittest.SkipTest("there is no longbow_server: it is built with the Flight module (make flight)")
        super().setUpClass()
        cls.bert = cls.make_toy("embed", "embed.gguf")

    def start_store(self, *arguments, own=False):
        """`own`: one of this test's, which it may end; so is one with arguments, which ask for faults."""
        self.host = "127.0.0.1"
        self.suffix = ""
        if REAL and not arguments and not own:
            self.host, port = REAL.rsplit(":", 1)
            self.ports = [port, str(int(port) + 1)]
            self.suffix = f"-{os.getpid()}-{type(self).__name__}-{self._testMethodName}"  # it keeps what it has
            return None
        store = subprocess.Popen([SERVER, *arguments], stdout=subprocess.PIPE, text=True)

        def end():
            if store.poll() is None:
                store.kill()
            store.wait()
            store.stdout.close()
        self.addCleanup(end)
        words = store.stdout.readline().split()
        self.assertEqual(words[0], "ready", words)
        self.ports = words[1:3]
        return store

    def name(self, dataset):
        return dataset + self.suffix

    def address(self, dataset):
        return f"longbow://{self.host}:{self.ports[0]}/{self.name(dataset)}?meta={self.ports[1]}"

    def write(self, name, data):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return path

    def lines(self, name, count):
        return self.write(name, "".join(f"the dog number {i}\n" for i in range(count)))

    def embed(self, file, dataset, *arguments):
        return self.succeed("embed", self.bert, "--file", file, "--to", self.address(dataset), *arguments)

    def rows(self, dataset):
        shown = json.loads(self.succeed("datasets", self.address(dataset), "--json").out)
        return shown["rows"]

    def search(self, dataset, query, *arguments):
        return json.loads(self.succeed("search", self.bert, self.address(dataset), query, "--json", *arguments).out)

    def expect_once(self, dataset, texts):
        found = self.search(dataset, "the dog", "-k", "10000")
        self.assertEqual(sorted(hit["text"] for hit in found), sorted(texts))
        self.assertEqual(len({hit["id"] for hit in found}), len(texts))


class Ways(StoreTest):
    def setUp(self):
        self.start_store()

    def test_lines_are_stored_and_found(self):
        file = self.write("lines.txt", "the fox\na dog\n\na long word\n")
        result = self.embed(file, "lines")
        self.assertIn(f"3 texts: 3 stored in {self.name('lines')}".encode(), result.out)
        self.assertEqual(self.rows("lines"), 3)
        hits = self.search("lines", "the fox", "-k", "2")
        self.assertEqual([hit["text"] for hit in hits][0], "the fox")
        self.assertEqual(hits[0]["source"], "lines.txt")
        self.assertEqual(hits[0]["metadata"], {"line": 1})
        self.assertAlmostEqual(hits[0]["score"], 1, places=3)
        self.assertEqual(len(hits), 2)
        table = self.succeed("search", self.bert, self.address("lines"), "the fox").out.decode().splitlines()
        self.assertRegex(table[0], r"^ *SCORE +ID +SOURCE +TEXT$")
        self.assertEqual(len(table), 4)
        # Another run has nothing to do.
        self.assertIn(f"3 texts: 0 stored in {self.name('lines')}, 3 there before".encode(), self.embed(file, "lines").out)
        self.assertEqual(self.rows("lines"), 3)

    def test_what_is_stored_is_what_embed_prints(self):
        result = self.embed(self.write("one.txt", "Hello World\n"), "hello")
        self.assertIn(f"1 text: 1 stored in {self.name('hello')}".encode(), result.out)
        vector = json.loads(self.succeed("embed", self.bert, "Hello World").out)[0]
        hit = self.search("hello", "Hello World")[0]
        self.assertEqual(hit["text"], "Hello World")
        self.assertAlmostEqual(hit["score"], 1, places=4)
        self.assertEqual(len(vector), 128)

    def test_objects_have_ids_columns_and_filters(self):
        objects = [{"id": "a", "text": "the fox", "year": 1999, "by": "me"}, {"id": 7, "text": "the dog", "year": 2004},
                   {"text": "a word", "year": 2004}]
        file = self.write("in.jsonl", "\n".join(map(json.dumps, objects)))
        self.embed(file, "objects", "--column", "year")
        hits = {hit["text"]: hit for hit in self.search("objects", "the fox")}
        self.assertEqual(hits["the fox"]["doc_id"], "a")
        self.assertEqual(hits["the fox"]["metadata"], {"by": "me"})
        self.assertEqual(hits["the dog"]["doc_id"], "7")
        self.assertEqual(hits["the dog"]["year"], "2004")
        only = self.search("objects", "the fox", "--filter", "year=2004")
        self.assertEqual({hit["text"] for hit in only}, {"the dog", "a word"})

    def test_a_folder_is_cut(self):
        words = " ".join(f"dog {i}" for i in range(80))
        self.write("notes/a.txt", f"the fox\n\n{words}")
        self.write("notes/deep/b.md", "a dog")
        self.write("notes/picture", b"\x89PNG\0\0")
        folder = self.path("notes")
        result = self.embed(folder, "notes", "--chunk", "32", "--overlap", "4")
        stored = self.rows("notes")
        self.assertGreater(stored, 4)
        hit = self.search("notes", "a dog", "-k", "1")[0]
        self.assertEqual((hit["source"], hit["text"]), ("deep/b.md", "a dog"))
        self.assertEqual(hit["metadata"], {"offset": 0, "bytes": 5})
        self.assertIn(f"{stored} texts".encode(), result.out)
        # A changed file brings its new chunks alone.
        self.write("notes/deep/b.md", "a dog\n\nthe word")
        self.assertIn(b"1 stored", self.embed(folder, "notes", "--chunk", "32", "--overlap", "4").out)

    def test_standard_input_and_a_dry_run(self):
        result = self.succeed("embed", self.bert, "--file", "-", "--to", self.address("in"), "--dry-run",
                              input="the fox\nthe fox\na dog\n")
        out = result.out.decode()
        self.assertIn("2 to store, 1 repeated", out)
        self.assertRegex(out, r"tokens +\d+\n")
        self.assertRegex(out, r"time +.* to embed them \(a sample of 2 texts")
        self.refuse(1, ["no dataset"], "search", self.bert, self.address("in"), "dog")
        self.succeed("embed", self.bert, "--file", "-", "--to", self.address("in"), input="the fox\nthe fox\na dog\n")
        self.assertEqual(self.rows("in"), 2)

    def test_mistakes_name_their_line(self):
        bad = self.write("bad.jsonl", '{"text":"the fox"}\n{"text":\n')
        self.refuse(1, ["bad.jsonl, line 2", "--skip-bad"], "embed", self.bert, "--file", bad, "--to", self.address("bad"))
        result = self.embed(bad, "bad", "--skip-bad")
        self.assertIn("line 2", result.err)
        self.assertIn(f"1 stored in {self.name('bad')}, 1 left out".encode(), result.out)
        self.assertEqual(self.rows("bad"), 1)

    def test_a_dataset_of_others_and_other_models(self):
        file = self.lines("few.txt", 3)
        self.embed(file, "shared")
        other = self.path("other.journal")
        self.refuse(2, ["--append"], "embed", self.bert, "--file", file, "--to", self.address("shared"), "--journal", other)
        self.embed(file, "shared", "--journal", other, "--append")
        self.assertEqual(self.rows("shared"), 6)
        self.assertEqual(len({hit["id"] for hit in self.search("shared", "dog")}), 6)
        refused = self.refuse(2, ["has not given"], "embed", self.bert, "--file", file, "--to", self.address("shared"))
        self.assertNotIn("continues", refused.err)  # it would fail again
        model = self.make_toy("embed", "second.gguf", seed=99)
        self.refuse(2, ["another model"], "embed", model, "--file", file, "--to", self.address("shared"))
        self.refuse(2, ["dimension"], "embed", self.bert, "--file", file, "--to", self.address("shared"), "--dimensions", "5")
        self.refuse(1, ["128", "5"], "embed", self.bert, "--file", file, "--to", self.address("shared"), "--dimensions",
                    "5", "--journal", self.path("third.journal"))
        self.refuse(1, ["dimension"], "search", self.bert, self.address("shared"), "dog", "--dimensions", "5")

    def test_questions_are_asked_with_texts(self):
        self.embed(self.write("pets.txt", "the fox\na dog\n"), "pets")
        command = ("run", self.toy, "the fox", "-n", "4", "--context", self.address("pets"), "--context-model", self.bert,
                   "--context-texts", "1")
        self.assertIn("Sources: [1] pets.txt (0)\n", self.succeed(*command).err)
        template = self.write("template", "{texts}\n{question}")
        with_texts = json.loads(self.succeed(*command, "--json", "--context-template", template).out)
        self.assertEqual([(each["number"], each["text"]) for each in with_texts["sources"]], [(1, "the fox")])
        without = json.loads(self.succeed("run", self.toy, "[1] the fox\nthe fox", "-n", "4", "--json").out)
        self.assertEqual(with_texts["prompt_tokens"], without["prompt_tokens"])
        self.assertNotIn("sources", without)
        self.refuse(1, ["no dataset"], "run", self.toy, "a", "--context", self.address("none"), "--context-model", self.bert)
        self.refuse(2, ["--raw"], *command, "--raw")
        self.refuse(2, ["{texts}"], *command, "--context-template", self.write("bad", "{question}"))
        self.refuse(2, ["--context"], "run", self.toy, "a", "--context-texts", "3")

    def test_questions_have_the_width_of_the_dataset(self):
        self.embed(self.write("pets.txt", "the fox\na dog\n"), "narrow", "--dimensions", "5")
        command = ("run", self.toy, "the fox", "-n", "4", "--context", self.address("narrow"), "--context-model", self.bert,
                   "--context-texts", "1")
        self.assertIn("Sources: [1] pets.txt (0)\n", self.succeed(*command, "--context-dimensions", "5").err)
        self.refuse(1, ["dimension"], *command)
        self.refuse(2, ["--context"], "run", self.toy, "a", "--context-dimensions", "5")

    def test_datasets_are_listed(self):
        self.embed(self.lines("few.txt", 3), "first")
        self.embed(self.lines("few.txt", 3), "second/part")
        address = f"longbow://{self.host}:{self.ports[0]}?meta={self.ports[1]}"
        names = [each["name"] for each in json.loads(self.succeed("datasets", address, "--json").out)]
        ours = [self.name("first"), self.name("second/part")]
        self.assertEqual(sorted(name for name in names if name in ours or not REAL), ours)
        self.assertIn(self.name("second/part"), self.succeed("datasets", address).out.decode())
        shown = json.loads(self.succeed("datasets", self.address("first"), "--json").out)
        self.assertEqual(shown["schema"]["dimension"], 128)
        self.assertEqual(list(shown["schema"]["columns"])[:2], ["id", "vector"])

    def figures(self, text):
        """What texts/s, tokens/s and MB/s may have been before they were rounded."""
        numbers = re.search(r"([\d.]+)(k?) texts/s, ([\d.]+)(k?) tokens/s, ([\d.]+) MB/s", text)
        self.assertIsNotNone(numbers, text)
        texts, many_texts, tokens, many_tokens, megabytes = numbers.groups()

        def bounds(number, unit):
            return (float(number) - 0.051) * unit, (float(number) + 0.051) * unit
        return bounds(texts, 1000 if many_texts else 1), bounds(tokens, 1000 if many_tokens else 1), bounds(megabytes, 1e6)

    @staticmethod
    def duration(minutes, number, unit):
        """The seconds that a time may have been before it was rounded: 812ms, 24.3s, or 1m05s, which was cut off."""
        if minutes:
            whole = 60 * int(minutes) + int(number)
            return whole, whole + 1
        unit, rounded = (1, 0.06) if unit == "s" else (1e-3, 0.6)
        return tuple((float(number) + sign * rounded) * unit for sign in (-1, 1))

    def test_the_progress_has_its_figures(self):
        count, words = 200, 4000  # words beyond the model's limit are stored, and not embedded
        file = self.write("long.txt", "".join(f"dog {i} " + "the fox " * words + "\n" for i in range(count)))
        size = os.path.getsize(file) + count * 128 * 4
        tokens = int(re.search(r"tokens +(\d+)", self.succeed("embed", self.bert, "--file", file, "--to",
                                                              self.address("figures"), "--dry-run").out.decode()).group(1))
        terminal = self.open_terminal("embed", self.bert, "--file", file, "--to", self.address("figures"), "--batch", "10",
                                      columns=200)
        self.assertEqual(terminal.wait(), 0, terminal.shown)
        # At least a dozen of the batches were sent when the last one was begun.
        bars = re.findall(r"\rembedding [^\r\n]*", terminal.shown)
        self.assertTrue(bars, terminal.shown)
        for low, _ in self.figures(bars[-1]):
            self.assertGreater(low, 0, bars[-1])
        # In the end they are what was done, in the time that it took.
        summary = re.search(r"200 texts: 200 stored in [^\r\n]*", terminal.shown).group(0)
        took = re.search(r"\((?:(\d+)m)?([\d.]+)(ms|s), ", summary)
        self.assertIsNotNone(took, summary)
        shortest, longest = self.duration(*took.groups())
        for (low, high), done, slack in zip(self.figures(summary), (count, tokens, size), (1, 1, 1.05)):
            self.assertLessEqual(low * shortest / slack, done, summary)
            self.assertGreaterEqual(high * longest * slack, done, summary)

    def test_progress_goes_to_a_log_too(self):
        lines = self.embed(self.lines("few.txt", 3), "logged").err.splitlines()
        self.assertTrue(lines, "the first line comes at once")
        for line in lines:  # more than one where it takes longer than ten seconds
            self.assertRegex(line, r"^(embedding: .* of 51 B.*|waiting for the store to index the rows)$")

    def test_what_came_to_nothing_binds_nothing(self):
        empty = self.write("empty.jsonl", "\n")
        file = self.write("years.jsonl", '{"text": "the fox", "year": 1999}\n')
        self.embed(empty, "unbound", "--column", "by")
        self.embed(file, "unbound", "--column", "year")
        self.assertEqual(self.search("unbound", "the fox", "--filter", "year=1999")[0]["text"], "the fox")
        self.refuse(2, ["columns"], "embed", self.bert, "--file", file, "--to", self.address("unbound"))

    def test_columns_have_names_of_their_own(self):
        file = self.write("years.jsonl", '{"text": "the fox", "year": 1999}\n')
        embed = ("embed", self.bert, "--file", file, "--to", self.address("columns"))
        for names in (("",), ("year", "year"), ("id",), ("vector",), ("text",), ("timestamp",), ("source",)):
            self.refuse(2, ["column" if names[0] else "empty"], *embed,
                        *(argument for name in names for argument in ("--column", name)))
        self.succeed(*embed, "--column", "year")

    def test_a_question_says_something(self):
        self.embed(self.lines("few.txt", 3), "questions")
        for question in ("", " \n"):
            self.refuse(2, ["QUERY"], "search", self.bert, self.address("questions"), question)

    def test_wrong_usage(self):
        file = self.lines("few.txt", 3)
        to = ("--to", self.address("x"))
        self.refuse(2, ["--file"], "embed", self.bert, "text", *to)
        self.refuse(2, ["--format"], "embed", self.bert, "--file", file, *to, "--format", "npy")
        self.refuse(2, ["--to"], "embed", self.bert, "--file", file, "--chunk", "20")
        self.refuse(2, ["folder"], "embed", self.bert, "--file", file, *to, "--chunk", "20")
        self.refuse(2, ["JSON"], "embed", self.bert, "--file", file, *to, "--column", "x")
        self.refuse(2, ["longbow"], "embed", self.bert, "--file", file, "--to", "http://x/y")
        self.refuse(2, ["vector"], "embed", self.bert, "--file", file, *to, "--pooling", "none")
        self.refuse(1, ["absent"], "embed", self.bert, "--file", self.path("absent"), *to)


class Faults(StoreTest):
    """After a fault and another run every text is there once."""

    def texts(self, count):
        return [f"the dog number {i}" for i in range(count)]

    def test_a_store_that_is_not_there(self):
        self.start_store(own=True).kill()
        self.refuse(1, ["127.0.0.1"], "embed", self.bert, "--file", self.lines("few.txt", 3), "--to", self.address("x"))

    def test_answers_that_are_lost(self):
        self.start_store("--break-put-after", "1", "--keep-broken")
        result = self.embed(self.lines("broken.txt", 30), "broken", "--batch", "10")
        self.assertIn("DoPut", result.err)
        self.expect_once("broken", self.texts(30))

    def test_answers_that_are_lost_and_rows_that_come_late(self):
        self.start_store("--break-put-after", "1", "--keep-broken", "--visible-after", "500")
        result = self.embed(self.lines("late.txt", 30), "late", "--batch", "10")
        self.assertIn("DoPut", result.err)
        self.expect_once("late", self.texts(30))

    def test_a_store_that_lost_everything_is_filled_anew(self):
        file = self.lines("again.txt", 20)
        self.start_store(own=True).kill()
        first = self.start_store("--data-port", self.ports[0], "--meta-port", self.ports[1])
        self.embed(file, "again", "--batch", "8")
        first.kill()
        first.wait()
        self.start_store("--data-port", self.ports[0], "--meta-port", self.ports[1])
        self.assertIn(b"20 stored", self.embed(file, "again", "--batch", "8").out)
        self.expect_once("again", self.texts(20))

    def test_rows_that_are_dropped_are_missed(self):
        self.start_store("--most-rows", "25")
        file = self.lines("many.txt", 40)
        self.refuse(1, ["15 rows"], "embed", self.bert, "--file", file, "--to", self.address("full"), "--batch", "10")

    def test_late_rows_are_waited_for(self):
        self.start_store("--visible-after", "300")
        self.embed(self.lines("late.txt", 30), "late", "--batch", "7")
        self.expect_once("late", self.texts(30))

    def test_a_new_dataset_of_a_busy_store_is_stored(self):
        """It says that it is busy before it looks whether there is such a dataset."""
        self.start_store("--busy-as-a-whole", "4")
        result = self.embed(self.lines("new.txt", 5), "new")
        self.assertIn("busy", result.err)
        self.expect_once("new", self.texts(5))

    def test_a_store_that_takes_in_rows_long_after_it_read_them(self):
        """Nobody can know of them meanwhile: rows that are there twice are told of, and make the exit code."""
        store = self.start_store("--overtaken")
        command = ("embed", self.bert, "--file", self.lines("late.txt", 5), "--to", self.address("overtaken"))
        process = subprocess.Popen([QUARREL, *command], env=self.environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.assertEqual(store.stdout.readline(), "read\n")
        process.kill()
        process.wait()
        self.run_program(*command)  # it may see what it brought about already, or not yet
        self.wait_for_rows("overtaken", 10)
        result = self.run_program(*command)
        self.assertEqual(result.code, 1, result)
        self.assertIn("more than once in the dataset: 5 rows", result.err)
        self.assertIn(b"5 there before", result.out)

    def test_ctrl_c_says_how_to_go_on(self):
        self.start_store()
        lines = "".join(text + "\n" for text in self.texts(30))
        command = ("embed", self.bert, "--file", "-", "--to", self.address("stopped"), "--batch", "10")
        process = subprocess.Popen([QUARREL, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=self.environment)
        process.stdin.write("".join(text + "\n" for text in self.texts(25)).encode())
        process.stdin.flush()
        self.wait_for_rows("stopped", 20)  # the other five wait for a whole batch
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        process.stdin.close()
        process.stdout.close()
        process.stderr.close()
        self.assertEqual(process.wait(60), 130, err)
        self.assertIn(b"Sent so far: 20 rows; the same command continues", err)
        self.assertIn(f"10 stored in {self.name('stopped')}, 20 there before".encode(), self.succeed(*command, input=lines).out)
        self.expect_once("stopped", self.texts(30))

    def interrupted(self, *command):
        """Starts the command; the function that it gives interrupts it and says what came of that."""
        process = subprocess.Popen([QUARREL, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=self.environment)

        def interrupt():
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=600)
            self.assertEqual(process.returncode, 130, err)
            return err
        return interrupt

    def test_ctrl_c_ends_a_batch_that_the_store_does_not_take(self):
        self.start_store("--stall")
        interrupt = self.interrupted("embed", self.bert, "--file", self.lines("few.txt", 3), "--to", self.address("stalled"))
        store = f"longbow://{self.host}:{self.ports[0]}?meta={self.ports[1]}"
        self.wait_for(lambda: b"stalled" in self.succeed("datasets", store).out)
        self.assertIn(b"Sent so far: 3 rows", interrupt())

    def test_ctrl_c_ends_the_wait_for_a_store_that_says_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            to = f"longbow://127.0.0.1:{silent.getsockname()[1]}/x?meta={silent.getsockname()[1]}"
            interrupt = self.interrupted("embed", self.bert, "--file", self.lines("few.txt", 3), "--to", to)
            connection, _ = silent.accept()
            with connection:
                self.assertNotIn(b"continues", interrupt())

    def test_ctrl_c_ends_the_search_for_a_question(self):
        store = self.start_store(own=True)
        self.embed(self.write("pets.txt", "the fox\na dog\n"), "pets")
        terminal = self.open_terminal("run", self.toy, "-n", "4", "--context", self.address("pets"), "--context-model",
                                      self.bert)
        terminal.expect(">>> ")
        store.send_signal(signal.SIGSTOP)
        terminal.type("the fox\r")
        terminal.expect("\n")
        time.sleep(0.5)
        begun = time.monotonic()
        terminal.process.send_signal(signal.SIGINT)
        terminal.expect("Stopped before the answer began; your message was not kept.")
        self.assertLess(time.monotonic() - begun, 5, "a search has longer than that")
        store.send_signal(signal.SIGCONT)
        terminal.expect(">>> ")
        terminal.type("the fox\r")
        terminal.expect("Sources: [1] pets.txt (0)")

    def test_rows_that_a_store_has_lost_are_told_of(self):
        store = self.start_store(own=True)
        self.embed(self.lines("first.txt", 20), "lost")
        store.kill()
        store.wait()
        self.start_store("--data-port", self.ports[0], "--meta-port", self.ports[1])
        self.assertIn("lacks 20 rows", self.embed(self.write("new.txt", "the fox\n"), "lost").err)

    def test_a_store_that_refuses_for_a_while(self):
        self.start_store("--refuse-calls", "2", "--rate-limited", "1", "--slow-down")
        result = self.embed(self.lines("refused.txt", 30), "refused", "--batch", "10")
        self.assertIn("sent again", result.err)
        self.expect_once("refused", self.texts(30))

    def test_a_full_store_is_filled_later(self):
        kept = self.path("full")
        os.makedirs(kept)
        store = self.start_store("--full", "--folder", kept)
        file = self.lines("full.txt", 20)
        command = ("embed", self.bert, "--file", file, "--to", self.address("full"), "--batch", "10")
        self.refuse(1, ["127.0.0.1"], *command)
        store.kill()
        store.wait()
        self.start_store("--data-port", self.ports[0], "--meta-port", self.ports[1], "--folder", kept)
        self.succeed(*command)
        self.expect_once("full", self.texts(20))

    def test_a_store_that_is_killed_in_the_middle(self):
        kept = self.path("kept")
        os.makedirs(kept)
        store = self.start_store("--folder", kept)
        count = 400
        command = [QUARREL, "embed", self.bert, "--file", self.lines("middle.txt", count), "--to", self.address("middle"),
                   "--batch", "4"]
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for_rows("middle", 40)
        store.kill()
        store.wait()
        self.start_store("--data-port", self.ports[0], "--meta-port", self.ports[1], "--folder", kept)
        process.wait(120)  # it may have gone on by itself, or given up
        self.succeed(*command[1:])
        self.expect_once("middle", self.texts(count))

    def stalled_in_the_middle(self):
        """A run whose store has taken some batches and is silent now: of as many texts as it takes to come in time."""
        store = self.start_store(own=True)
        for count in (1_000, 8_000, 64_000):
            dataset = f"silent-{count}"
            command = ("embed", self.bert, "--file", self.lines(f"{dataset}.txt", count), "--to", self.address(dataset),
                       "--batch", "4")
            process = subprocess.Popen([QUARREL, *command], env=self.environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            self.addCleanup(process.kill)
            self.wait_for_rows(dataset, 40)
            store.send_signal(signal.SIGSTOP)
            self.addCleanup(store.send_signal, signal.SIGCONT)
            if process.poll() is None:
                return store, process, command, dataset, count
            store.send_signal(signal.SIGCONT)
            process.communicate()
        self.fail("it was never in the middle")

    def test_a_store_that_stalls_in_the_middle_and_goes_on(self):
        store, process, _, dataset, count = self.stalled_in_the_middle()
        time.sleep(2)
        store.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(f"{count} stored".encode(), out)
        self.expect_once(dataset, self.texts(count))

    def test_a_run_is_ended_that_a_store_stalls_in_the_middle(self):
        store, process, command, dataset, count = self.stalled_in_the_middle()
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)
        self.assertLess(time.monotonic() - begun, 20, "a batch has longer than that")
        self.assertIn(b"the same command continues", err)
        store.send_signal(signal.SIGCONT)
        self.succeed(*command)
        self.expect_once(dataset, self.texts(count))

    def test_a_store_that_dies_with_a_batch_in_its_hands(self):
        store = self.start_store("--die-after", "1")
        command = ("embed", self.bert, "--file", self.lines("dying.txt", 20), "--to", self.address("dying"), "--batch", "8")
        process = subprocess.Popen([QUARREL, *command], env=self.environment, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        store.wait(60)
        self.start_store("--data-port", self.ports[0], "--meta-port", self.ports[1])
        process.wait(120)  # it may have gone on by itself, or given up
        self.succeed(*command)
        self.expect_once("dying", self.texts(20))

    def test_a_certificate_of_somebody_else(self):
        certificate, key = make_certificate(self.folder, "store")
        other, _ = make_certificate(self.folder, "other")
        self.start_store("--certificate", certificate, "--key", key)
        secure = self.address("secure").replace("longbow://127.0.0.1", "longbow+tls://localhost")
        command = ("embed", self.bert, "--file", self.lines("secure.txt", 3), "--to", secure)
        self.refuse(1, ["certificate"], *command, "--ca-file", other)
        self.succeed(*command, "--ca-file", certificate)

    def test_a_store_that_asks_for_a_token_and_a_certificate(self):
        certificate, key = make_certificate(self.folder, "guarded")
        own, own_key = make_certificate(self.folder, "own")
        self.start_store("--certificate", certificate, "--key", key, "--client-ca", own, "--token", "a-secret")
        to = self.address("guarded").replace("longbow://127.0.0.1", "longbow+tls://localhost")
        token = ("--token-file", self.write("token", "a-secret\n"))
        shown = ("--ca-file", certificate, "--cert-file", own, "--key-file", own_key)
        self.succeed("embed", self.bert, "--file", self.lines("guarded.txt", 3), "--to", to, *token, *shown)
        found = self.succeed("search", self.bert, to, "the dog", "-k", "5", "--json", *token, *shown)
        self.assertEqual(sorted(hit["text"] for hit in json.loads(found.out)), self.texts(3))
        self.assertEqual(json.loads(self.succeed("datasets", to, "--json", *token, *shown).out)["rows"], 3)
        self.refuse(1, ["no such token"], "datasets", to, *shown)
        self.refuse(1, ["no such token"], "datasets", to, "--token-file", self.write("wrong", "another\n"), *shown)
        refused = self.refuse(1, ["no such token"], "embed", self.bert, "--file", self.lines("guarded.txt", 3), "--to", to, *shown)
        self.assertNotIn("the same command continues", refused.err)
        quiet = {"GRPC_VERBOSITY": "NONE"}  # its own lines may come after ours
        self.refuse(1, ["localhost"], "datasets", to, *token, "--ca-file", certificate, environment=quiet)
        self.refuse(2, ["belong together"], "datasets", to, *token, "--ca-file", certificate, "--cert-file", own)
        self.refuse(1, ["absent"], "datasets", to, "--token-file", self.path("absent"), *shown)

    def wait_for(self, condition):
        for _ in range(600):
            if condition():
                return
            time.sleep(0.05)
        self.fail("it never came")

    def wait_for_rows(self, dataset, count):
        def there():
            shown = self.run_program("datasets", self.address(dataset), "--json")
            return shown.code == 0 and (json.loads(shown.out)["rows"] or 0) >= count
        self.wait_for(there)

    def test_killed_at_any_moment(self):
        chance = random.Random(19)
        self.start_store(*([] if REAL else ["--visible-after", "20"]))  # a real one takes its time by itself
        count = 400
        file = self.lines("killed.txt", count)
        command = [QUARREL, "embed", self.bert, "--file", file, "--to", self.address("killed"), "--batch", "8"]
        whole = time.monotonic()
        subprocess.run([*command[:6], self.address("measured"), *command[7:]], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL, timeout=120)
        whole = time.monotonic() - whole
        for _ in range(12):
            process = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0, whole + 1.5))  # another run looks twice, a second apart
            process.kill()
            process.wait()
        self.embed(file, "killed", "--batch", "8")
        self.assertEqual(self.rows("killed"), count)
        self.expect_once("killed", self.texts(count))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The chat as a person sees it: a screen, keys, pastes, a window that changes its size or is closed."""
import json
import os
import re
import signal
import unittest

import harness
from harness import INTERRUPT, ProgramTest

USUAL = (True, True, True)  # a terminal's settings when nobody edits
UP, LEFT, HOME = "\x1b[A", "\x1b[D", "\x1b[H"
FAMILY, FLAG, ACCENTED = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "e\u0301"


def pasted(text):
    return f"\x1b[200~{text}\x1b[201~"


class TerminalTest(ProgramTest):
    def chat(self, *arguments, **options):
        terminal = self.open_terminal("run", self.toy, "-n", "8", "--seed", "5", *arguments, **options)
        terminal.expect_screen([">>>"])
        return terminal

    def said(self, terminal):
        """What the model was given so far."""
        file = self.path("said.json")
        if os.path.exists(file):
            os.remove(file)
        terminal.type(f"/save {file}\r")
        terminal.expect("Saved")
        terminal.expect(">>> ")
        with open(file, encoding="utf-8") as saved:
            return [message["content"] for message in json.load(saved)["messages"] if message["role"] == "user"]


class Editing(TerminalTest):
    def test_a_paste_is_one_message(self):
        terminal = self.chat()
        lines = [f"line {number}" for number in range(40)]
        terminal.type(pasted("\r".join(lines) + "\x07\x1b[31m"))
        terminal.expect_screen(["... line 37", "... line 38", "... line 39[31m"])
        terminal.type("\x17\x17line 39\r")
        terminal.expect(">>> ")  # all of it is shown again from its start
        terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), ["\n".join(lines)])
        scrolled = "\n".join(terminal.screen.scrolled + terminal.screen.lines())
        self.assertIn(">>> line 0\n... line 1\n", scrolled)

    def test_a_megabyte(self):
        terminal = self.chat()
        terminal.type(pasted("word " * 200_000))
        terminal.expect_screen(lambda screen: "word word" in screen.lines()[-2])
        terminal.type("\x03")
        terminal.expect_screen([">>>"])
        terminal.type(pasted("x" * (5 << 20)) + "\x15short\r")
        terminal.expect("left out")
        terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), ["short"])

    def test_long_lines_wrap(self):
        terminal = self.chat(columns=30, rows=20)
        terminal.type("0123456789" * 5)
        terminal.expect_screen([">>> 01234567890123456789012345", "678901234567890123456789"])
        terminal.type(HOME + "<")
        terminal.expect_screen([">>> <0123456789012345678901234", "5678901234567890123456789"])
        self.assertEqual((terminal.screen.row, terminal.screen.column), (len(terminal.screen.lines()) - 2, 5))
        terminal.type("\x05\x15")
        terminal.expect_screen([">>>"])

    def test_characters_are_edited_whole(self):
        terminal = self.chat()
        terminal.type(f"a{FAMILY}{FLAG}{FLAG}{ACCENTED}日本")
        terminal.expect_screen([f">>> a{FAMILY}{FLAG}{FLAG}{ACCENTED}日本"])
        terminal.type("\x7f" + LEFT + LEFT + "\x7f" + LEFT + "\x7f!")
        terminal.expect_screen([f">>> a!{FLAG}{ACCENTED}日"])
        self.assertEqual(terminal.screen.column, 6)
        terminal.type("\r")
        terminal.expect("\n")
        terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), [f"a!{FLAG}{ACCENTED}日"])

    def test_what_is_no_text(self):
        terminal = self.chat()
        terminal.type(b"a\xff\xc3b\x1b]never ends\x1b[999999999999999999;;;;")
        terminal.expect_screen([">>> a\ufffd\ufffdb"])
        terminal.type("\x03")
        terminal.expect_screen([">>>"])
        terminal.type("still here")
        terminal.expect_screen([">>> still here"])

    def test_a_resized_window(self):
        terminal = self.chat(columns=60, rows=20)
        terminal.type("abcdefghij" * 4)
        terminal.expect_screen([">>> " + "abcdefghij" * 4])
        terminal.resize(30, 20)
        terminal.type("!")
        terminal.expect_screen([">>> abcdefghijabcdefghijabcdef", "ghijabcdefghij!"])
        self.assertEqual(terminal.screen.text().count(">>> abc"), 1)
        terminal.resize(70, 12)
        terminal.type("?")
        terminal.expect_screen([">>> " + "abcdefghij" * 4 + "!?"])
        self.assertEqual(terminal.screen.text().count("abc"), 4)

    def test_completion(self):
        terminal = self.chat()
        terminal.type("/se\t")
        terminal.expect_screen([">>> /set"])
        terminal.type("te\t")
        terminal.expect_screen([">>> /set temperature"])
        terminal.type("\x15/set mirostat\t\t")
        terminal.expect_screen(["mirostat      mirostat_eta  mirostat_tau", ">>> /set mirostat"])
        terminal.type("\x15/set overflow s\t")
        terminal.expect_screen([">>> /set overflow stop"])
        terminal.type("\x15/load " + self.path("to") + "\t")
        terminal.expect_screen(lambda screen: "toy.gguf" in screen.text())

    def test_colours(self):
        terminal = self.open_terminal("run", self.toy)
        terminal.expect(">>> ")
        terminal.type("/frob\r/set frob 1\r")
        self.assertRegex(terminal.expect("error:"), r"\x1b\[[0-9;]+m")
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
            terminal = self.open_terminal("run", self.toy, environment=environment)
            shown = terminal.expect(">>> ")
            terminal.type("/set frob 1\r")
            shown += terminal.expect("error:") + terminal.expect(">>> ")
            self.assertNotRegex(shown, r"\x1b\[[0-9;]*m")

    def test_colours_of_other_commands(self):
        for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
            terminal = self.open_terminal("inspect", "nonesuch", environment=environment)
            self.assertEqual("\x1b[" in terminal.expect("error:"), coloured)
            self.assertEqual(terminal.wait(), 1)

    def test_a_dumb_terminal_reads_lines(self):
        terminal = self.open_terminal("run", self.toy, "-n", "8", environment={"TERM": "dumb"})
        shown = terminal.expect(">>> ")
        terminal.type("Hello there\n")
        shown += terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), ["Hello there"])
        terminal.type("\x03")
        shown += terminal.expect("once more")
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)
        self.assertNotIn("\x1b", shown + terminal.shown)


class History(TerminalTest):
    def test_it_survives_a_closed_window(self):
        for number, leave in enumerate((lambda chat: chat.hang_up(), lambda chat: chat.process.kill())):
            terminal = self.chat()
            terminal.type(pasted(f"/set seed {number}\rmore") + "\r")
            terminal.expect("error:")
            leave(terminal)
            terminal = self.chat()
            terminal.type(UP)
            terminal.expect_screen([f">>> /set seed {number}", "... more"])
            terminal.type("\x03")
            terminal.close()

    def test_two_chats(self):
        one, other = self.chat(), self.chat()
        for number in range(5):
            for name, terminal in (("one", one), ("other", other)):
                terminal.type(f"/set stop {name}{number}\r")
                terminal.expect(f'"{name}{number}"')
                terminal.expect(">>> ")
        with open(self.path("state/quarrel/history"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for name in ("one", "other"):
            for number in range(5):
                self.assertEqual(lines.count(f"/set stop {name}{number}"), 1)

    def test_search(self):
        terminal = self.chat()
        for line in ("/set top_k 7", "/set top_p 0.5", "/set min_p 0.25"):
            terminal.type(line + "\r")
            terminal.expect("\n")
            terminal.expect(">>> ")
        terminal.type("\x12top")
        terminal.expect_screen(["(search 'top') /set top_p 0.5"])
        terminal.type("\x12")
        terminal.expect_screen(["(search 'top') /set top_k 7"])
        terminal.type("\r")
        terminal.expect_screen([">>> /set top_k 7", "  top_k                   7", ">>>"])


class Leaving(TerminalTest):
    def test_the_terminal_is_left_as_it_was(self):
        for leave in (lambda chat: chat.type("\x04"), lambda chat: chat.type("/bye\r"),
                      lambda chat: chat.process.send_signal(signal.SIGTERM),
                      lambda chat: chat.process.send_signal(signal.SIGQUIT),
                      lambda chat: chat.process.send_signal(signal.SIGHUP), lambda chat: chat.type("\x1c"),
                      self.interrupt_twice):
            terminal = self.chat()
            before = terminal.settings()
            self.assertEqual(before, (False, False, False))
            leave(terminal)
            terminal.wait()
            self.assertEqual(terminal.settings(), USUAL)

    @staticmethod
    def interrupt_twice(terminal):
        terminal.process.send_signal(INTERRUPT)
        terminal.expect("once more")
        terminal.expect(">>> ")
        terminal.process.send_signal(INTERRUPT)

    def test_a_signal_is_a_ctrl_c(self):
        terminal = self.chat()
        terminal.type("half a line")
        terminal.expect_screen([">>> half a line"])
        terminal.process.send_signal(INTERRUPT)
        terminal.expect_screen([">>> half a line", ">>>"])

    def test_into_the_background_and_back(self):
        terminal = self.open_terminal("--norc", "--noprofile", "-i", program="bash",
                                      environment={"PS1": "shell: ", "TERM": "xterm"})
        terminal.expect_screen(["shell:"])
        terminal.type(f"{os.path.abspath(harness.QUARREL)} run {self.toy}\r")
        terminal.expect_screen([">>>"])
        terminal.type("half")
        terminal.expect_screen([">>> half"])
        terminal.type("\x1a")
        terminal.expect_screen(lambda screen: "Stopped" in screen.text() and screen.lines()[-1] == "shell:")
        terminal.type("stty | grep -c -- -echo; fg\r")
        terminal.expect_screen([">>> half"])
        terminal.type(" a line")
        terminal.expect_screen([">>> half a line"])
        self.assertEqual(terminal.settings(), (False, False, False))
        # A signal of somebody else stops it too.
        os.kill(self.child_of(terminal.process.pid), signal.SIGTSTP)
        terminal.expect_screen(lambda screen: screen.text().count("Stopped") == 2 and screen.lines()[-1] == "shell:")
        terminal.type("fg\r")
        terminal.expect_screen([">>> half a line"])

    @staticmethod
    def child_of(process):
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
            return int(file.read().split()[0])


class Commands(TerminalTest):
    def test_set_says_what_it_set(self):
        terminal = self.chat()
        terminal.type("/set temperature 0.25\r")
        terminal.expect_screen(["  temperature             0.25", ">>>"])
        terminal.type("/set temperature\r")
        terminal.expect_screen(lambda screen: re.search(r"0\.25\n.*most likely token\n>>>$", screen.text()))
        terminal.resize(40, 24)
        terminal.type("/set temperature\r")
        terminal.expect_screen(lambda screen: re.search(r"0\.25\n  how freely[^\n]*\n  [^\n]*token\n>>>$", screen.text()))
        terminal.resize(80, 24)
        terminal.type("/set seed 7\r/set seed \"\"\r")
        terminal.expect_screen(["  seed                    random", ">>>"])
        terminal.type("/set stop\r")
        terminal.expect_screen(lambda screen: re.search(r"stop +\(none\)\n", screen.text()))

    def test_show_takes_a_subject(self):
        terminal = self.chat("--system", "Be brief.")
        terminal.type("/show system\r")
        terminal.expect_screen(["Be brief.", ">>>"])
        terminal.type("/show template\r")
        self.assertIn("messages", terminal.expect(">>> "))
        terminal.expect_screen([">>>"])
        terminal.type("/show parameters\r")
        terminal.expect_screen(lambda screen: re.search(r"top_k +40", screen.text()) and screen.lines()[-1] == ">>>")
        terminal.type("/show messages\r")
        terminal.expect_screen(["No messages yet.", ">>>"])
        terminal.type("/show frob\r")
        terminal.expect("error:")
        self.assertIn("info, license", terminal.expect(">>> "))

    def test_save_asks_before_it_overwrites(self):
        terminal = self.chat()
        file = self.path("kept.json")
        terminal.type(f"/save {file}\r")
        terminal.expect("Saved 0")
        terminal.expect(">>> ")
        terminal.type(f"/system Be kind.\r/save {file}\r")
        terminal.expect("[y/N]")
        terminal.type("n\r")
        terminal.expect("Nothing was saved")
        self.assertNotIn("kind", self.content(file))
        terminal.expect(">>> ")
        terminal.type(f"/save {file}\r")
        terminal.expect("[y/N]")
        terminal.type("\x03")
        terminal.expect("Nothing was saved")
        terminal.expect(">>> ")
        terminal.type(f"/save {file}\r")
        terminal.expect("[y/N]")
        terminal.type("y\r")
        terminal.expect("Saved 0")
        self.assertIn("kind", self.content(file))

    def test_a_question_longer_than_the_line_is_shown(self):
        terminal = self.chat(columns=40)
        file = self.path("k" * 60 + ".json")
        terminal.type(f"/save {file}\r")
        terminal.expect("Saved 0")
        terminal.expect(">>> ")
        terminal.type(f"/save {file}\r")
        terminal.expect_screen(lambda screen: screen.lines()[-1] == "[y/N]"
                               and "alreadyexists.Overwriteit?" in "".join(screen.text().split()))
        terminal.type("n\r")
        terminal.expect("Nothing was saved")

    @staticmethod
    def content(path):
        with open(path, encoding="utf-8") as file:
            return file.read()


class Help(TerminalTest):
    def test_it_is_as_wide_as_the_terminal(self):
        def widest(text):
            return max(len(line) for line in text.splitlines() if not line.startswith("  quarrel "))
        self.assertLessEqual(widest(self.succeed("run", "--help").out.decode()), 100)
        for columns in (50, 80):
            terminal = self.open_terminal("run", "--help", columns=columns, rows=400)
            self.assertEqual(terminal.wait(), 0)
            shown = terminal.shown.replace("\r", "")
            shown = shown[:shown.index("Examples:")]
            self.assertLessEqual(widest(shown), columns)
            self.assertGreater(widest(shown), columns - 12)


class Overflow(TerminalTest):
    MESSAGE = "x!" * 45 + "\r"  # of about 100 tokens, where the toy's context is 512

    def turns(self, terminal, count):
        """What was shown while so many messages were answered."""
        shown = ""
        for _ in range(count):
            terminal.type(self.MESSAGE)
            terminal.expect("\n")
            shown += terminal.expect(">>> ")
        return shown

    def test_the_oldest_turns_are_dropped(self):
        terminal = self.chat("--system", "Be brief.")
        shown = self.turns(terminal, 4)
        self.assertNotIn("dropped", shown)
        shown = self.turns(terminal, 2)
        self.assertRegex(shown, r"The context of 512 tokens is full: the \d oldest turns were dropped\.")
        self.assertNotIn("error:", shown)
        terminal.type("/show\r")
        terminal.expect_screen(lambda screen: re.search(r"messages +12, the first \d+ dropped", screen.text()))
        self.assertEqual(len(self.said(terminal)), 6)  # what is saved is whole
        self.turns(terminal, 6)  # it goes on and on
        terminal.type("/clear\r/show\r")
        terminal.expect_screen(lambda screen: re.search(r"messages +0\n", screen.text()))

    def test_what_was_dropped_for_a_message_comes_back_when_that_is_stopped(self):
        toy = self.make_toy("chat", "long.gguf", 60000)
        terminal = self.open_terminal("run", toy, "-n", "4", "-t", "1", "--ctx", "8192", environment={"QUARREL_ISA": "scalar"})
        terminal.expect_screen([">>>"])
        terminal.type(pasted("word " * 2_000) + "\r")
        terminal.expect("reading the prompt: ")
        terminal.expect(">>> ")
        terminal.type(pasted("again " * 2_000) + "\r")
        terminal.expect("dropped.")
        terminal.expect("reading the prompt: ")
        terminal.type("\x03")
        terminal.expect("Stopped before the answer began")
        terminal.type("/show\r")
        terminal.expect_screen(lambda screen: re.search(r"messages +2\n", screen.text()))

    def test_or_it_stops(self):
        terminal = self.chat()
        terminal.type("/set overflow\r")
        terminal.expect_screen(lambda screen: re.search(r"overflow +drop\n", screen.text()))
        terminal.type("/set overflow shift\r")
        terminal.expect("is not drop or stop")
        terminal.type("/set overflow stop\r")
        terminal.expect_screen(["  overflow                stop", ">>>"])
        shown = self.turns(terminal, 6)
        self.assertIn("error:", shown)
        self.assertIn("not kept. /clear begins a new conversation", shown)
        self.assertNotIn("dropped", shown)

    def test_what_earlier_turns_have_no_part_in(self):
        terminal = self.chat()
        for overflow in ("drop", "stop"):
            terminal.type(f"/set overflow {overflow}\r")
            terminal.expect_screen([f"  overflow                {overflow}", ">>>"])
            terminal.type("x!" * 400 + "\r")
            terminal.expect("error:")
            self.assertNotIn("/clear", terminal.expect(">>> "))

    def test_blank_lines_are_no_message(self):
        terminal = self.chat()
        terminal.type(pasted(" \n\t\n\n") + "\r")
        terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), [])

    def test_an_answer_that_is_cut(self):
        terminal = self.chat("-n", "-1", "--ctx", "64", *(word for token in range(3) for word in
                                                         ("--logit-bias", f"{token}=-1000")))
        terminal.type("Hello\r")
        terminal.expect("The answer was cut: the context of 64 tokens is full")


class Model(TerminalTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name in ("parrot", "sparrow"):
            os.symlink(cls.make_toy("chat", f"{name}.gguf", 700), cls.path(f"models/{name}.gguf"))
        with open(cls.path("models/broken.gguf"), "wb") as file:
            file.write(b"GGUF and no more")

    def test_a_chat_goes_on_with_another_model(self):
        terminal = self.chat("--temp", "0.5")
        terminal.type("/set top_k 7\r/set stop END\r/system Be kind.\r")
        terminal.expect("system prompt is set")
        terminal.type("Hello\r")
        terminal.expect("\n")
        terminal.expect(">>> ")
        terminal.type("/model par\t\r")
        terminal.expect("parrot on ")
        self.assertIn("context 700", terminal.expect("2 messages"))
        terminal.expect(">>> ")
        terminal.type("/show parameters\r")
        shown = terminal.expect(">>> ")
        for line in (r"temperature +0\.5", r"top_k +7", r'stop +"END"', r"system +Be kind\."):
            self.assertRegex(shown, line)
        terminal.type("And you?\r")
        terminal.expect("\n")
        terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), ["Hello", "And you?"])

    def test_models_without_answers_are_not_offered(self):
        os.symlink(self.make_toy("bert", "bert.gguf"), self.path("models/partial.gguf"))
        terminal = self.chat()
        terminal.type("/model\r")
        terminal.expect("available")
        shown = terminal.expect(">>> ")
        self.assertIn("sparrow", shown)
        self.assertNotIn("partial", shown)
        terminal.type("/model par\t")
        terminal.expect_screen([">>> /model parrot"])

    def test_a_failed_load_keeps_the_old_one(self):
        terminal = self.chat()
        terminal.type("Hello\r")
        terminal.expect("\n")
        terminal.expect(">>> ")
        for name in ("broken", "nonesuch", "/nowhere.gguf"):
            terminal.type(f"/model {name}\r")
            terminal.expect("error:")
            terminal.expect("The model is still toy.")
            terminal.expect(">>> ")
        terminal.type("And you?\r")
        terminal.expect("\n")
        terminal.expect(">>> ")
        self.assertEqual(self.said(terminal), ["Hello", "And you?"])

    def test_biases_are_checked_with_its_vocabulary(self):
        larger = self.make_toy("channels", "larger.gguf")

        def vocabulary(model):
            refused = self.refuse(2, ["vocabulary"], "run", model, "hi", "--logit-bias", "99999999=1")
            return int(re.search(r"vocabulary of (\d+) tokens", refused.err).group(1))

        small, large = vocabulary(self.toy), vocabulary(larger)
        self.assertLess(small, large)
        terminal = self.open_terminal("run", larger, "--logit-bias", f"{large - 1}=-1")
        terminal.expect(">>> ")
        terminal.type("/model parrot\r")
        terminal.expect(f"logit_bias: token {large - 1} is not in the model's vocabulary of {small} tokens")
        terminal.expect("The model is still larger.")
        terminal.type(f"/set logit_bias {large}=1\r")
        terminal.expect(f"logit_bias: token {large} is not in the model's vocabulary of {large} tokens")
        terminal.type('/set logit_bias ""\r/set logit_bias 5=1\r')
        terminal.expect(">>> ")
        terminal.type("/model parrot\r")
        terminal.expect("logit_bias now means other tokens")
        terminal.expect(">>> ")
        terminal.type("/model sparrow\r")
        self.assertNotIn("logit_bias", terminal.expect("sparrow on ") + terminal.expect(">>> "))
        terminal.type("/bye\r")
        self.assertEqual(terminal.wait(), 0)

    def test_which_there_are(self):
        terminal = self.chat()
        terminal.type("/model\r")
        terminal.expect_screen(lambda screen: re.search(r"model +toy\n +available +parrot\n +sparrow\n", screen.text()))
        terminal.type("/model \t\t")
        terminal.expect_screen(["parrot   sparrow", ">>> /model"])


class Answers(TerminalTest):
    def test_a_sign_of_life_while_a_prompt_is_read(self):
        toy = self.make_toy("chat", "long.gguf", 60000)
        terminal = self.open_terminal("run", toy, "-n", "8", "-t", "1", environment={"QUARREL_ISA": "scalar"})
        terminal.expect_screen([">>>"])
        terminal.type(pasted("word " * 2_500) + "\r")
        terminal.expect("reading the prompt: ")
        self.assertRegex(terminal.expect(" tokens"), r"\d+ of \d{4}")
        terminal.expect(">>> ")
        self.assertNotIn("reading", terminal.screen.text())

    def test_words_are_not_cut(self):
        terminal = self.chat("-n", "100", *self.words_only(), columns=24, rows=60)
        terminal.type("Hello\r")
        terminal.expect("\n")
        terminal.expect(">>> ")
        file = self.path("answer.json")
        terminal.type(f"/save {file}\r")
        terminal.expect("Saved 2")
        with open(file, encoding="utf-8") as saved:
            answer = json.load(saved)["messages"][1]["content"]
        self.assertGreater(len(answer.split()), 10)
        lines = terminal.screen.lines()
        begin = lines.index(">>> Hello") + 1
        end = next(index for index in range(begin, len(lines)) if lines[index].startswith(">>>"))
        self.assertGreater(end - begin, 3)
        self.assertEqual(" ".join(lines[begin:end]).split(), answer.split())

    def test_nor_those_of_one_answer(self):
        options = ("-n", "100", "--seed", "5", *self.words_only())
        answer = self.succeed("run", self.toy, "Hello", *options).out.decode()
        self.assertGreater(len(answer), 200)
        terminal = self.open_terminal("run", self.toy, "Hello", *options, columns=24, rows=60)
        self.assertEqual(terminal.wait(), 0)
        lines = terminal.screen.lines()
        self.assertGreater(len(lines), 3)
        self.assertEqual(" ".join(lines).split(), answer.split())

    def words_only(self):
        """Makes the toy write words."""
        likely = []
        for word in (" the", " world", " would", " they", " there", " have", " what"):
            token = json.loads(self.succeed("tokenize", self.toy, input=word).out)[0]
            likely += ["--logit-bias", f"{token}=60"]
        return likely


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The completion scripts of zsh and fish and the manual page, read as these programs read them: none of them has to be
installed. Each is turned into a table of commands and options, and the tables have to be the same. What bash does with
its own script is tested in test_cli.py, by bash."""
import re
import subprocess
import unittest

from harness import ProgramTest

# zsh's functions that a completion calls write down what they were called with; bash, which quotes words in the same
# way, runs the script.
ZSH_IN_BASH = r"""
compdef() { :; }
_arguments() {
  if [ "$1" = -C ]; then shift; printf '%s\0' ">$word"; state=$wanted; else printf '%s\0' "<$word"; fi
  printf '%s\0' "$@"
}
_describe() { printf '%s\0' "#" "${commands[@]}"; }
"""
WORD = r"[a-z][a-z0-9_-]*"
NAME = r"--?[A-Za-z0-9][A-Za-z0-9_-]*"
ESCAPED = r"(?:[^\[\]:\\]|\\.)*"
ZSH_OPTION = re.compile(rf"(?:\(({NAME}(?: {NAME})+)\))?({NAME})\[({ESCAPED})\](?::({ESCAPED}):(.*))?")
ZSH_POSITIONAL = re.compile(rf"(\d+|\*):({ESCAPED}):(.*)")
ZSH_ACTION = re.compile(r"\([^()]+\)|_quarrel_models|_files|_files -/| ")
FISH_VALUED = {"-c", "-n", "-s", "-l", "-a", "-d"}
FISH_FLAGS = {"-x", "-r", "-f", "-F"}
MAN_REQUESTS = {".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"}


def fish_words(line):
    """Fish's words: in single quotes a backslash stands before a quote or a backslash, and is itself before others."""
    words, at = [], 0
    while at < len(line):
        if line[at] == " ":
            at += 1
            continue
        word = ""
        while at < len(line) and line[at] != " ":
            if line[at] != "'":
                if line[at] in "\\\"$*?~#(){}[]<>;&|":
                    raise AssertionError(f"{line[at]} means something to fish: {line}")
                word += line[at]
                at += 1
                continue
            at += 1
            while line[at] != "'":  # an IndexError is a quote that does not end
                if line[at] == "\\" and line[at + 1] in "'\\":
                    at += 1
                word += line[at]
                at += 1
            at += 1
        words.append(word)
    return words


class Completion(ProgramTest):
    def setUp(self):
        super().setUp()
        self.commands = self.command_names()

    def output(self, *arguments):
        return self.succeed(*arguments).out.decode()

    def options_of_help(self, command):
        """Names of the options, and whether they take a value."""
        found = re.findall(rf"(?m)^  ({NAME}(?:,{NAME})*)( [^ a-z\[\n][^ \n]*)?(?: \.\.\.(?: |$)|  |$)",
                           self.output(command, "--help"))
        return {frozenset(names.split(",")): bool(value.strip()) for names, value in found}

    def zsh(self):
        """{command: {option names: (description, takes a value)}}, {command: description}"""
        script = self.output("completion", "zsh")
        self.assertTrue(script.startswith("#compdef quarrel\n"))
        self.assertEqual(script.count("$words[1]"), 1)
        described = dict(re.findall(rf"(?m)^    '({WORD}):(.*)'$", script))
        # In bash an index needs braces, and arrays begin at 0; neither is what is tested.
        runnable = script.replace("$words[1]", "$word").replace("$funcstack[1]", "none")
        calls = "".join(f"word={name} wanted=argument; _quarrel\n" for name in described)
        done = subprocess.run(["bash", "-c", f"{ZSH_IN_BASH}\n{runnable}\nword=- wanted=command; _quarrel\n{calls}"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        commands, tables, current = {}, {}, None
        for word in done.stdout.decode().split("\0")[:-1]:
            if re.fullmatch(rf"[<>](-|{WORD})", word):
                # All that the program takes is listed once for each command.
                current = tables.setdefault(word[1:] if word[0] == "<" else "", {})
                continue
            if word == "#":
                current = None
                continue
            if current is None:
                match = re.fullmatch(rf"({WORD}):((?:[^:\\]|\\.)*)", word)
                self.assertTrue(match, word)
                commands[match.group(1)] = re.sub(r"\\(.)", r"\1", match.group(2))
                continue
            option = ZSH_OPTION.fullmatch(word)
            if option is None:
                positional = ZSH_POSITIONAL.fullmatch(word)
                self.assertTrue(positional, word)
                if not word.startswith(("1:command:", "*::argument:")):
                    self.assertRegex(positional.group(3), f"^(?:{ZSH_ACTION.pattern})$")
                continue
            together, name, description, value, action = option.groups()
            if action is not None:
                self.assertRegex(action, f"^(?:{ZSH_ACTION.pattern})$")
            names = frozenset((together or name).split())
            self.assertIn(name, names)
            entry = (re.sub(r"\\(.)", r"\1", description), value is not None)
            self.assertEqual(current.setdefault(names, entry), entry)
        self.assertEqual(set(commands), set(described))
        return tables, commands

    def fish(self):
        lines = self.output("completion", "fish").splitlines()
        self.assertEqual(lines[1:4], ["function __quarrel_models", "    quarrel list --names 2> /dev/null", "end"])
        tables, commands = {}, {}
        for line in lines[4:]:
            words = fish_words(line)
            self.assertEqual(words[0], "complete")
            given, flags, at = {}, set(), 1
            while at < len(words):
                if words[at] in FISH_VALUED:
                    given.setdefault(words[at], []).append(words[at + 1])
                    at += 2
                else:
                    self.assertIn(words[at], FISH_FLAGS, line)
                    flags.add(words[at])
                    at += 1
            self.assertEqual(given["-c"], ["quarrel"])
            (condition,) = given["-n"]
            names = condition.removeprefix("__fish_seen_subcommand_from ").split()
            if condition == "__fish_use_subcommand":
                names = [""]
                for name in given.get("-a", [""])[0].split():
                    commands[name] = given["-d"][0]
            options = frozenset(["-" + name for name in given.get("-s", [])] + ["--" + name for name in given.get("-l", [])])
            for name in names:
                table = tables.setdefault(name, {})
                if options:
                    self.assertNotIn(options, table, line)
                    table[options] = (given["-d"][0], bool(flags & {"-x", "-r"}))
        return tables, commands

    def man(self):
        """Of each command: its options with their descriptions, which say more than those of the scripts."""
        tables, current, tag, verbatim = {}, None, None, False
        lines = self.output("help", "--man").splitlines()
        self.assertTrue(lines[0].startswith(".TH QUARREL 1 "))
        sections = [line[4:] for line in lines if line.startswith(".SH ")]
        self.assertEqual(sections, ["NAME", "SYNOPSIS", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT"])
        for number, line in enumerate(lines):
            self.assertFalse(line.startswith("'"), "that would be a request")
            # Only what is known to mean something stands behind a backslash, and each font ends where it began.
            self.assertEqual(re.sub(r"\\(?:f[BIR]|[-e&])", "", line).count("\\"), 0, line)
            self.assertRegex(line, r"^(?:[^\\]|\\[-e&]|\\f[BI](?:[^\\]|\\[-e&])*\\fR)*$")
            text = re.sub(r"\\(f[BIR]|[-e&])", lambda m: {"-": "-", "e": "\\"}.get(m.group(1), ""), line)
            if line.startswith("."):
                request = line.split(" ")[0]
                self.assertIn(request, MAN_REQUESTS, line)
                if request in (".nf", ".fi"):
                    self.assertEqual(verbatim, request == ".fi")
                    verbatim = request == ".nf"
                self.assertFalse(verbatim and request != ".nf", line)
                if request == ".SS":
                    current = tables.setdefault(text[4:], {})
                elif request == ".SH":
                    current = tables.setdefault("", {}) if text == ".SH OPTIONS" else None
                continue
            if lines[number - 1] == ".TP":
                tag = text
            elif tag is not None and lines[number - 2] == ".TP":
                names = frozenset(re.findall(rf"(?:^|, )({NAME})", tag))
                if names and current is not None:
                    current[names] = text
        self.assertFalse(verbatim)
        return tables

    def test_the_scripts_and_the_manual_say_the_same(self):
        self.assertGreater(len(self.commands), 15)
        zsh, zsh_commands = self.zsh()
        fish, fish_commands = self.fish()
        man = self.man()
        self.assertEqual(zsh_commands, fish_commands)
        self.assertLessEqual(set(self.commands), set(zsh_commands))
        self.assertEqual(zsh, fish)
        self.assertEqual(set(zsh), {"", *zsh_commands})
        for command, table in man.items():
            expected = {names for names in zsh[command] if command == "" or "--help" not in names}
            self.assertEqual(set(table), expected, command)
            for names, text in table.items():
                self.assertTrue(text.startswith(zsh[command][names][0]), (command, names, text))
        self.assertEqual(set(man), {"", *self.commands})

    def test_they_have_what_the_help_has(self):
        zsh = self.zsh()[0]
        for command in self.commands:
            wanted = self.options_of_help(command)
            self.assertIn(frozenset(["-h", "--help"]), wanted)
            self.assertEqual({names: value for names, (_, value) in zsh[command].items()}, wanted, command)


if __name__ == "__main__":
    unittest.main()

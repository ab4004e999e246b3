#!/usr/bin/env python3
"""The same fault ends every command with the same exit code; nothing is ignored or changed without a word."""
import json
import os
import re
import shlex
import subprocess
import unittest

from harness import QUARREL, TIMEOUT, ProgramTest


class SameFaultSameCode(ProgramTest):
    """A table of faults; each is tried on every command that can meet it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bert = cls.make_toy("bert", "bert.gguf")
        cls.text = cls.path("text.txt")
        with open(cls.text, "w", encoding="utf-8") as file:
            file.write("Some words of a text. " * 40)
        for name, content in (("notes.gguf", b"these are notes\n" * 20), ("empty.gguf", b"")):
            with open(cls.path(name), "wb") as file:
                file.write(content)
        cls.out = cls.path("out.bin")

    def reading(self, model):
        """Every command that opens a model."""
        return (("run", model, "hi"), ("inspect", model), ("estimate", model), ("tokenize", model),
                ("template", model, "--input", "-"), ("quantize", model, self.out, "Q8_0"), *self.running(model))

    def running(self, model, *options):
        """Every command that computes with one, and the one that says what that would take."""
        return (("logits", model, "--tokens", "1", "--out", self.out, *options),
                ("generate", model, "--tokens", "1", *options), ("embed", model, "hi", *options),
                ("perplexity", model, "--file", self.text, *options), ("bench", model, *options),
                ("bench", model, "--serve", *options), ("estimate", model, *options), ("run", model, "hi", *options))

    def each(self, code, words, commands, **options):
        for command in commands:
            with self.subTest(command):
                self.refuse(code, words, *command, **options)
                self.assertFalse(os.path.exists(self.out), command)

    def test_models(self):
        self.each(1, ["no model 'nobody'", "quarrel list", "quarrel pull"], (*self.reading("nobody"), ("cp", "nobody", "x")),
                  input="[]")
        for name in ("missing.gguf", "notes.gguf", "empty.gguf"):
            self.each(1, [name], self.reading(self.path(name)), input="[]")
        self.each(2, ["folder"], self.reading(self.folder), input="[]")

    def test_options_of_a_model(self):
        for options, words in ((("--backend", "abacus"), ["--backend", "'abacus' is not one of cpu", "reference, auto"]),
                               (("--frob",), ["--frob"]),
                               (("--ctx", "lots"), ["--ctx", "'lots'"]),
                               (("--ctx", "0"), ["--ctx", "'0'"]),
                               (("--ctx", "1"), ["--ctx", "the minimum is 2"]),
                               (("--ctx", "900M"), ["--ctx", "too long"]),
                               (("--threads", "-1"), ["--threads: '-1' is not a whole number, 0 or more"]),
                               (("--threads", "many"), ["--threads: 'many' is not a whole number"]),
                               (("--threads", "100000"), ["--threads", "100000", "the maximum is"]),
                               (("--memory-budget", "much"), ["--memory-budget", "'much'"]),
                               (("--kv", "f8"), ["--kv", "f16"])):
            self.each(2, words, self.running(self.toy, *options))
        # What it would take is more than there is; the load of `bench --serve` needs no more than its texts.
        beyond_memory = self.running(self.toy, "--ctx", "60M")
        self.each(1, ["context", "--ctx"], [command for command in beyond_memory if "--serve" not in command])

    def test_input_files(self):
        commands = (("template", self.toy, "--input", "{}"), ("perplexity", self.toy, "--file", "{}"),
                    ("embed", self.toy, "--file", "{}"), ("run", self.toy, "--file", "{}"),
                    ("generate", self.toy, "--tokens", "@{}"), ("logits", self.toy, "--out", self.out, "--tokens", "@{}"),
                    ("embed", self.toy, "--tokens", "@{}"), ("regress", "{}"))
        for code, path, words in ((1, self.path("missing.txt"), ["missing.txt"]), (2, self.folder, ["folder"])):
            self.each(code, words, [[word.format(path) for word in command] for command in commands])

    def test_output_files(self):
        suite = self.path("suite.toml")
        with open(suite, "w", encoding="utf-8") as file:
            file.write('[[models]]\nname = "nobody"\noptional = true\n[[models.logits]]\ntokens = [1]\nmax_nmse = 1\n')
        commands = (("logits", self.toy, "--tokens", "1", "--out", "{}"), ("embed", self.toy, "hi", "--out", "{}"),
                    ("quantize", self.toy, "{}", "Q8_0"))
        for code, path, words in ((2, self.folder, ["folder"]), (1, self.path("nowhere/out"), ["nowhere/out"])):
            self.each(code, words, [[word.format(path) for word in command] for command in commands])
            result = self.run_program("regress", suite, "--report", path)
            self.assertEqual(result.code, code, result)

    def test_sampling(self):
        for command in (("run", self.toy, "hi"), ("generate", self.toy, "--tokens", "1")):
            self.assertNotIn("not expected", self.refuse(2, ["--max-tokens"], *command, "--max-tokens", "-2").err)
        for options in (("--temperature", "-1"), ("--top-k", "-1"), ("--top-p", "7"), ("--min-p", "nan"),
                        ("--repeat-penalty", "0"), ("--repeat-last-n", "-5"), ("--max-tokens", "-2"), ("--max-tokens", "many"),
                        ("--mirostat-tau", "-1"), ("--seed", "-5")):
            self.each(2, [options[0]], (("run", self.toy, "hi", *options),
                                        ("generate", self.toy, "--tokens", "1", *options)))

    def test_tokens(self):
        file = self.path("tokens.txt")
        for tokens in ("", "x", "1,,2", "99999999", "-3"):
            with open(file, "w", encoding="utf-8") as written:
                written.write(tokens)
            # What stands on the command line is wrong usage, what stands in a file is a bad file.
            for code, given in ((2, [f"--tokens={tokens}"] if tokens else ["--tokens", ""]), (1, [f"--tokens=@{file}"])):
                self.each(code, ["token"], (("generate", self.toy, *given), ("embed", self.toy, *given),
                                            ("logits", self.toy, "--out", self.out, *given)))
        self.refuse(2, ["--logit-bias", "99999999", "vocabulary"], "run", self.toy, "hi", "--logit-bias", "99999999=1")

    def test_what_does_not_fit_the_context(self):
        long = ",".join(["1"] * 600)
        self.each(1, ["context"], (("generate", self.toy, "--tokens", long), ("run", self.toy, "word " * 600),
                                   ("logits", self.toy, "--out", self.out, "--tokens", long)))
        # It is not a text that is too long but a number that is too large.
        self.each(2, ["context"], (("bench", self.toy, "-p", "600"), ("bench", self.toy, "-p", "0", "-n", "600"),
                                   ("bench", self.toy, "--serve", "--prompt-tokens", "600"),
                                   ("perplexity", self.toy, "--file", self.text, "--window", "600")))

    def test_models_that_only_embed(self):
        self.each(1, ["embed"], (("run", self.bert, "hi"), ("generate", self.bert, "--tokens", "1"),
                                 ("bench", self.bert), ("bench", self.bert, "--serve"),
                                 ("bench", self.bert, "-p", "100000"),
                                 ("perplexity", self.bert, "--file", self.text)))

    def test_a_context_that_the_model_has_no_positions_for(self):
        for command in (("embed", self.bert, "hi"), ("estimate", self.bert)):
            said = self.refuse(2, ["has positions for"], *command, "--ctx", "100000").err
            self.assertNotIn("warning", said)

    def test_a_backend_that_this_build_lacks(self):
        environment = {"QUARREL_CONFIG": self.path("settings.toml")}
        with open(environment["QUARREL_CONFIG"], "w", encoding="utf-8") as file:
            file.write('[engine]\nbackend = "cuda"\n')
        if re.search(r"\([^()]*\bcuda\b[^()]*\bauto\b[^()]*\)", self.succeed("run", "--help").out.decode()):
            self.skipTest("this build has the CUDA backend")
        for option in (("--backend", "cuda"), ("--device", "cuda"), ("--device", "cuda:1")):
            for command in (("run", self.toy, "hi"), ("bench", self.toy), ("serve", self.toy, "--port", "0")):
                self.refuse(1, ["this build has no CUDA backend", "libquarrel_cuda.so"], *command, *option)
        self.refuse(1, ["this build has no CUDA backend"], "serve", self.toy, "--port", "0", environment=environment)

    def test_an_output_in_a_folder_that_is_not_there(self):
        self.refuse(2, [f"cannot write '{self.path('absent/')}': there is no such folder"], "embed", self.bert, "--tokens",
                    "1,2", "-o", self.path("absent/"))

    def test_the_manual_page_is_of_all_commands(self):
        self.refuse(2, ["--man", "name none"], "help", "--man", "run")


class NothingSilent(ProgramTest):
    def test_options_that_exclude_each_other(self):
        self.refuse(2, ["--raw", "--system"], "run", self.toy, "hi", "--raw", "--system", "Be brief.")
        self.refuse(2, ["--stop", "empty"], "run", self.toy, "hi", "--stop", "")
        self.refuse(2, ["--logit-bias", "empty"], "run", self.toy, "hi", "--logit-bias", "")
        self.refuse(2, ["--json and --names exclude each other"], "list", "--json", "--names")

    def test_a_value_that_is_empty_is_not_the_default(self):
        """As of `--memory-budget "$UNSET"`, which is no wish for all of the memory."""
        for option in ("--ctx", "--memory-budget", "--expert-memory", "--device", "--file", "--template", "--context",
                       "--context-model", "--token-file", "--temperature", "--mirostat", "--seed", "--stop"):
            self.refuse(2, [f"{option}: the value is empty"], "run", self.toy, "hi", option, "")
        for option, command in (("--to", ("embed", self.toy, "hi")), ("--out", ("embed", self.toy, "hi")),
                                ("--file", ("embed", self.toy)), ("--journal", ("embed", self.toy, "hi")),
                                ("--report", ("regress", self.toy)), ("--expires", ("key", "create", "laptop")),
                                ("--overlap", ("key", "rotate", "laptop")), ("--keys", ("key", "list"))):
            self.refuse(2, [f"{option}: the value is empty"], *command, option, "")

    def test_a_name_that_is_empty_is_no_model(self):
        for command in (("rm", ""), ("rm", "toy", ""), ("pull", ""), ("cp", "", "copy"), ("cp", self.toy, "")):
            self.refuse(2, ["the value is empty"], *command)

    def test_a_device_is_named_once(self):
        for command in (("run", self.toy, "hi"), ("regress", self.toy), ("bench", self.toy), ("serve", self.toy),
                        ("config",)):
            self.refuse(2, ["--device", "--backend"], *command, "--backend", "reference", "--device", "cpu")

    def test_a_damaged_model_says_what_to_do(self):
        damaged = self.path("damaged.gguf")
        with open(self.toy, "rb") as file:
            content = file.read()
        with open(damaged, "wb") as file:
            file.write(content[:-65536] + b"\xff" * 65536)  # weights that are not numbers
        self.refuse(1, ["its file may be damaged", "`quarrel list --verify`", "`quarrel pull NAME`"], "generate", damaged,
                    "--tokens", "1,2,3", "-n", "1")

    def test_options_that_mean_nothing_alone(self):
        for option in ("--token-file", "--ca-file", "--cert-file", "--key-file"):
            self.refuse(2, [f"{option} needs --context"], "run", self.toy, "hi", option, self.toy)
            self.refuse(2, [f"{option} needs --to"], "embed", self.toy, "hi", option, self.toy)

    def test_memory_for_experts_that_are_not_there_is_warned_of(self):
        for command in (("run", self.toy, "hi", "-n", "1"), ("generate", self.toy, "--tokens", "1", "-n", "1"),
                        ("estimate", self.toy)):
            self.assertEqual(self.succeed(*command, "--expert-memory", "1G").err,
                             "warning: --expert-memory has no effect: the model has no experts\n")
        experts = self.make_toy("mixtral", "experts.gguf")
        self.assertEqual(self.succeed("estimate", experts, "--expert-memory", "1G").err, "")

    def test_messages_have_the_names_of_the_options(self):
        for command in (("run", self.toy, "hi"), ("generate", self.toy, "--tokens", "1")):
            self.assertIn("--repeat-last-n must be -1", self.refuse(2, [], *command, "--repeat-last-n", "-5").err)
            self.assertIn("--top-p must be between", self.refuse(2, [], *command, "--top-p", "7").err)
        self.assertIn("--max-tokens: '-2' is not a number of tokens", self.refuse(2, [], "run", self.toy, "hi", "-n", "-2").err)
        for command in (("run", self.toy, "hi"), ("generate", self.toy, "--tokens", "1")):
            self.assertIn("--temperature: 'warm' is not a number", self.refuse(2, [], *command, "--temperature", "warm").err)
            self.assertIn("--top-k: 'few' is not a whole number", self.refuse(2, [], *command, "--top-k", "few").err)
        self.assertIn("'-1' is not a seed",
                      self.refuse(2, [], "generate", self.toy, "--tokens", "1", "--seed", "-1").err)
        self.succeed("run", self.toy, "hi", "-n", "2", "--seed", "-1")  # another one each time, as with Ollama

    def test_a_context_beyond_the_models_own_is_warned_of(self):
        for command in (("run", self.toy, "hi", "-n", "1"), ("generate", self.toy, "--tokens", "1", "-n", "1"),
                        ("estimate", self.toy)):
            self.assertEqual(self.succeed(*command, "--ctx", "512").err, "")
            self.assertIn("warning: a context of 1024 tokens is more than the 512",
                          self.succeed(*command, "--ctx", "1024").err)

    def test_more_threads_than_processors_are_warned_of(self):
        processors = len(os.sched_getaffinity(0))
        for command in (("generate", self.toy, "--tokens", "1", "-n", "1"), ("estimate", self.toy)):
            self.assertEqual(self.succeed(*command, "--threads", "1").err, "")
            self.assertIn(f"warning: {processors + 1} threads on",
                          self.succeed(*command, "--threads", str(processors + 1)).err)

    def test_a_question_in_place_of_a_model(self):
        for question in ("Why is the sky blue?", "Why?", "Tell me a joke", 'What is "this"?', "What's $HOME?"):
            told = self.refuse(2, ["taken for the name of a model"], "run", question).err
            suggested = told[told.index("quarrel run default "):]
            self.assertEqual(shlex.split(suggested), ["quarrel", "run", "default", question])
        told = self.refuse(2, ["'Why' was taken for the name of a model"], "run", "Why", "is", "the", "sky", "blue?").err
        self.assertTrue(told.endswith("quarrel run default 'Why is the sky blue?'\n"), told)
        self.refuse(1, ["no model 'Whyy'"], "run", "Whyy", "Why is the sky blue?")
        told = self.refuse(1, ["no model 'Tell'", "`quarrel list`"], "run", "Tell", "me", "a", "joke").err
        self.assertTrue(told.endswith("quarrel run default 'Tell me a joke'\n"), told)
        told = self.refuse(2, ["there is no command 'Why is the sky blue?'"], "Why is the sky blue?").err
        self.assertTrue(told.endswith("quarrel run default 'Why is the sky blue?'\n"), told)
        os.symlink(self.toy, self.path("models/my parrot.gguf"))
        self.succeed("run", "my parrot", "-n", "1", input="hi")

    def test_a_path_in_place_of_a_model_is_no_question(self):
        for path in ("my models/x.gguf", "what?.gguf", "/no such/model", "./no such model", "../no such model",
                     "~/no such model"):
            for command in ("run", "inspect"):
                self.refuse(1, [f"no model '{path}'"], command, path, input="hi")

    def test_a_prompt_from_a_file(self):
        with open(self.path("letter.txt"), "w", encoding="utf-8") as file:
            file.write("Dear parrot\n")
        def ask(*arguments, **options):
            result = self.succeed("run", self.toy, *arguments, "--json", "--temperature", "0", "-n", "4", **options)
            return json.loads(result.out)
        alone = ask("Dear parrot")
        for asked in (ask("-f", self.path("letter.txt")), ask("--file", "-", input="Dear parrot\n"),
                      ask(input="Dear parrot")):
            self.assertEqual((asked["prompt_tokens"], asked["tokens"]), (alone["prompt_tokens"], alone["tokens"]))
        self.assertEqual(ask("Read:", "-f", self.path("letter.txt"), input="Thanks")["prompt_tokens"],
                         ask("Read:\n\nDear parrot\n\nThanks")["prompt_tokens"])

    def test_the_help_lists_the_backends_of_this_build(self):
        out = " ".join(self.succeed("run", "--help").out.decode().split())
        listed = re.search(r"Where the model runs[^(]*\((cpu,( cuda,)? reference, auto)\) \[cpu\]", out)
        refusal = self.refuse(2, ["--backend"], "estimate", self.toy, "--backend", "abacus").err
        self.assertIn(f"is not one of {listed[1]} ", refusal)

    def test_a_closed_standard_input_is_an_empty_one(self):
        def closed(redirection, *arguments):
            line = f'"$0" "$@" {redirection}'
            return subprocess.run(["bash", "-c", line, QUARREL, *arguments], env=self.environment, timeout=TIMEOUT,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        self.assertEqual(closed("<&-", "run", self.toy, "hi", "-n", "1").returncode, 0)
        self.assertIn(b"there is no prompt", closed("<&-", "run", self.toy).stderr)
        # The file that is written does not get the number of the stream that is closed.
        out = self.path("logits.f32")
        done = closed(">&-", "logits", self.toy, "--tokens", "1", "--out", out, "--json")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write to standard output", done.stderr)
        self.assertEqual(os.path.getsize(out) % 4, 0)

    def test_a_prompt_longer_than_any_chat(self):
        self.refuse(1, ["the prompt is too long"], "run", self.toy, input="word " * 1_000_000)

    def test_help_that_cannot_be_written_is_a_failure(self):
        for arguments in (("--help",), ("--version",), ("run", "--help"), ("help", "run")):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([QUARREL, *arguments], stdout=full, stderr=subprocess.PIPE, env=self.environment,
                                      timeout=TIMEOUT, check=False)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn(b"No space left", done.stderr)


class Mistakes(ProgramTest):
    """What the parser finds is told in sentences of our own, with what was meant."""

    def test_unknown_options(self):
        for words, command in ((["no option '--temprature'", "did you mean --temperature", "(see quarrel run --help)"],
                                ("run", self.toy, "--temprature", "1")),
                               (["no option '--tokns'", "did you mean --tokens?"], ("logits", self.toy, "--tokns=1")),
                               (["no option '--frob' (see quarrel --help)"], ("--frob",)),
                               (["--verbose is an option of run: write it after run", "quarrel run --verbose",
                                 "(see quarrel --help)"],
                                ("--verbose", "run")),
                               (["unexpected argument 'extra'"], ("list", "extra"))):
            self.refuse(2, words, *command)

    def test_values(self):
        for words, command in ((["--tokens needs a value: --tokens IDS"], ("logits", self.toy, "--tokens")),
                               (["--ctx was given 2 times; it may be given only once"],
                                ("estimate", self.toy, "--ctx", "64", "--ctx", "128")),
                               (["--names cannot be 'x'"], ("list", "--names=x")),
                               (["'0' is not a whole number from 1 to 4096"], ("estimate", self.toy, "--parallel", "0")),
                               (["'0' is not a number from 0.001 to 1000000"],
                                ("bench", self.toy, "--serve", "--rate", "0")),
                               (["'tcsh' is not one of bash, zsh, fish"], ("completion", "tcsh")),
                               (["the name of the output file is empty"],
                                ("logits", self.toy, "--tokens", "1", "--out", ""))):
            self.refuse(2, words, *command)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The commands that read files and print: exit codes, sentences, JSON, round trips."""
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import unittest

from harness import DATA, QUARREL, ProgramTest


class Usage(ProgramTest):
    def test_alone_prints_help(self):
        self.assertEqual(self.succeed().out, self.succeed("--help").out)
        self.assertLessEqual({"run", "serve", "ps", "stop", "config", "key", "list", "help"}, set(self.command_names()))

    def test_every_command_has_help_with_an_example(self):
        for command in self.command_names():
            out = self.succeed(command, "--help").out.decode()
            self.assertIn("quarrel " + command, out, command)
            self.assertIn("xample", out, command)

    def test_help_is_a_command_too(self):
        self.assertEqual(self.succeed("help").out, self.succeed("--help").out)
        for command in self.command_names():
            self.assertEqual(self.succeed("help", command).out, self.succeed(command, "--help").out)
        self.refuse(2, ["no command 'inspekt'", "inspect"], "help", "inspekt")

    def test_show_is_inspect(self):
        self.assertEqual(self.succeed("show", self.toy).out, self.succeed("inspect", self.toy).out)
        self.assertEqual(self.succeed("help", "show").out, self.succeed("help", "inspect").out)

    def test_the_help_lists_the_exit_codes(self):
        out = self.succeed("help").out.decode()
        for code in ("0", "1", "2", "130"):
            self.assertRegex(out, rf"(?m)^  {code} +\w")

    def test_the_same_fault_has_the_same_code(self):
        out = self.path("out.gguf")
        for command in (("logits", self.toy, "--tokens", "1", "--out", self.folder),
                        ("quantize", self.toy, self.folder, "Q8_0"),
                        ("template", self.toy, "--input", self.folder),
                        ("convert", self.toy, "-o", out), ("inspect", self.folder)):
            self.refuse(2, [], *command)
        for command in (("inspect", "nobody"), ("quantize", "nobody", out, "Q8_0"), ("cp", "nobody", "x"),
                        ("tokenize", "nobody"), ("estimate", "nobody")):
            self.refuse(1, ["no model 'nobody'", "quarrel list", "quarrel pull"], *command)
        self.refuse(1, ["no model 'nobody' in Quarrel's store"], "rm", "nobody")

    def test_version(self):
        out = self.succeed("--version").out.decode()
        self.assertRegex(out, r"^quarrel \d+\.\d+\.\d+ \(.+; SIMD: .*scalar.*\)\n$")

    def test_mistakes_end_with_2(self):
        self.refuse(2, ["frob"], "frob")
        self.refuse(2, ["did you mean", "inspect"], "inspekt")
        self.refuse(2, ["--frob", "list --help"], "list", "--frob")
        self.refuse(2, ["MODEL"], "inspect")
        self.refuse(2, ["--top-k", "'many'"], "run", self.toy, "hi", "--top-k", "many")
        self.refuse(2, ["--temperature"], "run", self.toy, "hi", "--temperature", "-1")
        self.refuse(2, ["--ctx", "'lots'"], "run", self.toy, "hi", "--ctx", "lots")
        self.refuse(2, ["--backend"], "run", self.toy, "hi", "--backend", "abacus")
        self.refuse(2, ["--raw"], "run", self.toy, "hi", "--raw", "--template", "chatml")
        self.refuse(2, ["no prompt"], "run", self.toy)

    def test_a_reader_that_leaves_is_no_error(self):
        with subprocess.Popen([QUARREL, "inspect", self.toy, "--metadata", "--tensors"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=self.environment) as process:
            process.stdout.close()
            self.assertEqual(process.stderr.read(), b"")
            process.wait()
        self.assertGreaterEqual(process.returncode, 0)


class SelfDescription(ProgramTest):
    def offers(self, *words, line=None):
        """What bash offers for the last word, as it would put it into the line; `words` are as bash cuts that."""
        line = " ".join(["quarrel", *words]) if line is None else "quarrel " + line
        quoted = " ".join(shlex.quote(word) for word in words)
        program = os.path.abspath(QUARREL)
        script = (f'source <("{program}" completion bash); COMP_WORDS=("{program}" {quoted}); COMP_CWORD={len(words)}; '
                  f'COMP_LINE={shlex.quote(line)}; COMP_LINE="{program}${{COMP_LINE#quarrel}}"; '
                  'COMP_POINT=${#COMP_LINE}; _quarrel; printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script], env=self.environment, cwd=self.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=True)
        self.assertEqual(done.stderr, b"")
        return set(done.stdout.decode().splitlines()) - {""}

    def complete(self, *words):
        return {name for line in self.offers(*words) for name in line.split()}

    def test_bash_completes_names_as_it_would_read_them(self):
        os.mkdir(self.path("a folder"))
        for name in ("two words.gguf", "it's.gguf", 'a "quoted" one.gguf', "cost$HOME.gguf"):
            os.symlink(self.toy, self.path(name))
        self.assertEqual(self.offers("inspect", "two"), {"two\\ words.gguf"})
        self.assertEqual(self.offers("inspect", "two\\ w"), {"two\\ words.gguf"})
        self.assertEqual(self.offers("inspect", "'two w"), {"two words.gguf"})
        self.assertEqual(self.offers("inspect", "'it"), set())  # a single quote cannot stand in such
        self.assertEqual(self.offers("inspect", '"it'), {"it's.gguf"})
        self.assertEqual(self.offers("inspect", '"cost'), {"cost\\$HOME.gguf"})
        self.assertEqual(self.offers("inspect", "a"), {"a\\ folder/", 'a\\ \\"quoted\\"\\ one.gguf'})

    def test_bash_completes_names_with_a_colon(self):
        self.succeed("cp", self.toy, "toucan:7b")
        # Bash cuts at a colon, and puts in the place of what stands behind it.
        self.assertEqual(self.offers("inspect", "toucan", ":", "7", line="inspect toucan:7"), {"7b"})
        self.assertEqual(self.offers("inspect", "toucan", ":", line="inspect toucan:"), {"7b"})
        self.assertEqual(self.offers("inspect", "touc"), {"toucan:7b"})
        self.assertEqual(self.offers("estimate", "toucan", ":", "7b", "--kv", "", line="estimate toucan:7b --kv "),
                         {"f16", "f32"})
        self.assertNotIn("7b", self.offers("run", "toucan", ":", "", line="run toucan: "))

    def test_bash_completes(self):
        os.symlink(self.toy, self.path("models/parrot.gguf"))
        self.assertLessEqual({*self.command_names(), "--help", "--version"}, self.complete(""))
        self.assertEqual(self.complete("insp"), {"inspect"})
        self.assertEqual(self.complete("show", "--tens"), {"--tensors"})
        self.assertEqual(self.complete("estimate", "--backend", "re"), {"reference"})
        self.assertLessEqual({"parrot", "toy.gguf"}, self.complete("inspect", ""))
        self.assertEqual(self.complete("inspect", "--json", "par"), {"parrot"})
        self.assertEqual(self.complete("estimate", "--ctx", "4", "par"), {"parrot"})
        self.assertEqual(self.complete("pull", ""), {"default", "minilm"})
        self.assertEqual(self.complete("help", "quant"), {"quantize"})
        for words in (("sh",), ("help", "sh")):
            self.assertEqual(self.complete(*words), {"show"})
        self.assertIn("parrot", self.complete("run", "--context-model", ""))
        self.assertIn("toy.gguf", self.complete("run", "--template", ""))
        for words in (("convert", "--type"), ("quantize", "parrot", "out.gguf")):
            self.assertEqual(self.complete(*words, "Q8"), {"Q8_0"})
        self.assertEqual(self.complete("completion", ""), {"bash", "zsh", "fish"})
        self.assertEqual(self.complete("estimate", "parrot", "--kv", ""), {"f16", "f32"})

    def test_every_option_is_in_every_script_and_in_the_manual(self):
        manual = self.succeed("help", "--man").out.decode()
        scripts = {shell: self.succeed("completion", shell).out.decode() for shell in ("bash", "zsh", "fish")}
        for command in self.command_names():
            self.assertIn(f".SS {command}\n", manual)
            options = re.findall(r"(?m)^  (?:-\w,)?--([\w-]+)", self.succeed(command, "--help").out.decode())
            self.assertIn("help", options)
            for option in options:
                if option != "help":
                    self.assertIn("\\-\\-" + option.replace("-", "\\-"), manual)
                self.assertIn("--" + option, scripts["bash"])
                self.assertIn("--" + option, scripts["zsh"])
                self.assertRegex(scripts["fish"], rf"-l {option}\b")
        for word in (".SH EXIT STATUS", "130", ".SH ENVIRONMENT", "QUARREL_MODELS"):
            self.assertIn(word, manual)

    def test_the_scripts_and_the_manual_are_well_formed(self):
        # Each checker is asked where it is installed; test_completion.py does without them.
        for checker, text in ((["bash", "-n"], ("completion", "bash")), (["zsh", "-n"], ("completion", "zsh")),
                              (["fish", "-n"], ("completion", "fish")),
                              (["groff", "-man", "-ww", "-z"], ("help", "--man")),
                              (["mandoc", "-Tlint", "-Werror"], ("help", "--man"))):
            if shutil.which(checker[0]) is None:
                continue
            path = self.path("text")
            with open(path, "wb") as file:
                file.write(self.succeed(*text).out)
            done = subprocess.run([*checker, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual((done.returncode, done.stdout), (0, b""), checker)

    def test_list_names(self):
        os.symlink(self.toy, self.path("models/Zoe.gguf"))
        self.assertIn(b"Zoe\n", self.succeed("list", "--names").out)
        self.refuse(2, ["--json"], "list", "--names", "--json")
        self.refuse(2, ["--names and --verify exclude each other"], "list", "--verify", "--names")


class BadFiles(ProgramTest):
    def test_each_gets_a_sentence(self):
        with open(self.path("notes.gguf"), "w", encoding="utf-8") as file:
            file.write("these are notes, not a model\n" * 10)
        with open(self.toy, "rb") as file:
            whole = file.read()
        with open(self.path("cut.gguf"), "wb") as file:
            file.write(whole[:len(whole) // 2])
        with open(self.path("empty.gguf"), "wb"):
            pass
        for command in (["inspect"], ["tokenize"], ["run"]):
            prompt = ["hi"] if command == ["run"] else []
            for name, words in (("notes.gguf", ["notes.gguf"]), ("cut.gguf", ["cut.gguf"]),
                                ("empty.gguf", ["empty.gguf"]), ("missing.gguf", ["missing.gguf"])):
                self.refuse(1, words, *command, self.path(name), *prompt)
            self.refuse(2, ["folder"], *command, self.folder, *prompt)

    def test_an_unknown_name_gets_the_nearest(self):
        os.symlink(self.toy, self.path("models/pocket-parrot.gguf"))
        self.refuse(1, ["pocket-parot", "pocket-parrot"], "inspect", "pocket-parot")
        self.succeed("inspect", "pocket-parrot")

    def test_the_first_run_wants_its_model(self):
        result = self.run_program("run", "default", "hi", environment={"PATH": self.path("nowhere")})
        self.assertEqual(result.code, 1, result)
        self.assertIn("fetching", result.err)
        self.assertIn("error: ", result.err)


class List(ProgramTest):
    def test_both_ways(self):
        os.symlink(self.toy, self.path("models/parrot.gguf"))
        with open(self.path("models/broken.gguf"), "w", encoding="utf-8") as file:
            file.write("broken")
        models = {model["name"]: model for model in json.loads(self.succeed("list", "--json").out)}
        self.assertEqual(set(models), {"parrot", "broken"})
        self.assertEqual(models["parrot"]["problem"], "")
        self.assertEqual(models["parrot"]["bytes"], os.path.getsize(self.toy))
        self.assertNotEqual(models["broken"]["problem"], "")
        text = self.succeed("list").out.decode()
        self.assertEqual(text.splitlines()[0].split()[0], "NAME")
        self.assertIn("parrot", text)

    def test_a_changed_model_is_noticed(self):
        name = "SmolLM2-135M-Instruct.Q4_1"
        shutil.copy(self.toy, self.path(f"models/{name}.gguf"))
        self.addCleanup(os.remove, self.path(f"models/{name}.gguf"))
        models = {model["name"]: model for model in json.loads(self.succeed("list", "--json").out)}
        self.assertEqual(models[name]["alias"], "default")
        self.assertIn("run `quarrel pull default`", models[name]["problem"])
        listed = self.succeed("list")
        self.assertIn("default", listed.out.decode())
        self.assertIn("`quarrel pull minilm`", listed.err)
        self.assertNotIn("`quarrel pull default`", listed.err)
        self.assertIn("run `quarrel pull default`", self.succeed("run", "default", "hi", "-n", "1").err)

    def test_a_changed_copy_is_noticed_and_verified(self):
        store = self.path("copies")
        os.mkdir(store)
        alone = {"QUARREL_MODELS": store, "OLLAMA_MODELS": self.path("none")}
        original = os.path.join(store, "parrot.gguf")
        shutil.copy(self.toy, original)
        with open(original, "rb") as file:
            content = file.read()
        status = os.stat(original)
        with open(os.path.join(store, ".parrot.gguf.verified"), "w", encoding="utf-8") as file:
            file.write(f"{status.st_size} {status.st_mtime_ns // 10**9}.{status.st_mtime_ns % 10**9:09} "
                       f"{hashlib.sha256(content).hexdigest()}\n")
        self.succeed("cp", "parrot", "polly", environment=alone)

        def problems(*arguments, code=0):
            result = self.run_program("list", "--json", *arguments, environment=alone)
            self.assertEqual(result.code, code, result)
            return {model["name"]: model["problem"] for model in json.loads(result.out)}

        self.assertEqual(problems(), {"parrot": "", "polly": ""})
        os.utime(original, ns=(0, status.st_mtime_ns + 10**9))
        for problem in problems().values():
            self.assertIn("has changed", problem)
        said = self.succeed("run", "polly", "hi", "-n", "1", environment=alone).err
        self.assertIn("has changed since it was put into the store: `quarrel list --verify`", said)
        self.assertEqual(problems("--verify"), {"parrot": "", "polly": ""})
        self.assertEqual(problems(), {"parrot": "", "polly": ""})
        with open(original, "r+b") as file:  # the last byte of the weights, and so of every name
            file.seek(-1, os.SEEK_END)
            file.write(bytes([content[-1] ^ 1]))
        for name, problem in problems("--verify", code=1).items():
            self.assertIn(f"`quarrel rm {name}`", problem)
        self.assertEqual(self.run_program("list", "--verify", environment=alone).code, 1)
        # A name that is given after the damage says as much.
        self.succeed("cp", "polly", "macaw", environment=alone)
        self.assertIn("has changed", problems()["macaw"])
        self.assertIn("is damaged", problems("--verify", code=1)["macaw"])

    def test_a_link_whose_file_is_gone(self):
        store = self.path("links")
        os.mkdir(store)
        alone = {"QUARREL_MODELS": store, "OLLAMA_MODELS": self.path("none")}
        source = self.path("source.gguf")
        shutil.copy(self.toy, source)
        self.succeed("cp", source, "macaw", environment=alone)
        self.succeed("list", "--verify", environment=alone)
        os.remove(source)
        sentence = f"its file '{source}' is gone: run `quarrel rm macaw`"
        listed = json.loads(self.succeed("list", "--json", environment=alone).out)
        self.assertEqual([(model["name"], model["problem"]) for model in listed], [("macaw", sentence)])
        self.assertEqual(self.run_program("list", "--verify", environment=alone).code, 1)
        self.assertEqual(self.succeed("list", "--names", environment=alone).out, b"macaw\n")
        for command in (("run", "macaw", "hi"), ("inspect", "macaw"), ("cp", "macaw", "other")):
            self.refuse(1, ["the model 'macaw' cannot be used", sentence], *command, environment=alone)
        self.assertEqual(self.succeed("rm", "macaw", environment=alone).out, b"removed macaw, whose file was gone\n")
        self.assertEqual(os.listdir(store), [])

    def test_columns_that_say_nothing_are_left_out(self):
        store = self.path("plain")
        os.mkdir(store)
        alone = {"QUARREL_MODELS": store, "OLLAMA_MODELS": self.path("none")}
        shutil.copy(self.toy, os.path.join(store, "parrot.gguf"))
        title = self.succeed("list", environment=alone).out.decode().splitlines()[0]
        self.assertEqual(title.split(), ["NAME", "PARAMETERS", "TYPE", "SIZE", "MODIFIED", "STORE"])
        with open(os.path.join(store, "broken.gguf"), "wb") as file:
            file.write(b"GGUF and no more")
        self.assertIn("PROBLEM", self.succeed("list", environment=alone).out.decode().splitlines()[0])

    def test_nothing_there(self):
        empty = {"QUARREL_MODELS": self.path("none"), "OLLAMA_MODELS": self.path("none")}
        self.assertEqual(json.loads(self.succeed("list", "--json", environment=empty).out), [])


class StoreCommands(ProgramTest):
    def test_a_model_gets_a_further_name_and_loses_it(self):
        os.symlink(self.toy, self.path("models/parrot.gguf"))
        out = self.succeed("cp", "parrot", "poll").out.decode()
        self.assertEqual(out, self.path("models/poll.gguf") + "\n")
        self.succeed("inspect", "poll")
        self.refuse(2, ["already exists"], "cp", "parrot", "poll")
        self.refuse(2, ["default"], "cp", "parrot", "default")
        self.refuse(1, ["no model 'nobody'", "quarrel list", "quarrel pull"], "cp", "nobody", "x")
        with open(self.path("notes.txt"), "w", encoding="utf-8") as file:
            file.write("these are notes, not a model\n")
        self.refuse(1, ["notes.txt", "not a GGUF file"], "cp", self.path("notes.txt"), "notes")
        self.refuse(1, ["no model 'notes'"], "rm", "notes")
        self.assertIn(b"removed poll", self.succeed("rm", "poll", "parrot").out)
        self.refuse(1, ["no model 'poll'"], "rm", "poll")
        self.refuse(2, ["is a file"], "rm", self.toy)
        self.assertTrue(os.path.exists(self.toy))

    def test_removing_tells_what_was_freed(self):
        shutil.copy(self.toy, self.path("models/macaw.gguf"))
        self.succeed("cp", "macaw", "mine")
        self.assertRegex(self.succeed("rm", "mine").out.decode(), r"^removed mine; its weights stay, .*\n$")
        self.assertRegex(self.succeed("rm", "macaw").out.decode(), r"^removed macaw \([0-9.]+ [kM]B\)\n$")

    def test_a_pull_without_a_network_says_so(self):
        # Nobody listens on the port of the discard service.
        offline = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": "/dev/null",
                   "no_proxy": "*"}
        self.refuse(1, ["cannot fetch 'default'", "cannot be reached: is there a network?"], "pull", "default",
                    environment=offline)
        self.refuse(1, ["'nobody'", "these can be: 'default', 'minilm'"], "pull", "nobody")


class Inspect(ProgramTest):
    def test_json(self):
        value = json.loads(self.succeed("inspect", self.toy, "--json", "--tensors", "--metadata").out)
        self.assertEqual(value["architecture"], "llama")
        self.assertTrue(value["runs"])
        self.assertEqual(value["file_bytes"], os.path.getsize(self.toy))
        self.assertEqual(value["layers"], 3)
        self.assertEqual(value["width"], 128)
        self.assertEqual(len(value["tensor_list"]), value["tensors"])
        self.assertEqual(sum(t["bytes"] for t in value["tensor_list"]), value["weight_bytes"])
        self.assertEqual(len(value["template_sha256"]), 64)
        # 3 layers of 2 heads of 16 keys and 16 values
        self.assertEqual(value["kv_cache"][0], {"context": 512, "f16_bytes": 512 * 3 * 2 * 32 * 2,
                                                "f32_bytes": 512 * 3 * 2 * 32 * 4})
        keys = [entry["key"] for entry in value["metadata"]]
        self.assertIn("general.architecture", keys)

    def test_text(self):
        out = self.succeed("inspect", self.toy, "--tensors", "--metadata").out.decode()
        for word in ("architecture", "token_embd.weight", "tokenizer.ggml.tokens", "SHA-256", "KV F16"):
            self.assertIn(word, out)
        self.assertNotRegex(out, r"[\x00-\x09\x0b-\x1f]")

    def test_a_vocabulary_alone(self):
        value = json.loads(self.succeed("inspect", os.path.join(DATA, "tokenizer", "gpt-2.gguf"), "--json").out)
        self.assertFalse(value["runs"])
        self.assertNotEqual(value["problem"], "")
        self.assertEqual(value["vocabulary"], 50257)

    def test_an_encoder(self):
        bert = self.make_toy("bert", "bert.gguf")
        value = json.loads(self.succeed("inspect", bert, "--json").out)
        self.assertEqual(value["architecture"], "bert")
        self.refuse(1, [], "run", bert, "hi")


class Tokenize(ProgramTest):
    VOCABULARY = os.path.join(DATA, "tokenizer", "llama-spm.gguf")

    def cases(self):
        with open(os.path.join(DATA, "tokenizer", "llama-spm.json"), encoding="utf-8") as file:
            cases = [case for case in json.load(file) if case["text"].strip()]
        return cases[::9]

    def test_matches_the_goldens_and_comes_back(self):
        self.assertGreater(len(self.cases()), 3)
        for case in self.cases():
            out = self.succeed("tokenize", self.VOCABULARY, input=case["text"]).out
            self.assertEqual(json.loads(out), case["ids"], case["text"])
            back = self.succeed("tokenize", self.VOCABULARY, "--decode", input=out).out
            self.assertEqual(back.decode(), case["decoded"])

    def test_special(self):
        case = self.cases()[0]
        out = self.succeed("tokenize", self.VOCABULARY, "--special", input=case["text"]).out
        self.assertEqual(json.loads(out), case["ids_with_special"])
        plain = json.loads(self.succeed("tokenize", self.toy, input="<|im_end|>").out)
        parsed = json.loads(self.succeed("tokenize", self.toy, "--parse-special", input="<|im_end|>").out)
        self.assertGreater(len(plain), 1)
        self.assertEqual(len(parsed), 1)

    def test_any_bytes_come_back(self):
        data = bytes(range(256)) + "Grüße, мир 🙂\n".encode()
        out = self.succeed("tokenize", self.toy, input=data).out
        self.assertEqual(self.succeed("tokenize", self.toy, "--decode", input=out).out, data)

    def test_forms_of_lists(self):
        forms = [self.succeed("tokenize", self.toy, "--decode", input=text).out
                 for text in ("[75, 76]", "75 76", "75,76\n")]
        self.assertEqual(len(set(forms)), 1)
        self.assertEqual(self.succeed("tokenize", self.toy, "--decode", input="[]").out, b"")
        self.assertEqual(self.succeed("tokenize", self.toy, input="").out, b"[]\n")

    def test_bad_ids(self):
        self.refuse(1, ["99999999"], "tokenize", self.toy, "--decode", input="[99999999]")
        self.refuse(1, [], "tokenize", self.toy, "--decode", input="[1, x]")
        self.refuse(1, [], "tokenize", self.toy, "--decode", input="-1")


class Template(ProgramTest):
    def goldens(self, name):
        with open(os.path.join(DATA, "template", name + ".json"), encoding="utf-8") as file:
            return json.load(file)

    def test_matches_the_goldens(self):
        name = "Qwen-Qwen3-0.6B"
        for case, golden in self.goldens(name).items():
            if "text" not in golden:
                continue
            out = self.succeed("template", os.path.join(DATA, "template", name + ".jinja"), "--input", "-", "--now",
                               "2026-07-26", input=json.dumps(golden["input"])).out
            self.assertEqual(out.decode(), golden["text"], case)

    def test_a_model_and_a_list_of_messages(self):
        with open(self.path("input.json"), "w", encoding="utf-8") as file:
            json.dump([{"role": "user", "content": "Hi"}], file)
        out = self.succeed("template", self.toy, "--input", self.path("input.json")).out
        self.assertEqual(out, b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")

    def test_bos_and_eos(self):
        with open(self.path("tokens.jinja"), "w", encoding="utf-8") as file:
            file.write("{{ bos_token }}|{{ eos_token }}|{{ more }}")
        out = self.succeed("template", self.path("tokens.jinja"), "--input", "-", input='{"more": "x"}').out
        self.assertEqual(out, b"<s>|</s>|x")
        out = self.succeed("template", self.path("tokens.jinja"), "--input", "-", "--bos", "B", "--eos", "E",
                           input="{}").out
        self.assertEqual(out, b"B|E|")

    def test_bad_input(self):
        self.refuse(1, ["line 2", "column"], "template", self.toy, "--input", "-", input='{"messages":\n [}')
        self.refuse(1, ["levels"], "template", self.toy, "--input", "-", input="[" * 100000)
        self.refuse(1, ["standard input"], "template", self.toy, "--input", "-", input="3")
        self.refuse(1, ["missing.json"], "template", self.toy, "--input", self.path("missing.json"))
        self.refuse(2, ["tomorrow"], "template", self.toy, "--input", "-", "--now", "tomorrow", input="[]")
        self.refuse(2, ["--input"], "template", self.toy)


if __name__ == "__main__":
    unittest.main()

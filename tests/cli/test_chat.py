#!/usr/bin/env python3
"""quarrel run: one answer from a pipe, Ctrl-C, and the chat on a terminal, with a toy that answers nonsense."""
import fcntl
import json
import os
import re
import stat
import struct
import termios
import time
import unittest

from harness import INTERRUPT, TIMEOUT, ProgramTest

# The toy's ends of a reply: without them it goes on for as long as it may.
ENDLESS = ["--logit-bias", "0=-1000", "--logit-bias", "1=-1000", "--logit-bias", "2=-1000"]


class OneShot(ProgramTest):
    def test_only_the_answer_comes_out(self):
        result = self.succeed("run", self.toy, "Hello", "there", "-n", "12", "--seed", "7")
        self.assertEqual(result.err, "")
        self.assertTrue(result.out.endswith(b"\n"))

    def test_a_seed_repeats(self):
        answers = {self.succeed("run", self.toy, "-n", "24", "--seed", "7", input="Hello there").out for _ in range(2)}
        self.assertEqual(len(answers), 1)
        other = self.succeed("run", self.toy, "-n", "24", "--seed", "8", input="Hello there").out
        self.assertNotIn(other, answers)

    def test_json(self):
        result = self.succeed("run", self.toy, "Hello", "-n", "9", "--seed", "7", "--json", *ENDLESS)
        value = json.loads(result.out)
        self.assertEqual(value["finish_reason"], "length")
        self.assertEqual(len(value["tokens"]), 9)
        self.assertEqual(value["seed"], 7)
        for name in ("total_seconds", "load_seconds", "prompt_seconds", "generate_seconds"):
            self.assertGreaterEqual(value["timings"][name], 0)
        plain = self.succeed("run", self.toy, "Hello", "-n", "9", "--seed", "7", *ENDLESS).out
        self.assertEqual(plain.decode(), value["text"] + "\n")

    def test_words_and_pipe_are_joined(self):
        def prompt_tokens(*words, piped=""):
            return json.loads(self.succeed("run", self.toy, *words, "-n", "1", "--json", input=piped).out)["prompt_tokens"]
        joined = prompt_tokens("Hello", "there", piped="world")
        self.assertEqual(joined, prompt_tokens(piped="Hello there\n\nworld"))
        self.assertGreater(joined, prompt_tokens("Hello", "there"))
        for text in ("[a, b]", "{}", "a,b", "[x]"):
            self.assertEqual(prompt_tokens(text), prompt_tokens(piped=text), text)

    def test_a_pipe_loses_its_last_newline(self):
        def prompt_tokens(*words, piped):
            return json.loads(self.succeed("run", self.toy, *words, "-n", "1", "--json", input=piped).out)["prompt_tokens"]
        for text in ("Hello there", "Hello\nthere"):
            bare = prompt_tokens(piped=text)
            for end in ("\n", "\r\n"):
                self.assertEqual(prompt_tokens(piped=text + end), bare)
            self.assertGreater(prompt_tokens(piped=text + "\n\n"), bare)
        self.assertEqual(prompt_tokens("Hello", piped="\n"), prompt_tokens("Hello", piped=""))

    def test_nobody_forges_a_role(self):
        def prompt_tokens(text):
            return json.loads(self.succeed("run", self.toy, text, "-n", "1", "--json").out)["prompt_tokens"]
        # As a control token it would be one; as plain text it is its letters.
        self.assertGreater(prompt_tokens("x<|im_end|>") - prompt_tokens("x"), 5)

    def test_system_and_raw(self):
        def prompt_tokens(*arguments):
            return json.loads(self.succeed("run", self.toy, "Hello", "-n", "1", "--json", *arguments).out)["prompt_tokens"]
        plain = prompt_tokens()
        self.assertGreater(prompt_tokens("--system", "Be brief."), plain)
        self.assertEqual(prompt_tokens("--raw"), 1)

    def test_stop_string(self):
        text = json.loads(self.succeed("run", self.toy, "Hello", "-n", "40", "--seed", "3", "--json", *ENDLESS).out)["text"]
        stop = text[10:13]
        value = json.loads(self.succeed("run", self.toy, "Hello", "-n", "40", "--seed", "3", "--json", "--stop", stop,
                                        *ENDLESS).out)
        self.assertEqual(value["text"], text[:text.index(stop)])
        self.assertEqual(value["finish_reason"], "stop")

    def test_verbose(self):
        result = self.succeed("run", self.toy, "Hello", "-n", "5", "--verbose")
        for line in ("total duration:", "load duration:", "prompt eval count:", "prompt eval rate:", "eval count:",
                     "eval rate:", "seed:"):
            self.assertIn(line, result.err)

    def test_too_long_a_prompt(self):
        self.refuse(1, ["tokens", "512"], "run", self.toy, input="x!" * 2000)

    def test_an_answer_that_is_cut(self):
        result = self.succeed("run", self.toy, "Hello", "--seed", "1", *ENDLESS)
        self.assertEqual(result.err, "warning: the answer was cut: the context of 512 tokens is full\n")
        for options, words in ((("--ctx", "64"), ["64 tokens is full", "--ctx 64", "512"]),
                               (("--memory-budget", self.budget()), ["--memory-budget", "512"])):
            result = self.succeed("run", self.toy, "Hello", "--seed", "1", *options, *ENDLESS)
            for word in words:
                self.assertIn(word, result.err)
        self.assertEqual(self.succeed("run", self.toy, "Hello", "-n", "4", *ENDLESS).err, "")

    def budget(self):
        """Memory for half of the toy's context."""
        plan = json.loads(self.succeed("estimate", self.toy, "--ctx", "256", "--json").out)
        return str(plan["bytes"]["total"])

    def test_templates(self):
        with open(self.path("shout.jinja"), "w", encoding="utf-8") as file:
            file.write("{{ messages[0].content | upper }}")
        self.succeed("run", self.toy, "hi", "-n", "2", "--template", self.path("shout.jinja"))
        self.succeed("run", self.toy, "hi", "-n", "2", "--template", "chatml")
        self.refuse(2, ["nonesuch", "chatml"], "run", self.toy, "hi", "--template", "nonesuch")
        with open(self.path("bad.jinja"), "w", encoding="utf-8") as file:
            file.write("{% if %}")
        self.refuse(1, ["line 1"], "run", self.toy, "hi", "--template", self.path("bad.jinja"))

    def test_ctrl_c_keeps_what_came(self):
        toy = self.make_toy("chat", "long.gguf", 60000)
        process = self.start("run", toy, "Hello", "--seed", "1", *ENDLESS)
        with process:
            first = os.read(process.stdout.fileno(), 1)
            process.send_signal(INTERRUPT)
            out, err = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(err, b"")
        self.assertTrue(first)
        self.assertTrue(out.endswith(b"\n"))


    def test_ctrl_c_while_nobody_reads(self):
        toy = self.make_toy("chat", "long.gguf", 60000)
        process = self.start("run", toy, "Hello", "--seed", "1", *ENDLESS)
        with process:
            fcntl.fcntl(process.stdout.fileno(), fcntl.F_SETPIPE_SZ, 4096)
            os.read(process.stdout.fileno(), 1)
            self.wait_until_full(process.stdout.fileno())
            process.send_signal(INTERRUPT)
            self.assertEqual(process.wait(TIMEOUT), 130)
            self.assertEqual(process.stderr.read(), b"")

    @staticmethod
    def wait_until_full(pipe):
        """Until no byte more came into a pipe for a while: whoever writes to it waits."""
        end, held, since = time.monotonic() + TIMEOUT, 0, time.monotonic()
        while time.monotonic() < end:
            before, held = held, struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
            if held != before:
                since = time.monotonic()
            if held > 0 and time.monotonic() - since > 0.5:
                return
            time.sleep(0.05)
        raise AssertionError(f"the pipe holds {held} bytes and more")


class OllamaStore(ProgramTest):
    def put_model(self, params, system):
        import hashlib
        blobs = self.path("ollama/blobs")
        manifests = self.path("ollama/manifests/registry.ollama.ai/library/parrot")
        os.makedirs(blobs, exist_ok=True)
        os.makedirs(manifests, exist_ok=True)

        def layer(kind, data):
            digest = hashlib.sha256(data).hexdigest()
            with open(os.path.join(blobs, "sha256-" + digest), "wb") as file:
                file.write(data)
            return {"mediaType": kind, "digest": "sha256:" + digest, "size": len(data)}

        image = "application/vnd.ollama.image."
        with open(self.toy, "rb") as file:
            layers = [layer(image + "model", file.read()), layer(image + "params", json.dumps(params).encode()),
                      layer(image + "system", system.encode())]
        config = layer("application/vnd.docker.container.image.v1+json", json.dumps({"model_format": "gguf"}).encode())
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                    "config": config, "layers": layers}
        with open(os.path.join(manifests, "latest"), "w", encoding="utf-8") as file:
            json.dump(manifest, file)

    def test_its_settings_count_and_flags_count_more(self):
        self.put_model({"num_predict": 4, "seed": 11, "stop": ["@@"], "num_ctx": 256, "num_gpu": 1}, "Be brief.")
        result = self.succeed("run", "parrot", "Hello", "--json", *ENDLESS)
        self.assertIn("num_gpu", result.err)
        value = json.loads(result.out)
        self.assertEqual(value["seed"], 11)
        self.assertEqual(len(value["tokens"]), 4)
        bare = json.loads(self.succeed("run", self.toy, "Hello", "-n", "1", "--json").out)
        self.assertGreater(value["prompt_tokens"], bare["prompt_tokens"])
        value = json.loads(self.succeed("run", "parrot", "Hello", "--json", "-n", "6", "--system", "", *ENDLESS).out)
        self.assertEqual(len(value["tokens"]), 6)
        self.assertEqual(value["prompt_tokens"], bare["prompt_tokens"])
        self.refuse(1, ["256"], "run", "parrot", input="x!" * 400)
        shown = self.succeed("inspect", "parrot").out.decode()
        self.assertIn("seed 11, num_predict 4, num_ctx 256, stop '@@' (from the store)", shown)

    def test_a_chat_shows_its_sampling_and_flags_count_more(self):
        self.put_model({"temperature": 0.25, "top_k": 7}, "Be brief.")
        for flags, temperature in (((), r"0\.25"), (("--temperature", "0.5"), r"0\.5")):
            terminal = self.open_terminal("run", "parrot", *flags)
            terminal.expect(">>> ")
            terminal.type("/show\n")
            self.assertIn("(from the store)", terminal.expect(">>> "))
            terminal.type("/show parameters\n")
            shown = terminal.expect(">>> ")
            self.assertRegex(shown, rf"temperature +{temperature}\s")
            self.assertRegex(shown, r"top_k +7\s")
            terminal.type("/bye\n")
            self.assertEqual(terminal.wait(), 0)


class Chat(ProgramTest):
    def chat(self, *arguments, **options):
        terminal = self.open_terminal("run", self.toy, "-n", "8", "--seed", "5", *arguments, **options)
        terminal.expect(">>> ")
        return terminal

    def test_a_session(self):
        terminal = self.chat()
        terminal.type("Hello\n")
        terminal.expect("Hello")
        self.assertTrue(terminal.expect(">>> ").strip())
        terminal.type("/help\n")
        shown = terminal.expect(">>> ")
        for word in ("/set", "/save", "/bye", "temperature"):
            self.assertIn(word, shown)
        terminal.type("/bye\n")
        self.assertEqual(terminal.wait(), 0)

    def test_ctrl_d_leaves(self):
        terminal = self.chat()
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), 0)

    def test_parameters(self):
        terminal = self.chat()
        terminal.type("/set temperature 0.25\n")
        terminal.expect(">>> ")
        terminal.type("/set parameter top_k 3\n")
        terminal.expect(">>> ")
        terminal.type("/set\n")
        shown = terminal.expect(">>> ")
        self.assertRegex(shown, r"temperature +0\.25")
        self.assertRegex(shown, r"top_k +3")
        terminal.type("/set temprature 1\n")
        self.assertIn("temperature", terminal.expect(">>> ").split("error:")[1])
        terminal.type("/set top_p 7\n")
        self.assertIn("top_p", terminal.expect(">>> ").split("error:")[1])
        terminal.type("/frob\n")
        self.assertIn("no command /frob", terminal.expect(">>> "))
        terminal.type("/show\n")
        self.assertIn(self.toy, terminal.expect(">>> "))

    def test_save_and_load(self):
        terminal = self.chat("--system", "Be brief.")
        terminal.type('"""first line\n')
        terminal.expect("... ")
        terminal.type('/second line"""\n')
        terminal.expect(">>> ")
        file = self.path("talk.json")
        terminal.type(f"/save {file}\n")
        terminal.expect("Saved 2")
        terminal.expect(">>> ")
        with open(file, encoding="utf-8") as saved:
            value = json.load(saved)
        self.assertEqual(value["system"], "Be brief.")
        self.assertEqual([message["role"] for message in value["messages"]], ["user", "assistant"])
        self.assertEqual(value["messages"][0]["content"], "first line\n/second line")
        terminal.type("/clear\n")
        terminal.expect(">>> ")
        terminal.type(f"/load {file}\n")
        terminal.expect("Loaded 2")
        terminal.expect(">>> ")
        with open(self.path("diary.txt"), "w", encoding="utf-8") as diary:
            diary.write("dear diary")
        terminal.type(f"/save {self.path('diary.txt')}\n")
        self.assertIn("left as it is", terminal.expect(">>> "))
        terminal.type(f"/load {self.path('diary.txt')}\n")
        self.assertIn("not valid JSON", terminal.expect(">>> "))
        with open(self.path("diary.txt"), encoding="utf-8") as diary:
            self.assertEqual(diary.read(), "dear diary")

    def test_what_a_raw_chat_does_not_have(self):
        file = self.path("earlier.json")
        with open(file, "w", encoding="utf-8") as saved:
            json.dump({"format": "quarrel-conversation", "version": 1, "system": "Be brief.",
                       "messages": [{"role": "user", "content": "Hello"}]}, saved)
        terminal = self.chat("--raw")
        for line, missing in (("/system Be brief.", "no system prompt"), ("/set system Be brief.", "no system prompt"),
                              (f"/load {file}", "no conversation")):
            terminal.type(line + "\n")
            self.assertIn(f"a chat with --raw has {missing}", terminal.expect(">>> ").split("error:")[1])
        terminal.type("/show info\n")
        shown = terminal.expect(">>> ")
        self.assertRegex(shown, r"messages +0")
        self.assertRegex(shown, r"system +\(none\)")
        terminal.type("/bye\n")
        self.assertEqual(terminal.wait(), 0)

    def test_a_turn_uses_the_cache(self):
        terminal = self.chat("--verbose")
        terminal.type("Hello" + " hello" * 40 + "\n")
        first = terminal.expect(">>> ")
        self.assertNotIn("cached", first)
        terminal.type("And you?\n")
        second = terminal.expect(">>> ")
        cached = int(re.search(r"prompt cached count: +(\d+)", second).group(1))
        fed = int(re.search(r"prompt eval count: +(\d+)", first).group(1))
        # Whole blocks of 16 tokens are shared.
        self.assertGreater(cached, 0)
        self.assertGreaterEqual(cached, fed // 16 * 16)

    def test_ctrl_c(self):
        toy = self.make_toy("chat", "long.gguf", 60000)
        terminal = self.open_terminal("run", toy, *ENDLESS)
        terminal.expect(">>> ")
        terminal.type("Hello\n")
        terminal.expect("Hello")
        # Something of the answer stands behind the question, or has moved that out of sight.
        begun = re.compile(r">>> Hello\n\s*(?!reading the prompt)\S")
        terminal.expect_screen(lambda screen: screen.scrolled or begun.search(screen.text()))
        terminal.type("\x03")
        terminal.expect(">>> ")
        # That one stopped the answer: the next is the first of those that leave, and says so.
        terminal.type("\x03")
        terminal.expect("once more")
        terminal.expect(">>> ")
        terminal.type(f"/save {self.path('cut.json')}\n")
        terminal.expect("Saved 2")

        def press(keys):
            terminal.expect(">>> ")
            terminal.type(keys)

        press("half a line\x03")
        press("\x03")
        terminal.expect("once more")
        press("\x03")
        self.assertEqual(terminal.wait(), 0)
        with open(self.path("cut.json"), encoding="utf-8") as saved:
            self.assertTrue(json.load(saved)["messages"][1]["content"])

    def test_a_full_context(self):
        terminal = self.chat()
        terminal.type("x!" * 400 + "\n")
        shown = terminal.expect("not kept")
        self.assertIn("512", shown)
        terminal.expect(">>> ")
        terminal.type("Hello\n")
        terminal.expect("Hello")
        terminal.expect(">>> ")
        terminal.type("/show\n")
        self.assertRegex(terminal.expect(">>> "), r"messages +2")

    def test_history(self):
        terminal = self.chat()
        terminal.type("/show\n")
        terminal.expect("architecture")
        terminal.expect(">>> ")
        terminal.type("/bye\n")
        terminal.wait()
        file = self.path("state/quarrel/history")
        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
        terminal = self.chat()
        terminal.type("\x1b[A\x1b[A\n")
        terminal.expect("architecture")

    def test_history_can_be_switched_off(self):
        state = self.path("other-state")
        terminal = self.chat(environment={"QUARREL_HISTORY": "0", "XDG_STATE_HOME": state})
        terminal.type("/bye\n")
        terminal.wait()
        self.assertFalse(os.path.exists(state))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Settings as users meet them: the file, the environment, `quarrel config`, the documentation, and what serve does."""
import json
import os
import unittest

from serve_harness import ServeTest

DOCUMENTATION = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "server.md")


class Config(ServeTest):
    @classmethod
    def prepare(cls):
        cls.other = cls.make_toy("chat", "other.gguf")
        cls.config = cls.write("config.toml", f'[models.configured]\npath = "{cls.other}"\nkeep_alive = -1\n'
                               '[server]\ngenerate_dialect = "native"\n')
        cls.arguments = ("--config", cls.config)
        cls.models = []

    @classmethod
    def write(cls, name, text):
        path = cls.path(name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def settings(self, *arguments, **options):
        found = json.loads(self.succeed("config", "--json", *arguments, **options).out)
        return {each["name"]: each for each in found["settings"]}

    def test_every_setting_is_documented(self):
        with open(DOCUMENTATION, encoding="utf-8") as file:
            lines = file.read().splitlines()
        help_text = " ".join(self.succeed("serve", "--help").out.decode().split())
        for name, setting in self.settings().items():
            row = [line for line in lines if line.startswith("|") and f"`{name}`" in line]
            self.assertEqual(len(row), 1, name)
            for word in [setting["flag"], *setting["variables"]]:
                if word:
                    self.assertRegex(row[0], f"`{word}[ `]", name)
            if setting["flag"]:
                self.assertIn(setting["flag"], help_text)
                meaning = row[0].rstrip(" |").rsplit(" | ", 1)[1].split(" (cpu, ")[0]  # which backends: the build's choice
                self.assertIn(meaning[0].upper() + meaning[1:], help_text, name)

    def test_every_default_is_documented(self):
        with open(DOCUMENTATION, encoding="utf-8") as file:
            rows = [line.split("|") for line in file if line.startswith("| `")]
        told = {cells[1].strip(" `"): cells[3].strip(" `") for cells in rows if len(cells) > 4}
        defaults = {name: setting["value"] for name, setting in self.settings().items() if setting["source"] == "default"}
        self.assertGreater(len(defaults), 40)
        del defaults["server.keys"]  # a path of the user's own
        for name, value in defaults.items():
            with self.subTest(name):
                if isinstance(value, bool) or value is None:
                    self.assertEqual(told[name], {True: "yes", False: "no", None: ""}[value])
                elif isinstance(value, (int, float)):
                    self.assertEqual(float(told[name]), value)
                else:
                    self.assertEqual(told[name], "" if value == [] else value)

    def test_what_is_printed_can_be_read_again(self):
        text = self.succeed("config", "--config", self.config, "--port", "1234", "--allow-host", "a\"b").out.decode()
        self.assertIn("# --port", text)
        again = self.settings("--config", self.write("printed.toml", text))
        self.assertEqual(again["server.port"]["value"], 1234)
        self.assertEqual(again["server.allowed_hosts"]["value"], ["a\"b"])
        self.assertEqual(again["models.configured.keep_alive"]["value"], -1)

    def test_secrets_stay_hidden(self):
        environment = {"QUARREL_API_KEY": "hush-hush"}
        self.assertNotIn(b"hush", self.succeed("config", environment=environment).out)
        self.assertEqual(self.settings(environment=environment)["QUARREL_API_KEY"]["value"], "(hidden)")
        self.refuse(2, ["QUARREL_API_KEY"], "config", environment={"QUARREL_API_KEY": "hush\x01"})
        self.assertNotIn("hush", self.run_program("config", environment={"QUARREL_API_KEY": "hush\x01"}).err)

    def test_mistakes_end_the_program(self):
        wrong = self.write("wrong.toml", "[server]\nprot = 1\n")
        for command in ("config", "serve"):
            self.refuse(2, ["wrong.toml, line 2", "'server.port'"], command, "--config", wrong)
            self.refuse(2, ["broken.toml, line 1"], command, "--config", self.write("broken.toml", "[server\n"))
            self.refuse(1, ["no file"], command, "--config", self.path("absent"))
            self.refuse(2, ["QUARREL_PORT", "65535"], command, environment={"QUARREL_PORT": "99999"})
            self.refuse(2, ["--port", "65535"], command, "--port", "-3")

    def test_what_could_never_match_is_refused(self):
        for host in ("http://models.example", "models.example:8080", "*", "a b", "::1", ""):
            self.refuse(2, ["cannot be an allowed host"], "serve", self.toy, "--port", "0", "--allow-host", host)
        for origin in ("example.org", "https://example.org/", "https://example.org:443", "http://localhost:*",
                       "https://*.example.org", "https://", "http://a:b"):
            self.refuse(2, ["cannot be an allowed origin"], "serve", self.toy, "--port", "0", "--allow-origin", origin)
        origins = ("*", "null", "https://example.org", "http://localhost:3000", "http://[::1]:8080", "app://obsidian.md",
                   "chrome-extension://abcdefgh")
        hosts = ("models.example", "10.0.0.7", "[::1]", "my_host")
        named = [word for origin in origins for word in ("--allow-origin", origin)]
        server = self.start_server(self.toy, *named, *(word for host in hosts for word in ("--allow-host", host)))
        for host in hosts:
            self.assertEqual(server.request("GET", "/v1/models", headers={"Host": host + ":1"})[0], 200, host)
        for origin in origins[1:]:
            head = server.request("GET", "/v1/models", headers={"Origin": origin})[1]
            self.assertEqual(head["Access-Control-Allow-Origin"], origin)

    def test_names_that_nobody_has_are_refused(self):
        os.symlink(self.other, self.path("models/stored.gguf"))
        self.addCleanup(os.unlink, self.path("models/stored.gguf"))
        self.refuse(1, ["default model", "'storde'", "did you mean 'stored'?"], "serve", "--port", "0",
                    "--default-model", "storde")
        misspelt = self.write("misspelt.toml", "[models.sotred]\nkeep_alive = 1\n")
        self.refuse(1, ["[models.\"sotred\"]", "did you mean 'stored'?", "path"], "serve", "--port", "0", "--config",
                    misspelt)
        # Whether it is served or not, and whether it is named by a file or not.
        right = self.write("right.toml", "[models.stored]\nkeep_alive = 1\n[models.toy]\nkeep_alive = 1\n")
        server = self.start_server(self.toy, "--config", right)
        self.assertEqual(server.request("GET", "/v1/models/toy")[0], 200)
        # A registry may still bring them.
        later = self.start_server("--config", misspelt, "--registry", "http://127.0.0.1:1", "--default-model", "nope")
        self.assertRegex(later.stop()[1], "'sotred'.* is not there yet")

    def test_what_is_in_force_though_nobody_set_it_is_shown(self):
        environment = {"XDG_RUNTIME_DIR": self.path("runtime"), "XDG_DATA_HOME": self.path("data")}
        found = self.settings(environment=environment)
        for name, path in (("server.unix_socket", "runtime/quarrel/server.sock"), ("server.keys", "data/quarrel/keys.json")):
            self.assertEqual((found[name]["value"], found[name]["source"]), (self.path(path), "default"))
        # As a remark: named in a file they would have to be there.
        text = self.succeed("config", environment=environment).out.decode()
        self.assertRegex(text, r'(?m)^# unix_socket = ".*/runtime/quarrel/server\.sock" +# default$')
        self.assertRegex(text, r'(?m)^# keys = ".*/data/quarrel/keys\.json" +# default$')
        self.assertIsNone(self.settings(environment={"XDG_RUNTIME_DIR": ""})["server.unix_socket"]["value"])

    def test_models_of_the_file_are_served(self):
        status, _, body = self.server.request("GET", "/v1/models")
        self.assertEqual(status, 200)
        self.assertEqual([model["id"] for model in json.loads(body)["data"]], ["configured"])
        # Never by its path.
        self.assertEqual(self.server.post("/v1/completions", {"model": self.other, "prompt": "a"})[0], 404)
        # The file's dialect: Ollama's form would be an object of its own.
        status, answer = self.server.post("/api/generate", {"model": "configured", "prompt": "a", "max_tokens": 1})
        self.assertEqual((status, answer["tokens_generated"]), (200, 1))
        status, answer = self.server.post("/api/generate", {"model": "configured", "prompt": "a"})
        self.assertIn("tokens_generated", answer)
        # It stays for ever, unlike the others.
        listed = json.loads(self.server.request("GET", "/api/ps")[2])["models"]
        self.assertEqual([model["name"] for model in listed], ["configured:latest"])
        self.assertGreater(int(listed[0]["expires_at"][:4]), 2100)

    def test_whose_form_generate_takes(self):
        server = self.start_server("--config", self.config, "--generate-dialect", "ollama")
        status, answer = server.post("/api/generate", {"prompt": "a", "max_tokens": 2})
        self.assertEqual(status, 400, answer)
        self.assertIn("max_tokens", answer["error"])
        status, answer = server.post("/api/generate", {"prompt": "a", "stream": False, "options": {"num_predict": 1}})
        self.assertEqual((status, answer["eval_count"]), (200, 1))
        status, answer = server.post("/api/native/generate", {"prompt": "a", "max_tokens": 1})
        self.assertEqual((status, answer["tokens_generated"]), (200, 1))
        self.assertEqual(server.stop()[0], 0)

    def test_the_default_model(self):
        for name in ("one", "two"):
            os.symlink(self.other, self.path(f"models/{name}.gguf"))
            self.addCleanup(os.unlink, self.path(f"models/{name}.gguf"))
        server = self.start_server("--config", self.config, QUARREL_DEFAULT_MODEL="two")
        status, answer = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        self.assertEqual((status, answer["model"]), (200, "two"))
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    unittest.main()

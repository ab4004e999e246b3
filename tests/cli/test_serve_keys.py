#!/usr/bin/env python3
"""Keys and limits of `quarrel serve`: `quarrel key`, who may do what, what an attacker gets, what is too much."""
import concurrent.futures
import json
import os
import random
import re
import signal
import socket
import stat
import subprocess
import time
import unittest

from harness import QUARREL, TIMEOUT
from serve_harness import ServeTest, read_all
from websocket_client import Closed, Refused, WebSocketClient

CHAT = "/v1/chat/completions"
QUESTION = {"messages": [{"role": "user", "content": "Hello"}], "seed": 7, "max_tokens": 4}


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


class KeyTest(ServeTest):
    """A file of keys of the class's own."""

    @classmethod
    def prepare(cls):
        cls.environment["XDG_DATA_HOME"] = cls.path("data")
        cls.keys = cls.path("data/quarrel/keys.json")
        cls.make_keys()

    @classmethod
    def make_keys(cls):
        """For classes whose server has keys from its start."""

    @classmethod
    def key(cls, *arguments):
        done = subprocess.run([QUARREL, "key", *arguments], env=cls.environment, capture_output=True, timeout=TIMEOUT,
                              check=False)
        if done.returncode != 0:
            raise AssertionError(done)
        return done.stdout.decode().strip()

    def ask(self, key, path=CHAT, body=None, server=None, **headers):
        server = server or self.server
        body = QUESTION if body is None else body
        status, answered, data = server.request("POST", path, body, {**(bearer(key) if key else {}), **headers})
        return status, answered, json.loads(data)

    def get(self, key, path="/v1/models", server=None):
        status, _, data = (server or self.server).request("GET", path, headers=bearer(key) if key else {})
        return status, data

    def eventually(self, wanted, call, seconds=10):
        end = time.monotonic() + seconds
        while (got := call()) != wanted:
            self.assertLess(time.monotonic(), end, got)
            time.sleep(0.05)


class KeyCommand(KeyTest):
    def test_a_key_is_made_listed_and_revoked(self):
        made = self.succeed("key", "create", "laptop")
        key = made.out.decode()
        self.assertRegex(key, r"^qk_[0-9A-Za-z]{53}\n$")
        self.assertIn("shown this once", made.err)
        self.assertNotIn("qk_", made.err)
        self.assertEqual(stat.S_IMODE(os.stat(self.keys).st_mode), 0o600)
        with open(self.keys, encoding="utf-8") as file:
            kept = file.read()
        self.assertNotIn(key.strip()[13:], kept)
        listed = self.succeed("key", "list").out.decode()
        self.assertRegex(listed, r"laptop +use +valid")
        self.refuse(2, ["laptop", "rotate"], "key", "create", "laptop")
        self.succeed("key", "revoke", "laptop")
        self.assertRegex(self.succeed("key", "list").out.decode(), r"laptop +use +revoked")
        self.refuse(2, ["revoked"], "key", "rotate", "laptop")

    def test_json_has_everything_but_secrets(self):
        made = json.loads(self.succeed("key", "create", "ci", "--json", "--admin", "--model", "toy", "--expires", "90d",
                                       "--requests-per-minute", "60", "--tokens-per-minute", "1000", "--concurrency",
                                       "2", "--priority", "batch").out)
        self.assertRegex(made["key"], r"^qk_[0-9A-Za-z]{53}$")
        listed = [key for key in json.loads(self.succeed("key", "list", "--json").out) if key["name"] == "ci"]
        self.assertEqual(len(listed), 1)
        self.assertEqual({**made, "key": None}, {**listed[0], "key": None})
        self.assertEqual((made["role"], made["models"], made["requests_per_minute"], made["tokens_per_minute"],
                          made["concurrency"], made["priority"], made["state"]),
                         ("admin", ["toy"], 60, 1000, 2, "batch", "valid"))
        self.assertNotIn("hash", json.dumps(listed))

    def test_a_model_that_is_not_there_is_warned_of(self):
        self.make_toy("chat", "models/stored.gguf")
        made = self.succeed("key", "create", "mistyped", "--model", "storde", "--model", "stored")
        self.assertRegex(made.out.decode(), r"^qk_[0-9A-Za-z]{53}\n$")
        self.assertIn("warning: there is no model 'storde' here; did you mean 'stored'?", made.err)
        self.assertEqual(made.err.count("warning"), 1)
        self.assertNotIn("warning", self.succeed("key", "create", "right", "--model", "stored:latest").err)

    def test_what_makes_no_sense_is_refused(self):
        self.refuse(2, ["which key"], "key", "create")
        self.refuse(2, ["name"], "key", "create", "a b")
        self.refuse(2, ["ACTION"], "key", "destroy", "a")
        self.refuse(2, ["--expires"], "key", "create", "b", "--expires", "soon")
        self.refuse(2, ["created"], "key", "revoke", "b", "--admin")
        self.refuse(2, ["--overlap"], "key", "create", "b", "--overlap", "1h")
        self.refuse(1, ["nobody"], "key", "revoke", "nobody")

    def test_a_file_that_others_can_read_is_refused(self):
        file = self.path("shared.json")
        self.succeed("key", "create", "a", "--keys", file)
        os.chmod(file, 0o644)
        self.refuse(1, ["chmod 600"], "key", "list", "--keys", file)
        self.refuse(1, ["chmod 600"], "serve", self.toy, "--port", "0", "--keys", file)
        self.refuse(1, ["no file of keys"], "serve", self.toy, "--port", "0", "--keys", self.path("nowhere.json"))

    def test_killed_at_any_moment_it_leaves_a_whole_file(self):
        file = self.path("killed.json")
        self.succeed("key", "create", "first", "--keys", file)
        rng = random.Random(7)
        acknowledged = ["first"]
        for number in range(40):
            process = subprocess.Popen([QUARREL, "key", "create", f"key-{number}", "--keys", file],
                                       env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 0.03)
            process.kill()
            if process.communicate()[0]:
                acknowledged.append(f"key-{number}")
        names = [key["name"] for key in json.loads(self.succeed("key", "list", "--json", "--keys", file).out)]
        self.assertLessEqual(set(acknowledged), set(names))
        self.succeed("key", "create", "last", "--keys", file)


class Roles(KeyTest):
    @classmethod
    def make_keys(cls):
        cls.use = cls.key("create", "user")
        cls.admin = cls.key("create", "boss", "--admin")
        cls.narrow = cls.key("create", "narrow", "--model", "other")

    def test_what_needs_no_key(self):
        for path in ("/health", "/healthz", "/readyz", "/openapi.json", "/docs", "/status"):
            self.assertEqual(self.get(None, path)[0], 200, path)
        for path in ("/version", "/api/version"):
            self.assertEqual((self.get(None, path)[0], self.get(self.use, path)[0]), (401, 200), path)
        self.assertEqual(self.get(None)[0], 401)

    def test_roles(self):
        self.assertEqual(self.ask(self.use)[0], 200)
        self.assertEqual(self.ask(self.admin)[0], 200)
        for key, role in ((self.use, "use"), (self.admin, "admin")):
            self.assertEqual(json.loads(self.get(key, "/version")[1])["role"], role)
        changes = [("POST", "/api/copy", {"source": "toy", "destination": "copied"}),
                   ("DELETE", "/api/delete", {"model": "nowhere"}), ("POST", "/api/pull", {"model": "x"}),
                   ("POST", "/api/create", {"model": "x", "from": "toy"})]
        for method, path, body in changes:
            status, _, data = self.server.request(method, path, body, bearer(self.use))
            self.assertEqual(status, 403, (path, data))
            self.assertIn("admin", json.loads(data)["error"])
            status, _, data = self.server.request(method, path, body, bearer(self.admin))
            self.assertNotIn(status, (401, 403), (path, data))
        # Ollama's way to load and unload.
        for body in ({"model": "toy"}, {"model": "toy", "keep_alive": 0}):
            for path in ("/api/generate", "/api/embed"):
                self.assertEqual(self.ask(self.use, path, body)[0], 403)
                self.assertEqual(self.ask(self.admin, path, body)[0], 200)
        loaded = lambda: [model["name"] for model in json.loads(self.get(self.use, "/api/ps")[1])["models"]]
        self.eventually([], loaded)  # whoever came before that would see it unloaded after all
        # With a prompt it is asked for by clients that never thought of it, and unloads nothing.
        body = {"model": "toy", "prompt": "Hello", "stream": False, "keep_alive": 0, "options": {"num_predict": 2}}
        self.assertEqual(self.ask(self.use, "/api/generate", body)[0], 200)
        self.assertEqual(loaded(), ["toy:latest"])

    def test_a_model_that_a_key_may_not_use_is_not_there(self):
        status, data = self.get(self.narrow)
        self.assertEqual((status, json.loads(data)["data"]), (200, []))
        self.assertEqual(json.loads(self.get(self.narrow, "/api/tags")[1])["models"], [])
        self.assertEqual(json.loads(self.get(self.narrow, "/api/ps")[1])["models"], [])
        for path, body in ((CHAT, {**QUESTION, "model": "toy"}), (CHAT, QUESTION),
                           ("/v1/embeddings", {"model": "toy", "input": "x"}), ("/api/show", {"model": "toy"}),
                           ("/api/generate", {"model": "toy", "prompt": "x"}), ("/api/stream", {"prompt": "x"})):
            status, _, answer = self.ask(self.narrow, path, body)
            self.assertEqual(status, 404, (path, answer))
        refused = self.ask(self.narrow, CHAT, {**QUESTION, "model": "toy"})[2]
        unknown = self.ask(self.narrow, CHAT, {**QUESTION, "model": "tox"})[2]
        self.assertEqual(json.dumps(refused).replace("toy", "tox"), json.dumps(unknown))
        self.assertEqual(self.get(self.narrow, "/v1/models/toy")[0], 404)

    def test_nobody_finds_what_another_has_had_cached(self):
        body = {**QUESTION, "messages": [{"role": "user", "content": "a prompt of several blocks " * 8}]}
        def cached(key):
            status, _, answer = self.ask(key, body=body)
            self.assertEqual(status, 200, answer)
            return answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached(self.use), 0)
        self.assertGreater(cached(self.use), 0)
        self.assertEqual(cached(self.admin), 0)

    def test_keys_come_and_go_while_the_server_runs(self):
        def statuses(*keys):
            time.sleep(1.1)  # the server looks once a second
            return [self.get(key)[0] for key in keys]

        key = self.key("create", "late")
        self.assertEqual(statuses(key), [200])
        fresh = self.key("rotate", "late", "--overlap", "1h")
        self.assertEqual(statuses(key, fresh), [200, 200])
        last = self.key("rotate", "late", "--overlap", "0s")
        self.assertEqual(statuses(key, fresh, last), [401, 401, 200])
        self.key("revoke", "late")
        self.assertEqual(statuses(last), [401])
        self.assertIn("revoked", self.get(last)[1].decode())
        brief = self.key("create", "brief", "--expires", "3s")
        self.assertEqual(statuses(brief), [200])
        time.sleep(2)
        self.assertEqual(statuses(brief), [401])
        self.assertIn("expired", self.get(brief)[1].decode())

    def test_a_revoked_key_loses_its_answer(self):
        server = self.start_server(self.make_toy("chat", "long.gguf", context=65536), "--cache-tokens", "64k")
        key = self.key("create", "stream")
        time.sleep(1.1)
        connection = server.connect()
        bias = {str(token): -100 for token in (258, 2, 0, 1)}  # those that end an answer
        body = {"prompt": "Hello", "max_tokens": 60000, "stream": True, "logit_bias": bias}
        connection.request("POST", "/v1/completions", json.dumps(body), bearer(key))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.readline())
        self.key("revoke", "stream")
        self.assertIn("invalid_api_key", answer.read().decode())
        connection.close()

    def test_a_revoked_key_loses_its_open_connection(self):
        key = self.key("create", "socket")
        time.sleep(1.1)
        with WebSocketClient(self.server.port, headers=bearer(key).items()) as client:
            client.send({"type": "ping"})
            self.assertTrue(client.next("status")["payload"]["connected"])
            self.key("revoke", "socket")
            time.sleep(1.1)
            with self.assertRaises(Closed) as closed:
                client.send({"type": "ping"})
                while True:
                    client.receive()
            self.assertEqual(closed.exception.code, 1008)
        for headers in ([], bearer(key).items()):
            with self.assertRaises(Refused) as refused:
                WebSocketClient(self.server.port, headers=headers)
            self.assertEqual(refused.exception.status, 401)

    def test_a_server_that_was_killed_finds_its_keys_and_settings_again(self):
        config = self.path("kept.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write("[engine]\nkeep_alive = 7\n")
        for _ in range(2):
            server = self.start_server(self.toy, "--config", config)
            self.assertEqual(self.ask(self.use, server=server)[0], 200)
            self.assertEqual(self.get(None, server=server)[0], 401)
            server.process.kill()
            server.process.wait()
            self.assertIn(b"keep_alive = 7", self.succeed("config", "--config", config).out)

    def test_a_broken_file_leaves_the_keys(self):
        file = self.path("own.json")
        key = self.key("create", "a", "--keys", file)
        server = self.start_server(self.toy, "--keys", file)
        self.assertEqual(self.get(key, server=server)[0], 200)
        os.rename(file, file + ".good")
        with open(file, "w", encoding="utf-8") as broken:
            broken.write("{")
        time.sleep(1.2)
        self.assertEqual(self.get(key, server=server)[0], 200)
        self.assertEqual(self.get(None, server=server)[0], 401)
        os.remove(file)
        time.sleep(1.2)
        self.assertEqual(self.get(key, server=server)[0], 200)
        os.rename(file + ".good", file)
        self.key("revoke", "a", "--keys", file)
        time.sleep(1.2)
        self.assertEqual(self.get(key, server=server)[0], 401)
        self.assertEqual(self.get(None, server=server)[0], 401)
        self.assertIn("file of keys", server.stop()[1])


class TwoNames(KeyTest):
    """A model that `pull` gets has two names, and a key for either is good for both; but only for that model."""
    FILE = "SmolLM2-135M-Instruct.Q4_1"

    @classmethod
    def make_keys(cls):
        cls.make_toy("chat", f"models/{cls.FILE}.gguf")
        cls.models = []
        cls.by_file = cls.key("create", "by-file", "--model", cls.FILE)
        cls.by_alias = cls.key("create", "by-alias", "--model", "default")
        cls.other = cls.key("create", "other", "--model", "other")

    def seen(self, key, server):
        """The models that a key is told of, one set a place."""
        tags, running = (json.loads(self.get(key, path, server)[1])["models"] for path in ("/api/tags", "/api/ps"))
        metrics = self.get(key, "/metrics", server)[1].decode()
        with WebSocketClient(server.port, headers=bearer(key).items()) as client:
            client.send({"type": "status"})
            status = client.next("status")["payload"]["models"]
            broadcast = client.next("metrics")["payload"]["models"]
        return [{each["name"].removesuffix(":latest") for each in models} for models in (tags, running, status, broadcast)
                ] + [set(re.findall(r'\{[^}]*model="([^"]*)"', metrics))]

    def test_a_key_for_either_name_is_good_for_both(self):
        for key in (self.by_file, self.by_alias):
            for name in (self.FILE, "default", "default:latest"):
                self.assertEqual(self.ask(key, body={**QUESTION, "model": name})[0], 200, name)
            self.assertEqual(self.seen(key, self.server), [{"default"}] * 5)
        self.assertEqual(self.ask(self.other, body={**QUESTION, "model": "default"})[0], 404)
        self.assertEqual(self.seen(self.other, self.server), [set()] * 5)

    def test_another_model_of_the_name_is_not_meant(self):
        os.mkdir(self.path("elsewhere"))
        config = self.path("foreign.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f'[models.default]\npath = "{self.make_toy("chat", "private.gguf")}"\n')
        for server in (self.start_server("--config", config),
                       self.start_server(self.make_toy("chat", "elsewhere/default.gguf"))):
            self.assertEqual(self.ask(self.by_alias, server=server, body={**QUESTION, "model": "default"})[0], 200)
            self.assertEqual(self.seen(self.by_alias, server), [{"default"}] * 5)
            self.assertEqual(self.ask(self.by_file, server=server, body={**QUESTION, "model": "default"})[0], 404)
            self.assertEqual(self.seen(self.by_file, server), [set()] * 5)


class Attacker(KeyTest):
    """What an attacker tries; a server each where guesses would be in the way of others."""

    @classmethod
    def make_keys(cls):
        cls.use = cls.key("create", "user")
        cls.gone = cls.key("create", "gone")
        cls.key("revoke", "gone")

    def raw_status(self, server, *lines, path="/v1/models", method="GET"):
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines, "", ""])
        answer = server.raw(head.encode("latin-1"))
        return int(answer.split(b" ", 2)[1])

    def test_wrong_keys_and_header_tricks(self):
        server = self.start_server(self.toy)
        key = self.use
        wrong = [key[:-1], key + "A", key.upper(), key.replace("qk_", "sk-"), self.gone, key[:13] + self.gone[13:], "qk_"]
        for each in wrong:
            self.assertEqual(self.get(each, server=server)[0], 401, each)
        server = self.start_server(self.toy)
        for lines in (["Authorization: " + key], ["Authorization: Basic " + key], ["Authorization: Bearer"],
                      ["X-Api-Key: " + key], ["Proxy-Authorization: Bearer " + key], ["Cookie: key=" + key],
                      ["X-Original-URL: /health"], ["X-Rewrite-URL: /health"], ["X-HTTP-Method-Override: HEAD"],
                      ["X-Forwarded-For: 127.0.0.1"], ["X-Forwarded-Host: localhost", "Forwarded: for=127.0.0.1"]):
            self.assertEqual(self.raw_status(server, *lines), 401, lines)
        self.assertEqual(self.raw_status(server, f"Authorization: Bearer {key}", "Authorization: Bearer x"), 400)
        self.assertEqual(self.raw_status(server, f"Authorization: Bearer {key}\x00"), 400)
        self.assertEqual(self.raw_status(server, f"authorization: bearer {key}"), 200)
        self.assertEqual(self.raw_status(server, f"Authorization: ApiKey {key}"), 200)
        for path in ("//v1/models", "/v1//models", "/./v1/models", "/health/../v1/models", "/health/%2e%2e/v1/models",
                     "/v1%2fmodels/", "/V1/models", "/v1/models/", "/health;/v1/models", "/v1/models%00", "/v1\\models"):
            status = self.raw_status(server, path=path)
            self.assertIn(status, (400, 401, 404), path)
        self.assertNotEqual(self.raw_status(server, path="http://localhost/v1/models"), 200)

    def test_no_key_in_a_url(self):
        for query in (f"?api_key={self.use}", f"?key={self.use}", "?token=x"):
            status, data = self.get(self.use, "/v1/models" + query)
            self.assertEqual(status, 400, data)
            self.assertNotIn(self.use[13:], data.decode())

    def test_guessing_is_slowed_down_and_logged(self):
        server = self.start_server(self.toy)
        statuses = [self.get(f"guess-{number}", server=server)[0] for number in range(30)]
        self.assertEqual(statuses, [401] * 10 + [429] * 20)
        status, headers, _ = server.request("GET", "/v1/models", headers=bearer("guess"))
        self.assertEqual(status, 429)
        self.assertTrue(1 <= int(headers["Retry-After"]) <= 60)
        self.assertEqual(self.get(self.use, server=server)[0], 200)
        self.assertEqual(server.request("GET", "/health")[0], 200)
        self.assertEqual(self.get(None, "/metrics", server=server)[0], 401)
        figures = self.get(self.use, "/metrics", server=server)[1].decode()
        self.assertIn('quarrel_admission_refused_total{reason="wrong_key"} 10\n', figures)
        self.assertIn('quarrel_admission_refused_total{reason="address_limit"} 21\n', figures)
        said = server.stop()[1]
        self.assertIn("a wrong key came from 127.0.0.1", said)
        self.assertNotIn("guess-", said)
        self.assertNotIn(self.use, said)

    def test_a_revoked_key_is_named_in_the_log(self):
        server = self.start_server(self.toy)
        self.assertEqual(self.get(self.gone, server=server)[0], 401)
        said = server.stop()[1]
        self.assertIn("the revoked key 'gone' came from", said)
        self.assertNotIn(self.gone[13:], said)

    def test_rebinding(self):
        opened = self.start_server(self.toy, XDG_DATA_HOME=self.path("none"))
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.1"):
            self.assertEqual(opened.request("GET", "/v1/models", headers={"Host": host})[0], 403, host)
        for origin in ("http://evil.example", "null", "https://localhost.evil.example", "chrome-extension://x"):
            status, _, data = opened.request("POST", CHAT, QUESTION, {"Origin": origin})
            self.assertEqual(status, 403, (origin, data))
        self.assertEqual(opened.request("GET", "/v1/models")[0], 200)

    def test_names_are_not_paths(self):
        for name in ("../toy", "/etc/passwd", self.toy, "./toy.gguf", "..%2ftoy", "toy/../toy", "toy\x00", "\\\\host\\x",
                     "file:///etc/passwd", "~/toy", "C:\\toy", "toy.gguf"):
            for path, body in ((CHAT, {**QUESTION, "model": name}), ("/api/show", {"model": name}),
                               ("/api/generate", {"model": name, "prompt": "x"})):
                status, _, answer = self.ask(self.use, path, body)
                self.assertIn(status, (400, 404), (name, path, answer))
                self.assertNotIn("/", json.dumps(answer).replace("/v1/models", "").replace(name, "").replace(
                    json.dumps(name)[1:-1], "").replace("\\/", ""), answer)

    def test_other_machines_need_a_key_or_a_word(self):
        environment = {"XDG_DATA_HOME": self.path("none")}
        self.refuse(2, ["other machines", "--open"], "serve", self.toy, "--host", "0.0.0.0", "--port", "0",
                    environment=environment)
        process = subprocess.Popen([QUARREL, "serve", self.toy, "--host", "0.0.0.0", "--port", "0", "--open"],
                                   env={**self.environment, **environment}, stderr=subprocess.PIPE)
        said = b""
        while b"http://" not in said and (line := process.stderr.readline()):
            said += line
        process.send_signal(signal.SIGTERM)
        said += process.stderr.read()  # what readline has read ahead too
        process.stderr.close()
        self.assertEqual(process.wait(timeout=TIMEOUT), 0)
        self.assertIn(b"other machines", said)

    def test_the_unix_socket_is_its_owners(self):
        path = self.path("s")
        server = self.start_server(self.toy, "--unix-socket", path)

        def status(*lines):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(TIMEOUT)
                connection.connect(path)
                head = ["GET /v1/models HTTP/1.1", "Host: localhost", "Connection: close", *lines, "", ""]
                connection.sendall("\r\n".join(head).encode())
                return int(read_all(connection).split(b" ", 2)[1])

        self.assertEqual(status(), 200)
        self.assertEqual(status("Authorization: Bearer wrong"), 401)
        self.assertEqual(status("X-Forwarded-For: 1.2.3.4"), 401)
        self.assertEqual(self.get(None, server=server)[0], 401)


class Cors(KeyTest):
    arguments = ("--allow-origin", "https://app.example")

    @classmethod
    def make_keys(cls):
        cls.use = cls.key("create", "user")

    def test_a_listed_page_may_call(self):
        page = {"Origin": "https://app.example"}
        status, headers, data = self.server.request("OPTIONS", CHAT, headers={
            **page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"})
        self.assertEqual((status, data), (204, b""))
        self.assertEqual(headers["Access-Control-Allow-Origin"], "https://app.example")
        self.assertEqual(headers["Access-Control-Allow-Headers"], "authorization")
        self.assertEqual(headers["Access-Control-Allow-Methods"], "POST")
        status, headers, _ = self.ask(self.use, **page)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "https://app.example"))
        self.assertIsNone(headers["Access-Control-Allow-Credentials"])
        status, headers, _ = self.ask(None, **page)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (401, "https://app.example"))
        status, headers, data = self.server.request("POST", CHAT, {**QUESTION, "stream": True},
                                                    {**bearer(self.use), **page})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "https://app.example"))

    def test_another_may_not(self):
        for origin in ("https://evil.example", "http://app.example", "https://app.example.evil.example"):
            status, headers, _ = self.ask(self.use, Origin=origin)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (403, None))


class LimitTest(KeyTest):
    arguments = ("--parallel", "2", "--queue", "4")

    @classmethod
    def make_keys(cls):
        cls.few = cls.key("create", "few", "--requests-per-minute", "5")
        cls.short = cls.key("create", "short", "--tokens-per-minute", "60")
        cls.single = cls.key("create", "single", "--concurrency", "1")
        cls.free = cls.key("create", "free")

    def test_requests_a_minute(self):
        answers = [self.ask(self.few) for _ in range(7)]
        self.assertEqual([status for status, _, _ in answers], [200] * 5 + [429] * 2)
        first, last = answers[0][1], answers[-1][1]
        self.assertEqual((first["x-ratelimit-limit-requests"], first["x-ratelimit-remaining-requests"]), ("5", "4"))
        self.assertRegex(first["x-ratelimit-reset-requests"], r"^\d+s$")
        self.assertEqual(last["x-ratelimit-remaining-requests"], "0")
        self.assertTrue(1 <= int(last["Retry-After"]) <= 60)
        self.expect_error(429, (answers[-1][0], answers[-1][2]), type="rate_limit_error", code="rate_limit_exceeded")
        self.assertIsNone(self.ask(self.free)[1]["x-ratelimit-limit-requests"])

    def test_an_answer_that_runs_is_taken_up_beyond_the_limit(self):
        fresh = self.key("create", "fresh", "--requests-per-minute", "1")
        body = {"prompt": "Hello", "resume": True, "max_tokens": 40, "seed": 7, "logit_bias": {"0": -100, "2": -100}}

        def events(**headers):
            status, _, data = self.server.request("POST", "/api/stream", body, {**bearer(fresh), **headers})
            self.assertEqual(status, 200, data)
            return [block for block in data.decode().split("\n\n") if "data: " in block]

        def opened():  # as far as that goes without a handshake
            return self.server.request("GET", "/ws", headers=bearer(fresh))[0]

        self.eventually(426, opened)  # the server has read of the key
        whole = events()
        place = re.match(r"id: (\S+)", whole[4]).group(1)
        self.assertEqual(self.get(fresh)[0], 429)
        self.assertEqual(opened(), 426)
        self.assertEqual(events(**{"Last-Event-ID": place}), whole[5:])
        stop = {**bearer(fresh), "Last-Event-ID": place}
        self.assertEqual(self.server.request("DELETE", "/api/stream", headers=stop)[0], 200)
        # What leads to no answer is a request like others.
        for wrong, method in (("0" * 32 + ":1", "POST"), ("17", "POST"), ("0" * 32 + ":1", "DELETE")):
            headers = {**bearer(fresh), "Last-Event-ID": wrong}
            status, answered, data = self.server.request(method, "/api/stream", body if method == "POST" else None, headers)
            self.assertEqual(status, 429, data)
            self.assertTrue(1 <= int(answered["Retry-After"]) <= 60)

    def test_tokens_a_minute(self):
        status, headers, answer = self.ask(self.short, body={**QUESTION, "max_tokens": 40})
        self.assertEqual((status, headers["x-ratelimit-limit-tokens"]), (200, "60"))
        used = answer["usage"]["total_tokens"]
        status, headers, answer = self.ask(self.short, body={**QUESTION, "max_tokens": 40})
        self.assertEqual(status, 429, (used, answer))
        self.assertTrue(1 <= int(headers["Retry-After"]) <= 60)
        left = int(headers["x-ratelimit-remaining-tokens"])
        self.assertTrue(max(0, 60 - used) <= left <= max(0, 60 - used) + 30, (used, left))

    def test_at_once(self):
        long = {**QUESTION, "max_tokens": 100000, "stream": True}
        connection = self.server.connect()
        connection.request("POST", CHAT, json.dumps(long), bearer(self.single))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        status, headers, refused = self.ask(self.single)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"), refused)
        self.assertEqual(self.get(self.single)[0], 200)
        connection.close()
        self.eventually(200, lambda: self.ask(self.single)[0])

    def test_a_full_queue_says_when_to_come_back(self):
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            body = {**QUESTION, "max_tokens": 200}
            answers = list(pool.map(lambda _: self.ask(self.free, body=body), range(40)))
        statuses = {status for status, _, _ in answers}
        self.assertEqual(statuses, {200, 503})
        for status, headers, answer in answers:
            if status == 503:
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
                self.assertEqual(answer["error"]["code"], "queue_full")

    def test_priority_by_header(self):
        for priority in ("interactive", "normal", "batch"):
            self.assertEqual(self.ask(self.free, **{"x-quarrel-priority": priority})[0], 200)
        self.assertEqual(self.ask(self.free, **{"x-quarrel-priority": "urgent"})[0], 400)


class BusyTest(KeyTest):
    ENDLESS = {str(token): -100 for token in (258, 2, 0, 1)}  # without those that end an answer

    def start_long_answer(self, server, **headers):
        """A connection and the stream on it, which keeps the toy busy; its first event has been read."""
        running = server.connect()
        self.addCleanup(running.close)
        running.request("POST", "/v1/completions", json.dumps({"prompt": "Hello", "max_tokens": 60000, "stream": True,
                                                              "logit_bias": self.ENDLESS}), headers)
        answer = running.getresponse()
        self.assertEqual(answer.status, 200)
        # While it waits for its turn there are comments.
        self.assertTrue(any(line.startswith(b"data: ") for line in iter(answer.readline, b"")))
        return running, answer


class Order(BusyTest):
    AGEING = 10  # seconds of waiting that count for one priority
    ATTEMPTS = 3

    def test_what_waits_starts_by_its_priority(self):
        server = self.start_server(self.make_toy("chat", "ordered.gguf", context=65536), "--cache-tokens", "64k",
                                   "--parallel", "1")
        for _ in range(self.ATTEMPTS):
            begun = time.monotonic()
            order = self.order_of_starts(server)
            seconds = time.monotonic() - begun
            if seconds < self.AGEING:
                break  # else age may have raised what came first, as it should
        self.assertLess(seconds, self.AGEING, "this machine is too slow to tell priorities from age")
        self.assertEqual(order, ["interactive", "normal", "batch"])
        self.assertEqual(server.stop()[0], 0)

    def order_of_starts(self, server):
        """Of requests that wait behind a long answer, the lowest priority first, the order in which they start."""
        running, answer = self.start_long_answer(server)
        started = []

        def ask(priority):
            connection, stream = self.start_long_answer(server, **{"x-quarrel-priority": priority})
            started.append(priority)  # before the next one can start: this one does not end by itself
            stream.close()
            connection.close()

        def waiting():
            figures = server.request("GET", "/metrics")[2].decode()
            return int(re.search(r"^quarrel_requests_waiting\{[^}]*\} (\d+)", figures, re.MULTILINE).group(1))

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = []
            for priority in ("batch", "normal", "interactive"):
                asked.append(pool.submit(ask, priority))
                self.eventually(len(asked), waiting)  # they came in this order
            answer.close()
            running.close()
            for each in asked:
                each.result(TIMEOUT)
        return started


class QueuedTokens(BusyTest):
    def test_a_queue_is_bounded_in_tokens_too(self):
        server = self.start_server(self.make_toy("chat", "long.gguf", context=65536), "--cache-tokens", "64k", "--parallel",
                                   "1", "--queue-tokens", "64")
        running, answer = self.start_long_answer(server)
        body = {"prompt": "word " * 40, "max_tokens": 1}
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(server.post, "/v1/completions", body)  # alone in the queue, it may be longer than that
            self.eventually(True, lambda: bool(re.search(rb"^quarrel_waiting_tokens\{[^}]*\} [1-9]",
                                                         server.request("GET", "/metrics")[2], re.MULTILINE)))
            status, headers, data = server.request("POST", "/v1/completions", body)
            self.expect_error(503, (status, json.loads(data)), code="queue_full")
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            answer.close()
            running.close()
            self.assertEqual(waiting.result(TIMEOUT)[0], 200)
        self.assertEqual(server.stop()[0], 0)


class Patience(BusyTest):
    def test_waiting_too_long_ends_a_request(self):
        server = self.start_server(self.make_toy("chat", "endless.gguf", context=65536), "--cache-tokens", "64k", "--parallel",
                                   "1", "--patience", "2", "--drain", "0")
        # The wait for a model counts too: it is there before.
        self.assertEqual(server.request("POST", "/api/models/endless/load")[0], 200)
        _, answer = self.start_long_answer(server)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reading = pool.submit(answer.read)  # who does not read is cut off
            status, headers, refused = self.ask(None, server=server)
            self.assertFalse(reading.done(), "the one before it was at work all the time")
            self.assertEqual((status, refused["error"]["code"]), (503, "timeout"), refused)
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            # It has its tokens in time, and nobody ends it; the server does.
            server.stop()
            self.assertIn(b"about to end", reading.result(TIMEOUT))


class KeyFile(KeyTest):
    """One key in a file, for the simple case."""

    def serve(self, text, **environment):
        file = self.path("the-key")
        with open(file, "w", encoding="utf-8") as key:
            key.write(text)
        return self.start_server(self.toy, "--api-key-file", file, **environment)

    def test_it_is_the_key(self):
        server = self.serve("a key of one's own\r\n")
        for headers, status in (({}, 401), (bearer("a key of one's own"), 200), (bearer("a key of one's"), 401),
                                ({"Authorization": "ApiKey a key of one's own"}, 200)):
            self.assertEqual(server.request("GET", "/v1/models", headers=headers)[0], status, headers)
        self.assertEqual(self.ask("a key of one's own", server=server)[0], 200)
        self.assertEqual(self.ask("another", server=server)[0], 401)
        # It may do everything.
        self.assertEqual(server.request("POST", "/api/models/toy/load", headers=bearer("a key of one's own"))[0], 200)
        self.assertEqual(self.get(None, "/healthz", server=server)[0], 200)
        code, said = server.stop()
        self.assertEqual(code, 0)
        self.assertNotIn("one's own", said)

    def test_it_counts_more_than_the_environment_and_beside_the_file_of_keys(self):
        made = self.key("create", "made")
        server = self.serve("from the file", QUARREL_API_KEY="from the environment")
        self.assertEqual([self.get(key, server=server)[0] for key in ("from the file", "from the environment", made)],
                         [200, 401, 200])

    def test_a_file_without_a_key_opens_nothing(self):
        empty = self.path("empty-key")
        with open(empty, "w", encoding="utf-8") as file:
            file.write("\n")
        self.refuse(2, ["no key"], "serve", self.toy, "--port", "0", "--api-key-file", empty)
        self.refuse(1, ["nowhere"], "serve", self.toy, "--port", "0", "--api-key-file", self.path("nowhere"))


if __name__ == "__main__":
    unittest.main()

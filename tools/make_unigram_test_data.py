#!/usr/bin/env python3
"""Makes the unigram test data: trains two small SentencePiece models on generated text, writes each as a GGUF file
without weights (tests/data/tokenizer/unigram-*.gguf) and, beside it, texts with the ids SentencePiece gives them.

Needs the package `sentencepiece`. Usage: make_unigram_test_data.py OUTPUT_DIRECTORY
"""

import io
import json
import pathlib
import random
import struct
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.", "Once upon a time, there was a little fox.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.", "Voix ambiguë d'un cœur qui préfère les jattes de kiwis.",
    "Съешь ещё этих мягких французских булок, да выпей чаю.", "いろはにほへと ちりぬるを", "春眠不覺曉 處處聞啼鳥",
    "def add(a, b): return a + b", "x = 3.14159 * 42 - 1000", "user@example.com wrote: it's fine, isn't it?",
]

TEXTS = [
    "", "Hello", " Hello", "  Hello", "Hello ", "Hello  ", "Hello World", "a  b   c    d", "   ", "\n", "\t\t", "line\nbreak\r\n",
    "The quick brown fox", "THE QUICK BROWN FOX", "Once upon a time, there was a little fox.", "don't isn't it's",
    "3.14159 1,000,000 0x1F 2026-11-15", "x=x+1;\nfor (int i = 0; i < 10; ++i) {}", "naïve café résumé Ünïcödé", "über größer Straße",
    "e\u0301 vs é", "ﬁne ﬂow", "ｆｕｌｌ　ｗｉｄｔｈ", "½ ² ³", "\u00a0nbsp\u00a0", "Съешь ещё булок", "春眠 不覺", "你好，世界", "안녕하세요",
    "🚀 rocket", "🚀🚀🚀", "👩\u200d👩\u200d👧", "▁already escaped▁", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababab",
    "...!!!???", "a" * 300, " " * 40 + "x", "zero\u200bwidth", "tab\tseparated", "https://example.org/a/b?c=d&e=f#g", "q", "ж", "end with space ",
]


def corpus():
    """Sentences, and pseudo-words whose frequencies fall off as those of words do."""
    rng = random.Random(1)
    syllables = [c + v for c in "b c d f g h k l m n p r s t v w st tr th ch".split() for v in "a e i o u ea ou ing er".split()]
    words = ["".join(rng.choice(syllables) for _ in range(rng.randint(1, 4))) for _ in range(1500)]
    weights = [1 / (i + 1) for i in range(len(words))]
    for _ in range(3000):
        yield " ".join(rng.choices(words, weights, k=rng.randint(3, 12)))
    for sentence in SENTENCES * 20:
        yield sentence


def normalization_rules():
    """A small part of NFKC: the whole would be most of the data."""
    rules = {chr(c): " " for c in (0x09, 0x0A, 0x0D, 0xA0, 0x3000)}
    rules |= {chr(0xFF01 + i): chr(0x21 + i) for i in range(94)}
    rules |= {"e\u0301": "é", "ﬁ": "fi", "ﬂ": "fl", "½": "1⁄2", "²": "2", "³": "3", "\u200b": " ", "\u0001": ""}
    hexes = lambda text: " ".join(f"{ord(c):X}" for c in text)
    return "".join(f"{hexes(key)}\t{hexes(value)}\n" for key, value in rules.items())


def gguf(entries):
    """A GGUF file of metadata alone. Values: (kind, value), lists as (kind, list)."""
    kinds = {"u8": (0, "B"), "i32": (5, "i"), "u32": (4, "I"), "f32": (6, "f"), "bool": (7, "?")}
    text = lambda value: struct.pack("<Q", len(value)) + value
    out = io.BytesIO()
    out.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)))
    for key, (kind, value) in entries.items():
        out.write(text(key.encode()))
        number = 8 if kind == "str" else kinds[kind][0]
        pack = (lambda v: text(v.encode())) if kind == "str" else (lambda v: struct.pack("<" + kinds[kind][1], v))
        if isinstance(value, (list, bytes)):
            out.write(struct.pack("<IIQ", 9, number, len(value)) + b"".join(pack(v) for v in value))
        else:
            out.write(struct.pack("<I", number) + pack(value))
    return out.getvalue()


def make(name, directory, **options):
    rules = directory / "rules.tsv"
    rules.write_text(normalization_rules(), encoding="utf8")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=corpus(), model_writer=model, model_type="unigram", normalization_rule_tsv=str(rules),
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, num_threads=1, minloglevel=2, **options)
    rules.unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    entries = {
        "general.architecture": ("str", "t5"),
        "general.name": ("str", name),
        "tokenizer.ggml.model": ("str", "t5"),
        "tokenizer.ggml.tokens": ("str", [piece.piece for piece in proto.pieces]),
        "tokenizer.ggml.scores": ("f32", [piece.score for piece in proto.pieces]),
        "tokenizer.ggml.token_type": ("i32", [piece.type for piece in proto.pieces]),
        "tokenizer.ggml.add_space_prefix": ("bool", proto.normalizer_spec.add_dummy_prefix),
        "tokenizer.ggml.remove_extra_whitespaces": ("bool", proto.normalizer_spec.remove_extra_whitespaces),
        "tokenizer.ggml.precompiled_charsmap": ("u8", proto.normalizer_spec.precompiled_charsmap),
    }
    (directory / f"{name}.gguf").write_bytes(gguf(entries))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    cases = [{"text": text, "ids": processor.encode(text), "decoded": processor.decode(processor.encode(text))} for text in TEXTS]
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (directory / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf8")


def main():
    directory = pathlib.Path(sys.argv[1])
    make("unigram-merged-spaces", directory, vocab_size=1200)
    make("unigram-kept-spaces", directory, vocab_size=1300, remove_extra_whitespaces=False, byte_fallback=True)


if __name__ == "__main__":
    main()

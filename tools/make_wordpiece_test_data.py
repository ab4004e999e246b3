#!/usr/bin/env python3
"""Makes the WordPiece test data, bert-scripts.json: texts of many scripts, the words that `tokenizers` makes of them, and
their ids by the vocabulary of bert-bge.gguf, which is that of every uncased English BERT.

Needs the packages `tokenizers` and `gguf` (scripts/setup python).
Usage: make_wordpiece_test_data.py tests/data/tokenizer
"""

import json
import pathlib
import sys

import gguf
import tokenizers

TEXTS = [
    # Hangul: syllables become their jamo
    "안녕하세요", "한국어 문장을 벡터로 바꿉니다.", "서울은 대한민국의 수도이다", "가각갂힣", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    # Vietnamese: two marks on one letter
    "Tiếng Việt có dấu", "Hà Nội là thủ đô của Việt Nam.", "Đường phố ở Huế", "e\u0302\u0301 vs ế vs e\u0301\u0302",
    # Devanagari and its neighbours: some vowel signs are marks with a width of their own, which stay
    "नमस्ते दुनिया", "हिन्दी में एक वाक्य।", "क़ ख़ ग़ फ़", "বাংলা ভাষা", "தமிழ் மொழி", "తెలుగు", "ગુજરાતી", "ਪੰਜਾਬੀ",
    # Thai and Lao: no spaces, so that a long sentence is one word
    "สวัสดีชาวโลก", "ภาษาไทยไม่มีช่องว่าง", "กำลังน้ำ", "ພາສາລາວ",
    "ก" * 99, "ก" * 100, "ก" * 101, "ก่า" * 60,
    # Arabic: marks, hamza, ligatures, tatweel
    "السلام عليكم", "مُحَمَّد", "أإآؤئ", "اللُّغَةُ العَرَبِيَّة؟", "كتـــاب", "ﻻ ﷲ", "پارسی گفتن", "اردو زبان۔",
    # Hebrew: points
    "שלום עולם", "בְּרֵאשִׁית בָּרָא", "שּׁ שׁ", "בית־ספר",
    # Greek, Cyrillic, Turkish, Georgian, Armenian, Cherokee: cases
    "Ὀδυσσεύς ΣΊΣΥΦΟΣ", "Ёлка Й й Їжак", "İstanbul Iğdır ışık", "ქართული ᲥᲐᲠᲗᲣᲚᲘ", "Հայերեն", "ᏣᎳᎩ",
    # Chinese and Japanese: ideographs alone, kana with voicing marks
    "日本語のテキスト", "がぎぐ パピプ", "ヴァイオリン", "豈更車 \U0002f804", "東京都は日本の首都です。", "𠀀𪜀",
    # Latin letters with marks, ligatures, compatibility forms
    "naïve café résumé Ångström", "ﬁne ﬂow ½ ²", "Å Ω K", "ǅ Ǆ ŉ ß ẞ", "a\u0315\u0300\u05ae\u0300\u0062", "\u1e9b\u0323 ṩ s\u0307\u0323",
    # Marks with a width of their own that reorder, enclosing marks
    "\u302f\u302e가", "1\u20dd a\u20de", "ᬅ᭄ᬓ", "\U000110a5\U000110ba",
    # Punctuation and symbols: ASCII symbols stand alone, others do not; some become others by decomposition
    "a$b+c<d=e>f^g`h|i~j", "5€ £3 a×b", "what\u037e \u1fef x", "don't “quote” … – — ¿qué?", "#tag @name 100%",
    # White space and control characters
    "a\tb\nc\rd", "a\u000bb\u000cc\u0085d", "a\u00a0b\u2003c\u3000d\u2028e", "zero\u200bwidth soft\u00adhyphen \ufeffbom", "a\u0000b\ufffdc",
    "private \ue000 use", "unassigned \u0378 here",
    # Emoji
    "🙂 👩\u200d👩\u200d👧 ❤\ufe0f 🇩🇪 1\ufe0f\u20e3",
    # Words of a length that is given up
    "x" * 100, "x" * 101, "é" * 100, "é" * 101, "short " + "long" * 30 + " short",
]


def vocabulary(path):
    """Pieces as BERT's word lists spell them: the file marks where a word begins instead of where it goes on."""
    reader = gguf.GGUFReader(path)
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    kinds = reader.get_field("tokenizer.ggml.token_type").contents()
    pieces = {}
    for index, (token, kind) in enumerate(zip(tokens, kinds)):
        if kind == gguf.TokenType.NORMAL:
            token = token[1:] if token.startswith("▁") else "##" + token
        pieces[token] = index
    return pieces


def main():
    folder = pathlib.Path(sys.argv[1])
    pieces = vocabulary(folder / "bert-bge.gguf")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()

    def words(text):
        normal = tokenizer.normalizer.normalize_str(text)
        return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]

    cases = [{"text": text} for text in TEXTS]
    for name, lowercase in (("uncased", True), ("cased", False)):
        tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
        for case in cases:
            case[name] = {"words": words(case["text"]), "ids": tokenizer.encode(case["text"]).ids}
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    (folder / "bert-scripts.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


main()

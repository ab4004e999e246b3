// Damaged and malicious vocabularies: an error that names the key, or a tokenizer that works.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

using Strings = std::vector<std::string>;

// The parts of a file, so that a test spoils one.
struct Parts {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  Strings tokens = {"a", "b", "ab", "Ġ"};
  Strings merges = {"a b"};
  std::vector<float> scores = {-1, -2, -3, -4};
  std::vector<std::int32_t> kinds = {1, 1, 1, 1};
  std::function<void(GgufWriter&)> more = [](GgufWriter&) {};
};

std::unique_ptr<Tokenizer> load(const Parts& parts, Log& log) {
  return load_made(
      [&](GgufWriter& writer) {
        writer.put_string("tokenizer.ggml.model", parts.model);
        writer.put_string("tokenizer.ggml.pre", parts.pre);
        writer.put_strings("tokenizer.ggml.tokens", parts.tokens);
        writer.put_strings("tokenizer.ggml.merges", parts.merges);
        writer.put_f32s("tokenizer.ggml.scores", parts.scores);
        writer.put_i32s("tokenizer.ggml.token_type", parts.kinds);
        parts.more(writer);
      },
      log);
}

void expect_error(const Parts& parts, ErrorKind kind, const std::string& word) {
  MemoryLog log;
  try {
    load(parts, log);
    ADD_FAILURE() << "no error about " << word;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(HostileVocabulary, ErrorsNameTheKey) {
  expect_error({.tokens = {}, .scores = {}, .kinds = {}}, ErrorKind::bad_file, "tokenizer.ggml.tokens");
  expect_error({.scores = {-1, -2}}, ErrorKind::bad_file, "tokenizer.ggml.scores");
  expect_error({.scores = {-1, -2, -3, std::numeric_limits<float>::quiet_NaN()}}, ErrorKind::bad_file,
               "tokenizer.ggml.scores[3]");
  expect_error({.kinds = {1, 1}}, ErrorKind::bad_file, "tokenizer.ggml.token_type");
  expect_error({.merges = {"a b", "ab"}}, ErrorKind::bad_file, "tokenizer.ggml.merges[1]");
  expect_error({.merges = {"ab "}}, ErrorKind::bad_file, "tokenizer.ggml.merges[0]");
  expect_error({.merges = {""}}, ErrorKind::bad_file, "tokenizer.ggml.merges[0]");
  expect_error({.more = [](GgufWriter& w) { w.put_u32("tokenizer.ggml.eos_token_id", 4); }}, ErrorKind::bad_file,
               "tokenizer.ggml.eos_token_id");
  expect_error({.more = [](GgufWriter& w) { w.put_i32("tokenizer.ggml.bos_token_id", -7); }}, ErrorKind::bad_file,
               "tokenizer.ggml.bos_token_id");
  expect_error({.more = [](GgufWriter& w) { w.put_string("tokenizer.ggml.bos_token_id", "1"); }}, ErrorKind::bad_file,
               "tokenizer.ggml.bos_token_id");
  expect_error({.model = "t5",
                .more =
                    [](GgufWriter& w) {
                      const std::vector<float> wrong = {1, 2, 3};
                      w.put_f32s("tokenizer.ggml.precompiled_charsmap", wrong);
                    }},
               ErrorKind::bad_file, "tokenizer.ggml.precompiled_charsmap");
}

TEST(HostileVocabulary, AnAbsentOneIsUnsupported) {
  expect_error({.model = "no_vocab"}, ErrorKind::unsupported, "no_vocab");
  expect_error({.model = "none"}, ErrorKind::unsupported, "none");
  expect_error({.model = "rwkv"}, ErrorKind::unsupported, "rwkv");
  EXPECT_THROW(load_made([](GgufWriter& writer) { writer.put_string("general.name", "x"); }), Error);
}

TEST(HostileVocabulary, WhatIsMissing) {
  const auto without = [](const std::string& model) {
    return [model](GgufWriter& writer) {
      const Strings tokens = {"a", "b"};
      writer.put_string("tokenizer.ggml.model", model);
      writer.put_strings("tokenizer.ggml.tokens", tokens);
    };
  };
  EXPECT_THROW(load_made(without("gpt2")), Error) << "merges";
  EXPECT_THROW(load_made(without("t5")), Error) << "scores";
  MemoryLog log;
  EXPECT_EQ(load_made(without("llama"), log)->encode("ab").size(), 3U);
  EXPECT_FALSE(log.lines.empty());
}

TEST(HostileVocabulary, MinusOneMeansNone) {
  MemoryLog log;
  const Parts parts = {.more = [](GgufWriter& w) {
    w.put_u32("tokenizer.ggml.padding_token_id", 0xFFFFFFFF);
    w.put_i32("tokenizer.ggml.bos_token_id", -1);
  }};
  const auto tokenizer = load(parts, log);
  EXPECT_FALSE(tokenizer->special().padding);
  EXPECT_FALSE(tokenizer->special().bos);
}

TEST(HostileVocabulary, AnUnknownPreTokenizerWarnsAndWorks) {
  MemoryLog log;
  const auto tokenizer = load({.pre = "of tomorrow\xFF"}, log);
  EXPECT_EQ(tokenizer->encode("ab a"), (std::vector<TokenId>{2, 3, 0}));
  ASSERT_EQ(log.lines.size(), 1U);
  EXPECT_EQ(log.lines[0].first, LogLevel::warning);
  EXPECT_NE(log.lines[0].second.find("of tomorrow"), std::string::npos);
  EXPECT_NE(log.lines[0].second.find(std::string(tokenizer->pre_tokenizer())), std::string::npos);
}

TEST(HostileVocabulary, MergesOfStrangersAndDuplicates) {
  MemoryLog log;
  // "aa" is no token, yet a merge leads through it; "q" is nowhere; one pair comes twice; a spelling comes twice.
  const auto tokenizer = load({.tokens = {"a", "b", "aab", "a"}, .merges = {"a a", "aa b", "q a", "a a", "a q"}}, log);
  EXPECT_EQ(tokenizer->encode("aab"), (std::vector<TokenId>{2}));
  EXPECT_EQ(tokenizer->encode("aa"), (std::vector<TokenId>{0, 0})) << "a merge without a token falls apart again";
  EXPECT_EQ(tokenizer->find("a"), 0);
}

TEST(HostileVocabulary, ByteTokensThatAreNone) {
  MemoryLog log;
  const auto tokenizer = load({.model = "llama",
                               .tokens = {"<unk>", "<0x-1>", "<0x4>", "<0xZZ>", "<0x41>", "", "▁"},
                               .scores = {0, 0, 0, 0, 0, 0, 0},
                               .kinds = {2, 6, 6, 6, 6, 6, 99}},
                              log);
  EXPECT_EQ(tokenizer->encode("AB"), (std::vector<TokenId>{6, 4, 0}));
  for (TokenId id = 0; id < 7; ++id) EXPECT_NO_THROW(tokenizer->piece(id, false, true));
  EXPECT_EQ(tokenizer->piece(4, false, false), "A");
  EXPECT_EQ(tokenizer->piece(1, false, false), "<0x-1>");
}

TEST(HostileVocabulary, RandomOnesNeitherCrashNorHang) {
  const std::vector<std::string> models = {"gpt2", "llama", "bert", "t5", "gemma4"};
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto text_of = [&](std::size_t most) {
      static const std::vector<std::string> kPieces = {
          "a",      "b", " ",  "▁",       "Ġ",    "##",   "<0x41>",
          "<0x-1>", "é", "\n", "<|end|>", "\xFF", "\xC3", std::string(1, '\0')};
      std::string text;
      for (std::size_t i = random() % (most + 1); i > 0; --i) text += kPieces[random() % kPieces.size()];
      return text;
    };
    Parts parts;
    parts.model = models[seed % models.size()];
    parts.tokens.clear();
    parts.merges.clear();
    parts.scores.clear();
    parts.kinds.clear();
    for (std::size_t i = 1 + random() % 30; i > 0; --i) {
      parts.tokens.push_back(text_of(4));
      parts.scores.push_back(static_cast<float>(random() % 7) - 5);
      parts.kinds.push_back(static_cast<std::int32_t>(random() % 9) - 1);
    }
    for (std::size_t i = random() % 10; i > 0; --i) parts.merges.push_back(text_of(2) + "x " + text_of(2) + "y");
    MemoryLog log;
    const auto tokenizer = load(parts, log);
    for (int i = 0; i < 10; ++i) {
      const auto ids = tokenizer->encode(text_of(50), {.add_special = true, .parse_special = i % 2 == 0});
      EXPECT_NO_THROW(tokenizer->decode(ids, true));
    }
  }
}

}  // namespace
}  // namespace quarrel

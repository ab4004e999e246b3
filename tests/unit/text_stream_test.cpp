#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "text/unicode.h"
#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

// One token a byte, so that every border inside a text is a border between tokens, and some longer ones.
std::unique_ptr<Tokenizer> bytes_tokenizer() {
  return load_made([](GgufWriter& writer) {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> kinds;
    const std::string hex = "0123456789ABCDEF";
    for (std::size_t b = 0; b < 256; ++b) {
      tokens.push_back(std::string("<0x") + hex[b >> 4] + hex[b & 15] + ">");
      kinds.push_back(6);
    }
    for (const char* text : {"<s>", "hello", "▁world", "ST", "OP!", "ab"}) tokens.push_back(text);
    kinds.insert(kinds.end(), {3, 1, 1, 1, 1, 1});
    const std::vector<float> scores(tokens.size(), 0.0F);
    writer.put_string("tokenizer.ggml.model", "llama");
    writer.put_strings("tokenizer.ggml.tokens", tokens);
    writer.put_i32s("tokenizer.ggml.token_type", kinds);
    writer.put_f32s("tokenizer.ggml.scores", scores);
  });
}

constexpr TokenId kBos = 256, kHello = 257, kWorld = 258, kSt = 259, kOp = 260, kAb = 261;

std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<std::uint8_t>(c));
  return ids;
}

struct Shown {
  std::vector<std::string> pushes;
  std::string all;
  bool stopped;
};

Shown show(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, std::vector<std::string> stops = {},
           bool continues = true) {
  TextStream stream(tokenizer, std::move(stops), continues);
  Shown shown;
  for (const TokenId id : ids) {
    shown.pushes.push_back(stream.push(id));
    shown.all += shown.pushes.back();
  }
  shown.all += stream.finish();
  shown.stopped = stream.stopped();
  return shown;
}

TEST(TextStream, HoldsUnfinishedCharacters) {
  const auto tokenizer = bytes_tokenizer();
  const Shown shown = show(*tokenizer, bytes_of("é🚀!"));
  EXPECT_EQ(shown.pushes, (std::vector<std::string>{"", "é", "", "", "", "🚀", "!"}));
}

TEST(TextStream, WhatIsNoCharacterIsReplaced) {
  const auto tokenizer = bytes_tokenizer();
  EXPECT_EQ(show(*tokenizer, bytes_of("a\xFF\x62")).pushes, (std::vector<std::string>{"a", "\uFFFD", "b"}));
  EXPECT_EQ(show(*tokenizer, bytes_of("\xF0\x9F\x62")).all, "\uFFFDb");
  EXPECT_EQ(show(*tokenizer, bytes_of("a\xF0\x9F\x9A")).all, "a\uFFFD") << "unfinished at the end";
}

TEST(TextStream, FirstSpaceOnlyAtTheBeginning) {
  const auto tokenizer = bytes_tokenizer();
  EXPECT_EQ(show(*tokenizer, {kWorld, kWorld}, {}, false).all, "world world");
  EXPECT_EQ(show(*tokenizer, {kBos, kWorld}, {}, false).all, "world") << "control tokens are no text";
  EXPECT_EQ(show(*tokenizer, {kWorld}, {}, true).all, " world");
}

TEST(TextStream, StopsAcrossTokens) {
  const auto tokenizer = bytes_tokenizer();
  const Shown shown = show(*tokenizer, {kHello, kSt, kOp, kHello}, {"STOP"});
  EXPECT_EQ(shown.pushes, (std::vector<std::string>{"hello", "", "", ""}));
  EXPECT_TRUE(shown.stopped);
  EXPECT_EQ(shown.all, "hello");
  EXPECT_EQ(show(*tokenizer, {kSt, kHello}, {"STOP"}).pushes, (std::vector<std::string>{"", "SThello"}));
  EXPECT_EQ(show(*tokenizer, {kHello, kSt}, {"STOP"}).all, "helloST") << "held back until the end";
}

TEST(TextStream, OverlappingStops) {
  const auto tokenizer = bytes_tokenizer();
  EXPECT_EQ(show(*tokenizer, bytes_of("aabaabaac"), {"aabaac"}).all, "aab");
  EXPECT_EQ(show(*tokenizer, bytes_of("xabcd"), {"abce", "bcd"}).all, "xa");
  EXPECT_EQ(show(*tokenizer, bytes_of("xabcd"), {"abcd", "cd"}).all, "x") << "of two that end together the longer";
  EXPECT_EQ(show(*tokenizer, bytes_of("xabcd"), {"abcd", "bc"}).all, "xa") << "the first one complete";
  EXPECT_EQ(show(*tokenizer, bytes_of("aaé"), {"é"}).all, "aa");
  EXPECT_EQ(show(*tokenizer, {kAb, kAb}, {"ba"}).all, "a") << "inside a token";
  const Shown shown = show(*tokenizer, bytes_of("abc"), {""});
  EXPECT_EQ(shown.all, "abc") << "an empty one means nothing";
  EXPECT_FALSE(shown.stopped);
}

TEST(TextStream, SaysWhatDecodeSays) {
  for (const char* name : {"gpt-2", "llama-spm", "deepseek-coder"}) {
    const auto tokenizer = load_real(name);
    std::mt19937 random(3);
    for (int i = 0; i < 200; ++i) {
      std::vector<TokenId> ids(random() % 40);
      for (TokenId& id : ids) id = static_cast<TokenId>(random() % tokenizer->size());
      const Shown shown = show(*tokenizer, ids, {}, false);
      ASSERT_EQ(shown.all, to_valid_utf8(tokenizer->decode(ids))) << name;
      for (const std::string& push : shown.pushes) ASSERT_EQ(push, to_valid_utf8(push)) << "half a character";
    }
  }
}

// Against a search in the whole text: what is shown is what lies before the stop string that is complete first.
TEST(TextStream, StopsWhereASearchWould) {
  const auto tokenizer = bytes_tokenizer();
  std::mt19937 random(4);
  const auto word = [&](std::size_t least, std::size_t most) {
    std::string text;
    for (std::size_t i = least + random() % (most - least + 1); i > 0; --i) text += random() % 3 == 0 ? "b" : "a";
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string text = word(0, 30);
    const std::vector<std::string> stops = {word(1, 6), word(1, 6), word(3, 8)};
    std::string expected = text;
    bool found = false;
    for (std::size_t end = 1; end <= text.size() && !found; ++end) {
      for (const std::string& stop : stops) {
        if (!text.substr(0, end).ends_with(stop)) continue;
        const std::string before = text.substr(0, end - stop.size());
        if (!found || before.size() < expected.size()) expected = before;
        found = true;
      }
    }
    const Shown shown = show(*tokenizer, bytes_of(text), stops);
    ASSERT_EQ(shown.all, expected) << text;
    ASSERT_EQ(shown.stopped, found);
  }
}

}  // namespace
}  // namespace quarrel

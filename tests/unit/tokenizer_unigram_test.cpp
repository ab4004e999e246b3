// Unigram vocabularies against SentencePiece's own ids; tools/make_unigram_test_data.py made the data.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/charsmap.h"
#include "text/unicode.h"
#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

class TokenizerUnigram : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerUnigram, IdsAgree) {
  const std::string name = GetParam();
  const auto tokenizer = load_real(name);
  ASSERT_EQ(tokenizer->algorithm(), "unigram");
  std::ifstream stream(tokenizer_data(name + ".json"));
  const nlohmann::json cases = nlohmann::json::parse(stream);
  ASSERT_GE(cases.size(), 40U);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    auto ids = one.at("ids").get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->encode(text), ids) << name << ": " << text;
    const bool is_unknown = std::ranges::find(ids, 2) != ids.end();
    const bool has_block = text.find(kLowerBlock) != std::string::npos;  // decoded as if it had been a space
    if (!is_unknown && !has_block) {
      EXPECT_EQ(tokenizer->decode(ids), one.at("decoded").get<std::string>()) << name;
    }
    ids.push_back(1);
    EXPECT_EQ(tokenizer->encode(text, {.add_special = true}), ids) << name << ": EOS is added by default";
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerUnigram,
                         testing::Values("unigram-merged-spaces", "unigram-kept-spaces"), [](const auto& one) {
                           std::string name = one.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// A double array of two units: the root, whose child 'a' would lie outside.
TEST(CharsMap, GarbageIsNoMatch) {
  std::uint64_t steps = 0;
  EXPECT_THROW(CharsMap("abc", "key"), Error);
  EXPECT_THROW(CharsMap(std::string("\xFF\xFF\xFF\xFF", 4), "key"), Error);
  EXPECT_THROW(CharsMap(std::string("\x03\0\0\0xxx", 7), "key"), Error);
  const std::string empty(4, '\0');
  EXPECT_EQ(CharsMap(empty, "key").match("abc", 0, steps).length, 0U);
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::string bytes(4 + 4 * 64 + random() % 16, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    // Small offsets, so that some walks stay inside.
    for (std::size_t i = 0; i < 64; ++i) bytes[4 + 4 * i + 2] = bytes[4 + 4 * i + 3] = '\0';
    bytes.replace(0, 4, std::string("\x00\x01\x00\x00", 4));
    const CharsMap charsmap(bytes, "key");
    std::string text(200, '\0');
    for (char& c : text) c = static_cast<char>(random() % 64);
    for (std::size_t at = 0; at < text.size(); ++at) {
      EXPECT_LE(charsmap.match(text, at, steps).length, text.size() - at);
    }
  }
}

}  // namespace
}  // namespace quarrel

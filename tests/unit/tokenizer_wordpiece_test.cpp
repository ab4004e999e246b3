// WordPiece on texts of many scripts: the words and the ids that the package `tokenizers` makes of them
// (tools/make_wordpiece_test_data.py).
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "text/unicode.h"
#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kUnknown = "[UNK]";
constexpr std::size_t kLongestWord = 100;

nlohmann::json read_cases() {
  std::ifstream stream(tokenizer_data("bert-scripts.json"));
  return nlohmann::json::parse(stream);
}

Words characters(const std::string& text) {
  Words result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = decode_utf8(text, at).length;
    result.push_back(text.substr(at, length));
    at += length;
  }
  return result;
}

// A vocabulary of every single character of the words, so that the ids show what became of each.
std::unique_ptr<Tokenizer> character_tokenizer(const nlohmann::json& cases, const char* form) {
  std::set<std::string> known;
  for (const auto& one : cases) {
    for (const std::string& word : one[form]["words"].get<Words>()) {
      for (const std::string& character : characters(word)) known.insert(character);
    }
  }
  Words tokens{kUnknown};
  for (const std::string& character : known) {
    tokens.push_back(std::string(kLowerBlock) + character);
    tokens.push_back(character);
  }
  return load_made([&](GgufWriter& writer) {
    writer.put_string("tokenizer.ggml.model", "bert");
    writer.put_strings("tokenizer.ggml.tokens", tokens);
    std::vector<std::int32_t> kinds(tokens.size(), 1);
    kinds[0] = 2;
    writer.put_i32s("tokenizer.ggml.token_type", kinds);
    writer.put_u32("tokenizer.ggml.unknown_token_id", 0);
    writer.put_bool("tokenizer.ggml.normalizer.lowercase", std::string_view(form) == "uncased");
  });
}

Words words_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Words words;
  for (const TokenId id : ids) {
    std::string_view text = tokenizer.spelling(id);
    const bool begins = text.starts_with(kLowerBlock);
    if (begins) text.remove_prefix(kLowerBlock.size());
    if (begins || id == 0) {
      words.emplace_back(text);
    } else {
      words.back() += text;
    }
  }
  return words;
}

TEST(WordPiece, CutsTextsOfManyScriptsIntoTheirWords) {
  const nlohmann::json cases = read_cases();
  ASSERT_GT(cases.size(), 70U);
  for (const char* form : {"uncased", "cased"}) {
    const auto tokenizer = character_tokenizer(cases, form);
    for (const auto& one : cases) {
      const auto text = one["text"].get<std::string>();
      Words expected = one[form]["words"].get<Words>();
      for (std::string& word : expected) {
        if (characters(word).size() > kLongestWord) word = kUnknown;
      }
      EXPECT_EQ(words_of(*tokenizer, tokenizer->encode(text)), expected) << form << ": " << text;
    }
  }
}

TEST(WordPiece, GivesTheIdsOfTheUncasedVocabulary) {
  const auto tokenizer = load_real("bert-bge");
  for (const auto& one : read_cases()) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), one["uncased"]["ids"].get<std::vector<TokenId>>()) << text;
  }
}

}  // namespace
}  // namespace quarrel

// Ten real vocabularies against the ids another implementation gives. (Two of bert-bge are those of `tokenizers`, since
// that implementation drops vowels: see tokenizer_wordpiece_test.cpp.)
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "unit/tokenizer_support.h"

namespace quarrel {
namespace {

class TokenizerGolden : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, IdsAndTextAgree) {
  const std::string name = GetParam();
  const auto tokenizer = load_real(name);
  std::ifstream stream(tokenizer_data(name + ".json"));
  const nlohmann::json cases = nlohmann::json::parse(stream);
  ASSERT_EQ(cases.size(), 60U);
  for (const auto& one : cases) {
    const auto text = one.at("text").get<std::string>();
    const auto ids = one.at("ids").get<std::vector<TokenId>>();
    const auto ids_with_special = one.at("ids_with_special").get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer->encode(text), ids) << name << ": " << text;
    EXPECT_EQ(tokenizer->encode(text, {.add_special = true, .parse_special = true}), ids_with_special)
        << name << ": " << text;
    const bool is_bert = tokenizer->algorithm() == "wordpiece";
    const std::string decoded = is_bert ? one.at("decoded").get<std::string>() : text;
    EXPECT_EQ(tokenizer->decode(ids, is_bert), decoded) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGolden,
                         testing::Values("bert-bge", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-spm",
                                         "mpt", "phi-3", "refact", "starcoder"),
                         [](const auto& one) {
                           std::string name = one.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quarrel

// The real all-MiniLM-L6-v2, converted from safetensors by `quarrel pull minilm`: its keys, and the ids of the recorded
// texts. Without the model in the store it is skipped with a word.
#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "support/golden.h"
#include "support/stored_model.h"
#include "text/tokenizer.h"

namespace quarrel {
namespace {

class MiniLm : public test::StoredModelTest {
 protected:
  MiniLm() : StoredModelTest("minilm") {}
};

TEST_F(MiniLm, HasTheKeysOfAnEncoder) {
  const GgufFile file = GgufFile::open(path_);
  EXPECT_EQ(file.string("general.architecture"), "bert");
  EXPECT_EQ(file.unsigned_integer("bert.context_length"), 256U);
  EXPECT_EQ(file.unsigned_integer("bert.embedding_length"), 384U);
  EXPECT_EQ(file.unsigned_integer("bert.block_count"), 6U);
  EXPECT_EQ(file.unsigned_integer("bert.pooling_type"), 1U);
  EXPECT_EQ(file.tensors().size(), 101U);
  const GgufTensor* positions = file.find_tensor("position_embd.weight");
  ASSERT_NE(positions, nullptr);
  EXPECT_EQ(positions->shape[1], 256U);
}

TEST_F(MiniLm, TokenizesTheRecordedTexts) {
  std::ifstream stream(test::test_data("minilm.json"));
  const nlohmann::json texts = nlohmann::json::parse(stream);
  const GgufFile file = GgufFile::open(path_);
  MemoryLog log;
  const auto tokenizer = Tokenizer::load(file, log);
  EXPECT_TRUE(log.lines.empty()) << log.lines.front().second;
  const std::size_t longest = file.unsigned_integer("bert.context_length").value_or(0);
  ASSERT_FALSE(texts.empty());
  for (const nlohmann::json& text : texts) {
    std::vector<TokenId> ids = tokenizer->encode(text["text"].get<std::string>(), {.add_special = true});
    // A text that is too long keeps its beginning, and SEP at the end.
    if (ids.size() > longest) ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(longest) - 1, ids.end() - 1);
    EXPECT_EQ(ids, text["tokens"].get<std::vector<TokenId>>()) << text["text"];
  }
}

}  // namespace
}  // namespace quarrel

// A real embedding model, all-MiniLM-L6-v2, against vectors recorded in double precision: from the weights as they are
// and from weights quantised to Q8_0. Skipped, with the reason printed, where the model has not been pulled.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include "gguf/writer.h"
#include "models/embedder.h"
#include "models/runner.h"
#include "quant/decode.h"
#include "quant/encode.h"
#include "support/golden.h"
#include "support/stored_model.h"
#include "support/temp_dir.h"

namespace quarrel::test {
namespace {

using nlohmann::json;

// The recorded texts were cut to what the model was trained on, which is less than it has positions for.
constexpr std::int32_t kLimit = 256;

class EmbeddingModel : public StoredModelTest {
 protected:
  EmbeddingModel() : StoredModelTest("minilm") {}

  void SetUp() override {
    StoredModelTest::SetUp();
    if (IsSkipped()) return;
    std::ifstream file(test_data("minilm.json"), std::ios::binary);
    if (!file) GTEST_SKIP() << "tests/data/minilm.json, the recorded vectors, is not here";
    for (const json& recorded : json::parse(file)) {
      texts_.push_back(recorded["text"].get<std::string>());
      tokens_.push_back(recorded["tokens"].get<std::vector<TokenId>>());
      vectors_.push_back(recorded["embedding"].get<std::vector<double>>());
    }
    ASSERT_FALSE(texts_.empty());
  }

  void compare(const std::filesystem::path& file, double least_cosine, const char* what) const;

  std::vector<std::string> texts_;
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<std::vector<double>> vectors_;
};

double cosine(std::span<const float> values, std::span<const double> recorded) {
  double product = 0;
  double squares = 0;
  double recorded_squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    product += value * recorded[i];
    squares += value * value;
    recorded_squares += recorded[i] * recorded[i];
  }
  return product / std::sqrt(squares * recorded_squares);
}

void EmbeddingModel::compare(const std::filesystem::path& file, double least_cosine, const char* what) const {
  for (const NamedDevice& named : all_devices()) {
    SCOPED_TRACE(named.name);
    MemoryLog log;
    const Embedder embedder(file, *named.device, {.executor = {.context = kLimit}}, log);
    double least = 1;
    const auto results = embedder.embed(texts_);
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      SCOPED_TRACE(texts_[i].substr(0, 40));
      EXPECT_EQ(encode_text(embedder.model(), texts_[i]).tokens, tokens_[i]);
      EXPECT_EQ(results[i].tokens, tokens_[i].size());
      ASSERT_EQ(results[i].values.size(), vectors_[i].size());
      least = std::min(least, cosine(results[i].values, vectors_[i]));
    }
    EXPECT_GE(least, least_cosine);
    std::printf("minilm %-5s %-12s least cosine 1 - %.2e\n", what, named.name.c_str(), 1 - least);
  }
}

// The large matrices in Q8_0, everything else as it is.
std::filesystem::path quantised(const std::filesystem::path& path, const std::filesystem::path& to) {
  const GgufFile file = GgufFile::open(path);
  GgufWriter writer;
  for (const GgufEntry& entry : file.entries()) {
    if (entry.key != "general.alignment") writer.put_entry(entry);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const bool table = tensor.name.starts_with("position") || tensor.name.starts_with("token_types");
    const bool changes = tensor.dimensions == 2 && tensor.shape[0] % 32 == 0 && !table;
    writer.add_tensor(tensor.name, changes ? QuantType::q8_0 : tensor.type,
                      {tensor.shape.begin(), tensor.shape.begin() + tensor.dimensions},
                      [&file, &tensor, changes](std::span<std::byte> out) {
                        if (!changes) {
                          std::memcpy(out.data(), file.data(tensor), out.size());
                          return;
                        }
                        std::vector<float> values(tensor.elements());
                        decode_row(tensor.type, file.data(tensor), values.data(), values.size());
                        encode_row(QuantType::q8_0, values.data(), out.data(), values.size());
                      });
  }
  writer.write(to);
  return to;
}

TEST_F(EmbeddingModel, GivesTheRecordedVectors) { compare(path_, 0.99999, "F32"); }

TEST_F(EmbeddingModel, GivesThemNearlyFromQuantisedWeights) {
  const TempDir folder;
  compare(quantised(path_, folder.path() / "q8.gguf"), 0.9995, "Q8_0");
}

}  // namespace
}  // namespace quarrel::test

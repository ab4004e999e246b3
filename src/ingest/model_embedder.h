// A loaded model as what an ingestion embeds with. Texts beyond the model's limit are cut, and counted. Used on the
// ingestion's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ingest/ingestion.h"
#include "session/embedding.h"
#include "session/loaded_model.h"

namespace quarrel {

class ModelEmbedder final : public TextEmbedder {
 public:
  // `prefix` goes before each text when it is embedded, for models that were trained so; it is not stored. Throws
  // Error: unsupported without a vocabulary, usage with a pooling that gives no one vector a text.
  ModelEmbedder(std::shared_ptr<LoadedModel> model, const EmbeddingOptions& options, std::string prefix);

  std::int32_t dimension() const override { return dimension_; }
  std::unique_ptr<Work> start(std::span<const std::string> texts, std::vector<std::span<float>> places,
                              std::function<void(Outcome)> done) override;

  // Tokens of a text as it is embedded, prefix and special ones included, before it is cut.
  std::size_t tokens(std::string_view text) const;
  std::size_t longest_text() const { return longest_embedded_text(*model_); }
  // The vector of one text; blocks.
  std::vector<float> embed_one(std::string_view text) const;
  std::uint64_t cut_texts() const noexcept { return cut_; }

  // What a journal keeps, so that vectors made otherwise are not mixed with these.
  std::string settings() const;
  std::string fingerprint() const;

 private:
  const std::shared_ptr<LoadedModel> model_;
  const EmbeddingOptions options_;
  const std::string prefix_;
  const std::int32_t dimension_;
  std::uint64_t cut_ = 0;
};

}  // namespace quarrel

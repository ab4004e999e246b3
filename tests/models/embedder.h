// A model that embeds, with the options of all its vectors, as tests want it: on a device of theirs, in one object.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/embedding.h"
#include "session/loaded_model.h"

namespace quarrel::test {

struct EmbedOptions {
  ExecutorOptions executor = {};  // its pooling is that of the vectors
  bool normalize = true;
  std::optional<std::int32_t> dimensions = {};
};

class Embedder {
 public:
  // The device must outlive it.
  Embedder(const std::filesystem::path& file, Device& device, const EmbedOptions& options, Log& log)
      : options_{
            .pooling = options.executor.pooling, .normalize = options.normalize, .dimensions = options.dimensions} {
    LoadOptions load{.executor = options.executor};
    load.executor.logits = false;
    model_ = LoadedModel::load(file, std::shared_ptr<Device>(&device, [](Device*) {}), load, log);
    vector_width(*model_, options_);
  }

  const LoadedModel& model() const { return *model_; }
  std::vector<Embedding> embed(std::vector<std::vector<TokenId>> texts, const EmbeddingProgress& progress = {}) const {
    return quarrel::embed(model_, std::move(texts), options_, progress);
  }
  std::vector<Embedding> embed(const std::vector<std::string>& texts) const {
    return quarrel::embed(model_, texts, options_);
  }
  std::vector<std::vector<float>> token_vectors(const std::vector<TokenId>& tokens) const {
    return embed({tokens}).front().token_vectors;
  }

 private:
  EmbeddingOptions options_;
  std::shared_ptr<LoadedModel> model_;
};

}  // namespace quarrel::test

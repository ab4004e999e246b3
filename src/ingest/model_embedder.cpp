#include "ingest/model_embedder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"

namespace quarrel {
namespace {

// Of each tensor's data, for the fingerprint: models of one shape that were trained differently differ here.
constexpr std::size_t kTensorSample = 256;

class RunningWork final : public TextEmbedder::Work {
 public:
  explicit RunningWork(EmbeddingRun run) : run_(std::move(run)) {}

 private:
  EmbeddingRun run_;
};

const char* pooling_name(Pooling pooling) noexcept {
  switch (pooling) {
    case Pooling::none: return "none";
    case Pooling::mean: return "mean";
    case Pooling::cls: return "cls";
    case Pooling::last: return "last";
    case Pooling::rank: return "rank";
  }
  return "none";
}

}  // namespace

ModelEmbedder::ModelEmbedder(std::shared_ptr<LoadedModel> model, const EmbeddingOptions& options, std::string prefix)
    : model_(std::move(model)),
      options_(options),
      prefix_(std::move(prefix)),
      dimension_(vector_width(*model_, options_)) {
  model_->require_tokenizer();
  const Pooling pooling = options_.pooling.value_or(model_->pooling());
  if (pooling == Pooling::none || pooling == Pooling::rank) {
    fail(ErrorKind::usage, "a store holds one vector a text: the pooling is mean, cls or last, not {}",
         pooling_name(pooling));
  }
}

std::unique_ptr<TextEmbedder::Work> ModelEmbedder::start(std::span<const std::string> texts,
                                                         std::vector<std::span<float>> places,
                                                         std::function<void(Outcome)> done) {
  std::vector<std::vector<TokenId>> tokens;
  tokens.reserve(texts.size());
  std::uint64_t total = 0;
  for (const std::string& text : texts) {
    EncodedText encoded = encode_text(*model_, prefix_.empty() ? text : prefix_ + text);
    if (encoded.cut) ++cut_;
    total += encoded.tokens.size();
    tokens.push_back(std::move(encoded.tokens));
  }
  return std::make_unique<RunningWork>(
      start_embedding_into(model_, std::move(tokens), std::move(places), options_,
                           [total, done = std::move(done)](const EmbeddingOutcome& outcome) {
                             done({.error = outcome.error, .tokens = total});
                           }));
}

std::size_t ModelEmbedder::tokens(std::string_view text) const {
  return model_->require_tokenizer().encode(prefix_ + std::string(text), {.add_special = true}).size();
}

std::vector<float> ModelEmbedder::embed_one(std::string_view text) const {
  return embed(model_, std::vector<std::string>{prefix_ + std::string(text)}, options_).at(0).values;
}

std::string ModelEmbedder::settings() const {
  return fmt::format("pooling {}, normalize {}, prefix '{}'",
                     pooling_name(options_.pooling.value_or(model_->pooling())), options_.normalize ? "on" : "off",
                     prefix_);
}

std::string ModelEmbedder::fingerprint() const {
  const GgufFile& file = model_->file();
  file.require_whole();
  Sha256 hash;
  const auto add = [&hash](std::string_view text) { hash.update(std::as_bytes(std::span(text))); };
  add(fmt::format("{} {}", file.file_bytes(), file.tensors().size()));
  for (const GgufTensor& tensor : file.tensors()) {
    add(fmt::format(" {} {} ", tensor.name, static_cast<int>(tensor.type)));
    hash.update({file.data(tensor), std::min<std::size_t>(tensor.bytes, kTensorSample)});
  }
  file.require_whole();
  return hash.finish().substr(0, 32);
}

}  // namespace quarrel

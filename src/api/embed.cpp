// Texts to vectors, through the session.
#include <utility>

#include "api/conversions.h"
#include "api/model_impl.h"
#include "session/embedding.h"

namespace quarrel::api {
namespace {

// `work` is given what the session asks whether to go on.
template <typename Work>
std::vector<Embedding> embed_with(const EmbedOptions& options, const Work& work) {
  Caught caught;
  const EmbeddingProgress progress = [&](std::size_t done, std::size_t total) {
    if (options.cancel && options.cancel->cancelled()) return false;
    return !options.progress || caught.call([&] { return options.progress(done, total); });
  };
  try {
    return guarded([&] {
      std::vector<Embedding> results;
      for (quarrel::Embedding& from : work(embedding_options_of(options), progress)) {
        results.push_back({.values = std::move(from.values),
                           .token_vectors = std::move(from.token_vectors),
                           .tokens = from.tokens,
                           .cut = from.cut,
                           .full_tokens = from.full_tokens});
      }
      return results;
    });
  } catch (const Error&) {
    caught.rethrow();
    throw;
  }
}

}  // namespace

std::vector<Embedding> Model::embed(std::span<const std::string> texts, const EmbedOptions& options) const {
  const Model kept = *this;  // a callback may let go of the last other copy
  Impl& impl = kept.impl();
  std::vector<Embedding> results = embed_with(options, [&](const EmbeddingOptions& settings, const auto& progress) {
    return quarrel::embed(impl.loaded, texts, settings, progress);
  });
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!results[i].cut) continue;
    impl.log->warn("text {} has {} tokens and was cut to {}", i + 1, results[i].full_tokens, results[i].tokens);
  }
  return results;
}

std::vector<Embedding> Model::embed(std::span<const std::vector<Token>> texts, const EmbedOptions& options) const {
  const Model kept = *this;
  return embed_with(options, [&](const EmbeddingOptions& settings, const auto& progress) {
    return quarrel::embed(kept.impl().loaded, {texts.begin(), texts.end()}, settings, progress);
  });
}

std::vector<std::vector<float>> Model::embedding_rows(std::span<const Token> tokens) const {
  return guarded([&] { return quarrel::embedding_rows(*impl().loaded, tokens); });
}

std::vector<std::vector<float>> Model::embedding_rows(std::string_view text) const {
  return embedding_rows(tokenize(text));
}

}  // namespace quarrel::api

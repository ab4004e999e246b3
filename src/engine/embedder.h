// Texts to vectors: a model of either kind, an encoder or a decoder, with many texts in a step. It decides what shares
// a step and what becomes of the rows; the executor below computes. Used by the command line and the server; one thread
// at a time. A text's bits depend on the text, the model and the batch's rows alone, never on the texts beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "engine/executor.h"
#include "text/tokenizer.h"

namespace quarrel {

struct EmbedOptions {
  // Its pooling is the one asked for; none asked for: what the file says, else the mean of an encoder's rows or the
  // last row of a decoder.
  ExecutorOptions executor = {};
  bool normalize = true;                        // to length 1; scores of `rank` never are
  std::optional<std::int32_t> dimensions = {};  // only the first so many values
};

struct Embedding {
  std::vector<float> values = {};  // [embedding_dim]; scores where the pooling is `rank`
  std::size_t tokens = 0;          // that were fed, special ones included
  bool cut = false;                // the text was longer than the limit …
  std::size_t full_tokens = 0;     // … and would have had so many
};

struct EncodedText {
  std::vector<TokenId> tokens = {};
  bool cut = false;
  std::size_t full_tokens = 0;
};

// Called before each step and at the end with how many texts are done; false ends the work with Error(cancelled).
using EmbedProgress = std::function<bool(std::size_t done, std::size_t total)>;

class Embedder {
 public:
  // Throws what Executor and Tokenizer::load throw, and Error(usage) for dimensions that the model does not have. A
  // file without a vocabulary is fine as long as only tokens are given.
  Embedder(GgufFile file, Device& device, const EmbedOptions& options, Log& log);

  const Executor& executor() const noexcept { return *executor_; }
  const Tokenizer* tokenizer() const noexcept { return tokenizer_.get(); }  // null: the file has no vocabulary
  Pooling pooling() const noexcept { return executor_->spec().pooling; }
  std::int32_t embedding_dim() const noexcept;  // of each vector; how many scores where the pooling is `rank`
  std::size_t limit() const noexcept { return static_cast<std::size_t>(executor_->context()); }  // tokens a text

  // The text's tokens with the special ones that the vocabulary adds. A text beyond the limit is cut to it and keeps
  // its closing token. Throws Error(unsupported) without a vocabulary.
  EncodedText encode(std::string_view text) const;
  // Throws Error(bad_input) that names text `number` when it is empty, too long, or has an id outside the vocabulary.
  void check(std::span<const TokenId> tokens, std::size_t number) const;

  // One vector a text, in the caller's order. Throws Error: as `check` says, usage when the pooling is `none`, bad_file
  // for numbers that are not finite.
  std::vector<Embedding> embed(std::span<const std::vector<TokenId>> texts, const EmbedProgress& progress = {});
  std::vector<Embedding> embed(std::span<const std::string> texts, const EmbedProgress& progress = {});

  // One vector a token of the text, after the output norm. Only where the pooling is `none`; Error(usage) otherwise.
  // The progress counts tokens.
  std::vector<std::vector<float>> token_vectors(std::span<const TokenId> tokens, const EmbedProgress& progress = {});

  // Rows of the embedding table as the file has them, neither scaled nor normalised. Throws Error(bad_input) for an id
  // outside the vocabulary.
  std::vector<std::vector<float>> token_rows(std::span<const TokenId> tokens) const;

 private:
  std::size_t texts_that_fit(std::span<const std::vector<TokenId>> texts, std::span<const std::size_t> order) const;
  void embed_together(std::span<const std::vector<TokenId>> texts, std::span<const std::size_t> chosen,
                      std::vector<Embedding>& results);
  std::vector<float> embed_in_chunks(std::span<const TokenId> tokens, const std::function<void()>& before_step);
  void finish(std::vector<float>& values) const;

  bool normalize_;
  std::optional<std::int32_t> dimensions_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace quarrel

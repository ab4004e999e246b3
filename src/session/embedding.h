// Texts to vectors, through the engine: each text is a request of its own, with a queue, a priority and a deadline like
// any other, and many are in flight at once. A text's bits depend on the text and the model alone, never on the texts
// beside it.
//
// Threads: `start_embedding` blocks nobody and has no thread; its callbacks run on the engine's thread and must not
// block. `embed` waits, on any thread but the engine's.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "session/loaded_model.h"

namespace quarrel {

struct EmbeddingOptions {
  std::optional<Pooling> pooling = {};          // none: the model's; `none`: one vector per token
  bool normalize = true;                        // to length 1; scores of `rank` never are
  std::optional<std::int32_t> dimensions = {};  // keep only this many values
  Priority priority = Priority::normal;
  std::uint64_t key = 0;
  std::chrono::microseconds timeout = {};   // of each text, from when it is submitted; 0: none
  std::chrono::microseconds patience = {};  // how long each may wait for its start, and then for its end; 0: no limit
};

struct Embedding {
  std::vector<float> values = {};                      // scores where the pooling is `rank`
  std::vector<std::vector<float>> token_vectors = {};  // one vector per token, where the pooling is `none`
  bool cut = false;                                    // the text was longer than the limit …
  std::size_t full_tokens = 0;                         // … and would have had this many
  std::size_t tokens = 0;                              // that were fed, special ones included
};

struct EncodedText {
  std::vector<TokenId> tokens = {};
  bool cut = false;             // the text was longer than the limit …
  std::size_t full_tokens = 0;  // … and would have had this many
};

// Tokens that a text may have.
std::size_t longest_embedded_text(const LoadedModel& model);
// A text that is tokens already. Beyond the limit it is cut to it, and keeps its closing token if it has one.
EncodedText fit_text(const LoadedModel& model, std::vector<TokenId> tokens);
// The text's tokens with the special ones that the vocabulary adds, cut as fit_text does. Throws Error(unsupported)
// without a vocabulary.
EncodedText encode_text(const LoadedModel& model, std::string_view text);
// The first of two texts that a reranker reads together, with the special tokens around it. One that fills the limit
// is cut to half of it, to leave room for the other. Throws as encode_text does.
EncodedText encode_query(const LoadedModel& model, std::string_view query);
// Both, a query as `encode_query` gives it and what may answer it, with the special tokens around and between them. The
// second is cut where both are too long. Throws as encode_text does.
EncodedText encode_pair(const LoadedModel& model, const EncodedText& query, std::string_view text);
// Throws Error(bad_input) that names text `number` when it is empty, too long, or has an id outside the vocabulary.
void check_embedded_text(const LoadedModel& model, std::span<const TokenId> tokens, std::size_t number);
// Values of a vector with these options; scores where the pooling is `rank`. Throws Error(usage) for dimensions that
// the model does not have, Error(unsupported) for a pooling that it cannot do.
std::int32_t vector_width(const LoadedModel& model, const EmbeddingOptions& options);

struct EmbeddingOutcome {
  std::vector<Embedding> embeddings = {};  // in the order of the texts
  std::exception_ptr error = {};           // or why there are none
  // The first of the texts left the queue; none: none did.
  std::optional<std::chrono::steady_clock::time_point> started = {};
};

// An embedding that runs; its destructor cancels what is not done.
class EmbeddingRun {
 public:
  EmbeddingRun() = default;
  ~EmbeddingRun();
  EmbeddingRun(EmbeddingRun&&) noexcept;
  EmbeddingRun& operator=(EmbeddingRun&&) noexcept;

  void cancel();                          // from any thread; `on_done` then has Error(cancelled)
  std::size_t finished() const noexcept;  // texts

 private:
  friend EmbeddingRun start_embedding(std::shared_ptr<LoadedModel>, std::vector<std::vector<TokenId>>,
                                      const EmbeddingOptions&, std::function<void(EmbeddingOutcome)>);
  friend EmbeddingRun start_embedding_into(std::shared_ptr<LoadedModel>, std::vector<std::vector<TokenId>>,
                                           std::vector<std::span<float>>, const EmbeddingOptions&,
                                           std::function<void(EmbeddingOutcome)>);
  class State;
  explicit EmbeddingRun(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Texts as ids. Throws Error(bad_input) that names the text (from 1) which is empty, too long, or has an id outside the
// vocabulary, and what `vector_width` and the engine throw. `on_done` is called once, perhaps before this returns.
EmbeddingRun start_embedding(std::shared_ptr<LoadedModel> model, std::vector<std::vector<TokenId>> texts,
                             const EmbeddingOptions& options, std::function<void(EmbeddingOutcome)> on_done);
// The same, but the vector of text i is written to `places[i]`, which has `vector_width` values: copied there once from
// the step that computed it, and normalised where it lies. `Embedding::values` stay empty. The memory must be good
// until `on_done` is called. Throws Error(usage) for places that do not fit the texts, or with the pooling `none`.
EmbeddingRun start_embedding_into(std::shared_ptr<LoadedModel> model, std::vector<std::vector<TokenId>> texts,
                                  std::vector<std::span<float>> places, const EmbeddingOptions& options,
                                  std::function<void(EmbeddingOutcome)> on_done);

// Called from time to time, and at the end, with how many texts are done; false ends the work with Error(cancelled).
using EmbeddingProgress = std::function<bool(std::size_t done, std::size_t total)>;

std::vector<Embedding> embed(const std::shared_ptr<LoadedModel>& model, std::vector<std::vector<TokenId>> texts,
                             const EmbeddingOptions& options = {}, const EmbeddingProgress& progress = {});
std::vector<Embedding> embed(const std::shared_ptr<LoadedModel>& model, std::span<const std::string> texts,
                             const EmbeddingOptions& options = {}, const EmbeddingProgress& progress = {});

// Rows of the embedding table as the file has them, neither scaled nor normalised. Throws Error(bad_input) for an id
// outside the vocabulary. Needs no engine.
std::vector<std::vector<float>> embedding_rows(const LoadedModel& model, std::span<const TokenId> tokens);

}  // namespace quarrel

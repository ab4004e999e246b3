// How likely given tokens are, and all the logits behind that: for measuring models (perplexity, logits, regress). The
// tokens are a request to the engine that computes all of its rows and leaves the prefix cache alone.
//
// Threads: everything here waits, on any thread but the engine's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/step_rows.h"
#include "session/loaded_model.h"

namespace quarrel {

struct ScoreOptions {
  RowClass row_class = RowClass::prompt;  // whose arithmetic
  std::function<bool()> cancelled = {};   // asked from time to time: true ends it with Error(cancelled)
};

// The log-probabilities of tokens [1, n), each from those before it. Throws Error: bad_input for tokens that are none
// or do not fit, unsupported for a model without logits, bad_file where the model's numbers are not finite.
std::vector<float> score_tokens(const std::shared_ptr<LoadedModel>& model, std::span<const TokenId> tokens,
                                const ScoreOptions& options = {});

// All logits of a token sequence, row after row. Those of a long text do not fit in memory, so the engine waits when it
// is far ahead of the reader: for tools that have the engine to themselves. One position of the context must stay free.
class LogitReader {
 public:
  // Throws as `score_tokens` does.
  LogitReader(std::shared_ptr<LoadedModel> model, std::span<const TokenId> tokens, const ScoreOptions& options = {});
  ~LogitReader();  // what is not read yet is not computed
  LogitReader(const LogitReader&) = delete;
  LogitReader& operator=(const LogitReader&) = delete;

  // The logits that follow the next token, [vocabulary]; empty after the last. Valid until the next call. Throws as
  // `score_tokens` does.
  std::span<const float> next();
  std::size_t rows_read() const noexcept { return rows_read_; }

 private:
  class Queue;
  const std::shared_ptr<LoadedModel> model_;
  const std::function<bool()> cancelled_;
  const std::size_t rows_;
  std::shared_ptr<Queue> queue_;
  RequestId id_ = 0;
  std::size_t rows_read_ = 0;
  std::vector<float> row_;
};

}  // namespace quarrel

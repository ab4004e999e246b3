// All logits of a token sequence, a few rows at a time, because a long text's do not fit in memory. Used by `logits`
// and `regress`. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/executor.h"

namespace quarrel {

class LogitReader {
 public:
  // `executor` and `tokens` must outlive the reader. The tokens must be in the vocabulary and fit the context; `chunk`
  // is how many rows a step holds and `next` gives at most, bounded by the executor's batch.
  LogitReader(Executor& executor, std::span<const TokenId> tokens, RowClass row_class, std::int32_t chunk = kLogitRows);
  ~LogitReader();
  LogitReader(const LogitReader&) = delete;
  LogitReader& operator=(const LogitReader&) = delete;

  // The next rows, [rows][vocabulary]; empty after the last. Valid until the next call.
  std::span<const float> next();
  std::size_t rows_read() const noexcept { return read_; }

 private:
  Executor& executor_;
  std::span<const TokenId> tokens_;
  RowClass row_class_;
  std::size_t chunk_;
  std::size_t read_ = 0;
  Sequence sequence_;
  std::vector<float> logits_;
};

}  // namespace quarrel

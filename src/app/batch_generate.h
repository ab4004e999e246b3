// Several replies to one prompt, decoded together: each step holds a row of every reply that goes on. A reply is the
// same as if it were alone. Used by `generate`. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/finish_reason.h"

namespace quarrel {

struct BatchOptions {
  SamplingParams sampling;               // reply i draws with seed + i
  std::int32_t sequences = 1;            // at least 1
  std::int32_t max_tokens = 1;           // of each reply, at least 1
  std::span<const TokenId> stop_tokens;  // ascending; the one met is a reply's last token
  std::function<void()> between_steps;   // may throw to stop everything
};

struct BatchReply {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // of each token
  FinishReason reason = FinishReason::length;
};

struct BatchResult {
  std::vector<BatchReply> replies;
  double prompt_seconds = 0.0;
  double generate_seconds = 0.0;
  std::int64_t generated_steps = 0;
};

// The executor must have been made for as many sequences. Throws what Executor::run throws, and Error(bad_file) where
// the model gives no token a probability.
BatchResult generate_together(Executor& executor, std::span<const TokenId> prompt, const BatchOptions& options);

}  // namespace quarrel

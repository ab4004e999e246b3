// Writes a reply: samples a token, feeds it back, until something says stop. Used by the command line; one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/executor.h"

namespace quarrel {

enum class FinishReason { stop, length, context, cancelled };

struct GenerateOptions {
  SamplingParams sampling;
  std::int32_t max_tokens = -1;               // -1: until the context is full
  std::span<const TokenId> stop_tokens = {};  // ascending; the one met is the last token reported
  const std::atomic<bool>* cancel = nullptr;  // looked at before each token
};

struct GenerateResult {
  FinishReason reason = FinishReason::stop;
  std::vector<TokenId> tokens;
  double prompt_seconds = 0.0;
  double generate_seconds = 0.0;
};

// Called with each token as it comes; false ends the reply (a stop string was met) with reason `stop`.
using TokenSink = std::function<bool(const SampleResult&)>;

// Feeds `prompt` to the sequence as prompt rows (in batches) and continues it. `history` are the tokens already in the
// sequence, for the penalties. Afterwards the sequence holds the prompt and every reported token but the last.
GenerateResult generate(Executor& executor, Sequence& sequence, std::span<const TokenId> history,
                        std::span<const TokenId> prompt, const GenerateOptions& options, const TokenSink& sink);

}  // namespace quarrel

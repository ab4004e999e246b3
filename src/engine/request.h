// The engine's requests and events: tokens in, tokens and vectors out. Text is handled above it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/sampling.h"
#include "backend/step.h"
#include "base/clock.h"
#include "base/token.h"
#include "sched/request.h"

namespace quarrel {

// Which tokens may come next in the answer of one branch: a grammar, a schema. Made for each branch, and called from
// the engine's thread alone, with no lock held, while the device computes the row that it is for.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // `answer`: all tokens of the branch so far. `allowed`: one bit per token of the vocabulary, all zero; 1 allows it.
  // If none is allowed, the branch ends with FinishReason::no_token. If this throws, only that branch ends, as failed.
  virtual void allow(std::span<const TokenId> answer, std::span<std::uint64_t> allowed) = 0;
};

// The scheduler's part is what SchedRequest says: the text, its length, its place in the queue, what is wanted of it.
struct EngineRequest : SchedRequest {
  SamplingParams sampling = {};     // branch i draws with branch_seed(sampling.seed, i)
  std::int32_t top = 0;             // how many of the most likely tokens are reported for each, at most kMaxTopTokens
  bool prompt_logits = false;       // all logits of each score of the prompt and of the first token
  Pooling pooling = Pooling::mean;  // of a text that is `pooled`
  // Where the vector of a text that is `pooled` goes, its first values if this is shorter; its event has none then.
  // Written on the engine's thread, the last time before the request's `finished` is reported. Empty: to the event.
  std::span<float> vector_into = {};
  std::function<std::unique_ptr<TokenMask>(std::int32_t branch)> mask = {};  // none: every token may come
  std::chrono::microseconds timeout = {};   // from now, waiting included; 0: none. Takes the place of `deadline_us`
  std::chrono::microseconds patience = {};  // 0: none. Takes the place of `patience_us`
};

// The seed of a branch: a request with this seed and one branch gives the same answer.
inline std::uint64_t branch_seed(std::uint64_t seed, std::int32_t branch) noexcept {
  return seed + static_cast<std::uint64_t>(branch) * 0x9e3779b97f4a7c15u;
}

// Of one request, in order: `started`, the outputs of the prompt's rows, then tokens of its branches; each branch ends
// with one `finished`, after which nothing more of it comes. The prompt's events carry the number of the first branch
// that has not finished.
struct TokenEvent : SchedEvent {
  Clock::time_point at = {};       // when it happened; a step's events are reported together, later
  SampleResult sample = {};        // of token and prompt_score
  std::vector<float> values = {};  // a vector; or all logits, where they were asked for
  std::string error = {};          // of finished: why it failed or was cancelled, where somebody gave a reason
};

// Takes events. The engine calls it once per step with all events of its requests, in order: one call can wake
// thousands of streams.
class EventSink {
 public:
  virtual ~EventSink() = default;
  // On the engine's thread, with no lock held. Must not block; may call the engine, but not wait for it. If it throws,
  // the requests of these events end as failed.
  virtual void take(std::span<TokenEvent> events) = 0;
};

}  // namespace quarrel

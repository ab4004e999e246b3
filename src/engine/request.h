// What the engine is asked for, and what it answers while it works: tokens in, tokens out. Text lies above it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/sampling.h"
#include "base/token.h"
#include "sched/request.h"

namespace quarrel {

struct GenerateRequest {
  std::vector<TokenId> prompt = {};
  SamplingParams sampling = {};
  std::int32_t max_tokens = -1;           // of an answer; -1: what the context leaves; 0: the prompt alone
  std::vector<TokenId> stop_tokens = {};  // each ends an answer, and is told as its last token
  std::int32_t branches = 1;              // answers to the one prompt, each with a `branch_seed`; best_of.h chooses
  std::int32_t top = 0;                   // of each token, so many most likely ones are told, at most kMaxTopTokens
  bool score_prompt = false;              // log-probabilities of the prompt's tokens are told too
  Priority priority = Priority::normal;
  Overflow overflow = Overflow::refuse;
  std::int32_t keep = 0;    // first tokens that a shift leaves
  std::int32_t pinned = 0;  // first tokens that should stay in the cache
  bool use_cache = true;
  std::uint64_t key = 0;                                         // whose request it is: keys share the machine evenly
  std::uint64_t salt = 0;                                        // texts of different salts never share what is cached
  std::chrono::microseconds deadline = std::chrono::minutes(5);  // from now, waiting included; 0: none
};

// What a branch draws with: branch 0 as a request alone would, and any other as one alone with this seed would.
inline std::uint64_t branch_seed(std::uint64_t seed, std::int32_t branch) noexcept {
  return seed + static_cast<std::uint64_t>(branch) * 0x9e3779b97f4a7c15u;
}

// Of one request, in order: `started`, scores of the prompt, then tokens of its branches; each branch ends with one
// `finished`, and nothing of it follows. The prompt's events are those of the first branch that has not finished.
struct TokenEvent {
  enum class Kind : std::uint8_t { started, prompt_score, token, shifted, finished };
  Kind kind = Kind::token;
  RequestId request = 0;
  std::int32_t branch = 0;
  SampleResult sample = {};            // of token and prompt_score
  EndReason reason = EndReason::stop;  // of finished
  std::int32_t cached = 0;             // of started: tokens of the prompt that the cache had
  std::int32_t dropped = 0;            // of shifted: tokens forgotten behind the first `keep`
  std::string error = {};              // of finished for EndReason::failed: why
};

}  // namespace quarrel

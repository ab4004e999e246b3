// Choosing a token from logits: the parameters, and the choice itself as a pure function. `sample` is a backend op; the
// backends on the host call `sample_row`, which is also its meaning for every other backend.
//
// The order is fixed: logit bias and mask, penalties, then either mirostat 2 or the filters top-k, typical, top-p and
// min-p on the untempered distribution (each on what the one before left, renormalised), then temperature and the draw,
// which counts through what is left by ascending id. Ties go to the lower id everywhere. A row with a NaN or +infinity
// among its logits gives no token; -infinity is a probability of zero. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backend/sampling_kernels.h"
#include "base/token.h"

namespace quarrel {

struct SamplingParams {
  float temperature = 0.0f;          // 0 is greedy: the most likely token, no draw
  std::int32_t top_k = 0;            // 0 keeps all
  float top_p = 1.0f;                // the smallest set whose probability reaches it; 1 keeps all
  float min_p = 0.0f;                // at least this share of the best token's probability
  float typical_p = 1.0f;            // locally typical sampling; 1 keeps all
  float repeat_penalty = 1.0f;       // divides positive logits of seen tokens, multiplies negative ones
  float presence_penalty = 0.0f;     // subtracted once from a seen token
  float frequency_penalty = 0.0f;    // subtracted once for each time it was seen
  std::int32_t penalty_window = 64;  // how many last tokens count as seen; -1 for all
  bool mirostat = false;             // mirostat 2: replaces the filters above
  float mirostat_tau = 5.0f;         // the surprise aimed at, in bits
  float mirostat_eta = 0.1f;         // how fast it learns
  std::uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias = {};
};

// Throws Error(bad_input) naming the parameter that is out of range or not a number.
void check(const SamplingParams& params);

struct TokenCount {
  TokenId id;
  std::int32_t count;
};

inline constexpr int kMaxTopTokens = 20;

struct SampleRequest {
  SamplingParams params;
  std::uint64_t draw = 0;                 // which random number of the seed's sequence: the row's position in its reply
  std::span<const TokenCount> seen = {};  // within the penalty window
  std::span<const std::uint64_t> mask = {};  // a bit a token: 1 may come; empty: all may
  float mirostat_mu = 0.0f;                  // carried from result to request; 0 begins at 2 tau
  std::int32_t top = 0;                      // how many of the most likely tokens to report, at most kMaxTopTokens
  TokenId score = -1;  // report this token instead of drawing one (perplexity, prompt log-probabilities)
};

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0.0f;
};

struct SampleResult {
  TokenId id = -1;       // -1: no token may come (an empty mask), or the logits were not numbers
  float logprob = 0.0f;  // of `id` under the model: logits as they came, before any sampling parameter
  float mirostat_mu = 0.0f;
  std::vector<TokenLogprob> top;  // most likely first, as the model has it
};

// A number in [0, 1) from a seed and its place in the sequence: the same on every machine, no state to keep.
double uniform(std::uint64_t seed, std::uint64_t draw) noexcept;

// Calls task(i) for every i below `count`, perhaps on several threads, and returns when all are done.
using ForEach = std::function<void(std::size_t count, const std::function<void(std::size_t)>& task)>;

// A backend may lend its kernels and its threads: the result is the same whatever the threads, and with other kernels
// up to the last bits of a double.
SampleResult sample_row(std::span<const float> logits, const SampleRequest& request,
                        const SamplingKernels& kernels = plain_sampling_kernels(), const ForEach& for_each = {});

// The distribution that `sample_row` draws from, as (token, probability) by falling probability: what tests check.
std::vector<std::pair<TokenId, double>> sampling_distribution(
    std::span<const float> logits, const SampleRequest& request,
    const SamplingKernels& kernels = plain_sampling_kernels());

}  // namespace quarrel

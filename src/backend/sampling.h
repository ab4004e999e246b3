// Choosing a token from logits: the parameters, and the choice itself as a pure function. `sample` is a backend op; the
// backends on the host call `sample_row`, which is also its meaning for every other backend.
//
// The order is fixed: logit bias and mask, penalties, then either mirostat 2 or the filters top-k, typical, top-p and
// min-p on the untempered distribution (each on what the one before left, renormalised), then temperature and the draw,
// which counts through what is left by ascending id. Ties go to the lower id everywhere. A row with a NaN or +infinity
// among its logits gives no token; -infinity is a probability of zero. Pure functions, safe from any thread.
//
// Penalties: first that for repetition, then the two that are subtracted; see PenaltyScope. The lane counts how often a
// text has each token (sampler_state.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "backend/sampling_kernels.h"
#include "base/token.h"

namespace quarrel {

// Which tokens the presence and frequency penalties count. That for repetition always looks at the last
// `penalty_window` tokens of prompt and answer, as llama.cpp does.
enum class PenaltyScope : std::uint8_t {
  answer,  // all of the answer and nothing of the prompt: OpenAI's meaning
  recent,  // the last `penalty_window` of both: llama.cpp's, and so Ollama's
};

struct SamplingParams {
  float temperature = 0.0f;        // 0 is greedy: the most likely token, no draw
  std::int32_t top_k = 0;          // 0 keeps all
  float top_p = 1.0f;              // the smallest set whose probability reaches it; 1 keeps all
  float min_p = 0.0f;              // at least this share of the best token's probability
  float typical_p = 1.0f;          // locally typical sampling; 1 keeps all
  float repeat_penalty = 1.0f;     // divides positive logits of recent tokens, multiplies negative ones
  float presence_penalty = 0.0f;   // subtracted once from a token that came
  float frequency_penalty = 0.0f;  // subtracted once for each time it came
  PenaltyScope penalty_scope = PenaltyScope::answer;  // where it must have come for the two above
  std::int32_t penalty_window = 64;                   // how many last tokens are recent; -1 for all
  bool mirostat = false;                              // mirostat 2: replaces the filters above
  float mirostat_tau = 5.0f;                          // the surprise aimed at, in bits
  float mirostat_eta = 0.1f;                          // how fast it learns
  std::uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias = {};
};

// A parameter that is out of range or not a number: its name in SamplingParams, and what it must be.
struct SamplingFault {
  const char* parameter = "";
  const char* range = "";
};
// The first one; for callers that know the parameters by other names.
std::optional<SamplingFault> find_fault(const SamplingParams& params);
// Throws Error(bad_input) naming it.
void check(const SamplingParams& params);

// Whether earlier tokens matter: only then does a lane need the text.
bool has_penalties(const SamplingParams& params) noexcept;

// How often a token came.
struct TokenCount {
  TokenId id = 0;
  std::int32_t recent = 0;    // among the last `penalty_window` tokens of prompt and answer
  std::int32_t answered = 0;  // in the answer
};

inline constexpr int kMaxTopTokens = 20;

struct SampleRequest {
  SamplingParams params;
  std::uint64_t draw = 0;                 // which random number of the seed's sequence: the row's position in its reply
  std::span<const TokenCount> seen = {};  // each token once, in any order
  std::span<const std::uint64_t> mask = {};  // a bit a token: 1 may come; empty: all may
  float mirostat_mu = 0.0f;                  // carried from result to request; 0 begins at 2 tau
  std::int32_t top = 0;                      // how many of the most likely tokens to report, at most kMaxTopTokens
  TokenId score = -1;  // report this token instead of drawing one (perplexity, prompt log-probabilities)
};

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0.0f;
};

enum class SampleOutcome : std::uint8_t {
  none,        // nothing was asked for
  token,       // `id` was drawn or scored
  no_token,    // mask, bias and penalties left no token that may come
  bad_logits,  // one of the logits was NaN or +infinity, or all were -infinity: the model's numbers are bad
};

struct SampleResult {
  SampleOutcome outcome = SampleOutcome::none;
  TokenId id = -1;       // -1 where there is no token
  float logprob = 0.0f;  // of `id` under the model: logits as they came, before any sampling parameter
  float mirostat_mu = 0.0f;
  std::vector<TokenLogprob> top;  // most likely first, as the model has it
};

// A number in [0, 1) from a seed and its position in the sequence: the same on every machine, without state.
double uniform(std::uint64_t seed, std::uint64_t draw) noexcept;

// Calls task(i) for every i below `count`, perhaps on several threads, and returns when all are done.
using ForEach = std::function<void(std::size_t count, const std::function<void(std::size_t)>& task)>;

// A backend may pass its kernels and threads: the result does not depend on the threads, and on the kernels only in the
// last bits of a double.
SampleResult sample_row(std::span<const float> logits, const SampleRequest& request,
                        const SamplingKernels& kernels = scalar_sampling_kernels(), const ForEach& for_each = {});

// The distribution that `sample_row` draws from, as (token, probability) by falling probability: what tests check.
std::vector<std::pair<TokenId, double>> sampling_distribution(
    std::span<const float> logits, const SampleRequest& request,
    const SamplingKernels& kernels = scalar_sampling_kernels());

}  // namespace quarrel

#include "backend/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.h"

namespace quarrel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// e^-60 of the best token, taken two thousand million times, is still below half a bit of a double's sum.
constexpr double kNegligible = -60.0;

struct Candidate {
  TokenId id;
  float logit;
  double weight;  // relative probability
};

// By falling probability, ties by id.
bool likelier(const Candidate& a, const Candidate& b) noexcept {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

bool lower_id(const Candidate& a, const Candidate& b) noexcept { return a.id < b.id; }

Candidate make_candidate(std::size_t index, float logit) noexcept {
  return {.id = static_cast<TokenId>(index), .logit = logit, .weight = 0.0};
}

// The most likely token; id -1 when nothing has a probability, or when one of the logits is NaN or +infinity.
Candidate find_best(std::span<const float> logits) noexcept {
  Candidate best{.id = -1, .logit = -kInfinity, .weight = 0.0};
  bool numbers = true;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    numbers &= logits[i] < kInfinity;
    if (logits[i] > best.logit) best = make_candidate(i, logits[i]);
  }
  if (!numbers) best.id = -1;
  return best;
}

// Turns logits into log-probabilities. The best logit stays apart from the sum, which it could swallow otherwise.
struct LogSum {
  double best = 0.0;
  double log_sum = 0.0;  // log Σ exp(logit - best)
  double logprob(float logit) const noexcept { return (static_cast<double>(logit) - best) - log_sum; }
};

LogSum log_sum_exp(std::span<const float> logits, float best) noexcept {
  double sum = 0.0;
  for (const float logit : logits) {
    const double below = static_cast<double>(logit) - static_cast<double>(best);
    if (below > kNegligible) sum += std::exp(below);
  }
  return {.best = static_cast<double>(best), .log_sum = std::log(sum)};
}

// ---- Bias, mask, penalties ----

bool may_come(std::span<const std::uint64_t> mask, std::size_t id) noexcept {
  return id / 64 < mask.size() && ((mask[id / 64] >> (id % 64)) & 1u) != 0;
}

// A changed logit must not become an infinity that would crowd out everything else.
float as_logit(double value) noexcept {
  return static_cast<float>(std::min(value, static_cast<double>(std::numeric_limits<float>::max())));
}

bool changes_logits(const SampleRequest& request) noexcept {
  const SamplingParams& params = request.params;
  const bool penalises =
      params.repeat_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  return !params.logit_bias.empty() || !request.mask.empty() || (penalises && !request.seen.empty());
}

// The logits after bias, mask and penalties: `logits` itself where none of them asks for a change, or `changed`.
std::span<const float> adjust(std::span<const float> logits, const SampleRequest& request,
                              std::vector<float>& changed) {
  if (!changes_logits(request)) return logits;
  changed.assign(logits.begin(), logits.end());
  const auto known = [&](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < changed.size(); };
  for (const auto& [id, bias] : request.params.logit_bias) {
    if (!known(id)) continue;
    float& logit = changed[static_cast<std::size_t>(id)];
    logit = as_logit(static_cast<double>(logit) + static_cast<double>(bias));
  }
  if (!request.mask.empty()) {
    for (std::size_t id = 0; id < changed.size(); ++id) {
      if (!may_come(request.mask, id)) changed[id] = -kInfinity;
    }
  }
  const auto repeat = static_cast<double>(request.params.repeat_penalty);
  const auto presence = static_cast<double>(request.params.presence_penalty);
  const auto frequency = static_cast<double>(request.params.frequency_penalty);
  for (const TokenCount& seen : request.seen) {
    if (!known(seen.id) || seen.count <= 0) continue;
    float& logit = changed[static_cast<std::size_t>(seen.id)];
    if (logit == -kInfinity) continue;
    const auto before = static_cast<double>(logit);
    const double repeated = before > 0.0 ? before / repeat : before * repeat;
    logit = as_logit(repeated - presence - frequency * static_cast<double>(seen.count));
  }
  return changed;
}

// ---- Filters: each leaves at least one candidate ----

// The `count` likeliest tokens, likeliest first.
std::vector<Candidate> best_tokens(std::span<const float> logits, std::size_t count) {
  constexpr std::size_t kHeapLimit = 512;  // beyond it the heap's turnover costs more than a partition of all tokens
  std::vector<Candidate> best;
  if (count == 0) return best;
  if (count <= kHeapLimit) {
    best.reserve(count);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (best.size() == count && !(logits[i] > best.front().logit)) continue;
      if (logits[i] == -kInfinity) continue;
      if (best.size() == count) {
        std::pop_heap(best.begin(), best.end(), likelier);
        best.pop_back();
      }
      best.push_back(make_candidate(i, logits[i]));
      std::push_heap(best.begin(), best.end(), likelier);  // the least likely is in front
    }
  } else {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] != -kInfinity) best.push_back(make_candidate(i, logits[i]));
    }
    if (count < best.size()) {
      std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(count), best.end(), likelier);
      best.resize(count);
    }
  }
  std::sort(best.begin(), best.end(), likelier);
  return best;
}

float best_logit(const std::vector<Candidate>& tokens) noexcept {
  return std::max_element(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.logit < b.logit; })
      ->logit;
}

// Sets the weights to probabilities relative to the best token's, and returns their sum.
double weigh(std::vector<Candidate>& tokens, double temperature) noexcept {
  const auto best = static_cast<double>(best_logit(tokens));
  double total = 0.0;
  for (Candidate& token : tokens) {
    token.weight = std::exp((static_cast<double>(token.logit) - best) / temperature);
    total += token.weight;
  }
  return total;
}

// Keeps the shortest beginning, in the order `before`, whose weights reach `wanted`. Only as much is sorted as is kept.
template <typename Before>
void keep_leading(std::vector<Candidate>& tokens, double wanted, const Before& before) {
  double reached = 0.0;
  std::size_t sorted = 0;
  for (std::size_t chunk = 64; sorted < tokens.size(); chunk *= 4) {
    const std::size_t end = std::min(tokens.size(), sorted + chunk);
    const auto begin_at = tokens.begin() + static_cast<std::ptrdiff_t>(sorted);
    const auto end_at = tokens.begin() + static_cast<std::ptrdiff_t>(end);
    if (end < tokens.size()) std::nth_element(begin_at, end_at, tokens.end(), before);
    std::sort(begin_at, end_at, before);
    while (sorted < end) {
      reached += tokens[sorted++].weight;
      if (reached >= wanted) {
        tokens.resize(sorted);
        return;
      }
    }
  }
}

// The smallest set of tokens whose surprise is nearest to the expected one.
void keep_typical(std::vector<Candidate>& tokens, double share) {
  const double total = weigh(tokens, 1.0);
  const LogSum all{.best = static_cast<double>(best_logit(tokens)), .log_sum = std::log(total)};
  const auto surprise = [&all](const Candidate& token) { return -all.logprob(token.logit); };
  double entropy = 0.0;
  for (const Candidate& token : tokens) entropy += token.weight / total * surprise(token);
  keep_leading(tokens, share * total, [&](const Candidate& a, const Candidate& b) {
    const double from_a = std::abs(surprise(a) - entropy);
    const double from_b = std::abs(surprise(b) - entropy);
    return from_a < from_b || (from_a == from_b && a.id < b.id);
  });
}

// ---- The choice ----

// What a token is drawn from.
struct Field {
  std::vector<Candidate> tokens;  // by ascending id, with their final weights
  double total = 0.0;             // of the weights
  LogSum all;                     // of the tokens before anything was filtered out; mirostat alone asks for it
};

double begin_mu(const SampleRequest& request) noexcept {
  return request.mirostat_mu == 0.0f ? 2.0 * static_cast<double>(request.params.mirostat_tau)
                                     : static_cast<double>(request.mirostat_mu);
}

double surprise_in_bits(const Candidate& token, const LogSum& all) noexcept {
  return -all.logprob(token.logit) / std::log(2.0);
}

// `logits` after adjustment; `best` is the likeliest of them and exists.
Field make_field(std::span<const float> logits, const Candidate& best, const SampleRequest& request) {
  const SamplingParams& params = request.params;
  Field field;
  std::vector<Candidate>& tokens = field.tokens;
  if (params.mirostat) {
    field.all = log_sum_exp(logits, best.logit);
    const double mu = begin_mu(request);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const Candidate token = make_candidate(i, logits[i]);
      if (surprise_in_bits(token, field.all) <= mu) tokens.push_back(token);
    }
    if (tokens.empty()) tokens.push_back(best);
  } else {
    const std::size_t top_k = params.top_k > 0 ? static_cast<std::size_t>(params.top_k) : logits.size();
    if (top_k < logits.size()) {
      tokens = best_tokens(logits, top_k);
    } else {
      tokens.reserve(logits.size());
      for (std::size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] != -kInfinity) tokens.push_back(make_candidate(i, logits[i]));
      }
    }
    if (params.typical_p < 1.0f) keep_typical(tokens, static_cast<double>(params.typical_p));
    if (params.top_p < 1.0f) {
      const double total = weigh(tokens, 1.0);
      keep_leading(tokens, static_cast<double>(params.top_p) * total, likelier);
    }
    if (params.min_p > 0.0f) {
      const double least = static_cast<double>(best_logit(tokens)) + std::log(static_cast<double>(params.min_p));
      std::erase_if(tokens, [least](const Candidate& token) { return static_cast<double>(token.logit) < least; });
    }
  }
  if (!std::is_sorted(tokens.begin(), tokens.end(), lower_id)) std::sort(tokens.begin(), tokens.end(), lower_id);
  field.total = weigh(tokens, static_cast<double>(params.temperature));
  return field;
}

const Candidate& draw(const Field& field, double random) noexcept {
  const double target = random * field.total;
  double reached = 0.0;
  const Candidate* last = &field.tokens.front();
  for (const Candidate& token : field.tokens) {
    if (token.weight == 0.0) continue;
    last = &token;
    reached += token.weight;
    if (reached > target) break;
  }
  return *last;
}

void require(bool condition, const char* parameter, const char* range) {
  if (!condition) fail(ErrorKind::bad_input, "{} must be {}", parameter, range);
}

bool in_unit_interval(float value) noexcept { return value >= 0.0f && value <= 1.0f; }

}  // namespace

void check(const SamplingParams& params) {
  require(std::isfinite(params.temperature) && params.temperature >= 0.0f, "temperature", "a number of at least 0");
  require(params.top_k >= 0, "top_k", "0 (all tokens) or more");
  require(in_unit_interval(params.top_p), "top_p", "between 0 and 1");
  require(in_unit_interval(params.min_p), "min_p", "between 0 and 1");
  require(in_unit_interval(params.typical_p), "typical_p", "between 0 and 1");
  require(std::isfinite(params.repeat_penalty) && params.repeat_penalty > 0.0f, "repeat_penalty", "a number above 0");
  require(std::isfinite(params.presence_penalty), "presence_penalty", "a number");
  require(std::isfinite(params.frequency_penalty), "frequency_penalty", "a number");
  require(params.penalty_window >= -1, "penalty_window", "-1 (all tokens), 0 or more");
  require(std::isfinite(params.mirostat_tau) && params.mirostat_tau >= 0.0f, "mirostat_tau", "a number of at least 0");
  require(std::isfinite(params.mirostat_eta) && params.mirostat_eta >= 0.0f, "mirostat_eta", "a number of at least 0");
  for (const auto& [id, bias] : params.logit_bias) {
    require(id >= 0, "logit_bias", "given for token ids of at least 0");
    require(bias < kInfinity, "logit_bias", "a number or minus infinity for each token");  // false for NaN, too
  }
}

double uniform(std::uint64_t seed, std::uint64_t draw_number) noexcept {
  // Philox-4x32 with ten rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3").
  std::uint32_t counter[4] = {static_cast<std::uint32_t>(draw_number), static_cast<std::uint32_t>(draw_number >> 32), 0,
                              0};
  std::uint32_t key[2] = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter[0] = static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<std::uint32_t>(b);
    counter[2] = static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<std::uint32_t>(a);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  const std::uint64_t bits = (std::uint64_t{counter[0]} << 32) | counter[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

SampleResult sample_row(std::span<const float> logits, const SampleRequest& request) {
  SampleResult result;
  result.mirostat_mu = request.mirostat_mu;
  const Candidate model_best = find_best(logits);
  if (model_best.id < 0) return result;
  const LogSum all = log_sum_exp(logits, model_best.logit);
  const auto logprob = [&](TokenId id) {
    return static_cast<float>(all.logprob(logits[static_cast<std::size_t>(id)]));
  };
  for (const Candidate& token :
       best_tokens(logits, static_cast<std::size_t>(std::clamp(request.top, 0, kMaxTopTokens)))) {
    result.top.push_back({.id = token.id, .logprob = logprob(token.id)});
  }
  if (request.score >= 0) {
    if (static_cast<std::size_t>(request.score) < logits.size()) result.id = request.score;
  } else {
    std::vector<float> changed;
    const std::span<const float> adjusted = adjust(logits, request, changed);
    const Candidate best = adjusted.data() == logits.data() ? model_best : find_best(adjusted);
    if (best.id >= 0 && request.params.temperature > 0.0f) {
      const Field field = make_field(adjusted, best, request);
      const Candidate& drawn = draw(field, uniform(request.params.seed, request.draw));
      result.id = drawn.id;
      if (request.params.mirostat) {
        const double error = surprise_in_bits(drawn, field.all) - static_cast<double>(request.params.mirostat_tau);
        result.mirostat_mu =
            static_cast<float>(begin_mu(request) - static_cast<double>(request.params.mirostat_eta) * error);
      }
    } else {
      result.id = best.id;
    }
  }
  if (result.id >= 0) result.logprob = logprob(result.id);
  return result;
}

std::vector<std::pair<TokenId, double>> sampling_distribution(std::span<const float> logits,
                                                              const SampleRequest& request) {
  if (find_best(logits).id < 0) return {};
  std::vector<float> changed;
  const std::span<const float> adjusted = adjust(logits, request, changed);
  const Candidate best = find_best(adjusted);
  if (best.id < 0) return {};
  if (!(request.params.temperature > 0.0f)) return {{best.id, 1.0}};
  Field field = make_field(adjusted, best, request);
  std::sort(field.tokens.begin(), field.tokens.end(), likelier);
  std::vector<std::pair<TokenId, double>> distribution;
  distribution.reserve(field.tokens.size());
  for (const Candidate& token : field.tokens) distribution.emplace_back(token.id, token.weight / field.total);
  return distribution;
}

}  // namespace quarrel

#include "backend/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>

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

// ---- Scalar kernels ----

bool scalar_largest(const float* logits, std::size_t count, float* best) {
  *best = -kInfinity;
  bool numbers = true;
  for (std::size_t i = 0; i < count; ++i) {
    numbers &= logits[i] < kInfinity;
    if (logits[i] > *best) *best = logits[i];
  }
  return numbers;
}

// The next smaller number that is no denormal: vectors may take those for zero.
float just_below(float value) noexcept {
  constexpr float kLeast = std::numeric_limits<float>::min();
  const float next = std::nextafter(value, -kInfinity);
  if (value > 0.0f) return next < kLeast ? 0.0f : next;
  return next > -kLeast ? -kLeast : next;
}

std::size_t scalar_next_above(const float* logits, std::size_t first, std::size_t count, float limit) {
  while (first < count && !(logits[first] > limit)) ++first;
  return first;
}

double scalar_sum_exponentials(const float* logits, std::size_t count, double best, double scale) {
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double below = (static_cast<double>(logits[i]) - best) * scale;
    if (below > kNegligible) sum += std::exp(below);
  }
  return sum;
}

// ---- Looking through all tokens ----

constexpr std::size_t kPiece = 4096;  // tokens: whoever computes the pieces, and when, they are always the same

// Logits with what looks through them.
struct Vocabulary {
  std::span<const float> logits;
  const SamplingKernels& kernels;
  const ForEach& for_each;

  std::size_t size() const noexcept { return logits.size(); }
  std::size_t pieces() const noexcept { return (logits.size() + kPiece - 1) / kPiece; }
  std::span<const float> piece(std::size_t index) const noexcept {
    return logits.subspan(index * kPiece, std::min(kPiece, logits.size() - index * kPiece));
  }
  std::size_t next_above(std::size_t first, float limit) const {
    return kernels.next_above(logits.data(), first, logits.size(), limit);
  }
};

// The most likely token; id -1 when nothing has a probability, or when one of the logits is NaN or +infinity.
Candidate find_best(const Vocabulary& all) {
  float best = -kInfinity;
  if (!all.kernels.largest(all.logits.data(), all.size(), &best) || best == -kInfinity) {
    return {.id = -1, .logit = -kInfinity, .weight = 0.0};
  }
  const std::size_t place = all.next_above(0, just_below(best));
  return make_candidate(place, all.logits[place]);
}

// Σ e^((logit - best) * scale) of each piece.
std::vector<double> sum_pieces(const Vocabulary& all, float best, double scale) {
  constexpr std::size_t kWorthSharing = 24;  // less is done before a thread that sleeps has woken up
  std::vector<double> sums(all.pieces());
  const auto sum_piece = [&](std::size_t i) {
    const std::span<const float> piece = all.piece(i);
    sums[i] = all.kernels.sum_exponentials(piece.data(), piece.size(), static_cast<double>(best), scale);
  };
  if (all.for_each && sums.size() >= kWorthSharing) {
    all.for_each(sums.size(), sum_piece);
  } else {
    for (std::size_t i = 0; i < sums.size(); ++i) sum_piece(i);
  }
  return sums;
}

double sum_exponentials(const Vocabulary& all, float best) {
  const std::vector<double> sums = sum_pieces(all, best, 1.0);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Turns logits into log-probabilities. The best logit stays apart from the sum, which it could swallow otherwise.
struct LogSum {
  double best = 0.0;
  double log_sum = 0.0;  // log Σ exp(logit - best)
  double logprob(float logit) const noexcept { return (static_cast<double>(logit) - best) - log_sum; }
};

// All tokens that have a probability and a logit of at least `least`, by ascending id; a few below it may be among
// them.
std::vector<Candidate> tokens_from(const Vocabulary& all, double least) {
  float limit = -kInfinity;
  if (least > static_cast<double>(std::numeric_limits<float>::lowest())) {
    limit = just_below(static_cast<float>(least));
  }
  std::vector<Candidate> tokens;
  if (limit == -kInfinity) {
    tokens.reserve(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all.logits[i] != -kInfinity) tokens.push_back(make_candidate(i, all.logits[i]));
    }
    return tokens;
  }
  for (std::size_t i = all.next_above(0, limit); i < all.size(); i = all.next_above(i + 1, limit)) {
    tokens.push_back(make_candidate(i, all.logits[i]));
  }
  return tokens;
}

// ---- Bias, mask, penalties ----

void apply_mask(std::span<const std::uint64_t> mask, std::span<float> logits) noexcept {
  for (std::size_t word = 0; word * 64 < logits.size(); ++word) {
    const std::uint64_t bits = word < mask.size() ? mask[word] : 0;
    if (bits == ~std::uint64_t{0}) continue;
    const std::span<float> part = logits.subspan(word * 64, std::min<std::size_t>(64, logits.size() - word * 64));
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (((bits >> i) & 1u) == 0) part[i] = -kInfinity;
    }
  }
}

// A changed logit must not become an infinity that would crowd out everything else.
float as_logit(double value) noexcept {
  return static_cast<float>(std::min(value, static_cast<double>(std::numeric_limits<float>::max())));
}

bool changes_logits(const SampleRequest& request) noexcept {
  const SamplingParams& params = request.params;
  return !params.logit_bias.empty() || !request.mask.empty() || (has_penalties(params) && !request.seen.empty());
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
  if (!request.mask.empty()) apply_mask(request.mask, changed);
  const auto repeat = static_cast<double>(request.params.repeat_penalty);
  const auto presence = static_cast<double>(request.params.presence_penalty);
  const auto frequency = static_cast<double>(request.params.frequency_penalty);
  const bool recent = request.params.penalty_scope == PenaltyScope::recent;
  for (const TokenCount& seen : request.seen) {
    if (!known(seen.id)) continue;
    float& logit = changed[static_cast<std::size_t>(seen.id)];
    if (logit == -kInfinity) continue;
    auto value = static_cast<double>(logit);
    if (seen.recent > 0) value = value > 0.0 ? value / repeat : value * repeat;
    const std::int32_t count = recent ? seen.recent : seen.answered;
    if (count > 0) value = value - presence - frequency * static_cast<double>(count);
    logit = as_logit(value);
  }
  return changed;
}

// ---- Filters: each leaves at least one candidate ----

// A logit that at least `count` tokens reach, not much below what the least likely of them has.
double logit_of_rank(const Vocabulary& all, float best, std::size_t count) {
  constexpr std::size_t kSteps = 1024;
  constexpr double kStepsPerUnit = 32.0;
  std::array<std::size_t, kSteps> found{};  // how many tokens are that many steps below the best
  for (const float logit : all.logits) {
    const double below = (static_cast<double>(best) - static_cast<double>(logit)) * kStepsPerUnit;
    if (below < static_cast<double>(kSteps)) ++found[static_cast<std::size_t>(below)];
  }
  std::size_t reached = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    reached += found[step];
    if (reached >= count) return static_cast<double>(best) - static_cast<double>(step + 1) / kStepsPerUnit;
  }
  return -std::numeric_limits<double>::infinity();
}

// The `count` likeliest tokens, in no order.
std::vector<Candidate> best_tokens(const Vocabulary& all, float best_logit, std::size_t count) {
  constexpr std::size_t kHeapLimit = 128;  // beyond it the heap's turnover costs more than a partition of the likeliest
  if (count == 0) return {};
  if (count > kHeapLimit) {
    std::vector<Candidate> best = tokens_from(all, logit_of_rank(all, best_logit, count));
    if (count < best.size()) {
      std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(count), best.end(), likelier);
      best.resize(count);
    }
    return best;
  }
  std::vector<Candidate> best;
  best.reserve(count);
  float limit = -kInfinity;  // what a token must be above to be among them
  for (std::size_t i = all.next_above(0, limit); i < all.size(); i = all.next_above(i + 1, limit)) {
    if (best.size() == count) {
      std::pop_heap(best.begin(), best.end(), likelier);
      best.pop_back();
    }
    best.push_back(make_candidate(i, all.logits[i]));
    std::push_heap(best.begin(), best.end(), likelier);  // the least likely is in front
    if (best.size() == count) limit = best.front().logit;
  }
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

// A distance within which tokens of `wanted` weight lie, not much beyond what is needed.
template <typename Distance>
double distance_reaching(const std::vector<Candidate>& tokens, double wanted, const Distance& distance) {
  constexpr std::size_t kSteps = 1024;
  constexpr double kStepsPerUnit = 32.0;
  std::array<double, kSteps> weights{};
  for (const Candidate& token : tokens) {
    const double steps = distance(token) * kStepsPerUnit;
    if (steps < static_cast<double>(kSteps)) weights[static_cast<std::size_t>(steps)] += token.weight;
  }
  double reached = 0.0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    reached += weights[step];
    if (reached > wanted * (1.0 + 1e-9)) return static_cast<double>(step + 1) / kStepsPerUnit;  // whatever the rounding
  }
  return std::numeric_limits<double>::infinity();
}

// The smallest set of tokens whose surprise is nearest to the expected one.
void keep_typical(std::vector<Candidate>& tokens, double share) {
  const double total = weigh(tokens, 1.0);
  const LogSum all{.best = static_cast<double>(best_logit(tokens)), .log_sum = std::log(total)};
  const auto surprise = [&all](const Candidate& token) { return -all.logprob(token.logit); };
  double entropy = 0.0;
  for (const Candidate& token : tokens) entropy += token.weight / total * surprise(token);
  const auto distance = [&](const Candidate& token) { return std::abs(surprise(token) - entropy); };
  const double most = distance_reaching(tokens, share * total, distance);
  std::erase_if(tokens, [&](const Candidate& token) { return distance(token) > most; });
  keep_leading(tokens, share * total, [&](const Candidate& a, const Candidate& b) {
    const double from_a = distance(a);
    const double from_b = distance(b);
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

// The tokens that mirostat leaves: those whose surprise is at most mu.
void fill_by_surprise(Field& field, const Vocabulary& all, const Candidate& best, double sum, double mu) {
  field.all = {.best = static_cast<double>(best.logit), .log_sum = std::log(sum)};
  // A little is allowed for the rounding of this limit; the rule itself is applied to what comes near it.
  const double least = field.all.best + field.all.log_sum - mu * std::log(2.0);
  field.tokens = tokens_from(all, least - 1e-6 * (1.0 + std::abs(least)));
  std::erase_if(field.tokens, [&](const Candidate& token) { return !(surprise_in_bits(token, field.all) <= mu); });
  if (field.tokens.empty()) field.tokens.push_back(best);
}

// The tokens that the filters leave. `sum` gives that of all tokens' e^(logit - best).
template <typename Sum>
void fill_by_filters(Field& field, const Vocabulary& all, const Candidate& best, const SamplingParams& params,
                     const Sum& sum) {
  std::vector<Candidate>& tokens = field.tokens;
  const std::size_t top_k = params.top_k > 0 ? static_cast<std::size_t>(params.top_k) : all.size();
  const auto top_p = static_cast<double>(params.top_p);
  const auto min_p = static_cast<double>(params.min_p);
  const auto logit_of = [&](double share) { return static_cast<double>(best.logit) + std::log(share); };
  double total = 0.0;  // what top-p takes its share of
  if (top_k < all.size() || params.typical_p < 1.0f) {
    tokens = top_k < all.size() ? best_tokens(all, best.logit, top_k) : tokens_from(all, logit_of(0.0));
    if (params.typical_p < 1.0f) keep_typical(tokens, static_cast<double>(params.typical_p));
    if (params.top_p < 1.0f) total = weigh(tokens, 1.0);
  } else if (params.top_p < 1.0f) {
    // Tokens that, had all of them this probability, would not make up the missing share need not be looked at.
    total = sum();
    tokens = tokens_from(all, logit_of(0.99 * (1.0 - top_p) * total / static_cast<double>(all.size())));
    weigh(tokens, 1.0);
  } else {
    tokens = tokens_from(all, logit_of(min_p));
  }
  if (params.top_p < 1.0f) keep_leading(tokens, top_p * total, likelier);
  if (params.min_p > 0.0f) {
    const double least = static_cast<double>(best_logit(tokens)) + std::log(min_p);
    std::erase_if(tokens, [least](const Candidate& token) { return static_cast<double>(token.logit) < least; });
  }
}

// `all` after adjustment; `best` is the likeliest of them and exists. The sum of their e^(logit - best) may be known.
Field make_field(const Vocabulary& all, const Candidate& best, const SampleRequest& request,
                 std::optional<double> known_sum) {
  const auto sum = [&] { return known_sum.has_value() ? *known_sum : sum_exponentials(all, best.logit); };
  Field field;
  std::vector<Candidate>& tokens = field.tokens;
  if (request.params.mirostat) {
    fill_by_surprise(field, all, best, sum(), begin_mu(request));
  } else {
    fill_by_filters(field, all, best, request.params, sum);
  }
  if (!std::is_sorted(tokens.begin(), tokens.end(), lower_id)) std::sort(tokens.begin(), tokens.end(), lower_id);
  field.total = weigh(tokens, static_cast<double>(request.params.temperature));
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

bool keeps_all(const SamplingParams& params, std::size_t vocabulary) noexcept {
  return !params.mirostat && (params.top_k == 0 || static_cast<std::size_t>(params.top_k) >= vocabulary) &&
         params.typical_p >= 1.0f && params.top_p >= 1.0f && params.min_p <= 0.0f;
}

// The same from all tokens, without a list of them: the piece is found by its sum, then the token within.
TokenId draw_from_all(const Vocabulary& all, const Candidate& best, double temperature, double random) {
  const std::vector<double> sums = sum_pieces(all, best.logit, 1.0 / temperature);
  const double target = random * std::accumulate(sums.begin(), sums.end(), 0.0);
  double reached = 0.0;
  std::size_t begin = 0;
  for (const double sum : sums) {
    if (reached + sum > target) break;
    reached += sum;
    begin += kPiece;
  }
  // Rounding may leave the target just beyond the last token of its piece, or of all.
  TokenId last = best.id;
  for (std::size_t i = begin; i < all.size(); ++i) {
    const double below = static_cast<double>(all.logits[i]) - static_cast<double>(best.logit);
    const double weight = std::exp(below / temperature);
    if (weight == 0.0) continue;
    last = static_cast<TokenId>(i);
    reached += weight;
    if (reached > target) break;
  }
  return last;
}

bool in_unit_interval(float value) noexcept { return value >= 0.0f && value <= 1.0f; }

}  // namespace

std::optional<SamplingFault> find_fault(const SamplingParams& params) {
  const auto below_zero = [](float value) { return !std::isfinite(value) || value < 0.0f; };
  if (below_zero(params.temperature)) return SamplingFault{"temperature", "a number of at least 0"};
  if (params.top_k < 0) return SamplingFault{"top_k", "0 (all tokens) or more"};
  if (!in_unit_interval(params.top_p)) return SamplingFault{"top_p", "between 0 and 1"};
  if (!in_unit_interval(params.min_p)) return SamplingFault{"min_p", "between 0 and 1"};
  if (!in_unit_interval(params.typical_p)) return SamplingFault{"typical_p", "between 0 and 1"};
  if (below_zero(params.repeat_penalty) || params.repeat_penalty == 0.0f) {
    return SamplingFault{"repeat_penalty", "a number above 0"};
  }
  if (!std::isfinite(params.presence_penalty)) return SamplingFault{"presence_penalty", "a number"};
  if (!std::isfinite(params.frequency_penalty)) return SamplingFault{"frequency_penalty", "a number"};
  if (params.penalty_window < -1) return SamplingFault{"penalty_window", "-1 (all tokens), 0 or more"};
  if (below_zero(params.mirostat_tau)) return SamplingFault{"mirostat_tau", "a number of at least 0"};
  if (below_zero(params.mirostat_eta)) return SamplingFault{"mirostat_eta", "a number of at least 0"};
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0) return SamplingFault{"logit_bias", "given for token ids of at least 0"};
    if (std::isnan(bias) || bias == kInfinity) {
      return SamplingFault{"logit_bias", "a number or minus infinity for each token"};
    }
  }
  return std::nullopt;
}

void check(const SamplingParams& params) {
  if (const auto fault = find_fault(params)) {
    fail(ErrorKind::bad_input, "{} must be {}", fault->parameter, fault->range);
  }
}

bool has_penalties(const SamplingParams& params) noexcept {
  return params.repeat_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
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

const SamplingKernels& scalar_sampling_kernels() noexcept {
  static constexpr SamplingKernels kScalar{
      .largest = scalar_largest, .next_above = scalar_next_above, .sum_exponentials = scalar_sum_exponentials};
  return kScalar;
}

SampleResult sample_row(std::span<const float> logits, const SampleRequest& request, const SamplingKernels& kernels,
                        const ForEach& for_each) {
  SampleResult result;
  result.mirostat_mu = request.mirostat_mu;
  const Vocabulary model{.logits = logits, .kernels = kernels, .for_each = for_each};
  const Candidate model_best = find_best(model);
  result.outcome = SampleOutcome::bad_logits;
  if (model_best.id < 0) return result;
  const double sum = sum_exponentials(model, model_best.logit);
  const LogSum all{.best = static_cast<double>(model_best.logit), .log_sum = std::log(sum)};
  const auto logprob = [&](float logit) { return static_cast<float>(all.logprob(logit)); };
  const auto wanted = static_cast<std::size_t>(std::clamp(request.top, 0, kMaxTopTokens));
  std::vector<Candidate> top = best_tokens(model, model_best.logit, wanted);
  std::sort(top.begin(), top.end(), likelier);
  result.top.reserve(top.size());
  for (const Candidate& token : top) result.top.push_back({.id = token.id, .logprob = logprob(token.logit)});
  if (request.score >= 0) {
    if (static_cast<std::size_t>(request.score) < logits.size()) result.id = request.score;
  } else {
    std::vector<float> changed;
    const Vocabulary adjusted{.logits = adjust(logits, request, changed), .kernels = kernels, .for_each = for_each};
    const bool same = adjusted.logits.data() == logits.data();
    const Candidate best = same ? model_best : find_best(adjusted);
    const SamplingParams& params = request.params;
    const double random = uniform(params.seed, request.draw);
    if (best.id < 0 || !(params.temperature > 0.0f)) {
      result.id = best.id;
    } else if (keeps_all(params, logits.size())) {
      result.id = draw_from_all(adjusted, best, static_cast<double>(params.temperature), random);
    } else {
      const Field field = make_field(adjusted, best, request, same ? std::optional(sum) : std::nullopt);
      const Candidate& drawn = draw(field, random);
      result.id = drawn.id;
      if (params.mirostat) {
        const double error = surprise_in_bits(drawn, field.all) - static_cast<double>(params.mirostat_tau);
        result.mirostat_mu = static_cast<float>(begin_mu(request) - static_cast<double>(params.mirostat_eta) * error);
      }
    }
  }
  result.outcome = result.id < 0 ? SampleOutcome::no_token : SampleOutcome::token;
  if (result.id >= 0) result.logprob = logprob(logits[static_cast<std::size_t>(result.id)]);
  return result;
}

std::vector<std::pair<TokenId, double>> sampling_distribution(std::span<const float> logits,
                                                              const SampleRequest& request,
                                                              const SamplingKernels& kernels) {
  const ForEach alone;
  if (find_best({.logits = logits, .kernels = kernels, .for_each = alone}).id < 0) return {};
  std::vector<float> changed;
  const Vocabulary adjusted{.logits = adjust(logits, request, changed), .kernels = kernels, .for_each = alone};
  const Candidate best = find_best(adjusted);
  if (best.id < 0) return {};
  if (!(request.params.temperature > 0.0f)) return {{best.id, 1.0}};
  Field field = make_field(adjusted, best, request, std::nullopt);
  std::sort(field.tokens.begin(), field.tokens.end(), likelier);
  std::vector<std::pair<TokenId, double>> distribution;
  distribution.reserve(field.tokens.size());
  for (const Candidate& token : field.tokens) distribution.emplace_back(token.id, token.weight / field.total);
  return distribution;
}

}  // namespace quarrel

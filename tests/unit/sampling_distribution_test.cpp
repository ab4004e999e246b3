// Every sampler's distribution: the one `sample_row` says it has, and the one its draws show, against the definitions
// written out below in the plainest way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/sampling.h"
#include "unit/sampling_statistics.h"

namespace quarrel {
namespace {

using test::kDraws;
using test::kSignificance;
using test::p_value;

const std::vector<float> kLogits = {1.5f, -0.25f, 2.0f, 0.5f, 2.75f, -3.0f, 0.75f, 1.0f, -1.5f, 0.0f};

using Probabilities = std::vector<double>;  // by token; 0 for one that was filtered out

Probabilities normalised(Probabilities p) {
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

Probabilities softmax(const std::vector<float>& logits, double temperature = 1.0) {
  Probabilities p;
  for (const float logit : logits) p.push_back(std::exp(static_cast<double>(logit) / temperature));
  return normalised(p);
}

std::vector<std::size_t> order_by(const std::vector<double>& keys) {
  std::vector<std::size_t> order(keys.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  return order;
}

Probabilities keep_first(const Probabilities& p, const std::vector<std::size_t>& order, std::size_t count,
                         double share) {
  Probabilities kept(p.size(), 0.0);
  double reached = 0.0;
  for (std::size_t i = 0; i < count && reached < share; ++i) {
    kept[order[i]] = p[order[i]];
    reached += p[order[i]];
  }
  return normalised(kept);
}

Probabilities negated(Probabilities p) {
  for (double& value : p) value = -value;
  return p;
}

Probabilities top_k(const Probabilities& p, std::size_t k) { return keep_first(p, order_by(negated(p)), k, 2.0); }

Probabilities top_p(const Probabilities& p, double share) {
  return keep_first(p, order_by(negated(p)), p.size(), share);
}

Probabilities min_p(Probabilities p, double share) {
  const double least = share * *std::max_element(p.begin(), p.end());
  for (double& value : p) value = value < least ? 0.0 : value;
  return normalised(p);
}

Probabilities typical(const Probabilities& p, double share) {
  double entropy = 0.0;
  for (const double value : p) entropy -= value > 0.0 ? value * std::log(value) : 0.0;
  std::vector<double> distance;
  for (const double value : p) distance.push_back(value > 0.0 ? std::abs(-std::log(value) - entropy) : 1e300);
  return keep_first(p, order_by(distance), p.size(), share);
}

// p^(1/T) of what is left.
Probabilities tempered(Probabilities p, double temperature) {
  for (double& value : p) value = value == 0.0 ? 0.0 : std::pow(value, 1.0 / temperature);
  return normalised(p);
}

std::vector<std::int64_t> draw_counts(const std::vector<float>& logits, SampleRequest request) {
  std::vector<std::int64_t> counts(logits.size(), 0);
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
    request.draw = draw;
    const SampleResult result = sample_row(logits, request);
    if (result.id >= 0) ++counts[static_cast<std::size_t>(result.id)];
  }
  return counts;
}

// The draws fit `expected` and refuse `wrong`; the distribution that is reported is `expected` to the last digits.
void expect_distribution(const SampleRequest& request, const Probabilities& expected, const Probabilities& wrong,
                         const std::vector<float>& logits = kLogits) {
  const auto reported = sampling_distribution(logits, request);
  double total = 0.0;
  for (std::size_t i = 0; i < reported.size(); ++i) {
    const auto& [id, probability] = reported[i];
    EXPECT_NEAR(probability, expected[static_cast<std::size_t>(id)], 1e-12) << "token " << id;
    if (i > 0) {
      EXPECT_GE(reported[i - 1].second, probability);
    }
    total += probability;
  }
  EXPECT_NEAR(total, 1.0, 1e-12);
  const std::vector<std::int64_t> counts = draw_counts(logits, request);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), kDraws);
  EXPECT_GT(p_value(counts, expected), kSignificance);
  EXPECT_LT(p_value(counts, wrong), kSignificance);
}

SampleRequest request_with(float temperature, std::uint64_t seed) {
  SampleRequest request;
  request.params.temperature = temperature;
  request.params.seed = seed;
  return request;
}

TEST(SamplingDistribution, Temperature) {
  expect_distribution(request_with(1.0f, 1), softmax(kLogits), softmax(kLogits, 1.1));
  expect_distribution(request_with(0.5f, 2), softmax(kLogits, 0.5), softmax(kLogits));
  expect_distribution(request_with(2.0f, 3), softmax(kLogits, 2.0), softmax(kLogits, 2.2));
}

TEST(SamplingDistribution, TopK) {
  SampleRequest request = request_with(1.0f, 4);
  request.params.top_k = 4;
  expect_distribution(request, top_k(softmax(kLogits), 4), top_k(softmax(kLogits), 5));
}

TEST(SamplingDistribution, TopP) {
  SampleRequest request = request_with(1.0f, 5);
  request.params.top_p = 0.8f;
  const Probabilities expected = top_p(softmax(kLogits), 0.8);
  ASSERT_EQ(std::count_if(expected.begin(), expected.end(), [](double p) { return p > 0.0; }), 4);
  expect_distribution(request, expected, top_p(softmax(kLogits), 0.9));
}

TEST(SamplingDistribution, MinP) {
  SampleRequest request = request_with(1.0f, 6);
  request.params.min_p = 0.15f;
  expect_distribution(request, min_p(softmax(kLogits), 0.15), min_p(softmax(kLogits), 0.1));
}

TEST(SamplingDistribution, TypicalLeavesOutTheMostLikely) {
  SampleRequest request = request_with(1.0f, 7);
  request.params.typical_p = 0.25f;
  const Probabilities expected = typical(softmax(kLogits), 0.25);
  ASSERT_EQ(expected[4], 0.0)
      << "the best token is less surprising than the mean: the case distinguishes it from top-p";
  expect_distribution(request, expected, top_p(softmax(kLogits), 0.25));
}

TEST(SamplingDistribution, FiltersInTheirOrderOnTheUntemperedDistribution) {
  SampleRequest request = request_with(1.75f, 8);
  request.params.top_k = 8;
  request.params.typical_p = 0.95f;
  request.params.top_p = 0.9f;
  request.params.min_p = 0.1f;
  const Probabilities filtered = min_p(top_p(typical(top_k(softmax(kLogits), 8), 0.95), 0.9), 0.1);
  // Filtering after the temperature would let more tokens through.
  const Probabilities wrong = min_p(top_p(typical(top_k(softmax(kLogits, 1.75), 8), 0.95), 0.9), 0.1);
  expect_distribution(request, tempered(filtered, 1.75), wrong);
}

TEST(SamplingDistribution, LaterFiltersSeeWhatEarlierOnesLeft) {
  // Of the best four, renormalised, top-p 0.8 keeps fewer than of all tokens.
  SampleRequest request = request_with(1.0f, 9);
  request.params.top_k = 4;
  request.params.top_p = 0.8f;
  expect_distribution(request, top_p(top_k(softmax(kLogits), 4), 0.8), top_k(top_p(softmax(kLogits), 0.8), 4));
}

TEST(SamplingDistribution, BiasMaskAndPenaltiesChangeWhatIsDrawnFrom) {
  SampleRequest request = request_with(1.0f, 10);
  request.params.logit_bias = {{5, 4.0f}, {9, 1.0f}};
  request.params.repeat_penalty = 1.5f;
  request.params.presence_penalty = 0.25f;
  request.params.frequency_penalty = 0.125f;
  const std::vector<TokenCount> seen = {{.id = 2, .recent = 1, .answered = 1},
                                        {.id = 1, .recent = 1, .answered = 3},
                                        {.id = 9, .recent = 2, .answered = 2}};
  request.seen = seen;
  const std::vector<std::uint64_t> mask = {0b1111101111};  // all but token 4
  request.mask = mask;
  std::vector<float> changed = kLogits;
  changed[5] = -3.0f + 4.0f;
  changed[2] = 2.0f / 1.5f - 0.25f - 0.125f;
  changed[1] = -0.25f * 1.5f - 0.25f - 3 * 0.125f;
  changed[9] = 1.0f / 1.5f - 0.25f - 2 * 0.125f;  // the penalty comes after the bias
  Probabilities expected = softmax(changed);
  expected[4] = 0.0;
  expected = normalised(expected);
  std::vector<float> unpenalised = kLogits;
  unpenalised[4] = -50.0f;
  const auto reported = sampling_distribution(kLogits, request);
  ASSERT_EQ(reported.size(), 9u);
  for (const auto& [id, probability] : reported) {
    EXPECT_NEAR(probability, expected[static_cast<std::size_t>(id)], 1e-7);
  }
  const std::vector<std::int64_t> counts = draw_counts(kLogits, request);
  EXPECT_EQ(counts[4], 0);
  EXPECT_GT(p_value(counts, expected), kSignificance);
  EXPECT_LT(p_value(counts, softmax(unpenalised)), kSignificance);
}

TEST(SamplingDistribution, MirostatCutsAtItsSurpriseThenTempers) {
  SampleRequest request = request_with(1.25f, 11);
  request.params.mirostat = true;
  request.params.top_k = 1;  // replaced by mirostat, like the other filters
  request.mirostat_mu = 3.5f;
  Probabilities expected = softmax(kLogits);
  for (double& p : expected) p = -std::log2(p) > 3.5 ? 0.0 : p;
  Probabilities longer = softmax(kLogits);
  for (double& p : longer) p = -std::log2(p) > 4.0 ? 0.0 : p;
  ASSERT_NE(expected, longer);
  expect_distribution(request, tempered(normalised(expected), 1.25), tempered(normalised(longer), 1.25));
}

TEST(SamplingDistribution, LargeVocabulariesMatchTheDefinitionToo) {
  // Long enough for every path of partial sorting.
  std::vector<float> logits(6000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(uniform(99, i) * 3.0);
  const auto expect_same = [&](const SamplingParams& params, const Probabilities& expected) {
    SampleRequest request;
    request.params = params;
    request.params.temperature = 1.0f;
    const auto reported = sampling_distribution(logits, request);
    const auto positive = std::count_if(expected.begin(), expected.end(), [](double p) { return p > 0.0; });
    ASSERT_EQ(static_cast<std::ptrdiff_t>(reported.size()), positive);
    for (const auto& [id, probability] : reported) {
      ASSERT_NEAR(probability, expected[static_cast<std::size_t>(id)], 1e-13);
    }
  };
  const Probabilities all = softmax(logits);
  expect_same({}, all);
  expect_same({.top_k = 40}, top_k(all, 40));
  expect_same({.top_k = 700}, top_k(all, 700));
  expect_same({.top_k = 6000}, all);
  expect_same({.top_p = 0.5f}, top_p(all, 0.5));
  expect_same({.top_p = 0.96875f}, top_p(all, 0.96875));
  expect_same({.min_p = 0.5f}, min_p(all, 0.5));
  expect_same({.typical_p = 0.25f}, typical(all, 0.25));
  expect_same({.top_k = 3000, .top_p = 0.75f, .min_p = 0.25f, .typical_p = 0.5f},
              min_p(top_p(typical(top_k(all, 3000), 0.5), 0.75), 0.25));
}

}  // namespace
}  // namespace quarrel

// What sampling promises apart from its distributions: determinism, ties, masks, log-probabilities, bad numbers,
// checks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/sampling.h"
#include "base/error.h"

namespace quarrel {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double exact_logprob(const std::vector<float>& logits, std::size_t id) {
  double best = -1e300;
  for (const float logit : logits) best = std::max(best, static_cast<double>(logit));
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return static_cast<double>(logits[id]) - best - std::log(sum);
}

TEST(Sampling, GreedyTakesTheLowestIdOfTheBest) {
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 2.0f, 2.0f};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SampleRequest request;
    request.params.seed = seed;
    request.draw = seed;
    const SampleResult result = sample_row(logits, request);
    EXPECT_EQ(result.id, 1);
    EXPECT_FLOAT_EQ(result.logprob, static_cast<float>(exact_logprob(logits, 1)));
    EXPECT_TRUE(result.top.empty());
  }
  EXPECT_EQ(sampling_distribution(logits, {}), (std::vector<std::pair<TokenId, double>>{{1, 1.0}}));
}

TEST(Sampling, FiltersBreakTiesTowardsTheLowerId) {
  const std::vector<float> logits(600, 1.0f);
  for (const std::int32_t count : {1, 3, 40, 550}) {
    SampleRequest request;
    request.params.temperature = 1.0f;
    request.params.top_k = count;
    const auto distribution = sampling_distribution(logits, request);
    ASSERT_EQ(distribution.size(), static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) EXPECT_EQ(distribution[static_cast<std::size_t>(i)].first, i);
  }
  SampleRequest request;
  request.params.temperature = 1.0f;
  request.params.top_p = 0.25f;
  const auto distribution = sampling_distribution(logits, request);
  EXPECT_NEAR(static_cast<double>(distribution.size()), 150.0,
              1.0);  // one more or less where 1/4 is reached by rounding
  for (std::size_t i = 0; i < distribution.size(); ++i) EXPECT_EQ(distribution[i].first, static_cast<TokenId>(i));
}

TEST(Sampling, SameSeedAndDrawGiveTheSameToken) {
  const std::vector<float> logits(100, 0.0f);
  SampleRequest request;
  request.params.temperature = 1.0f;
  request.params.seed = 42;
  int changed = 0;
  TokenId before = -1;
  for (std::uint64_t draw = 0; draw < 50; ++draw) {
    request.draw = draw;
    const TokenId id = sample_row(logits, request).id;
    EXPECT_EQ(id, sample_row(logits, request).id);
    EXPECT_EQ(id, static_cast<TokenId>(uniform(42, draw) * 100.0)) << "equal tokens are counted through by id";
    changed += static_cast<int>(id != before);
    before = id;
  }
  EXPECT_GT(changed, 40);
}

TEST(Sampling, MaskAllowsOnlyItsTokens) {
  std::vector<float> logits(130, 0.0f);
  logits[3] = 50.0f;
  std::vector<std::uint64_t> mask(3, 0);
  mask[1] = std::uint64_t{1} << 5;  // token 69
  mask[2] = 0b10;                   // token 129
  SampleRequest request;
  request.mask = mask;
  EXPECT_EQ(sample_row(logits, request).id, 69) << "greedy";
  request.params.temperature = 1.0f;
  for (std::uint64_t draw = 0; draw < 200; ++draw) {
    request.draw = draw;
    const TokenId id = sample_row(logits, request).id;
    EXPECT_TRUE(id == 69 || id == 129) << id;
  }
  EXPECT_EQ(sampling_distribution(logits, request).size(), 2u);
  // The log-probability is the model's: next to nothing beside token 3.
  EXPECT_NEAR(sample_row(logits, request).logprob, -50.0f, 1e-4f);
}

TEST(Sampling, EmptyOrShortMaskAllowsNothing) {
  const std::vector<float> logits(130, 1.0f);
  for (const float temperature : {0.0f, 1.0f}) {
    SampleRequest request;
    request.params.temperature = temperature;
    request.top = 2;
    const std::vector<std::uint64_t> nothing(3, 0);
    request.mask = nothing;
    const SampleResult result = sample_row(logits, request);
    EXPECT_EQ(result.id, -1);
    EXPECT_EQ(result.top.size(), 2u) << "what the model finds likely is still known";
    EXPECT_TRUE(sampling_distribution(logits, request).empty());
    const std::vector<std::uint64_t> one_word = {std::uint64_t{1} << 63};
    request.mask = one_word;
    EXPECT_EQ(sample_row(logits, request).id, 63) << "tokens beyond the mask may not come";
  }
}

TEST(Sampling, PenaltiesByTheirFormula) {
  const std::vector<float> logits = {2.0f, -2.0f, 3.0f, 1.0f};
  SampleRequest request;
  request.params.temperature = 1.0f;
  request.params.repeat_penalty = 2.0f;
  request.params.presence_penalty = 0.5f;
  request.params.frequency_penalty = 0.25f;
  const std::vector<TokenCount> seen = {{.id = 0, .recent = 1, .answered = 2},
                                        {.id = 1, .recent = 3, .answered = 1},
                                        {.id = 3, .recent = 0, .answered = 0},
                                        {.id = -1, .recent = 1, .answered = 1},
                                        {.id = 4, .recent = 9, .answered = 9}};
  request.seen = seen;
  // 2/2 - 0.5 - 0.5 = 0; -2*2 - 0.5 - 0.25 = -4.75; the others stay.
  const std::vector<float> changed = {0.0f, -4.75f, 3.0f, 1.0f};
  for (const auto& [id, probability] : sampling_distribution(logits, request)) {
    EXPECT_NEAR(std::log(probability), exact_logprob(changed, static_cast<std::size_t>(id)), 1e-12);
  }
  // Greedy heeds them, too, and the log-probability is of the logits as they came.
  request.params.temperature = 0.0f;
  request.params.presence_penalty = 10.0f;
  const std::vector<TokenCount> best = {{.id = 2, .answered = 1}};
  request.seen = best;
  const SampleResult result = sample_row(logits, request);
  EXPECT_EQ(result.id, 0);
  EXPECT_FLOAT_EQ(result.logprob, static_cast<float>(exact_logprob(logits, 0)));
}

// OpenAI's presence and frequency look at the answer, llama.cpp's at the same last tokens as the repeat penalty.
TEST(Sampling, EachPenaltyLooksAtItsOwnCounts) {
  const std::vector<float> logits = {2.0f, 2.0f, 2.0f, 2.0f};
  const std::vector<TokenCount> seen = {{.id = 0, .recent = 2, .answered = 0},   // in the prompt
                                        {.id = 1, .recent = 0, .answered = 3},   // in the answer, long ago
                                        {.id = 2, .recent = 1, .answered = 4}};  // both
  SampleRequest request;
  request.params.temperature = 1.0f;
  request.params.presence_penalty = 0.5f;
  request.params.frequency_penalty = 0.25f;
  request.params.repeat_penalty = 2.0f;
  request.seen = seen;
  const auto expect = [&](PenaltyScope scope, const std::vector<float>& changed) {
    request.params.penalty_scope = scope;
    for (const auto& [id, probability] : sampling_distribution(logits, request)) {
      EXPECT_NEAR(std::log(probability), exact_logprob(changed, static_cast<std::size_t>(id)), 1e-12);
    }
  };
  expect(PenaltyScope::answer, {1.0f, 2.0f - 0.5f - 0.75f, 1.0f - 0.5f - 1.0f, 2.0f});
  expect(PenaltyScope::recent, {1.0f - 0.5f - 0.5f, 2.0f, 1.0f - 0.5f - 0.25f, 2.0f});
}

// A row that may give no token is told from one that is no good.
TEST(Sampling, NoTokenAllowedIsNotBadLogits) {
  const std::vector<float> logits = {3.0f, 2.0f};
  SampleRequest request;
  EXPECT_EQ(sample_row(logits, request).outcome, SampleOutcome::token);
  request.params.logit_bias = {{0, -kInf}, {1, -kInf}};
  EXPECT_EQ(sample_row(logits, request).outcome, SampleOutcome::no_token);
  const std::vector<std::uint64_t> mask = {0};
  request.params.logit_bias.clear();
  request.mask = mask;
  EXPECT_EQ(sample_row(logits, request).outcome, SampleOutcome::no_token);
  EXPECT_EQ(sample_row(std::vector<float>{kNan, 1.0f}, request).outcome, SampleOutcome::bad_logits);
  EXPECT_EQ(sample_row(std::vector<float>{-kInf, -kInf}, {}).outcome, SampleOutcome::bad_logits);
  EXPECT_EQ(SampleResult{}.outcome, SampleOutcome::none);
}

TEST(Sampling, BiasBeyondTheVocabularyIsIgnoredAndMinusInfinityBans) {
  const std::vector<float> logits = {3.0f, 2.0f, 1.0f};
  SampleRequest request;
  request.params.logit_bias = {{0, -kInf}, {3, 100.0f}, {1 << 30, 100.0f}};
  EXPECT_EQ(sample_row(logits, request).id, 1);
  request.params.logit_bias = {{2, 1.5f}};
  EXPECT_EQ(sample_row(logits, request).id, 0);
  request.params.logit_bias = {{2, 1.5f}, {2, 1.0f}};
  EXPECT_EQ(sample_row(logits, request).id, 2) << "biases of one token add up";
}

TEST(Sampling, TopTokensInOrder) {
  std::vector<float> logits(1000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 100);  // ten of each value
  SampleRequest request;
  request.top = 20;
  request.params.logit_bias = {{5, 1000.0f}};  // changes the choice, not what the model finds likely
  const SampleResult result = sample_row(logits, request);
  EXPECT_EQ(result.id, 5);
  ASSERT_EQ(result.top.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    const auto id = static_cast<std::size_t>(result.top[i].id);
    EXPECT_EQ(logits[id], i < 10 ? 99.0f : 98.0f);
    EXPECT_FLOAT_EQ(result.top[i].logprob, static_cast<float>(exact_logprob(logits, id)));
    if (i % 10 != 0) {
      EXPECT_LT(result.top[i - 1].id, result.top[i].id);
    }
  }
  request.top = 1000000;
  EXPECT_EQ(sample_row(logits, request).top.size(), static_cast<std::size_t>(kMaxTopTokens));
  request.top = -1;
  EXPECT_TRUE(sample_row(logits, request).top.empty());
}

TEST(Sampling, ScoreReportsThatTokenWithoutADraw) {
  const std::vector<float> logits = {0.0f, 4.0f, 1.0f, -kInf};
  SampleRequest request;
  request.params.temperature = 1.0f;
  request.score = 2;
  for (std::uint64_t draw = 0; draw < 20; ++draw) {
    request.draw = draw;
    const SampleResult result = sample_row(logits, request);
    EXPECT_EQ(result.id, 2);
    EXPECT_FLOAT_EQ(result.logprob, static_cast<float>(exact_logprob(logits, 2)));
  }
  request.score = 3;
  EXPECT_EQ(sample_row(logits, request).logprob, -kInf);
  request.score = 4;
  EXPECT_EQ(sample_row(logits, request).id, -1) << "no such token";
}

TEST(Sampling, LogitsThatAreNotNumbersGiveNoToken) {
  for (const float temperature : {0.0f, 1.0f}) {
    SampleRequest request;
    request.params.temperature = temperature;
    request.top = 3;
    for (const std::vector<float>& logits :
         {std::vector<float>{kNan, kNan}, {1.0f, kNan}, {kInf, 1.0f}, {kInf, kInf}, {-kInf, -kInf}, {}}) {
      const SampleResult result = sample_row(logits, request);
      EXPECT_EQ(result.id, -1);
      EXPECT_TRUE(result.top.empty());
      EXPECT_TRUE(sampling_distribution(logits, request).empty());
      request.score = 0;
      EXPECT_EQ(sample_row(logits, request).id, -1);
      request.score = -1;
    }
  }
}

TEST(Sampling, ExtremeLogits) {
  const std::vector<float> logits = {1e30f, -kInf, 1e30f, -1e30f, -kInf};
  for (const float temperature : {1e-30f, 1.0f, 1e30f}) {
    SampleRequest request;
    request.params.temperature = temperature;
    request.params.top_p = 0.99f;
    request.params.typical_p = 0.99f;
    request.params.min_p = 0.01f;
    int zeros = 0;
    for (std::uint64_t draw = 0; draw < 100; ++draw) {
      request.draw = draw;
      const SampleResult result = sample_row(logits, request);
      EXPECT_TRUE(result.id == 0 || result.id == 2) << result.id;
      EXPECT_FLOAT_EQ(result.logprob, std::log(0.5f));
      zeros += static_cast<int>(result.id == 0);
    }
    EXPECT_GT(zeros, 20);
    EXPECT_LT(zeros, 80);
  }
  // Penalties and biases may not make an infinity of the largest numbers.
  const std::vector<float> largest = {3e38f, 3e38f, 0.0f};
  SampleRequest request;
  request.params.logit_bias = {{0, 3e38f}};
  EXPECT_EQ(sample_row(largest, request).id, 0);
  request.params.temperature = 1.0f;
  EXPECT_EQ(sample_row(largest, request).id, 0);
}

TEST(Sampling, ProbabilityZeroIsNeverDrawn) {
  const std::vector<float> logits = {-kInf, 0.0f, -kInf};
  SampleRequest request;
  request.params.temperature = 1.0f;
  for (std::uint64_t draw = 0; draw < 1000; ++draw) {
    request.draw = draw;
    EXPECT_EQ(sample_row(logits, request).id, 1);
  }
}

TEST(Sampling, FiltersAlwaysLeaveOne) {
  const std::vector<float> logits = {0.0f, 3.0f, 2.0f};
  SamplingParams params;
  params.temperature = 1.0f;
  const auto survivors = [&](auto&& change) {
    SampleRequest request;
    request.params = params;
    change(request);
    return sampling_distribution(logits, request).size();
  };
  EXPECT_EQ(survivors([](SampleRequest& r) { r.params.top_p = 0.0f; }), 1u);
  EXPECT_EQ(survivors([](SampleRequest& r) { r.params.typical_p = 0.0f; }), 1u);
  EXPECT_EQ(survivors([](SampleRequest& r) { r.params.min_p = 1.0f; }), 1u);
  EXPECT_EQ(survivors([](SampleRequest& r) { r.params.mirostat = true, r.mirostat_mu = -5.0f; }), 1u);
}

TEST(Sampling, MirostatHoldsTheSurprise) {
  std::vector<float> logits(2000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = -1.1f * std::log(static_cast<float>(i + 1));
  for (const float tau : {3.5f, 4.5f, 6.0f}) {
    SampleRequest request;
    request.params.temperature = 1.0f;
    request.params.mirostat = true;
    request.params.mirostat_tau = tau;
    request.params.mirostat_eta = 0.1f;
    request.params.seed = 5;
    double surprise = 0.0;
    constexpr int kWarmUp = 500;
    constexpr int kCounted = 4000;
    for (int i = 0; i < kWarmUp + kCounted; ++i) {
      request.draw = static_cast<std::uint64_t>(i);
      const float mu = i == 0 ? 2.0f * tau : request.mirostat_mu;
      const SampleResult result = sample_row(logits, request);
      const double bits = -exact_logprob(logits, static_cast<std::size_t>(result.id)) / std::log(2.0);
      EXPECT_NEAR(result.mirostat_mu, static_cast<double>(mu) - 0.1 * (bits - static_cast<double>(tau)), 1e-5);
      if (i >= kWarmUp) surprise += bits;
      request.mirostat_mu = result.mirostat_mu;
    }
    EXPECT_NEAR(surprise / kCounted, static_cast<double>(tau), 0.05);
  }
}

TEST(Sampling, WithoutMirostatMuIsPassedOn) {
  SampleRequest request;
  request.mirostat_mu = 3.25f;
  EXPECT_EQ(sample_row(std::vector<float>{1.0f, 2.0f}, request).mirostat_mu, 3.25f);
}

void expect_refused(const char* name, const SamplingParams& params) {
  try {
    check(params);
    ADD_FAILURE() << name << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_TRUE(std::string(error.what()).starts_with(name)) << error.what();
  }
}

TEST(SamplingCheck, NamesTheParameter) {
  for (const float bad : {kNan, kInf, -kInf, -0.5f}) {
    expect_refused("temperature", {.temperature = bad});
    expect_refused("top_p", {.top_p = bad});
    expect_refused("min_p", {.min_p = bad});
    expect_refused("typical_p", {.typical_p = bad});
    expect_refused("repeat_penalty", {.repeat_penalty = bad});
    expect_refused("mirostat_tau", {.mirostat_tau = bad});
    expect_refused("mirostat_eta", {.mirostat_eta = bad});
  }
  for (const float bad : {kNan, kInf, -kInf}) {
    expect_refused("presence_penalty", {.presence_penalty = bad});
    expect_refused("frequency_penalty", {.frequency_penalty = bad});
  }
  expect_refused("repeat_penalty", {.repeat_penalty = 0.0f});
  expect_refused("top_p", {.top_p = 1.5f});
  expect_refused("min_p", {.min_p = 1.5f});
  expect_refused("typical_p", {.typical_p = 1.5f});
  expect_refused("top_k", {.top_k = -1});
  expect_refused("penalty_window", {.penalty_window = -2});
  expect_refused("logit_bias", {.logit_bias = {{1, kNan}}});
  expect_refused("logit_bias", {.logit_bias = {{1, kInf}}});
  expect_refused("logit_bias", {.logit_bias = {{-1, 1.0f}}});
}

TEST(SamplingCheck, AcceptsWhatMakesSense) {
  EXPECT_NO_THROW(check({}));
  EXPECT_NO_THROW(check({.temperature = 2.0f,
                         .top_k = 1 << 30,
                         .top_p = 0.0f,
                         .min_p = 1.0f,
                         .typical_p = 0.5f,
                         .repeat_penalty = 0.5f,
                         .presence_penalty = -2.0f,
                         .frequency_penalty = -2.0f,
                         .penalty_window = -1,
                         .mirostat = true,
                         .logit_bias = {{0, -kInf}, {1, -100.0f}}}));
}

}  // namespace
}  // namespace quarrel

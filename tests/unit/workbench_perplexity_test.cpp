// How a text is cut into windows and what is made of their scores, with a fake in the model's place.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "app/perplexity.h"
#include "base/error.h"

namespace quarrel {
namespace {

std::vector<TokenId> counting(std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// Notes the windows it is given and scores every token alike.
struct FakeModel {
  std::vector<std::vector<TokenId>> windows;
  std::vector<std::int32_t> firsts;
  float logprob = -1.0f;

  WindowScorer scorer() {
    return [this](std::span<const TokenId> window, std::int32_t first) {
      windows.emplace_back(window.begin(), window.end());
      firsts.push_back(first);
      return std::vector<float>(window.size() - static_cast<std::size_t>(first), logprob);
    };
  }
};

TEST(Perplexity, ScoresTheSecondHalfOfEachWindow) {
  FakeModel model;
  const Perplexity result = measure_perplexity(counting(1100), {.window = 512, .bos = {}}, model.scorer());
  ASSERT_EQ(model.windows.size(), 2u);  // what is left of the text is no window
  EXPECT_EQ(model.firsts, (std::vector<std::int32_t>{257, 257}));
  EXPECT_EQ(model.windows[0].front(), 0);
  EXPECT_EQ(model.windows[0].back(), 511);
  EXPECT_EQ(model.windows[1].front(), 512);
  EXPECT_EQ(result.loss.count(), 2 * 255);
  EXPECT_DOUBLE_EQ(result.value(), std::exp(1.0));
  EXPECT_EQ(result.error(), 0.0);
}

TEST(Perplexity, BosReplacesEachWindowsFirstToken) {
  FakeModel model;
  measure_perplexity(counting(16), {.window = 8, .bos = 77}, model.scorer());
  ASSERT_EQ(model.windows.size(), 2u);
  EXPECT_EQ(model.windows[0], (std::vector<TokenId>{77, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(model.windows[1], (std::vector<TokenId>{77, 9, 10, 11, 12, 13, 14, 15}));
}

TEST(Perplexity, TakesNoMoreWindowsThanAsked) {
  FakeModel model;
  std::vector<std::int32_t> totals;
  measure_perplexity(counting(100), {.window = 8, .windows = 3, .bos = {}}, model.scorer(),
                     [&](const Perplexity&, std::int32_t windows) { totals.push_back(windows); });
  EXPECT_EQ(model.windows.size(), 3u);
  EXPECT_EQ(totals, (std::vector<std::int32_t>{3, 3, 3}));
}

TEST(Perplexity, MeanAndErrorAreThoseOfAllTokens) {
  int call = 0;
  const WindowScorer scorer = [&](std::span<const TokenId>, std::int32_t) {
    return ++call == 1 ? std::vector<float>{-1.0f, -2.0f, -3.0f} : std::vector<float>{-4.0f, -5.0f, -6.0f};
  };
  const Perplexity result = measure_perplexity(counting(16), {.window = 8, .bos = {}}, scorer);
  ASSERT_EQ(result.windows.size(), 2u);
  EXPECT_NEAR(result.windows[0], std::exp(2.0), 1e-12);
  EXPECT_NEAR(result.windows[1], std::exp(5.0), 1e-12);
  EXPECT_NEAR(result.value(), std::exp(3.5), 1e-12);
  EXPECT_NEAR(result.error(), std::exp(3.5) * std::sqrt(3.5 / 6.0), 1e-12);
}

TEST(Perplexity, RefusesTextsAndWindowsThatAreTooShort) {
  FakeModel model;
  EXPECT_THROW(measure_perplexity(counting(511), {.window = 512, .bos = {}}, model.scorer()), Error);
  EXPECT_THROW(measure_perplexity(counting(511), {.window = 3, .bos = {}}, model.scorer()), Error);
  EXPECT_NO_THROW(measure_perplexity(counting(4), {.window = 4, .bos = {}}, model.scorer()));
  EXPECT_EQ(model.firsts, (std::vector<std::int32_t>{3}));
}

TEST(Perplexity, RefusesATokenWithoutProbability) {
  FakeModel model{.windows = {}, .firsts = {}, .logprob = -std::numeric_limits<float>::infinity()};
  EXPECT_THROW(measure_perplexity(counting(8), {.window = 8, .bos = {}}, model.scorer()), Error);
}

}  // namespace
}  // namespace quarrel

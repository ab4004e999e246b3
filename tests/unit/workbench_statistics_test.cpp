// Means, deviations and the distance between sets of logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "app/statistics.h"

namespace quarrel {
namespace {

TEST(RunningMean, MatchesTheTextbook) {
  RunningMean mean;
  for (const double value : {2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}) mean.add(value);
  EXPECT_EQ(mean.count(), 8);
  EXPECT_DOUBLE_EQ(mean.mean(), 5.0);
  EXPECT_DOUBLE_EQ(mean.deviation(), std::sqrt(32.0 / 7.0));
  EXPECT_DOUBLE_EQ(mean.standard_error(), std::sqrt(32.0 / 7.0 / 8.0));
}

TEST(RunningMean, OneValueHasNoSpread) {
  RunningMean mean;
  EXPECT_EQ(mean.deviation(), 0.0);
  mean.add(3.0);
  EXPECT_EQ(mean.mean(), 3.0);
  EXPECT_EQ(mean.deviation(), 0.0);
  EXPECT_EQ(mean.standard_error(), 0.0);
}

TEST(RunningMean, KeepsSmallSpreadsOfLargeNumbers) {
  RunningMean mean;
  for (const double value : {1e9 + 1, 1e9 + 2, 1e9 + 3}) mean.add(value);
  EXPECT_NEAR(mean.deviation(), 1.0, 1e-6);
}

TEST(RunningNmse, AddsUpOverPieces) {
  RunningNmse nmse;
  nmse.add(std::vector<float>{1.0f, 2.5f}, std::vector<float>{1.0f, 2.0f});
  nmse.add(std::vector<float>{0.0f}, std::vector<float>{2.0f});
  EXPECT_DOUBLE_EQ(nmse.value(), 4.25 / 9.0);
}

TEST(RunningNmse, NoLimitHoldsForWhatIsNotANumber) {
  RunningNmse nmse;
  nmse.add(std::vector<float>{std::numeric_limits<float>::quiet_NaN()}, std::vector<float>{1.0f});
  EXPECT_FALSE(nmse.value() <= 1e9);
}

}  // namespace
}  // namespace quarrel

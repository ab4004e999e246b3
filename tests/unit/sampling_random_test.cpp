// The random numbers behind the draws: the published generator, uniform and without memory.
#include <gtest/gtest.h>

#include <set>

#include "backend/sampling.h"
#include "unit/sampling_statistics.h"

namespace quarrel {
namespace {

using test::chi_square_tail;
using test::kDraws;
using test::kSignificance;
using test::p_value;

TEST(ChiSquare, TailMatchesTables) {
  EXPECT_NEAR(chi_square_tail(3.841458820694124, 1), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_tail(18.307038053275146, 10), 0.05, 1e-12);
  EXPECT_NEAR(chi_square_tail(29.58829844507442, 10), 0.001, 1e-12);
  EXPECT_NEAR(chi_square_tail(9.341817765580795, 10), 0.5, 1e-5);
  EXPECT_EQ(p_value({3, 1}, {1.0, 0.0}), 0.0);
}

TEST(Uniform, IsPhilox4x32With10Rounds) {
  // The first words for counter 0 and key 0, as the generator's authors publish them: 6627e8d5 e169c58d.
  EXPECT_EQ(uniform(0, 0), static_cast<double>(0x6627e8d5e169c58dULL >> 11) * 0x1p-53);
  EXPECT_EQ(uniform(0, 0), uniform(0, 0));
}

TEST(Uniform, EveryBitOfSeedAndDrawCounts) {
  std::set<double> seen = {uniform(0, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(uniform(std::uint64_t{1} << bit, 0));
    seen.insert(uniform(0, std::uint64_t{1} << bit));
  }
  EXPECT_EQ(seen.size(), 129u);
}

TEST(Uniform, IsUniformAlongDrawsAndAlongSeeds) {
  constexpr std::size_t kCells = 256;
  for (const bool along_draws : {true, false}) {
    std::vector<std::int64_t> counts(kCells, 0);
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double value = along_draws ? uniform(7, i) : uniform(i, 7);
      ASSERT_GE(value, 0.0);
      ASSERT_LT(value, 1.0);
      ++counts[static_cast<std::size_t>(value * kCells)];
    }
    EXPECT_GT(p_value(counts, std::vector<double>(kCells, 1.0 / kCells)), kSignificance);
  }
}

TEST(Uniform, NeighboursAreIndependent) {
  // Pairs (draw, next draw) and (seed, next seed) fill a 16 by 16 square evenly, and their correlation is that of
  // chance.
  constexpr std::size_t kSide = 16;
  for (const bool along_draws : {true, false}) {
    std::vector<std::int64_t> counts(kSide * kSide, 0);
    double correlation = 0.0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double a = along_draws ? uniform(11, 2 * i) : uniform(2 * i, 11);
      const double b = along_draws ? uniform(11, 2 * i + 1) : uniform(2 * i + 1, 11);
      ++counts[static_cast<std::size_t>(a * kSide) * kSide + static_cast<std::size_t>(b * kSide)];
      correlation += 12.0 * (a - 0.5) * (b - 0.5);
    }
    EXPECT_GT(p_value(counts, std::vector<double>(counts.size(), 1.0 / static_cast<double>(counts.size()))),
              kSignificance);
    EXPECT_LT(std::abs(correlation / kDraws), 5.0 / std::sqrt(static_cast<double>(kDraws)));
  }
}

}  // namespace
}  // namespace quarrel

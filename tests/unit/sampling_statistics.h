// Pearson's test for the sampling tests: how likely counts are under a distribution.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace quarrel::test {

// The probability that a chi-square variable of `freedom` degrees exceeds `statistic`: the upper regularised incomplete
// gamma function, by its series below the mean and by Lentz's continued fraction above.
inline double chi_square_tail(double statistic, int freedom) {
  if (statistic <= 0.0) return 1.0;
  const double a = freedom / 2.0;
  const double x = statistic / 2.0;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1.0) {
    double term = 1.0 / a;
    double sum = term;
    for (int n = 1; term > sum * 1e-16; ++n) {
      term *= x / (a + n);
      sum += term;
    }
    return 1.0 - front * sum;
  }
  double b = x + 1.0 - a;
  double c = 1e300;
  double d = 1.0 / b;
  double h = d;
  for (int i = 1; i < 10000; ++i) {
    const double an = -i * (i - a);
    b += 2.0;
    d = 1.0 / (an * d + b);
    c = b + an / c;
    h *= d * c;
    if (std::abs(d * c - 1.0) < 1e-15) break;
  }
  return front * h;
}

// The p-value of `counts` under `probabilities` (of the same tokens). A count where the probability is zero gives 0.
inline double p_value(const std::vector<std::int64_t>& counts, const std::vector<double>& probabilities) {
  double total = 0.0;
  for (const std::int64_t count : counts) total += static_cast<double>(count);
  double statistic = 0.0;
  int cells = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    if (expected == 0.0) {
      if (counts[i] != 0) return 0.0;
      continue;
    }
    const double difference = static_cast<double>(counts[i]) - expected;
    statistic += difference * difference / expected;
    ++cells;
  }
  return cells < 2 ? 1.0 : chi_square_tail(statistic, cells - 1);
}

// Below this the counts do not come from the distribution. Seeds are fixed, so a test passes always or never.
inline constexpr double kSignificance = 1e-6;
inline constexpr int kDraws = 100000;

}  // namespace quarrel::test

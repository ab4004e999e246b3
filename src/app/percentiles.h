// A summary of many durations: the 50th, 95th and 99th percentile, and the longest.
#pragma once

#include <cstddef>
#include <vector>

namespace quarrel {

// All 0 of no values.
struct Percentiles {
  std::size_t count = 0;
  double mean = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

// Each is one of the values: the smallest that as many of a hundred do not exceed. None may be NaN.
Percentiles percentiles(std::vector<double> values);

}  // namespace quarrel

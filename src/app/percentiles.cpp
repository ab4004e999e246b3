#include "app/percentiles.h"

#include <algorithm>
#include <numeric>

namespace quarrel {

Percentiles percentiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const std::size_t count = values.size();
  // In integers: 0.95 of 20 is 19, whatever a product of doubles makes of it.
  const auto at = [&](std::size_t hundredths) { return values[(count * hundredths + 99) / 100 - 1]; };
  return {.count = count,
          .mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count),
          .p50 = at(50),
          .p95 = at(95),
          .p99 = at(99),
          .max = values.back()};
}

}  // namespace quarrel

#include "engine/observations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace quarrel {

void SizeCounts::add(std::uint64_t value, std::uint64_t times) noexcept {
  const auto bucket = static_cast<std::size_t>(value <= 1 ? 0 : std::bit_width(value - 1));
  counts[std::min(bucket, kBuckets - 1)] += times;
}

void LayerTimes::add(std::uint64_t more_calls, double more_seconds) noexcept {
  if (more_calls == 0) return;
  calls += more_calls;
  seconds += more_seconds;
  micros.add(static_cast<std::uint64_t>(std::ceil(more_seconds * 1e6 / static_cast<double>(more_calls))), more_calls);
}

ExpertBalance balance_of(const ExpertUse& use) {
  const std::uint64_t total = std::accumulate(use.chosen.begin(), use.chosen.end(), std::uint64_t{0});
  if (total == 0) return {};
  const auto [least, most] = std::ranges::minmax(use.chosen);
  return {.most = static_cast<double>(most) / static_cast<double>(total),
          .least = static_cast<double>(least) / static_cast<double>(total),
          .unused = static_cast<std::uint64_t>(std::ranges::count(use.chosen, std::uint64_t{0}))};
}

}  // namespace quarrel

#include "engine/observations.h"

#include <algorithm>
#include <numeric>

namespace quarrel {

ExpertBalance balance_of(const ExpertUse& use) {
  const std::uint64_t total = std::accumulate(use.chosen.begin(), use.chosen.end(), std::uint64_t{0});
  if (total == 0) return {};
  const auto [least, most] = std::ranges::minmax(use.chosen);
  return {.most = static_cast<double>(most) / static_cast<double>(total),
          .least = static_cast<double>(least) / static_cast<double>(total),
          .unused = static_cast<std::uint64_t>(std::ranges::count(use.chosen, std::uint64_t{0}))};
}

}  // namespace quarrel

// How near a draw on the device must be to the host's: what the tests of sampling share.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/token.h"

namespace quarrel::cuda {

inline constexpr double kBoundary = 1e-6;

// How far the number is from the share of tokens that the device's choice stands for: 0 within it.
inline double beyond(const std::vector<std::pair<TokenId, double>>& distribution, TokenId id, double random) {
  auto by_id = distribution;
  std::ranges::sort(by_id);
  double before = 0.0;
  for (const auto& [token, share] : by_id) {
    if (token == id) return std::max({0.0, before - random, random - (before + share)});
    before += share;
  }
  return 1.0;
}

}  // namespace quarrel::cuda

// How often tokens were seen, for the penalties of sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampling.h"

namespace quarrel {

inline bool has_penalties(const SamplingParams& params) noexcept {
  return params.repeat_penalty != 1.0f || params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
}

// Of each token among the last `window` (-1: all), by ascending id.
std::vector<TokenCount> count_seen(std::span<const TokenId> tokens, std::int32_t window);

}  // namespace quarrel

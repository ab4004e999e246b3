#include "engine/token_counts.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace quarrel {

std::vector<TokenCount> count_seen(std::span<const TokenId> tokens, std::int32_t window) {
  if (window >= 0) tokens = tokens.last(std::min(tokens.size(), static_cast<std::size_t>(window)));
  std::map<TokenId, std::int32_t> counts;
  for (const TokenId id : tokens) ++counts[id];
  std::vector<TokenCount> seen;
  seen.reserve(counts.size());
  for (const auto& [id, count] : counts) seen.push_back({.id = id, .count = count});
  return seen;
}

}  // namespace quarrel

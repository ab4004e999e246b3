// For "unknown name" messages: which known names the user may have meant. Pure functions: any thread may call.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`, letter case aside; empty when
// more than `bound` are needed. Takes time in proportion to the bound and the shorter text.
std::optional<std::size_t> edit_distance(std::string_view a, std::string_view b, std::size_t bound);

// At most `most` of `names`, best first: those that begin with `wanted`, then those a few typing errors away.
std::vector<std::string> nearest(std::string_view wanted, std::span<const std::string> names, std::size_t most = 3);

}  // namespace quarrel

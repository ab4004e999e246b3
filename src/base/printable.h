// Names and texts from outside, made fit for a message: one line, no control characters, of bounded length.
// Stateless: any thread may call.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quarrel {

// Control characters and bytes that are not well-formed UTF-8 become \xNN; what exceeds `limit` bytes ends in "...".
std::string printable(std::string_view text, std::size_t limit = 96);

}  // namespace quarrel

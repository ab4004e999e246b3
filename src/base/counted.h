// A number with the noun it counts, for messages: "1 token", "2 tokens". Pure function: any thread may call.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace quarrel {

// Only for nouns whose plural ends in a plain "s".
std::string counted(std::integral auto number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

}  // namespace quarrel

#include "base/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace quarrel {

std::optional<std::string> environment(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::vector<std::string> result;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    const std::string_view name = text.substr(0, text.find('='));
    const auto replaces = [&](const auto& pair) { return pair.first == name; };
    if (std::none_of(overrides.begin(), overrides.end(), replaces)) result.emplace_back(text);
  }
  for (const auto& [name, value] : overrides) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

}  // namespace quarrel

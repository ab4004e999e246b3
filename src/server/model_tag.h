// The tag that Ollama's clients see on every name and everybody else leaves out: "toy:latest" is "toy". Any thread.
#pragma once

#include <string>
#include <string_view>

namespace quarrel {

inline constexpr std::string_view kLatestTag = ":latest";

constexpr std::string_view without_tag(std::string_view name) noexcept {
  if (name.ends_with(kLatestTag)) name.remove_suffix(kLatestTag.size());
  return name;
}

inline std::string with_tag(std::string_view name) {
  return std::string(name) + std::string(name.find(':') == std::string_view::npos ? kLatestTag : "");
}

}  // namespace quarrel

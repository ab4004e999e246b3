// The names of one model. The tag that Ollama's clients see on every name and everybody else leaves out: "toy:latest"
// is "toy". And what `pull` calls a model beside the file that it is in: "default" for one. Any thread.
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

// The other name of a model that `pull` knows: its file's for the table's, the table's for its file's. Empty: it has
// one.
std::string_view other_name(std::string_view name) noexcept;
// Whether both mean one model, whichever of its names they are.
bool is_one_model(std::string_view one, std::string_view other) noexcept;

}  // namespace quarrel

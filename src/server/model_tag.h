// How models are called. The tag that Ollama's clients see on every name and everybody else leaves out: "toy:latest" is
// "toy". And what `pull` calls a model beside the file that it is in: "default" for one. Any thread.
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

// Whether both are one name, but for the tag.
constexpr bool is_one_model(std::string_view one, std::string_view other) noexcept {
  return without_tag(one) == without_tag(other);
}

// The other name of a model that `pull` knows: its file's for the table's, the table's for its file's. Empty: it has
// one. Whether a server means that model by either is for its Service to say: the settings, a file or Ollama's store
// may have another one of the name.
std::string_view other_name(std::string_view name) noexcept;

}  // namespace quarrel

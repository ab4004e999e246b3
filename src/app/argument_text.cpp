// How commands are spelled and arguments explained, wherever they are.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "app/command_reference.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostChoices = 8;  // more of them are listed elsewhere

bool has_word(std::string_view text, std::string_view word) {
  const auto joins = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !joins(text[at - 1])) && (end == text.size() || !joins(text[end]))) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> spellings(const CommandReference& command) {
  std::vector<std::string> names{command.name};
  names.insert(names.end(), command.aliases.begin(), command.aliases.end());
  return names;
}

std::string explained(const ArgumentReference& argument) {
  std::string text = argument.description;
  const auto told = [&](const std::string& choice) { return has_word(argument.description, choice); };
  const std::vector<std::string>& choices = argument.choices;
  if (choices.size() <= kMostChoices && !std::ranges::all_of(choices, told)) {
    text += fmt::format(" ({})", fmt::join(choices, ", "));
  }
  if (!argument.fallback.empty()) text += fmt::format(" [{}]", argument.fallback);
  if (!argument.needs.empty()) text += fmt::format("; needs {}", fmt::join(argument.needs, ", "));
  if (!argument.excludes.empty()) text += fmt::format("; not with {}", fmt::join(argument.excludes, ", "));
  return text;
}

}  // namespace quarrel

#include "app/chat_completion.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/environment.h"

namespace quarrel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBlanks = " \t";
constexpr std::size_t kMostFiles = 10'000;  // looked at in a folder

Completion matching(std::size_t begin, std::string_view start, const std::vector<std::string>& words) {
  Completion found{.begin = begin};
  for (const std::string& word : words) {
    if (word.starts_with(start)) found.candidates.push_back(word);
  }
  std::sort(found.candidates.begin(), found.candidates.end());
  return found;
}

Completion matching_files(std::size_t begin, std::string_view start) {
  const std::size_t slash = start.rfind('/');
  const std::string folder(slash == std::string_view::npos ? "" : start.substr(0, slash + 1));
  const std::string_view name = start.substr(folder.size());
  std::vector<std::string> files;
  std::error_code fault;
  fs::directory_iterator entry(folder.empty() ? "." : expand_home(folder), fault);
  for (std::size_t seen = 0; !fault && entry != fs::directory_iterator() && seen < kMostFiles; ++seen) {
    std::string file = entry->path().filename().string();
    const bool hidden = file.starts_with('.') && !name.starts_with('.');
    std::error_code unknown;
    if (!hidden && file.starts_with(name)) {
      if (entry->is_directory(unknown)) file += '/';
      files.push_back(folder + file);
    }
    entry.increment(fault);
  }
  return matching(begin, start, files);
}

}  // namespace

std::string expand_home(std::string_view path) {
  if (path != "~" && !path.starts_with("~/")) return std::string(path);
  return environment("HOME").value_or("") + std::string(path.substr(1));
}

Completion complete_chat(const ChatWords& words, std::string_view text, std::size_t cursor) {
  text = text.substr(0, cursor);
  if (!text.starts_with('/') || text.find('\n') != std::string_view::npos) return {};
  const std::size_t command_end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view command = text.substr(1, command_end - 1);
  if (command_end == text.size()) return matching(1, command, words.commands);

  std::size_t begin = std::min(text.find_first_not_of(kBlanks, command_end), text.size());
  if (command == "save" || command == "load") return matching_files(begin, text.substr(begin));
  constexpr std::string_view kParameter = "parameter ";
  if (command == "set" && text.substr(begin).starts_with(kParameter)) {
    begin = std::min(text.find_first_not_of(kBlanks, begin + kParameter.size()), text.size());
  }
  const std::string_view start = text.substr(begin);
  if (const std::size_t end = start.find_first_of(kBlanks); end != std::string_view::npos) {
    if (command != "set" || !words.values) return {};
    const std::size_t value = std::min(start.find_first_not_of(kBlanks, end), start.size());
    return matching(begin + value, start.substr(value), words.values(start.substr(0, end)));
  }
  if (command == "set") return matching(begin, start, words.parameters);
  if (command == "show") return matching(begin, start, words.subjects);
  if (command == "model" && words.models) return matching(begin, start, words.models());
  return {};
}

}  // namespace quarrel

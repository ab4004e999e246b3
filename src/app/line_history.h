// What was typed before: a list without repeats, and the file that keeps it. Each line is appended to the file at once,
// so that a closed terminal loses nothing, and under a lock, so that two chats can write at once; the file never grows
// beyond a bound for long. A file that cannot be read or written is no reason to fail. Used by the line reader. One
// thread; any number of processes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

class LineHistory {
 public:
  static constexpr std::size_t kMostEntries = 1000;
  static constexpr std::size_t kLongestKept = 64u << 10;  // bytes; a longer entry is remembered but not written

  // `path` need not exist; empty: nothing is kept beyond this object.
  explicit LineHistory(std::filesystem::path path);

  // The newest last. An entry that was there already moves to the end.
  void add(const std::string& entry);

  std::size_t size() const noexcept { return entries_.size(); }
  const std::string& operator[](std::size_t index) const { return entries_[index]; }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  // The newest entry older than `before` that holds `text`; or, forward, the oldest newer than `after`.
  std::size_t find_older(std::string_view text, std::size_t before) const;
  std::size_t find_newer(std::string_view text, std::size_t after) const;

 private:
  void remember(std::string entry);

  std::filesystem::path path_;
  std::vector<std::string> entries_;
};

// One entry on one line of the file, without its line feed: line feeds and backslashes are written as \n and \\.
std::string encode_history(std::string_view entry);
std::string decode_history(std::string_view line);

}  // namespace quarrel

// SentencePiece's precompiled normalisation: a double-array trie from byte sequences to their replacements, as a GGUF
// file carries it. Comes from outside: every index is checked where it is used, and what does not fit counts as no
// match. Immutable after construction: any thread may ask.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quarrel {

class CharsMap {
 public:
  struct Match {
    std::size_t length = 0;  // of the text it replaces; 0: nothing
    std::string_view replacement;
  };

  CharsMap() = default;
  // Throws Error(bad_file) naming `key` if the sizes do not fit.
  CharsMap(const std::string& bytes, std::string_view key);

  // The longest sequence at `offset` that has a replacement.
  Match match(std::string_view text, std::size_t offset, std::uint64_t& steps) const;

 private:
  static constexpr std::size_t kLongestKey = 128;  // bounds the work for one position
  static constexpr std::size_t kLongestReplacement = 1024;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

}  // namespace quarrel

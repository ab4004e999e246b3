// Cuts a text into special tokens and what lies between them. One walk over the text: at each position the longest
// special token that may stand there wins. Immutable after construction: any thread may cut.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/byte_trie.h"
#include "text/vocabulary.h"

namespace quarrel {

// A half-open byte range of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct TextFragment {
  TextRange range;
  std::optional<TokenId> token;  // none: plain text
};

class SpecialMatcher {
 public:
  explicit SpecialMatcher(const Vocabulary& vocabulary);

  // User-defined tokens always match; control and unknown ones with `parse_special`, outside the `literal` ranges.
  // Fragments are in order and not empty; white space that a token strips belongs to none.
  std::vector<TextFragment> cut(std::string_view text, bool parse_special, std::span<const TextRange> literal,
                                std::uint64_t& steps) const;

 private:
  struct Special {
    TokenId id;
    bool always;  // user-defined
    bool strips_left;
    bool strips_right;
  };
  // Longer spellings are not looked for: the walk costs up to this many steps a byte.
  static constexpr std::size_t kLongest = 256;

  std::vector<Special> specials_;
  ByteTrie trie_;  // values index specials_
  std::array<bool, 256> begins_{};
};

}  // namespace quarrel

// Cuts a text into chunks of so many tokens, each a stretch of the text itself: at the end of a paragraph where one is
// near, else of a sentence or a line, else of a word, and within a word only where it alone is too long. A chunk begins
// with what the one before ended with, as far as the overlap reaches. The same text gives the same chunks.
//
// Pure functions: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

namespace quarrel {

struct ChunkOptions {
  std::size_t tokens = 256;  // of a chunk at most, as `count` counts them
  std::size_t overlap = 32;  // tokens of the end of the chunk before; at most half of `tokens`
};

// Tokens of a text, special ones included if they count.
using CountTokens = std::function<std::size_t(std::string_view text)>;

// Offsets in bytes; neither end lies inside a character or at white space.
struct Chunk {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const Chunk&) const = default;
};

// `text` is UTF-8. Throws Error(usage) for options that make no sense, and what `count` throws.
std::vector<Chunk> cut_into_chunks(std::string_view text, const ChunkOptions& options, const CountTokens& count);

}  // namespace quarrel

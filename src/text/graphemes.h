// What a reader takes for one character: grapheme clusters of the Unicode standard and the columns they take on a
// terminal. Used by whatever edits or wraps text on a screen. Pure functions over utf8proc's tables: any thread may
// call them. Bytes that are not well-formed UTF-8 count as one character each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace quarrel {

// Where the cluster that begins at `offset` ends; `offset` itself at the end of the text.
std::size_t next_grapheme(std::string_view text, std::size_t offset) noexcept;
// Where the cluster that ends at `offset` begins; 0 at the start of the text.
std::size_t previous_grapheme(std::string_view text, std::size_t offset) noexcept;
// The last boundary between clusters that is not beyond `offset`.
std::size_t grapheme_boundary(std::string_view text, std::size_t offset) noexcept;

// Columns of one code point: 0, 1 or 2. Control characters have none.
int code_point_width(char32_t code) noexcept;

struct GraphemeWidth {
  int columns = 0;      // on a terminal that knows clusters
  int most = 0;         // on any terminal: some add up code points and show joined emoji apart
  bool certain = true;  // all terminals agree
};
// `cluster` is one cluster, as next_grapheme() finds it.
GraphemeWidth grapheme_width(std::string_view cluster) noexcept;
// The columns of a whole text, as a terminal that knows clusters counts them.
int text_width(std::string_view text) noexcept;

// Where a line may not be broken: closing brackets and stops never come first on one, opening brackets never last.
enum class LineEdge { any, never_first, never_last };
LineEdge line_edge(char32_t code) noexcept;

// Finds the boundaries in a text that comes code point by code point.
class GraphemeBreaker {
 public:
  // Whether a cluster begins with `code`, which follows those given before.
  bool begins(char32_t code) noexcept;
  void reset() noexcept { *this = {}; }

 private:
  bool first_ = true;
  char32_t previous_ = 0;
  std::int32_t state_ = 0;
};

}  // namespace quarrel

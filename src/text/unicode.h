// UTF-8 and the few character properties the tokenizers ask for. Pure functions over utf8proc's tables: any thread may
// call them. Nothing here trusts its input to be well-formed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quarrel {

inline constexpr char32_t kReplacementChar = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";
inline constexpr std::string_view kLowerBlock = "\xE2\x96\x81";  // "▁", how SentencePiece spells a space

enum class Utf8Status : std::uint8_t {
  valid,
  invalid,   // can never become a character
  truncated  // the text ends inside what may still become one
};

struct Utf8Char {
  char32_t code = kReplacementChar;
  std::size_t length = 1;  // for what is not valid: the longest prefix of a character, at least one byte
  Utf8Status status = Utf8Status::invalid;
};

// The character at `offset`, which must lie inside `text`.
Utf8Char decode_utf8(std::string_view text, std::size_t offset) noexcept;
void append_utf8(std::string& text, char32_t code);
// Every ill-formed sequence becomes one U+FFFD.
std::string to_valid_utf8(std::string_view text);
// Every "▁" becomes a space.
std::string unescape_spaces(std::string_view text);

// A general category of the Unicode standard, as far as anybody here distinguishes them.
enum class CharCategory : std::uint8_t {
  unassigned,
  upper,
  lower,
  title,
  modifier,
  other_letter,
  mark,
  number,
  punctuation,
  symbol,
  separator,
  control,  // control, format, surrogate and private use
};
CharCategory char_category(char32_t code) noexcept;
bool is_white_space(char32_t code) noexcept;  // the White_Space property
char32_t to_lower(char32_t code) noexcept;
bool is_nonspacing_mark(char32_t code) noexcept;  // the category Mn: accents, points, some vowel signs
// Where a mark belongs among those of one letter; 0 for what starts a new letter.
std::uint8_t combining_class(char32_t code) noexcept;

// A character's full canonical decomposition: a letter and its marks, a Hangul syllable's two or three jamo, or the
// character itself. A text of these is in form NFD once runs of marks are sorted by their combining class.
struct Decomposition {
  std::array<char32_t, 8> codes{};
  std::size_t size = 0;

  std::span<const char32_t> parts() const& noexcept { return std::span(codes).first(size); }
  void parts() const&& = delete;  // it would outlive what it shows
};
Decomposition decompose(char32_t code) noexcept;

}  // namespace quarrel

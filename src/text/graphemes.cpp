#include "text/graphemes.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/unicode.h"

namespace quarrel {
namespace {

constexpr char32_t kEmojiPresentation = 0xFE0F;
constexpr char32_t kJoiner = 0x200D;

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Vowels and final consonants that join a Hangul syllable before them.
bool joins_hangul(char32_t code) { return (code >= 0x1160 && code <= 0x11FF) || (code >= 0xD7B0 && code <= 0xD7FF); }
bool is_regional_indicator(char32_t code) { return code >= 0x1F1E6 && code <= 0x1F1FF; }
bool is_skin_tone(char32_t code) { return code >= 0x1F3FB && code <= 0x1F3FF; }

// A boundary at or before `offset` that can be seen without looking at what precedes it: between two ASCII characters,
// of which the buffer's line feeds are some, or the start.
std::size_t safe_start(std::string_view text, std::size_t offset) {
  while (offset > 0 && !(offset < text.size() && is_ascii(text[offset]) && is_ascii(text[offset - 1]) &&
                         !(text[offset] == '\n' && text[offset - 1] == '\r'))) {
    --offset;
  }
  return offset;
}

}  // namespace

bool GraphemeBreaker::begins(char32_t code) noexcept {
  const auto next = static_cast<utf8proc_int32_t>(code);
  const bool breaks =
      first_ || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous_), next, &state_);
  first_ = false;
  previous_ = code;
  return breaks;
}

std::size_t next_grapheme(std::string_view text, std::size_t offset) noexcept {
  // Most of most texts: nothing ASCII joins what is ASCII, but for the line end of two characters.
  const bool plain = offset < text.size() && is_ascii(text[offset]) && text[offset] != '\r';
  if (plain && (offset + 1 == text.size() || is_ascii(text[offset + 1]))) return offset + 1;
  GraphemeBreaker breaker;
  std::size_t at = offset;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (breaker.begins(c.code) && at > offset) break;
    at += c.length;
  }
  return at;
}

std::size_t grapheme_boundary(std::string_view text, std::size_t offset) noexcept {
  if (offset >= text.size()) return text.size();
  std::size_t at = safe_start(text, offset);
  for (std::size_t next = at; next <= offset;) {
    at = next;
    next = next_grapheme(text, at);
  }
  return at;
}

std::size_t previous_grapheme(std::string_view text, std::size_t offset) noexcept {
  if (offset == 0) return 0;
  return grapheme_boundary(text, std::min(offset, text.size()) - 1);
}

int code_point_width(char32_t code) noexcept {
  if (code < 0x7F) return code >= 0x20 ? 1 : 0;
  if (joins_hangul(code)) return 0;
  return std::clamp(utf8proc_charwidth(static_cast<utf8proc_int32_t>(code)), 0, 2);
}

GraphemeWidth grapheme_width(std::string_view cluster) noexcept {
  GraphemeWidth width;
  bool emoji = false;
  bool wide = false;
  for (std::size_t at = 0; at < cluster.size();) {
    const Utf8Char c = decode_utf8(cluster, at);
    at += c.length;
    const int columns = code_point_width(c.code);
    if (columns > 0 && width.columns > 0) width.certain = false;
    width.columns += columns;
    width.most += columns;
    wide = wide || columns == 2;
    if (c.code < 0x80) continue;
    // Some terminals give a mark that takes space of its own a column of its own.
    const bool spacing_mark =
        columns == 0 && utf8proc_category(static_cast<utf8proc_int32_t>(c.code)) == UTF8PROC_CATEGORY_MC;
    if (spacing_mark || c.code == kEmojiPresentation || is_regional_indicator(c.code)) {
      ++width.most;
      width.certain = false;
    }
    emoji = emoji || c.code == kEmojiPresentation || (c.code == kJoiner && wide) || is_regional_indicator(c.code) ||
            is_skin_tone(c.code);
  }
  if (emoji && width.columns > 0) width.columns = 2;
  width.most = std::max(width.most, width.columns);
  return width;
}

LineEdge line_edge(char32_t code) noexcept {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PI: return LineEdge::never_last;
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return LineEdge::never_first;
    default: return LineEdge::any;
  }
}

int text_width(std::string_view text) noexcept {
  int columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = next_grapheme(text, at);
    columns += grapheme_width(text.substr(at, next - at)).columns;
    at = next;
  }
  return columns;
}

}  // namespace quarrel

#include "text/unicode.h"

#include <utf8proc.h>

#include <array>

namespace quarrel {
namespace {

constexpr char32_t kMaxCode = 0x10FFFF;

std::uint8_t byte_at(std::string_view text, std::size_t offset) noexcept {
  return static_cast<std::uint8_t>(text[offset]);
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, std::size_t offset) noexcept {
  const std::uint8_t lead = byte_at(text, offset);
  if (lead < 0x80) return {lead, 1, Utf8Status::valid};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code = lead & (0x7Fu >> length);
  // The second byte's range excludes overlong forms, surrogates and codes beyond the last.
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (offset + i >= text.size()) return {kReplacementChar, i, Utf8Status::truncated};
    const std::uint8_t next = byte_at(text, offset + i);
    if (next < low || next > high) return {kReplacementChar, i, Utf8Status::invalid};
    code = (code << 6) | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, Utf8Status::valid};
}

void append_utf8(std::string& text, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  for (std::size_t i = 0; i < static_cast<std::size_t>(length); ++i) text.push_back(static_cast<char>(bytes[i]));
}

std::string to_valid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    result += c.status == Utf8Status::valid ? text.substr(at, c.length) : kReplacementText;
    at += c.length;
  }
  return result;
}

std::string unescape_spaces(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const bool is_space = text.substr(at).starts_with(kLowerBlock);
    result += is_space ? ' ' : text[at];
    at += is_space ? kLowerBlock.size() : 1;
  }
  return result;
}

CharCategory char_category(char32_t code) noexcept {
  if (code > kMaxCode) return CharCategory::unassigned;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU: return CharCategory::upper;
    case UTF8PROC_CATEGORY_LL: return CharCategory::lower;
    case UTF8PROC_CATEGORY_LT: return CharCategory::title;
    case UTF8PROC_CATEGORY_LM: return CharCategory::modifier;
    case UTF8PROC_CATEGORY_LO: return CharCategory::other_letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return CharCategory::mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharCategory::number;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return CharCategory::punctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return CharCategory::symbol;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CharCategory::separator;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return CharCategory::control;
    default: return CharCategory::unassigned;
  }
}

bool is_white_space(char32_t code) noexcept {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

char32_t to_lower(char32_t code) noexcept {
  if (code < 0x80) return code >= U'A' && code <= U'Z' ? code + 32 : code;
  if (code > kMaxCode) return code;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

bool is_nonspacing_mark(char32_t code) noexcept {
  return code <= kMaxCode && utf8proc_category(static_cast<utf8proc_int32_t>(code)) == UTF8PROC_CATEGORY_MN;
}

std::uint8_t combining_class(char32_t code) noexcept {
  if (code < 0x300 || code > kMaxCode) return 0;
  return static_cast<std::uint8_t>(utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class);
}

Decomposition decompose(char32_t code) noexcept {
  Decomposition result{.codes = {code}, .size = 1};
  if (code < 0xC0 || code > kMaxCode) return result;
  std::array<utf8proc_int32_t, std::tuple_size_v<decltype(result.codes)>> parts{};
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                              static_cast<utf8proc_ssize_t>(parts.size()), UTF8PROC_DECOMPOSE, &boundary);
  if (count < 1 || count > std::ssize(parts)) return result;  // none is longer than four
  result.size = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < result.size; ++i) result.codes[i] = static_cast<char32_t>(parts[i]);
  return result;
}

}  // namespace quarrel

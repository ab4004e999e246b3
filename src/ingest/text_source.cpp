#include "ingest/text_source.h"

#include <array>
#include <charconv>
#include <span>

#include "base/sha256.h"
#include "text/unicode.h"

namespace quarrel {

bool is_utf8(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = decode_utf8(text, i);
    if (character.status != Utf8Status::valid) return false;
    i += character.length;
  }
  return true;
}

bool is_blank(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char character = decode_utf8(text, i);
    if (character.status != Utf8Status::valid || !is_white_space(character.code)) return false;
    i += character.length;
  }
  return true;
}

// Each part with its length before it, so that no two records give the same bytes.
TextKey key_of(const TextRecord& record) {
  Sha256 hash;
  const auto add = [&hash](std::string_view part) {
    const std::array<std::uint64_t, 1> length{part.size()};
    hash.update(std::as_bytes(std::span(length)));
    hash.update(std::as_bytes(std::span(part)));
  };
  add(record.source);
  add(record.id);
  add(record.text);
  add(record.metadata);
  for (const std::string& column : record.columns) add(column);
  const std::string digest = hash.finish();
  TextKey key;
  std::from_chars(digest.data(), digest.data() + 16, key.high, 16);
  std::from_chars(digest.data() + 16, digest.data() + 32, key.low, 16);
  return key;
}

}  // namespace quarrel

#include "text/charsmap.h"

#include <algorithm>

#include "base/error.h"

namespace quarrel {
namespace {

std::uint32_t read_u32(std::string_view bytes, std::size_t offset) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<std::uint8_t>(bytes[offset + i]);
  return value;
}

// The fields of a unit of the double array.
std::uint32_t unit_offset(std::uint32_t unit) noexcept { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
std::uint32_t unit_label(std::uint32_t unit) noexcept { return unit & (1u << 31 | 0xFFu); }
bool unit_has_leaf(std::uint32_t unit) noexcept { return (unit >> 8 & 1) != 0; }
std::uint32_t unit_value(std::uint32_t unit) noexcept { return unit & ~(1u << 31); }

}  // namespace

CharsMap::CharsMap(const std::string& bytes, std::string_view key) {
  if (bytes.size() < 4) fail(ErrorKind::bad_file, "{} has {} bytes, too few for its header", key, bytes.size());
  const std::size_t trie_bytes = read_u32(bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4) {
    fail(ErrorKind::bad_file, "{} announces a trie of {} bytes, but has {}", key, trie_bytes, bytes.size() - 4);
  }
  units_.resize(trie_bytes / 4);
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i] = read_u32(bytes, 4 + 4 * i);
  replacements_ = bytes.substr(4 + trie_bytes);
}

CharsMap::Match CharsMap::match(std::string_view text, std::size_t offset, std::uint64_t& steps) const {
  Match best;
  if (units_.empty()) return best;
  std::size_t node = unit_offset(units_[0]);
  const std::string_view rest = text.substr(offset, kLongestKey);
  for (std::size_t i = 0; i < rest.size(); ++i) {
    ++steps;
    const auto label = static_cast<std::uint8_t>(rest[i]);
    if (label == 0) break;
    node ^= label;
    if (node >= units_.size() || unit_label(units_[node]) != label) break;
    const bool has_leaf = unit_has_leaf(units_[node]);
    node ^= unit_offset(units_[node]);
    if (node >= units_.size()) break;
    if (!has_leaf) continue;
    const std::size_t begin = unit_value(units_[node]);
    if (begin >= replacements_.size()) continue;
    const std::string_view candidate = std::string_view(replacements_).substr(begin, kLongestReplacement + 1);
    const std::size_t length = candidate.find('\0');
    if (length == std::string_view::npos) continue;
    best = {i + 1, candidate.substr(0, length)};
  }
  return best;
}

}  // namespace quarrel

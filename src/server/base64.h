// Bytes as text (RFC 4648, with padding). Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace quarrel {

inline std::string to_base64(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = bytes.size() - i < 3 ? bytes.size() - i : 3;
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k) group = group << 8 | (k < count ? std::to_integer<unsigned>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k) text.push_back(k <= count ? kDigits[group >> (18 - 6 * k) & 63u] : '=');
  }
  return text;
}

}  // namespace quarrel

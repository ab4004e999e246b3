// Random bytes that nobody can guess, from the operating system: for keys, salts and ids that are as good as one. Any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace quarrel {

// Throws Error(io) where the system has none.
void fill_with_random(std::span<unsigned char> bytes);

template <std::size_t Size>
std::array<unsigned char, Size> random_bytes() {
  std::array<unsigned char, Size> bytes{};
  fill_with_random(bytes);
  return bytes;
}

// In lower-case hexadecimal digits.
std::string hex_of(std::span<const unsigned char> bytes);

}  // namespace quarrel

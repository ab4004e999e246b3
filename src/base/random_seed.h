// A seed for whoever named none.
#pragma once

#include <cstdint>
#include <random>

namespace quarrel {

inline std::uint64_t random_seed() {
  std::random_device device;
  // 53 bits: the number survives a trip through any JSON reader.
  return ((std::uint64_t{device()} << 32) | device()) >> 11;
}

}  // namespace quarrel

// Rows for tests of the CPU's row-wise kernels: of awkward lengths, at addresses that no vector likes, with guards
// behind their ends.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "backend/cpu/isa.h"

namespace quarrel::test {

inline constexpr std::size_t kLengths[] = {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 127, 1000};
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// A row that begins four bytes after an aligned address and must not be written beyond its end.
template <typename Value>
class GuardedRow {
 public:
  explicit GuardedRow(std::size_t count) : memory_(1 + count + kGuard, guard()), count_(count) {}
  explicit GuardedRow(std::span<const Value> values) : GuardedRow(values.size()) {
    std::copy(values.begin(), values.end(), memory_.begin() + 1);
  }

  Value* data() noexcept { return memory_.data() + 1; }
  std::span<const Value> values() const noexcept { return std::span(memory_).subspan(1, count_); }
  Value operator[](std::size_t i) const noexcept { return memory_[1 + i]; }
  bool intact() const noexcept {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (memory_[1 + count_ + i] != guard()) return false;
    }
    return memory_[0] == guard();
  }

 private:
  static constexpr std::size_t kGuard = 32;
  static constexpr Value guard() noexcept { return static_cast<Value>(12345); }
  std::vector<Value> memory_;
  std::size_t count_;
};

using Row = GuardedRow<float>;

inline std::vector<float> random_values(std::size_t count, unsigned seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Calls test(kernels, length) for every level of this machine and every length.
template <typename Test>
void for_levels_and_lengths(const Test& test) {
  for (const IsaLevel level : available_levels()) {
    for (const std::size_t length : kLengths) {
      SCOPED_TRACE(testing::Message() << level_name(level) << ", " << length << " values");
      test(kernels_of(level), length);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Within `relative` of the size expected, or of `scale` where that is smaller.
inline void expect_close(float actual, double expected, double relative, double scale = 1.0) {
  ASSERT_LE(std::abs(static_cast<double>(actual) - expected), relative * std::max(scale, std::abs(expected)))
      << actual << " is not " << expected;
}

}  // namespace quarrel::test

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "quant/half.h"

namespace quarrel {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// A half's value by the textbook: (-1)^s * m * 2^e.
double textbook_half(std::uint32_t bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits >> 10 & 31u);
  const int mantissa = static_cast<int>(bits & 1023u);
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

TEST(QuantHalf, EveryHalfDecodesExactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(std::signbit(value), bits >= 32768) << bits;
    if ((bits >> 10 & 31u) != 31) {
      ASSERT_EQ(static_cast<double>(value), textbook_half(bits)) << bits;
    } else if ((bits & 1023u) == 0) {
      ASSERT_TRUE(std::isinf(value)) << bits;
    } else {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_EQ(bits_of(value) & 0x7fffffu, (bits & 1023u) << 13) << bits;
    }
  }
}

TEST(QuantHalf, EveryHalfSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    const std::uint32_t quiet = std::isnan(value) ? 0x200u : 0u;
    ASSERT_EQ(f32_to_f16(value), bits | quiet) << bits;
  }
}

// Between two neighbouring halves lies one tie; it goes to the even one, and its neighbours to the nearer.
TEST(QuantHalf, RoundsToNearestEven) {
  for (std::uint32_t low = 0; low < 0x7bff; ++low) {
    const std::uint32_t high = low + 1;
    const auto tie = static_cast<float>((textbook_half(low) + textbook_half(high)) / 2);
    const std::uint32_t even = (low & 1u) == 0 ? low : high;
    ASSERT_EQ(f32_to_f16(tie), even) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(tie, 0.0f)), low) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(tie, 1e6f)), high) << low;
    ASSERT_EQ(f32_to_f16(-tie), even | 0x8000u) << low;
  }
}

TEST(QuantHalf, EndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-65536.0f), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(infinity), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);
  EXPECT_EQ(f32_to_f16(std::nextafter(-0x1p-25f, -1.0f)), 0x8001);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(nan))));
  // A NaN whose payload is lost in the shift must not turn into an infinity.
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::bit_cast<float>(0x7f800001u)))));

  EXPECT_EQ(f32_to_f16_saturating(65520.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16_saturating(-1e30f), 0xfbff);
  EXPECT_EQ(f32_to_f16_saturating(-infinity), 0xfbff);
  EXPECT_EQ(f32_to_f16_saturating(1.5f), f32_to_f16(1.5f));
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16_saturating(nan))));
}

TEST(QuantHalf, BrainFloats) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(bits_of(value), bits << 16) << bits;
    const std::uint32_t quiet = std::isnan(value) ? 0x40u : 0u;
    ASSERT_EQ(f32_to_bf16(value), bits | quiet) << bits;
    if (std::isnan(value) || std::isinf(value)) continue;
    // The tie above goes to the even one, its neighbours to the nearer; above the largest lies infinity.
    const std::uint32_t even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits << 16 | 0x8000u)), even) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits << 16 | 0x7fffu)), bits) << bits;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits << 16 | 0x8001u)), bits + 1) << bits;
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0xffffffffu)))));
}

}  // namespace
}  // namespace quarrel

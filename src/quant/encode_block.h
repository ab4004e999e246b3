// Inside quant only: the encoder of one block, an overload a type, and the steps they share. `values` holds
// Block::kWeights finite floats. Scales are rounded to their stored precision first and the weights then quantised
// with what was stored, so the rounding of the scale costs nothing that the weights can make up for.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>

#include "quant/blocks.h"
#include "quant/half.h"

namespace quarrel {

// encode.cpp
void encode_block(const float* values, BlockF32& block) noexcept;
void encode_block(const float* values, BlockF16& block) noexcept;
void encode_block(const float* values, BlockBf16& block) noexcept;
void encode_block(const float* values, BlockQ4_0& block) noexcept;
void encode_block(const float* values, BlockQ4_1& block) noexcept;
void encode_block(const float* values, BlockQ5_0& block) noexcept;
void encode_block(const float* values, BlockQ5_1& block) noexcept;
void encode_block(const float* values, BlockQ8_0& block) noexcept;

// encode_k.cpp
void encode_block(const float* values, BlockQ4K& block) noexcept;
void encode_block(const float* values, BlockQ5K& block) noexcept;
void encode_block(const float* values, BlockQ6K& block) noexcept;

// encode_table.cpp
void encode_block(const float* values, BlockIq4Nl& block) noexcept;
void encode_block(const float* values, BlockMxfp4& block) noexcept;

// The integer in [lowest, highest] nearest to `value`, which may be infinite but not a NaN. Adding 1.5 * 2^23 leaves
// the rounded integer in the low bits of the sum; unlike lrint this is never a call.
inline int nearest(float value, int lowest, int highest) noexcept {
  const float within = std::clamp(value, static_cast<float>(lowest), static_cast<float>(highest));
  return std::bit_cast<std::int32_t>(within + 12582912.0f) - std::bit_cast<std::int32_t>(12582912.0f);
}

// A half for a scale, rounded away from zero: rounded to the nearest, a subnormal half could be so much smaller than
// asked for that the largest values were cut off. Stops at the largest half.
inline HalfBits half_for_scale(float scale) noexcept {
  const HalfBits close = f32_to_f16_saturating(scale);
  const bool smaller = std::abs(f16_to_f32(close)) < std::abs(scale) && (close & 0x7fff) < 0x7bff;
  return static_cast<HalfBits>(close + static_cast<int>(smaller));
}

// 1 / scale, or 0 for a scale of 0, which makes all quants 0. A stored half is never so small that this overflows.
inline float inverse(float scale) noexcept { return scale != 0.0f ? 1.0f / scale : 0.0f; }

}  // namespace quarrel

// Conversions between float and the two 16-bit formats, by integer arithmetic: the results do not depend on the
// processor's rounding or flush-to-zero state. Inline because kernels, caches and decoders call them per value. Pure
// functions, safe from any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace quarrel {

// Exact for every pattern; infinities stay infinities and a NaN keeps its sign and payload.
constexpr float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (bits & 0x7fffu) << 13;  // exponent and mantissa at their places in a float
  const std::uint32_t normal = magnitude + ((127u - 15u) << 23);
  const std::uint32_t special = magnitude | 0x7f800000u;
  // A subnormal half is put below the leading one of 2^-14, which is then taken away: no subnormal float is involved.
  constexpr std::uint32_t kTwoToMinus14 = (127u - 14u) << 23;
  const auto subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(kTwoToMinus14 | magnitude) -
                                                      std::bit_cast<float>(kTwoToMinus14));
  const std::uint32_t finite = magnitude < (1u << 23) ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= (0x7c00u << 13) ? special : finite));
}

// Exact for every pattern.
constexpr float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest even. Values beyond the half range become infinities; a NaN becomes a quiet NaN.
constexpr std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x1ffu);
  } else if (magnitude >= (143u << 23)) {  // 65536 and above; what rounds up to it is caught by the carry below
    half = 0x7c00u;
  } else if (magnitude >= (113u << 23)) {  // 2^-14 and above: a normal half
    const std::uint32_t rebiased = magnitude - (112u << 23);
    half = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
  } else if (magnitude >
             (102u << 23)) {  // above 2^-25, half the smallest subnormal; up to it everything rounds to zero
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t shift = 126u - (magnitude >> 23);  // 14 to 24
    const std::uint32_t kept = mantissa >> shift;
    const std::uint32_t rest = mantissa & ((1u << shift) - 1u);
    const std::uint32_t tie = 1u << (shift - 1u);
    half = kept + static_cast<std::uint32_t>(rest > tie || (rest == tie && (kept & 1u) != 0));
  }
  return static_cast<std::uint16_t>(sign | half);
}

// The same, but stops at ±65504 instead of going to infinity (infinities included); a NaN stays a NaN.
constexpr std::uint16_t f32_to_f16_saturating(float value) noexcept {
  return f32_to_f16(value != value ? value : std::clamp(value, -65504.0f, 65504.0f));
}

// Round to nearest even; a NaN becomes a quiet NaN.
constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace quarrel

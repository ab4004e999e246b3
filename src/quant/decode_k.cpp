// The K types (256 weights, with scales that are themselves quantised) and the two ternary types.
#include "quant/decode_block.h"
#include "quant/half.h"

namespace quarrel {
namespace {

// Two-bit fields of 256 weights in 64 bytes: bytes 0-31 hold weights 0-127, four runs of 32 from the low bits up.
int two_bits(const std::uint8_t (&quants)[64], std::size_t weight) noexcept {
  return quants[weight / 128 * 32 + weight % 32] >> (weight / 32 % 4 * 2) & 3;
}

// Nibbles of 256 weights in 128 bytes: 32 bytes hold 64 weights, the first 32 in the low nibbles.
int nibble(const std::uint8_t (&nibbles)[128], std::size_t weight) noexcept {
  return nibbles[weight / 64 * 32 + weight % 32] >> (weight / 32 % 2 * 4) & 15;
}

// One bit for each of 256 weights in 32 bytes: bit b of byte j belongs to weight 32 b + j.
int one_bit(const std::uint8_t (&bits)[32], std::size_t weight) noexcept {
  return bits[weight % 32] >> (weight / 32) & 1;
}

// The six-bit scale of 16 weights number `group` (0-15), stored with 32 added.
int q3_k_scale(const BlockQ3K& block, std::size_t group) noexcept {
  const int low = block.scales[group % 8] >> (group / 8 * 4) & 15;
  const int high = block.scales[8 + group % 4] >> (group / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

// Digit number `digit` of a ternary byte, less one: multiplying by 3^digit drops the digits before it (modulo 256), and
// the next one is then the whole part of three times the fraction.
float trit(std::uint8_t byte, std::size_t digit) noexcept {
  constexpr std::uint32_t kPowers[5] = {1, 3, 9, 27, 81};
  const std::uint32_t fraction = byte * kPowers[digit] & 255u;
  return static_cast<float>(static_cast<int>(fraction * 3 >> 8) - 1);
}

}  // namespace

void decode_block(const BlockQ2K& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  const float min_scale = f16_to_f32(block.min_scale);
  for (std::size_t group = 0; group < 16; ++group) {
    const float group_scale = scale * static_cast<float>(block.scales[group] & 15);
    const float group_min = min_scale * static_cast<float>(block.scales[group] >> 4);
    for (std::size_t i = group * 16; i < group * 16 + 16; ++i) {
      values[i] = group_scale * static_cast<float>(two_bits(block.quants, i)) - group_min;
    }
  }
}

void decode_block(const BlockQ3K& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t group = 0; group < 16; ++group) {
    const float group_scale = scale * static_cast<float>(q3_k_scale(block, group));
    for (std::size_t i = group * 16; i < group * 16 + 16; ++i) {
      const int quant = (two_bits(block.quants, i) | one_bit(block.third_bits, i) << 2) - 4;
      values[i] = group_scale * static_cast<float>(quant);
    }
  }
}

void decode_block(const BlockQ4K& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  const float min_scale = f16_to_f32(block.min_scale);
  for (std::size_t group = 0; group < 8; ++group) {
    const ScaleMin packed = q4_k_scale_min(block.scales, group);
    const float group_scale = scale * static_cast<float>(packed.scale);
    const float group_min = min_scale * static_cast<float>(packed.minimum);
    for (std::size_t i = group * 32; i < group * 32 + 32; ++i) {
      values[i] = group_scale * static_cast<float>(nibble(block.nibbles, i)) - group_min;
    }
  }
}

void decode_block(const BlockQ5K& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  const float min_scale = f16_to_f32(block.min_scale);
  for (std::size_t group = 0; group < 8; ++group) {
    const ScaleMin packed = q4_k_scale_min(block.scales, group);
    const float group_scale = scale * static_cast<float>(packed.scale);
    const float group_min = min_scale * static_cast<float>(packed.minimum);
    for (std::size_t i = group * 32; i < group * 32 + 32; ++i) {
      const int quant = nibble(block.nibbles, i) | one_bit(block.fifth_bits, i) << 4;
      values[i] = group_scale * static_cast<float>(quant) - group_min;
    }
  }
}

// Unlike Q4_K's, a run of 64 bytes holds 128 weights: the first 64 in the low nibbles.
void decode_block(const BlockQ6K& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t group = 0; group < 16; ++group) {
    const float group_scale = scale * static_cast<float>(block.scales[group]);
    for (std::size_t i = group * 16; i < group * 16 + 16; ++i) {
      const int low = block.nibbles[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
      values[i] = group_scale * static_cast<float>((low | two_bits(block.high_bits, i) << 4) - 32);
    }
  }
}

void decode_block(const BlockQ8K& block, float* values) noexcept {
  for (std::size_t i = 0; i < 256; ++i) values[i] = block.scale * static_cast<float>(block.quants[i]);
}

void decode_block(const BlockTq1_0& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t digit = 0; digit < 5; ++digit) {
    for (std::size_t j = 0; j < 32; ++j) values[digit * 32 + j] = scale * trit(block.fives[j], digit);
    for (std::size_t j = 0; j < 16; ++j) values[160 + digit * 16 + j] = scale * trit(block.fives[32 + j], digit);
  }
  for (std::size_t digit = 0; digit < 4; ++digit) {
    for (std::size_t j = 0; j < 4; ++j) values[240 + digit * 4 + j] = scale * trit(block.fours[j], digit);
  }
}

void decode_block(const BlockTq2_0& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t i = 0; i < 256; ++i) values[i] = scale * static_cast<float>(two_bits(block.quants, i) - 1);
}

}  // namespace quarrel

// The types whose values come from a table: IQ4 and MXFP4 one weight at a time, the others an entry of a codebook.
#include <bit>

#include "quant/decode_block.h"
#include "quant/half.h"
#include "quant/iq_tables.h"

namespace quarrel {
namespace {

std::uint32_t field(std::uint32_t word, std::size_t shift, std::uint32_t mask) noexcept { return word >> shift & mask; }

// Sixteen bytes, 32 weights: low nibbles first.
void decode_nibbles(const std::array<std::int8_t, 16>& table, const std::uint8_t* nibbles, float scale,
                    float* values) noexcept {
  for (std::size_t j = 0; j < 16; ++j) {
    values[j] = scale * static_cast<float>(table[nibbles[j] & 15]);
    values[j + 16] = scale * static_cast<float>(table[nibbles[j] >> 4]);
  }
}

// A row of magnitudes; bit j of `signs` makes value j negative.
template <typename Row>
void decode_signed(const Row& row, std::uint32_t signs, float scale, float* values) noexcept {
  for (std::size_t j = 0; j < row.size(); ++j) {
    const int sign = 1 - 2 * static_cast<int>(signs >> j & 1u);
    values[j] = scale * static_cast<float>(row[j] * sign);
  }
}

void decode_shifted(const CodebookEntry8& row, bool down, float scale, float* values) noexcept {
  const float shift = down ? -kIq1Shift : kIq1Shift;
  for (std::size_t j = 0; j < 8; ++j) values[j] = scale * (static_cast<float>(row[j]) + shift);
}

float half_step(float scale, std::uint32_t stored, float unit) noexcept {
  return scale * (0.5f + static_cast<float>(stored)) * unit;
}

float odd_step(float scale, std::uint32_t stored) noexcept { return scale * static_cast<float>(2 * stored + 1); }

}  // namespace

void decode_block(const BlockIq4Nl& block, float* values) noexcept {
  decode_nibbles(kIq4Values, block.nibbles, f16_to_f32(block.scale), values);
}

void decode_block(const BlockIq4Xs& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t group = 0; group < 8; ++group) {
    const int low = block.scales_low[group / 2] >> (group % 2 * 4) & 15;
    const int high = block.scales_high >> (group * 2) & 3;
    const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
    decode_nibbles(kIq4Values, block.nibbles + group * 16, group_scale, values + group * 32);
  }
}

namespace {

// The table is doubled, so the scale is 2^(exponent - 128), which is subnormal for the two smallest exponents. The
// largest is a scale like any other here, not a NaN.
float mxfp4_scale(std::uint32_t exponent) noexcept {
  return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
}

}  // namespace

void decode_block(const BlockMxfp4& block, float* values) noexcept {
  decode_nibbles(kE2m1Doubled, block.nibbles, mxfp4_scale(block.exponent), values);
}

void decode_block(const BlockMxfp4Pairs& block, float* values) noexcept {
  const float scale = mxfp4_scale(block.exponent);
  for (std::size_t i = 0; i < 16; ++i) {
    values[2 * i] = scale * static_cast<float>(kE2m1Doubled[block.nibbles[i] & 15]);
    values[2 * i + 1] = scale * static_cast<float>(kE2m1Doubled[block.nibbles[i] >> 4]);
  }
}

void decode_block(const BlockIq2Xxs& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t group = 0; group < 8; ++group) {
    const std::uint32_t packed = block.groups[group].signs_and_scale;
    const float group_scale = half_step(scale, packed >> 28, 0.25f);
    for (std::size_t k = 0; k < 4; ++k) {
      const CodebookEntry8& row = kIq2XxsCodebook[block.groups[group].entries[k]];
      decode_signed(row, even_signs(packed >> (7 * k)), group_scale, values + group * 32 + k * 8);
    }
  }
}

void decode_block(const BlockIq2Xs& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t k = 0; k < 32; ++k) {
    const std::uint32_t packed = block.quants[k];
    const float group_scale = half_step(scale, field(block.scales[k / 4], k / 2 % 2 * 4, 15), 0.25f);
    decode_signed(kIq2XsCodebook[packed & 511u], even_signs(packed >> 9), group_scale, values + k * 8);
  }
}

void decode_block(const BlockIq2S& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t k = 0; k < 32; ++k) {
    const std::uint32_t row = block.entries[k] | field(block.entries_high[k / 4], k % 4 * 2, 3) << 8;
    const float group_scale = half_step(scale, field(block.scales[k / 4], k / 2 % 2 * 4, 15), 0.25f);
    decode_signed(kIq2SCodebook[row], block.signs[k], group_scale, values + k * 8);
  }
}

void decode_block(const BlockIq3Xxs& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t k = 0; k < 32; ++k) {
    const std::uint32_t packed = block.signs_and_scale[k / 4];
    const std::uint32_t signs = even_signs(packed >> (k % 4 * 7));
    const float group_scale = half_step(scale, packed >> 28, 0.5f);
    decode_signed(kIq3XxsCodebook[block.entries[2 * k]], signs, group_scale, values + k * 8);
    decode_signed(kIq3XxsCodebook[block.entries[2 * k + 1]], signs >> 4, group_scale, values + k * 8 + 4);
  }
}

void decode_block(const BlockIq3S& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t k = 0; k < 64; ++k) {
    const std::uint32_t row = block.entries[k] | field(block.entries_high[k / 8], k % 8, 1) << 8;
    const std::uint32_t signs = static_cast<std::uint32_t>(block.signs[k / 2]) >> (k % 2 * 4);
    const float group_scale = odd_step(scale, field(block.scales[k / 16], k / 8 % 2 * 4, 15));
    decode_signed(kIq3SCodebook[row], signs, group_scale, values + k * 4);
  }
}

void decode_block(const BlockIq1S& block, float* values) noexcept {
  const float scale = f16_to_f32(block.scale);
  for (std::size_t k = 0; k < 32; ++k) {
    const std::uint32_t extra = block.extra[k / 4];
    const std::uint32_t row = block.entries[k] | (extra >> (k % 4 * 3) & 7u) << 8;
    decode_shifted(kIq1Codebook[row], (extra & 0x8000u) != 0, odd_step(scale, extra >> 12 & 7u), values + k * 8);
  }
}

void decode_block(const BlockIq1M& block, float* values) noexcept {
  std::uint32_t scale_bits = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    scale_bits |= static_cast<std::uint32_t>(block.scales[i]) >> 12 << (i * 4);
  }
  const float scale = f16_to_f32(static_cast<HalfBits>(scale_bits));
  for (std::size_t k = 0; k < 32; ++k) {
    const std::uint32_t extra = field(block.extra[k / 2], k % 2 * 4, 15);
    const std::uint32_t row = block.entries[k] | (extra & 7u) << 8;
    const std::size_t group = k / 2;
    const float group_scale = odd_step(scale, field(block.scales[group / 4], group % 4 * 3, 7));
    decode_shifted(kIq1Codebook[row], (extra & 8u) != 0, group_scale, values + k * 8);
  }
}

}  // namespace quarrel

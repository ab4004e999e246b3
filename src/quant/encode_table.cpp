// The two types with 16 unevenly spaced values: IQ4_NL and MXFP4.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "quant/encode_block.h"
#include "quant/half.h"
#include "quant/iq_tables.h"

namespace quarrel {
namespace {

// Where one value's reach ends and the next one's begins.
template <std::size_t count>
constexpr std::array<float, count - 1> midpoints(const std::array<float, count>& ascending) {
  std::array<float, count - 1> result{};
  for (std::size_t i = 0; i + 1 < count; ++i) result[i] = (ascending[i] + ascending[i + 1]) / 2.0f;
  return result;
}

// The index of the value nearest to `value`; of two equally near, the lower.
template <std::size_t count>
std::uint32_t nearest_index(const std::array<float, count>& boundaries, float value) noexcept {
  std::uint32_t index = 0;
  for (const float boundary : boundaries) index += static_cast<std::uint32_t>(value > boundary);
  return index;
}

constexpr std::array<float, 15> kIq4Boundaries = [] {
  std::array<float, 16> values{};
  for (std::size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(kIq4Values[i]);
  return midpoints(values);
}();

constexpr std::array<float, 8> kE2m1Magnitudes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
constexpr std::array<float, 7> kE2m1Boundaries = midpoints(kE2m1Magnitudes);

struct Fit {
  float scale;
  float gain;  // how much the scale takes off the sum of squares
};

// The least-squares scale for the values of the table that `factor` gives.
Fit fit_iq4(const float* values, float factor) noexcept {
  float sum_qx = 0.0f;
  float sum_qq = 0.0f;
  for (std::size_t i = 0; i < 32; ++i) {
    const auto quant = static_cast<float>(kIq4Values[nearest_index(kIq4Boundaries, values[i] * factor)]);
    sum_qx += quant * values[i];
    sum_qq += quant * quant;
  }
  return {sum_qx / sum_qq, sum_qx * sum_qx / sum_qq};
}

// The largest value may go near either end of the table, so both signs of the scale are tried.
float find_iq4_scale(const float* values, float largest) noexcept {
  Fit best = {};
  for (const float end : {-127.0f, 113.0f}) {
    for (int step = -8; step <= 8; ++step) {
      const Fit fit = fit_iq4(values, (end + 2.0f * static_cast<float>(step)) / largest);
      if (fit.gain > best.gain) best = fit;
    }
  }
  return best.scale;
}

struct Mxfp4Choice {
  float error;  // sum of squares, in units of the scale
  std::array<std::uint8_t, 32> codes;
};

// 2^(127 - exponent), what values are multiplied by before they are matched with E2M1. `exponent` is at most 252.
float mxfp4_factor(int exponent) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(254 - exponent) << 23);
}

Mxfp4Choice quantise_mxfp4(const float* values, int exponent) noexcept {
  const float factor = mxfp4_factor(exponent);
  Mxfp4Choice choice = {};
  for (std::size_t i = 0; i < 32; ++i) {
    const float magnitude = std::abs(values[i]) * factor;
    const std::uint32_t index = nearest_index(kE2m1Boundaries, magnitude);
    const float error = kE2m1Magnitudes[index] - magnitude;
    choice.error += error * error;
    const auto negative = static_cast<std::uint32_t>(values[i] < 0.0f && index != 0);
    choice.codes[i] = static_cast<std::uint8_t>(index | negative << 3);
  }
  return choice;
}

}  // namespace

void encode_block(const float* source, BlockIq4Nl& block) noexcept {
  constexpr float kLimit = 65504.0f * 127.0f;  // beyond it the type has nothing, and the squares might overflow
  std::array<float, 32> values;
  float largest = 0.0f;
  for (std::size_t i = 0; i < 32; ++i) {
    values[i] = std::clamp(source[i], -kLimit, kLimit);
    largest = std::max(largest, std::abs(values[i]));
  }
  constexpr float kFlat = 1e-8f;  // rounds to a half scale of zero
  block.scale = f32_to_f16_saturating(largest < kFlat ? 0.0f : find_iq4_scale(values.data(), largest));
  const float factor = inverse(f16_to_f32(block.scale));
  for (std::size_t j = 0; j < 16; ++j) {
    block.nibbles[j] = static_cast<std::uint8_t>(nearest_index(kIq4Boundaries, values[j] * factor) |
                                                 nearest_index(kIq4Boundaries, values[j + 16] * factor) << 4);
  }
}

// The largest magnitude lies between 4 and 8 scales, of which the type has up to 6; where cutting it costs more than
// coarser steps for all, the next scale is taken.
void encode_block(const float* values, BlockMxfp4& block) noexcept {
  float largest = 0.0f;
  for (std::size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values[i]));
  constexpr int kHighest = 252;  // 6 * 2^(252 - 127) is the last multiple of six that a float holds
  int exponent = largest == 0.0f ? 0 : std::clamp(std::ilogb(largest) - 2 + 127, 0, kHighest);
  Mxfp4Choice choice = quantise_mxfp4(values, exponent);
  if (exponent < kHighest) {
    const Mxfp4Choice coarser = quantise_mxfp4(values, exponent + 1);
    if (coarser.error * 4.0f < choice.error) {
      choice = coarser;
      ++exponent;
    }
  }
  block.exponent = static_cast<std::uint8_t>(exponent);
  for (std::size_t j = 0; j < 16; ++j) {
    block.nibbles[j] = static_cast<std::uint8_t>(choice.codes[j] | choice.codes[j + 16] << 4);
  }
}

}  // namespace quarrel

// Q4_K, Q5_K and Q6_K. A block's group scales are found one by one, each the best of a few candidates whose quants are
// fitted by least squares; the block's half scale is then set by the largest, and each group picks the best of the
// neighbouring steps it can store.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "quant/encode_block.h"
#include "quant/half.h"

namespace quarrel {
namespace {

constexpr float kHalfMax = 65504.0f;
// A spread below half the smallest step there is, 2^-24: nothing to fit, and dividing by it could overflow.
constexpr float kFlat = 1e-8f;
// Candidate scales spread the values over a little less or more than all quants: outliers may be worth cutting.
constexpr int kCandidatesEachWay = 8;
constexpr float kCandidateStep = 0.125f;

// value = scale * quant - minimum, both not negative.
struct Line {
  float scale;
  float minimum;
};

float squared_error(const float* values, const Line& line, int highest) noexcept {
  const float factor = inverse(line.scale);
  float sum = 0.0f;
  for (std::size_t i = 0; i < 32; ++i) {
    const auto quant = static_cast<float>(nearest((values[i] + line.minimum) * factor, 0, highest));
    const float error = line.scale * quant - line.minimum - values[i];
    sum += error * error;
  }
  return sum;
}

// The least-squares line for the quants that `factor` gives. Sums are taken above `low`, where they cancel least.
Line fit_line(const float* values, float low, float factor, int highest) noexcept {
  float sum_q = 0.0f;
  float sum_qq = 0.0f;
  float sum_x = 0.0f;
  float sum_qx = 0.0f;
  for (std::size_t i = 0; i < 32; ++i) {
    const float above = values[i] - low;
    const auto quant = static_cast<float>(nearest(above * factor, 0, highest));
    sum_q += quant;
    sum_qq += quant * quant;
    sum_x += above;
    sum_qx += quant * above;
  }
  const float determinant = 32.0f * sum_qq - sum_q * sum_q;
  if (determinant <= 0.0f) return {0.0f, -low};
  const float scale = (32.0f * sum_qx - sum_q * sum_x) / determinant;
  const float offset = (sum_qq * sum_x - sum_q * sum_qx) / determinant;
  if (offset <= -low) return {scale, -low - offset};
  return {(sum_qx + low * sum_q) / sum_qq, 0.0f};  // a line through zero, the nearest thing with a minimum to store
}

Line find_line(const float* values, int highest) noexcept {
  const auto [smallest, largest] = std::minmax_element(values, values + 32);
  const float low = std::min(*smallest, 0.0f);
  const float spread = *largest - low;
  if (spread < kFlat) return {0.0f, -low};
  Line best = {spread / static_cast<float>(highest), -low};
  float best_error = squared_error(values, best, highest);
  for (int candidate = -kCandidatesEachWay; candidate <= kCandidatesEachWay; ++candidate) {
    const float factor = (static_cast<float>(highest) + kCandidateStep * static_cast<float>(candidate)) / spread;
    const Line line = fit_line(values, low, factor, highest);
    const float error = squared_error(values, line, highest);
    if (line.scale < 0.0f || error >= best_error) continue;
    best = line;
    best_error = error;
  }
  return best;
}

// The storable pair around `wanted` with the smallest error.
ScaleMin store_line(const float* values, const Line& wanted, float scale, float min_scale, int highest) noexcept {
  const int middle_scale = nearest(wanted.scale * inverse(scale), 0, 63);
  const int middle_min = nearest(wanted.minimum * inverse(min_scale), 0, 63);
  ScaleMin best = {};
  float best_error = std::numeric_limits<float>::infinity();
  for (int s = std::max(middle_scale - 1, 0); s <= std::min(middle_scale + 1, 63); ++s) {
    for (int m = std::max(middle_min - 1, 0); m <= std::min(middle_min + 1, 63); ++m) {
      const Line line = {scale * static_cast<float>(s), min_scale * static_cast<float>(m)};
      const float error = squared_error(values, line, highest);
      if (error >= best_error) continue;
      best = {static_cast<std::uint8_t>(s), static_cast<std::uint8_t>(m)};
      best_error = error;
    }
  }
  return best;
}

// The inverse of q4_k_scale_min.
void pack_scale_min(std::uint8_t (&packed)[12], std::size_t group, ScaleMin pair) noexcept {
  if (group < 4) {
    packed[group] = pair.scale;
    packed[group + 4] = pair.minimum;
    return;
  }
  packed[group + 4] = static_cast<std::uint8_t>((pair.scale & 15) | (pair.minimum & 15) << 4);
  packed[group - 4] = static_cast<std::uint8_t>(packed[group - 4] | pair.scale >> 4 << 6);
  packed[group] = static_cast<std::uint8_t>(packed[group] | pair.minimum >> 4 << 6);
}

// Q4_K and Q5_K differ only in the number of quants and in where these go.
template <int highest, typename Block>
void quantise_lines(const float* source, Block& block, std::array<std::uint8_t, 256>& quants) noexcept {
  // Beyond these the type has nothing; cutting first keeps the squares below from overflowing.
  std::array<float, 256> values;
  for (std::size_t i = 0; i < 256; ++i) {
    values[i] = std::clamp(source[i], -kHalfMax * 63.0f, kHalfMax * 63.0f * static_cast<float>(highest));
  }
  std::array<Line, 8> lines;
  Line largest = {};
  for (std::size_t group = 0; group < 8; ++group) {
    lines[group] = find_line(&values[group * 32], highest);
    largest.scale = std::max(largest.scale, lines[group].scale);
    largest.minimum = std::max(largest.minimum, lines[group].minimum);
  }
  block.scale = half_for_scale(largest.scale / 63.0f);
  block.min_scale = half_for_scale(largest.minimum / 63.0f);
  const float scale = f16_to_f32(block.scale);
  const float min_scale = f16_to_f32(block.min_scale);
  for (std::size_t group = 0; group < 8; ++group) {
    const ScaleMin pair = store_line(&values[group * 32], lines[group], scale, min_scale, highest);
    pack_scale_min(block.scales, group, pair);
    const float factor = inverse(scale * static_cast<float>(pair.scale));
    const float minimum = min_scale * static_cast<float>(pair.minimum);
    for (std::size_t i = group * 32; i < group * 32 + 32; ++i) {
      quants[i] = static_cast<std::uint8_t>(nearest((values[i] + minimum) * factor, 0, highest));
    }
  }
}

void pack_nibbles(const std::array<std::uint8_t, 256>& quants, std::uint8_t (&nibbles)[128]) noexcept {
  for (std::size_t i = 0; i < 128; ++i) {
    const std::size_t first = i / 32 * 64 + i % 32;
    nibbles[i] = static_cast<std::uint8_t>((quants[first] & 15) | (quants[first + 32] & 15) << 4);
  }
}

// value = scale * quant with quants from -32 to 31, a group of 16. The scale is negative where the largest value is
// positive, since the lowest quant has no counterpart above.
float find_q6_scale(const float* values) noexcept {
  float extreme = 0.0f;
  for (std::size_t i = 0; i < 16; ++i) extreme = std::abs(values[i]) > std::abs(extreme) ? values[i] : extreme;
  if (std::abs(extreme) < kFlat) return 0.0f;
  float best = 0.0f;
  float best_gain = 0.0f;
  for (int candidate = -kCandidatesEachWay; candidate <= kCandidatesEachWay; ++candidate) {
    const float factor = -(32.0f + kCandidateStep * static_cast<float>(candidate)) / extreme;
    float sum_qx = 0.0f;
    float sum_qq = 0.0f;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto quant = static_cast<float>(nearest(values[i] * factor, -32, 31));
      sum_qx += quant * values[i];
      sum_qq += quant * quant;
    }
    // How much the best scale for these quants takes off the sum of squares.
    const float gain = sum_qx * sum_qx / sum_qq;
    if (gain <= best_gain) continue;
    best = sum_qx / sum_qq;
    best_gain = gain;
  }
  return best;
}

float q6_error(const float* values, float scale) noexcept {
  const float factor = inverse(scale);
  float sum = 0.0f;
  for (std::size_t i = 0; i < 16; ++i) {
    const float error = scale * static_cast<float>(nearest(values[i] * factor, -32, 31)) - values[i];
    sum += error * error;
  }
  return sum;
}

std::int8_t store_q6_scale(const float* values, float wanted, float scale) noexcept {
  const int middle = nearest(wanted * inverse(scale), -128, 127);
  int best = 0;
  float best_error = std::numeric_limits<float>::infinity();
  for (int s = std::max(middle - 1, -128); s <= std::min(middle + 1, 127); ++s) {
    const float error = q6_error(values, scale * static_cast<float>(s));
    if (error >= best_error) continue;
    best = s;
    best_error = error;
  }
  return static_cast<std::int8_t>(best);
}

}  // namespace

void encode_block(const float* values, BlockQ4K& block) noexcept {
  std::array<std::uint8_t, 256> quants;
  quantise_lines<15>(values, block, quants);
  pack_nibbles(quants, block.nibbles);
}

void encode_block(const float* values, BlockQ5K& block) noexcept {
  std::array<std::uint8_t, 256> quants;
  quantise_lines<31>(values, block, quants);
  pack_nibbles(quants, block.nibbles);
  for (std::size_t j = 0; j < 32; ++j) {
    std::uint32_t bits = 0;
    for (std::size_t group = 0; group < 8; ++group) bits |= (quants[group * 32 + j] >> 4 & 1u) << group;
    block.fifth_bits[j] = static_cast<std::uint8_t>(bits);
  }
}

void encode_block(const float* source, BlockQ6K& block) noexcept {
  std::array<float, 256> values;  // cut as in quantise_lines
  for (std::size_t i = 0; i < 256; ++i) {
    values[i] = std::clamp(source[i], -kHalfMax * 128.0f * 32.0f, kHalfMax * 128.0f * 32.0f);
  }
  std::array<float, 16> scales;
  float extreme = 0.0f;
  for (std::size_t group = 0; group < 16; ++group) {
    scales[group] = find_q6_scale(&values[group * 16]);
    extreme = std::abs(scales[group]) > std::abs(extreme) ? scales[group] : extreme;
  }
  block.scale = half_for_scale(extreme / -128.0f);
  const float scale = f16_to_f32(block.scale);
  std::array<std::uint8_t, 256> quants;
  for (std::size_t group = 0; group < 16; ++group) {
    block.scales[group] = store_q6_scale(&values[group * 16], scales[group], scale);
    const float factor = inverse(scale * static_cast<float>(block.scales[group]));
    for (std::size_t i = group * 16; i < group * 16 + 16; ++i) {
      quants[i] = static_cast<std::uint8_t>(nearest(values[i] * factor, -32, 31) + 32);
    }
  }
  for (std::size_t i = 0; i < 128; ++i) {
    const std::size_t first = i / 64 * 128 + i % 64;
    block.nibbles[i] = static_cast<std::uint8_t>((quants[first] & 15) | (quants[first + 64] & 15) << 4);
  }
  for (std::size_t i = 0; i < 64; ++i) {
    std::uint32_t bits = 0;
    for (std::size_t run = 0; run < 4; ++run) bits |= (quants[i / 32 * 128 + run * 32 + i % 32] >> 4 & 3u) << run * 2;
    block.high_bits[i] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace quarrel

// The attention kernel itself at every level: its exponential, the weights of its softmax, and that a tile gives each
// row what the row would get alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/isa.h"
#include "base/aligned_buffer.h"
#include "support/sanitized.h"

namespace quarrel::test {
namespace {

std::size_t as_size(std::int64_t value) { return static_cast<std::size_t>(value); }

// ---- The exponential ----

// The largest error of e^x in units of the last place, over the floats from `first` by `step` to `last` in their order
// away from zero.
double worst_exponential(const CpuKernels& kernels, float first, float last, std::uint32_t step) {
  constexpr std::size_t kMany = 4096;
  std::vector<float> x;
  x.reserve(kMany);
  std::vector<float> y;
  double worst = 0.0;
  const auto judge = [&] {
    y = x;
    kernels.exponential(y.data(), y.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(static_cast<double>(x[i]));
      const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
      const double error = std::abs(static_cast<double>(y[i]) - exact) / unit;
      if (!(error <= worst)) worst = error;
    }
    x.clear();
  };
  const auto end = std::bit_cast<std::uint32_t>(last);
  for (auto bits = std::bit_cast<std::uint32_t>(first); bits <= end; bits += step) {
    x.push_back(std::bit_cast<float>(bits));
    if (x.size() == kMany) judge();
  }
  judge();
  return worst;
}

TEST(AttentionKernel, ExponentialWithinTwoUnits) {
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    const CpuKernels& kernels = kernels_of(level);
    constexpr std::uint32_t kFewer = kSanitized ? 31 : 1;
    EXPECT_LE(worst_exponential(kernels, -1e-30f, -87.0f, 97 * kFewer), 2.0) << "a sweep of all sizes";
    EXPECT_LE(worst_exponential(kernels, -0.5f, -0.75f, kFewer), 2.0) << "every float around -ln 2";
    EXPECT_LE(worst_exponential(kernels, -64.0f, -87.0f, 5 * kFewer), 2.0) << "the far end";
  }
}

TEST(AttentionKernel, ExponentialAtItsEnds) {
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    std::vector<float> values = {0.0f, -0.0f, -1e30f, -std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN()};
    kernels_of(level).exponential(values.data(), values.size());
    EXPECT_EQ(values[0], 1.0f);
    EXPECT_EQ(values[1], 1.0f);
    EXPECT_LE(values[2], 2e-38f);
    EXPECT_LE(values[3], 2e-38f);
    EXPECT_TRUE(std::isnan(values[4]));
  }
}

// ---- A cache of one head in F32, and tasks over it ----

struct Head {
  static constexpr std::int32_t kQueryHeads = 3;
  std::int32_t positions, key_dim, value_dim;
  std::size_t block_floats;
  std::vector<std::int32_t> blocks;
  std::vector<float> cache;
  std::vector<float> q;  // [positions][group][key_dim]

  Head(std::int32_t count, std::int32_t key_width, std::int32_t value_width)
      : positions(count),
        key_dim(key_width),
        value_dim(value_width),
        block_floats(as_size(kKvBlock * (key_width + value_width))),
        blocks(as_size((count + kKvBlock - 1) / kKvBlock)),
        cache(block_floats * blocks.size(), std::numeric_limits<float>::quiet_NaN()),
        q(as_size(count * kQueryHeads * key_width)) {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::int32_t>(blocks.size() - 1 - i);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& value : q) value = normal(random);
    for (std::int32_t p = 0; p < positions; ++p) {
      for (std::int32_t d = 0; d < key_dim; ++d) key(p, d) = normal(random);
      for (std::int32_t d = 0; d < value_dim; ++d) value(p, d) = normal(random);
    }
  }
  float* block(std::int32_t position) {
    return cache.data() + as_size(blocks[as_size(position / kKvBlock)]) * block_floats;
  }
  float& key(std::int32_t position, std::int32_t d) { return block(position)[d * kKvBlock + position % kKvBlock]; }
  float& value(std::int32_t position, std::int32_t d) {
    return block(position)[kKvBlock * key_dim + position % kKvBlock * value_dim + d];
  }

  // Rows [first, first + rows), each at its own position; [rows][group][value_dim].
  std::vector<float> attend(const CpuKernels& kernels, std::int32_t first, std::int32_t rows, std::int32_t window,
                            float scale) {
    const std::size_t queries = as_size(rows * kQueryHeads);
    const AlignedBuffer scratch(attend_scratch_floats(queries, as_size(key_dim), as_size(value_dim)) * sizeof(float),
                                "a test's scratch");
    std::vector<float> out(queries * as_size(value_dim));
    std::vector<std::int32_t> begins(as_size(rows));
    std::vector<std::int32_t> ends(as_size(rows));
    for (std::int32_t r = 0; r < rows; ++r) {
      begins[as_size(r)] = window > 0 ? std::max(0, first + r + 1 - window) : 0;
      ends[as_size(r)] = first + r + 1;
    }
    kernels.attend({.q = q.data() + as_size(first * kQueryHeads * key_dim),
                    .q_stride = as_size(kQueryHeads * key_dim),
                    .out = out.data(),
                    .out_stride = as_size(kQueryHeads * value_dim),
                    .rows = rows,
                    .query_heads = kQueryHeads,
                    .key_dim = key_dim,
                    .value_dim = value_dim,
                    .base = reinterpret_cast<const std::byte*>(cache.data()),
                    .kv_block_bytes = block_floats * sizeof(float),
                    .kv_blocks = blocks.data(),
                    .begins = begins.data(),
                    .ends = ends.data(),
                    .scale = scale,
                    .scratch = scratch.floats()});
    return out;
  }
};

TEST(AttentionKernel, WeightsWithinAHundredThousandth) {
  // Each position's value is a unit vector, so what comes out are the weights.
  constexpr std::int32_t kPositions = 600;
  constexpr std::int32_t kKeyDim = 64;
  Head head(kPositions, kKeyDim, kPositions);
  for (std::int32_t p = 0; p < kPositions; ++p) {
    for (std::int32_t d = 0; d < kPositions; ++d) head.value(p, d) = p == d ? 1.0f : 0.0f;
  }
  for (const IsaLevel level : available_levels()) {
    SCOPED_TRACE(level_name(level));
    for (const float scale : {0.02f, 0.125f, 0.5f}) {  // flat to steep: scores within ±0.6, ±4 and ±16
      const std::int32_t row = kPositions - 1;
      const std::vector<float> weights = head.attend(kernels_of(level), row, 1, 0, scale);
      for (std::int32_t g = 0; g < Head::kQueryHeads; ++g) {
        std::vector<double> scores(kPositions);
        double best = -1e300;
        for (std::int32_t p = 0; p < kPositions; ++p) {
          double score = 0.0;
          for (std::int32_t d = 0; d < kKeyDim; ++d) {
            score += static_cast<double>(head.q[as_size((row * Head::kQueryHeads + g) * kKeyDim + d)]) *
                     static_cast<double>(head.key(p, d));
          }
          scores[as_size(p)] = score * static_cast<double>(scale);
          best = std::max(best, scores[as_size(p)]);
        }
        double total = 0.0;
        for (const double score : scores) total += std::exp(score - best);
        for (std::int32_t p = 0; p < kPositions; ++p) {
          const double exact = std::exp(scores[as_size(p)] - best) / total;
          ASSERT_NEAR(static_cast<double>(weights[as_size(g * kPositions + p)]), exact, 1e-5) << "position " << p;
        }
      }
    }
  }
}

TEST(AttentionKernel, ATileGivesEachRowItsOwnBits) {
  constexpr std::int32_t kPositions = 333;  // what the last block holds beyond is not a number
  for (const std::int32_t value_dim : {64, 20}) {
    Head head(kPositions, 32, value_dim);
    for (const IsaLevel level : available_levels()) {
      SCOPED_TRACE(level_name(level));
      for (const std::int32_t window : {0, 1, 9, 70, 290}) {
        for (const std::int32_t rows : {2, 5, 16, 32}) {
          for (const std::int32_t first : {0, 55, 245, kPositions - rows}) {
            const std::vector<float> tile = head.attend(kernels_of(level), first, rows, window, 0.2f);
            for (std::int32_t r = 0; r < rows; ++r) {
              const std::vector<float> alone = head.attend(kernels_of(level), first + r, 1, window, 0.2f);
              const auto from = tile.begin() + r * Head::kQueryHeads * value_dim;
              ASSERT_EQ(std::vector<float>(from, from + Head::kQueryHeads * value_dim), alone)
                  << "row " << r << " of " << rows << " from " << first << ", window " << window;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quarrel::test

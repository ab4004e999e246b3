// The norm and the hi/lo split, by all threads of a block of kSplitThreads: in a kernel of its own, or at the beginning
// of each block of a GEMV. The same operations in the same order in both.
#pragma once

#include <cstdint>

#include "backend/cuda/activation_split.h"

namespace quarrel::cuda {

inline constexpr int kSplitWarps = kSplitThreads / 32;
inline constexpr int kSplitLargest = 127 * 128;
inline constexpr float kSplitRange = kSplitLargest;
// Groups of smaller values are zero: their scale would be no normal number.
inline constexpr float kSmallestSplit = 1e-30f;

// The sum over the block, the same in every thread. `scratch` holds kSplitWarps floats and may be used again at once.
__device__ inline float block_sum(float value, float* scratch) {
  for (int mask = 16; mask > 0; mask >>= 1) value += __shfl_xor_sync(~0u, value, mask);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kSplitWarps; ++warp) total += scratch[warp];
  return total;
}

// A thread's share of a part of a row, all of it asked for before the first value is used. Loads that follow stores would
// wait for them, because the compiler cannot know that they are to other places.
template <int kHeld>
struct HeldValues {
  static constexpr int kColumns = kHeld * kSplitThreads * 4;
  float4 v[kHeld];

  __device__ static int column(int i) { return (i * kSplitThreads + static_cast<int>(threadIdx.x)) * 4; }

  __device__ void load(const SplitInput& input, int row, int first_column) {
    const float* values = input.rows + static_cast<std::size_t>(row) * input.stride + first_column;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      v[i] = first_column + column(i) < input.columns ? *reinterpret_cast<const float4*>(values + column(i))
                                                      : float4{0.0f, 0.0f, 0.0f, 0.0f};
    }
  }
  __device__ float sum() const {
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) total += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    return total;
  }
  // Of the distances to the mean; columns that do not exist do not count.
  __device__ float squares(const SplitInput& input, int first_column, float mean) const {
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const float a = v[i].x - mean;
      const float b = v[i].y - mean;
      const float c = v[i].z - mean;
      const float d = v[i].w - mean;
      if (first_column + column(i) < input.columns) total += (a * a + b * b) + (c * c + d * d);
    }
    return total;
  }
};

struct RowNorm {
  float mean = 0.0f;
  float scale = 1.0f;
};

// `held` has the first values of the row.
template <int kHeld>
__device__ inline RowNorm row_norm(const SplitInput& input, int row, bool report, float* scratch,
                                   const HeldValues<kHeld>& held) {
  RowNorm norm;
  if (input.norm == NormKind::none) return norm;
  const auto count = static_cast<float>(input.columns);
  const auto over_row = [&](const auto& part) {
    float total = part(held, 0);
    HeldValues<kHeld> more;
    for (int first = more.kColumns; first < input.columns; first += more.kColumns) {
      more.load(input, row, first);
      total += part(more, first);
    }
    return block_sum(total, scratch);
  };
  if (input.norm == NormKind::layer) {
    norm.mean = over_row([](const HeldValues<kHeld>& v, int) { return v.sum(); }) / count;
  }
  const float squares =
      over_row([&](const HeldValues<kHeld>& v, int first) { return v.squares(input, first, norm.mean); });
  norm.scale = 1.0f / sqrtf(squares / count + input.epsilon);
  if (!isfinite(squares)) {
    norm.scale = __int_as_float(0x7fc00000);
    if (report && threadIdx.x == 0 && input.first_bad_layer != nullptr && input.first_bad_layer[row] < 0) {
      input.first_bad_layer[row] = input.layer;
    }
  }
  return norm;
}

// The norm's weights for a thread's first values: they are there from the beginning, and a kernel asks for them before it
// waits for the values.
struct HeldWeights {
  static constexpr int kHeld = 2;
  float4 w[kHeld];

  __device__ explicit HeldWeights(const SplitInput& input) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = HeldValues<kHeld>::column(i);
      w[i] = input.norm_weight != nullptr && column < input.columns
                 ? __ldg(reinterpret_cast<const float4*>(input.norm_weight + column))
                 : float4{1.0f, 1.0f, 1.0f, 1.0f};
    }
  }
};

__device__ inline float4 normed(const SplitInput& input, const RowNorm& norm, float4 v, float4 w, int column) {
  v = {(v.x - norm.mean) * norm.scale, (v.y - norm.mean) * norm.scale, (v.z - norm.mean) * norm.scale,
       (v.w - norm.mean) * norm.scale};
  v = {v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
  if (input.norm_bias != nullptr) {
    const float4 b = __ldg(reinterpret_cast<const float4*>(input.norm_bias + column));
    v = {v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w};
  }
  return v;
}

// The values of a part of a row. Four values are one lane's, a group of 32 is eight neighbouring lanes'. Each operation is
// done for all of a thread's groups before the next one, so that they wait together.
template <int kHeld>
__device__ inline void split_values(const HeldValues<kHeld>& values, int first_column, int padded, int row, int rows,
                                    std::byte* split) {
  // As bits, so that a NaN is larger than everything and is not lost.
  std::uint32_t largest[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const float4 v = values.v[i];
    largest[i] = max(max(__float_as_uint(v.x) & 0x7fffffffu, __float_as_uint(v.y) & 0x7fffffffu),
                     max(__float_as_uint(v.z) & 0x7fffffffu, __float_as_uint(v.w) & 0x7fffffffu));
  }
#pragma unroll
  for (int mask = 1; mask < 8; mask <<= 1) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) largest[i] = max(largest[i], __shfl_xor_sync(~0u, largest[i], mask));
  }
  float scales[kHeld];
  std::uint32_t high[kHeld] = {};
  std::uint32_t low[kHeld] = {};
  int sums[kHeld] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const float maximum = __uint_as_float(largest[i]);
    const bool is_zero = maximum < kSmallestSplit;
    scales[i] = is_zero ? 0.0f : maximum * (1.0f / kSplitRange);
    const float inverse = is_zero ? 0.0f : __fdividef(kSplitRange, maximum);
    if (largest[i] >= 0x7f800000u) scales[i] = __int_as_float(0x7fc00000);
    const float4 v = values.v[i];
    const float four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // One unit in the last place of the quotient must not lead out of the range.
      const int q = min(max(__float2int_rn(four[k] * inverse), -kSplitLargest), kSplitLargest);
      const int hi = (q + 64) >> 7;
      high[i] |= (static_cast<std::uint32_t>(hi) & 255u) << (8 * k);
      low[i] |= (static_cast<std::uint32_t>(q - hi * 128) & 255u) << (8 * k);
      sums[i] += q;
    }
  }
#pragma unroll
  for (int mask = 1; mask < 8; mask <<= 1) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], mask);
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    const int column = first_column + values.column(i);
    if (column >= padded) continue;
    std::byte* chunk = split + static_cast<std::size_t>(column / kChunkColumns) * split_chunk_bytes(rows);
    const int step = column % kChunkColumns / kStepColumns;
    const int word = column % kStepColumns / 4;  // t in the first half of the step, t + 4 in the second
    auto* operands =
        reinterpret_cast<std::uint32_t*>(chunk) + ((step * 2 * rows + 2 * row) * 4 + word % 4) * 2 + word / 4;
    operands[0] = high[i];
    operands[8] = low[i];
    if (word == 0) {
      auto* group_scales = reinterpret_cast<float*>(chunk + split_operand_bytes(rows));
      group_scales[row * kChunkSteps + step] = scales[i];
      float* group_sums = group_scales + rows * kChunkSteps + (2 * row * 4 + step % 4) * 2 + step / 4;
      const float whole = scales[i] * static_cast<float>(sums[i]);
      const float coarse = __uint_as_float(__float_as_uint(whole) & 0xffffe000u);
      group_sums[0] = coarse;
      group_sums[8] = whole - coarse;
    }
  }
}

template <int kHeld>
__device__ inline void split_row_by(const SplitInput& input, const HeldWeights& weights, int row, bool report,
                                    float* scratch, std::byte* split) {
  HeldValues<kHeld> held;
  held.load(input, row, 0);
  const RowNorm norm = row_norm(input, row, report, scratch, held);
  const int padded = (input.columns + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
  for (int first = 0; first < padded; first += held.kColumns) {
    HeldValues<kHeld> next;
    if (first + held.kColumns < padded) next.load(input, row, first + held.kColumns);
    if (input.norm != NormKind::none) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int column = first + held.column(i);
        if (column >= input.columns) continue;
        float4 w = {1.0f, 1.0f, 1.0f, 1.0f};
        if (i < weights.kHeld && first == 0) {
          w = weights.w[i < weights.kHeld ? i : 0];
        } else if (input.norm_weight != nullptr) {
          w = __ldg(reinterpret_cast<const float4*>(input.norm_weight + column));
        }
        held.v[i] = normed(input, norm, held.v[i], w, column);
      }
    }
    split_values(held, first, padded, row, split_rows(input.count), split);
    held = next;
  }
}

// All of one row, padded with zeros to whole chunks.
__device__ inline void split_row(const SplitInput& input, const HeldWeights& weights, int row, bool report,
                                 float* scratch, std::byte* split) {
  if (input.columns <= HeldValues<2>::kColumns) {
    split_row_by<2>(input, weights, row, report, scratch, split);
  } else {
    split_row_by<4>(input, weights, row, report, scratch, split);
  }
}

}  // namespace quarrel::cuda

// The norm and the hi/lo split, by all threads of a block of kSplitThreads: in a kernel of its own, or at the beginning
// of each block of a GEMV. The same operations in the same order in both.
#pragma once

#include <cstdint>

#include "backend/cuda/activation_split.h"

namespace quarrel::cuda {

inline constexpr int kSplitWarps = kSplitThreads / 32;
inline constexpr float kSplitRange = 127.0f * 128.0f;
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

// A thread's share of a row: values of kHeldColumns columns, all asked for before the first is used. Loads that follow
// stores wait for them, because the compiler cannot know that they are to other places.
inline constexpr int kHeld = 4;
inline constexpr int kHeldColumns = kHeld * kSplitThreads * 4;

struct HeldValues {
  float4 v[kHeld];

  __device__ void load(const SplitInput& input, int row, int first_column) {
    const float* values = input.rows + static_cast<std::size_t>(row) * input.stride;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = first_column + (i * kSplitThreads + static_cast<int>(threadIdx.x)) * 4;
      v[i] = column < input.columns ? *reinterpret_cast<const float4*>(values + column)
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
      const int column = first_column + (i * kSplitThreads + static_cast<int>(threadIdx.x)) * 4;
      if (column >= input.columns) break;
      const float a = v[i].x - mean;
      const float b = v[i].y - mean;
      const float c = v[i].z - mean;
      const float d = v[i].w - mean;
      total += (a * a + b * b) + (c * c + d * d);
    }
    return total;
  }
};

struct RowNorm {
  float mean = 0.0f;
  float scale = 1.0f;
};

// `held` has the first values of the row, and has them again afterwards.
__device__ inline RowNorm row_norm(const SplitInput& input, int row, bool report, float* scratch, HeldValues& held) {
  RowNorm norm;
  if (input.norm == NormKind::none) return norm;
  const auto count = static_cast<float>(input.columns);
  const auto over_row = [&](const auto& part) {
    float total = part(held, 0);
    if (input.columns > kHeldColumns) {
      HeldValues more;
      for (int first = kHeldColumns; first < input.columns; first += kHeldColumns) {
        more.load(input, row, first);
        total += part(more, first);
      }
    }
    return block_sum(total, scratch);
  };
  if (input.norm == NormKind::layer) norm.mean = over_row([](const HeldValues& v, int) { return v.sum(); }) / count;
  const float squares =
      over_row([&](const HeldValues& v, int first) { return v.squares(input, first, norm.mean); });
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
inline constexpr int kHeldWeights = 2;

struct HeldWeights {
  float4 w[kHeldWeights];

  __device__ explicit HeldWeights(const SplitInput& input) {
#pragma unroll
    for (int i = 0; i < kHeldWeights; ++i) {
      const int column = (i * kSplitThreads + static_cast<int>(threadIdx.x)) * 4;
      w[i] = input.norm_weight != nullptr && column < input.columns
                 ? __ldg(reinterpret_cast<const float4*>(input.norm_weight + column))
                 : float4{1.0f, 1.0f, 1.0f, 1.0f};
    }
  }
};

__device__ inline float4 normed(const SplitInput& input, const RowNorm& norm, float4 v, const HeldWeights& weights, int i,
                                int column) {
  if (input.norm == NormKind::none) return v;
  v = {(v.x - norm.mean) * norm.scale, (v.y - norm.mean) * norm.scale, (v.z - norm.mean) * norm.scale,
       (v.w - norm.mean) * norm.scale};
  if (input.norm_weight != nullptr) {
    const float4 w = i < kHeldWeights && column < kHeldColumns
                         ? weights.w[i < kHeldWeights ? i : 0]
                         : __ldg(reinterpret_cast<const float4*>(input.norm_weight + column));
    v = {v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w};
  }
  if (input.norm_bias != nullptr) {
    const float4 b = *reinterpret_cast<const float4*>(input.norm_bias + column);
    v = {v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w};
  }
  return v;
}

// Four values of a group of 32; eight neighbouring lanes have the whole group. `column` within the row.
__device__ inline void split_four(float4 v, int column, int row, int rows, std::byte* split) {
  // As bits, so that a NaN is larger than everything and is not lost.
  std::uint32_t largest = __float_as_uint(v.x) & 0x7fffffffu;
  largest = max(largest, __float_as_uint(v.y) & 0x7fffffffu);
  largest = max(largest, __float_as_uint(v.z) & 0x7fffffffu);
  largest = max(largest, __float_as_uint(v.w) & 0x7fffffffu);
  for (int mask = 1; mask < 8; mask <<= 1) largest = max(largest, __shfl_xor_sync(~0u, largest, mask));
  const float maximum = __uint_as_float(largest);
  const bool is_zero = maximum < kSmallestSplit;
  float scale = is_zero ? 0.0f : maximum * (1.0f / kSplitRange);
  const float inverse = is_zero ? 0.0f : __frcp_rn(scale);
  if (largest >= 0x7f800000u) scale = __int_as_float(0x7fc00000);

  const int q[4] = {__float2int_rn(v.x * inverse), __float2int_rn(v.y * inverse), __float2int_rn(v.z * inverse),
                    __float2int_rn(v.w * inverse)};
  std::uint32_t high = 0;
  std::uint32_t low = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int hi = (q[i] + 64) >> 7;
    high |= (static_cast<std::uint32_t>(hi) & 255u) << (8 * i);
    low |= (static_cast<std::uint32_t>(q[i] - hi * 128) & 255u) << (8 * i);
    sum += q[i];
  }
  for (int mask = 1; mask < 8; mask <<= 1) sum += __shfl_xor_sync(~0u, sum, mask);

  std::byte* chunk = split + static_cast<std::size_t>(column / kChunkColumns) * split_chunk_bytes(rows);
  const int step = column % kChunkColumns / kStepColumns;
  const int word = column % kStepColumns / 4;  // t in the first half of the step, t + 4 in the second
  auto* operands = reinterpret_cast<std::uint32_t*>(chunk) + ((step * 2 * rows + 2 * row) * 4 + word % 4) * 2 + word / 4;
  operands[0] = high;
  operands[8] = low;
  if (word == 0) {
    auto* scales = reinterpret_cast<float*>(chunk + split_operand_bytes(rows));
    scales[row * kChunkSteps + step] = scale;
    float* sums = scales + rows * kChunkSteps + (2 * row * 4 + step % 4) * 2 + step / 4;
    const float whole = scale * static_cast<float>(sum);
    const float coarse = __uint_as_float(__float_as_uint(whole) & 0xffffe000u);
    sums[0] = coarse;
    sums[8] = whole - coarse;
  }
}

// All of one row, padded with zeros to whole chunks.
__device__ inline void split_row(const SplitInput& input, const HeldWeights& weights, int row, bool report,
                                 float* scratch, std::byte* split) {
  HeldValues held;
  held.load(input, row, 0);
  const RowNorm norm = row_norm(input, row, report, scratch, held);
  const int padded = (input.columns + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
  for (int first = 0; first < padded; first += kHeldColumns) {
    if (first > 0) held.load(input, row, first);
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int column = first + (i * kSplitThreads + static_cast<int>(threadIdx.x)) * 4;
      if (column >= padded) break;
      split_four(column < input.columns ? normed(input, norm, held.v[i], weights, i, column) : held.v[i], column, row,
                 split_rows(input.count), split);
    }
  }
}

}  // namespace quarrel::cuda

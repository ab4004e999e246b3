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

struct RowNorm {
  float mean = 0.0f;
  float scale = 1.0f;
};

__device__ inline RowNorm row_norm(const SplitInput& input, int row, bool report, float* scratch) {
  RowNorm norm;
  if (input.norm == NormKind::none) return norm;
  const float* values = input.rows + static_cast<std::size_t>(row) * input.stride;
  const auto count = static_cast<float>(input.columns);
  if (input.norm == NormKind::layer) {
    float sum = 0.0f;
    for (int i = threadIdx.x * 4; i < input.columns; i += kSplitThreads * 4) {
      const float4 v = *reinterpret_cast<const float4*>(values + i);
      sum += (v.x + v.y) + (v.z + v.w);
    }
    norm.mean = block_sum(sum, scratch) / count;
  }
  float squares = 0.0f;
  for (int i = threadIdx.x * 4; i < input.columns; i += kSplitThreads * 4) {
    const float4 v = *reinterpret_cast<const float4*>(values + i);
    const float a = v.x - norm.mean;
    const float b = v.y - norm.mean;
    const float c = v.z - norm.mean;
    const float d = v.w - norm.mean;
    squares += (a * a + b * b) + (c * c + d * d);
  }
  squares = block_sum(squares, scratch);
  norm.scale = 1.0f / sqrtf(squares / count + input.epsilon);
  if (!isfinite(squares)) {
    norm.scale = __int_as_float(0x7fc00000);
    if (report && threadIdx.x == 0 && input.first_bad_layer != nullptr && input.first_bad_layer[row] < 0) {
      input.first_bad_layer[row] = input.layer;
    }
  }
  return norm;
}

__device__ inline float4 normed(const SplitInput& input, const RowNorm& norm, float4 v, int column) {
  if (input.norm == NormKind::none) return v;
  v = {(v.x - norm.mean) * norm.scale, (v.y - norm.mean) * norm.scale, (v.z - norm.mean) * norm.scale,
       (v.w - norm.mean) * norm.scale};
  if (input.norm_weight != nullptr) {
    const float4 w = *reinterpret_cast<const float4*>(input.norm_weight + column);
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
  const float inverse = is_zero ? 0.0f : kSplitRange / maximum;
  float scale = is_zero ? 0.0f : maximum / kSplitRange;
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
__device__ inline void split_row(const SplitInput& input, int row, bool report, float* scratch, std::byte* split) {
  const RowNorm norm = row_norm(input, row, report, scratch);
  const float* values = input.rows + static_cast<std::size_t>(row) * input.stride;
  const int padded = (input.columns + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
#pragma unroll 2
  for (int column = threadIdx.x * 4; column < padded; column += kSplitThreads * 4) {
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
    if (column < input.columns) {
      v = normed(input, norm, *reinterpret_cast<const float4*>(values + column), column);
    }
    split_four(v, column, row, input.count, split);
  }
}

}  // namespace quarrel::cuda

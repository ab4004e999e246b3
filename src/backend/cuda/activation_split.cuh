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

// A chunk of 256 columns belongs to warp chunk % kSplitWarps, here as in the GEMV: a warp there needs what it has split
// itself and nothing else, and does not wait for the others. Lane l has columns 4 l to 4 l + 3 of each half of a chunk.
constexpr int kHeldChunks = 2;

__device__ inline int lane_column(int chunk, int half) {
  return chunk * kChunkColumns + half * (kChunkColumns / 2) + static_cast<int>(threadIdx.x) % 32 * 4;
}

// A lane's share of some of its warp's chunks, all of it asked for before the first value is used. Loads that follow
// stores would wait for them, because the compiler cannot know that they are to other places.
struct HeldValues {
  float4 v[kHeldChunks][2];

  __device__ void load(const SplitInput& input, int row, int first_chunk) {
    const float* values = input.rows + static_cast<std::size_t>(row) * input.stride;
#pragma unroll
    for (int c = 0; c < kHeldChunks; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int column = lane_column(first_chunk + c * kSplitWarps, half);
        v[c][half] =
            column < input.columns ? *reinterpret_cast<const float4*>(values + column) : float4{0.0f, 0.0f, 0.0f, 0.0f};
      }
    }
  }
  __device__ float sum() const {
    float total = 0.0f;
#pragma unroll
    for (const auto& chunk : v) {
#pragma unroll
      for (const float4& f : chunk) total += (f.x + f.y) + (f.z + f.w);
    }
    return total;
  }
  // Of the distances to the mean; columns that do not exist do not count.
  __device__ float squares(const SplitInput& input, int first_chunk, float mean) const {
    float total = 0.0f;
#pragma unroll
    for (int c = 0; c < kHeldChunks; ++c) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 f = {v[c][half].x - mean, v[c][half].y - mean, v[c][half].z - mean, v[c][half].w - mean};
        const float squares = (f.x * f.x + f.y * f.y) + (f.z * f.z + f.w * f.w);
        if (lane_column(first_chunk + c * kSplitWarps, half) < input.columns) total += squares;
      }
    }
    return total;
  }
};

struct RowNorm {
  float mean = 0.0f;
  float scale = 1.0f;
};

// `held` has the first values of the row.
__device__ inline RowNorm row_norm(const SplitInput& input, int row, bool report, float* scratch,
                                   const HeldValues& held) {
  RowNorm norm;
  if (input.norm == NormKind::none) return norm;
  const auto count = static_cast<float>(input.columns);
  const int warp = threadIdx.x / 32;
  const auto over_row = [&](const auto& part) {
    float total = part(held, warp);
    for (int first = warp + kHeldChunks * kSplitWarps; first * kChunkColumns < input.columns;
         first += kHeldChunks * kSplitWarps) {
      HeldValues more;
      more.load(input, row, first);
      total += part(more, first);
    }
    return block_sum(total, scratch);
  };
  if (input.norm == NormKind::layer) {
    norm.mean = over_row([](const HeldValues& v, int) { return v.sum(); }) / count;
  }
  const float squares = over_row([&](const HeldValues& v, int first) { return v.squares(input, first, norm.mean); });
  norm.scale = 1.0f / sqrtf(squares / count + input.epsilon);
  if (!isfinite(squares)) {
    norm.scale = __int_as_float(0x7fc00000);
    if (report && threadIdx.x == 0 && input.first_bad_layer != nullptr && input.first_bad_layer[row] < 0) {
      input.first_bad_layer[row] = input.layer;
    }
  }
  return norm;
}

// The norm's weights for a lane's first chunk: they are there from the beginning, and a kernel asks for them before it
// waits for the values.
struct HeldWeights {
  float4 w[2];

  __device__ explicit HeldWeights(const SplitInput& input) {
#pragma unroll
    for (int half = 0; half < 2; ++half) w[half] = load(input, lane_column(static_cast<int>(threadIdx.x) / 32, half));
  }
  __device__ static float4 load(const SplitInput& input, int column) {
    return input.norm_weight != nullptr && column < input.columns
               ? __ldg(reinterpret_cast<const float4*>(input.norm_weight + column))
               : float4{1.0f, 1.0f, 1.0f, 1.0f};
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

// One chunk of a row by one warp; eight neighbouring lanes have a group of 32. Both halves take each step together, so
// that they wait together.
__device__ inline void split_chunk(const float4 (&values)[2], int chunk_number, int row, int rows, std::byte* split) {
  // As bits, so that a NaN is larger than everything and is not lost.
  std::uint32_t largest[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 v = values[half];
    largest[half] = max(max(__float_as_uint(v.x) & 0x7fffffffu, __float_as_uint(v.y) & 0x7fffffffu),
                        max(__float_as_uint(v.z) & 0x7fffffffu, __float_as_uint(v.w) & 0x7fffffffu));
  }
#pragma unroll
  for (int mask = 1; mask < 8; mask <<= 1) {
#pragma unroll
    for (std::uint32_t& most : largest) most = max(most, __shfl_xor_sync(~0u, most, mask));
  }
  float scales[2];
  std::uint32_t high[2] = {0, 0};
  std::uint32_t low[2] = {0, 0};
  int sums[2] = {0, 0};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float maximum = __uint_as_float(largest[half]);
    const bool is_zero = maximum < kSmallestSplit;
    scales[half] = is_zero ? 0.0f : maximum * (1.0f / kSplitRange);
    const float inverse = is_zero ? 0.0f : __fdividef(kSplitRange, maximum);
    if (largest[half] >= 0x7f800000u) scales[half] = __int_as_float(0x7fc00000);
    const float four[4] = {values[half].x, values[half].y, values[half].z, values[half].w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // One unit in the last place of the quotient must not lead out of the range.
      const int q = min(max(__float2int_rn(four[k] * inverse), -kSplitLargest), kSplitLargest);
      const int hi = (q + 64) >> 7;
      high[half] |= (static_cast<std::uint32_t>(hi) & 255u) << (8 * k);
      low[half] |= (static_cast<std::uint32_t>(q - hi * 128) & 255u) << (8 * k);
      sums[half] += q;
    }
  }
#pragma unroll
  for (int mask = 1; mask < 8; mask <<= 1) {
#pragma unroll
    for (int& sum : sums) sum += __shfl_xor_sync(~0u, sum, mask);
  }
  const int lane = threadIdx.x % 32;
  std::byte* chunk = split + static_cast<std::size_t>(chunk_number) * split_chunk_bytes(rows);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int step = half * 4 + lane / 8;
    const int word = lane % 8;  // t in the first half of the step, t + 4 in the second
    auto* operands =
        reinterpret_cast<std::uint32_t*>(chunk) + ((step * 2 * rows + 2 * row) * 4 + word % 4) * 2 + word / 4;
    operands[0] = high[half];
    operands[8] = low[half];
    if (word == 0) {
      auto* group_scales = reinterpret_cast<float*>(chunk + split_operand_bytes(rows));
      group_scales[row * kChunkSteps + step] = scales[half];
      float* group_sums = group_scales + rows * kChunkSteps + (2 * row * 4 + step % 4) * 2 + step / 4;
      const float whole = scales[half] * static_cast<float>(sums[half]);
      const float coarse = __uint_as_float(__float_as_uint(whole) & 0xffffe000u);
      group_sums[0] = coarse;
      group_sums[8] = whole - coarse;
    }
  }
}

// A warp's chunks of one row, of which `held` has the first values; the last one is padded with zeros. Without a norm
// warps do not wait for each other.
__device__ inline void split_held(const SplitInput& input, const HeldWeights& weights, HeldValues& held, int row,
                                  bool report, float* scratch, std::byte* split) {
  const int warp = threadIdx.x / 32;
  const int chunks = (input.columns + kChunkColumns - 1) / kChunkColumns;
  const RowNorm norm = row_norm(input, row, report, scratch, held);
  for (int first = warp; first < chunks; first += kHeldChunks * kSplitWarps) {
    if (first > warp) held.load(input, row, first);
#pragma unroll
    for (int c = 0; c < kHeldChunks; ++c) {
      const int chunk = first + c * kSplitWarps;
      if (chunk >= chunks) break;
      if (input.norm != NormKind::none) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int column = lane_column(chunk, half);
          const float4 w = c == 0 && first == warp ? weights.w[half] : HeldWeights::load(input, column);
          if (column < input.columns) held.v[c][half] = normed(input, norm, held.v[c][half], w, column);
        }
      }
      split_chunk(held.v[c], chunk, row, split_rows(input.count), split);
    }
  }
}

__device__ inline void split_row(const SplitInput& input, const HeldWeights& weights, int row, bool report,
                                 float* scratch, std::byte* split) {
  HeldValues held;
  held.load(input, row, threadIdx.x / 32);
  split_held(input, weights, held, row, report, scratch, split);
}

}  // namespace quarrel::cuda

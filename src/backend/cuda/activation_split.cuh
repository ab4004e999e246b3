// The norm and the hi/lo split, by all threads of a block of kSplitThreads: in a kernel of its own, or at the beginning
// of each block of a GEMV. The same operations in the same order in both. What is done here once a kernel is issued by
// sixteen warps with little else to do: an instruction more costs about two nanoseconds.
#pragma once

#include <cstdint>

#include "backend/cuda/activation_split.h"

namespace quarrel::cuda {

inline constexpr float kSplitRange = 127 * kSplitBase;
// Groups of smaller values are zero: their scale would be no normal number.
inline constexpr float kSmallestSplit = 1e-30f;

// The larger one, or a NaN if either is.
__device__ inline float larger_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

__device__ inline void note_bad_row(const SplitInput& input, int row) {
  if (input.first_bad_layer != nullptr && input.first_bad_layer[row] < 0) input.first_bad_layer[row] = input.layer;
}

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
// itself and nothing else, and does not wait for the others. Lane 4 g + t has columns 4 t to 4 t + 3 of each half of
// step g: the two words that it stores lie side by side.
__device__ inline int lane_column(int chunk, int half) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return chunk * kChunkColumns + lane / 4 * kStepColumns + half * (kStepColumns / 2) + lane % 4 * 4;
}

// A lane's share of a chunk.
struct HeldChunk {
  float4 v[2];

  // Zeros where there are no columns.
  __device__ void load_row(const SplitInput& input, int row, int chunk) {
    load(input, input.rows + static_cast<std::size_t>(row) * input.stride, chunk, 0.0f);
  }
  // The norm's: ones where there are none.
  __device__ void load_weights(const SplitInput& input, int chunk) { load(input, input.norm_weight, chunk, 1.0f); }
  __device__ float sum() const { return sum_of(v[0]) + sum_of(v[1]); }
  // Of the distances to the mean; columns that do not exist do not count.
  __device__ float squares(const SplitInput& input, int chunk, float mean) const {
    float total = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4& f = v[half];
      const float squares = square_of({f.x - mean, f.y - mean, f.z - mean, f.w - mean});
      if (lane_column(chunk, half) < input.columns) total += squares;
    }
    return total;
  }
  __device__ float squares() const { return square_of(v[0]) + square_of(v[1]); }

 private:
  __device__ void load(const SplitInput& input, const float* values, int chunk, float otherwise) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = lane_column(chunk, half);
      v[half] = {otherwise, otherwise, otherwise, otherwise};
      if (values != nullptr && column < input.columns) v[half] = *reinterpret_cast<const float4*>(values + column);
    }
  }
  __device__ static float sum_of(const float4& f) { return (f.x + f.y) + (f.z + f.w); }
  __device__ static float square_of(const float4& f) { return (f.x * f.x + f.y * f.y) + (f.z * f.z + f.w * f.w); }
};

struct RowNorm {
  float mean = 0.0f;
  float scale = 1.0f;
};

// The norm of a whole row, the same in every thread.
__device__ inline RowNorm row_norm(const SplitInput& input, int row, bool report, float* scratch) {
  RowNorm norm;
  if (input.norm == NormKind::none) return norm;
  const auto count = static_cast<float>(input.columns);
  const auto over_row = [&](const auto& part) {
    float total = 0.0f;
#pragma unroll 1
    for (int chunk = static_cast<int>(threadIdx.x) / 32; chunk * kChunkColumns < input.columns; chunk += kSplitWarps) {
      HeldChunk held;
      held.load_row(input, row, chunk);
      total += part(held, chunk);
    }
    return block_sum(total, scratch);
  };
  if (input.norm == NormKind::layer) {
    norm.mean = over_row([](const HeldChunk& x, int) { return x.sum(); }) / count;
  }
  const float squares = over_row([&](const HeldChunk& x, int chunk) { return x.squares(input, chunk, norm.mean); });
  norm.scale = 1.0f / sqrtf(squares / count + input.epsilon);
  if (!isfinite(squares)) {
    norm.scale = __int_as_float(0x7fc00000);
    if (report && threadIdx.x == 0) note_bad_row(input, row);
  }
  return norm;
}

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

// ---- RMS norms: the scale is the same for a whole row, so it is left to the end of the GEMV, and no warp waits ----

// A bias is added to numbers that are normed already: then nothing is left.
__device__ inline bool leaves_scale(const SplitInput& input) {
  return input.norm == NormKind::rms && input.norm_bias == nullptr;
}

static_assert(kSplitWarps == 16);

// Of sixteen numbers, one a warp.
__device__ inline float quarter_of_warps(const float* of_warps, int quarter) {
  const auto four = reinterpret_cast<const float4*>(of_warps)[quarter];
  return (four.x + four.y) + (four.z + four.w);
}

// What all values of a row are yet to be multiplied with, from the sum of its squares.
__device__ inline float left_scale_of(const SplitInput& input, float total) {
  return isfinite(total) ? rsqrtf(__fdividef(total, static_cast<float>(input.columns)) + input.epsilon)
                         : __int_as_float(0x7fc00000);
}

// The same from what split_row() has noted.
__device__ inline float left_scale(const SplitInput& input, const float* squares) {
  if (!leaves_scale(input)) return 1.0f;
  return left_scale_of(input, (quarter_of_warps(squares, 0) + quarter_of_warps(squares, 1)) +
                                  (quarter_of_warps(squares, 2) + quarter_of_warps(squares, 3)));
}

// How the values of a group become integers.
struct GroupScale {
  // The last bits of a float of this size are an integer. One unit in the last place of the quotient does not lead out
  // of the range of two bytes. Half a low byte is added, so that the high byte is rounded.
  static constexpr float kIntegers = 12582912.0f + kSplitBase / 2;
  static constexpr std::uint32_t kZero = 0x4b400000u + kSplitBase / 2;
  float scale;
  float inverse;

  // Of the largest value, or of a NaN.
  __device__ explicit GroupScale(float maximum) {
    const bool is_zero = maximum < kSmallestSplit;
    scale = is_zero ? 0.0f : maximum * (1.0f / kSplitRange);
    if (!(maximum < INFINITY)) scale = __int_as_float(0x7fc00000);
    inverse = is_zero ? 0.0f : __fdividef(kSplitRange, maximum);
  }
  __device__ std::uint32_t integer(float value) const { return __float_as_uint(fmaf(value, inverse, kIntegers)); }

  // The scale, and the sum of the group's integers, for row `row` of `rows`.
  __device__ void store(std::byte* chunk, int row, int rows, int step, std::uint32_t sum) const {
    auto* scales = reinterpret_cast<float*>(chunk + split_operand_bytes(rows));
    scales[row * kChunkSteps + step] = scale;
    float* sums = scales + rows * kChunkSteps + (2 * row * 4 + step % 4) * 2 + step / 4;
    const float whole = scale * static_cast<float>(static_cast<int>(sum));
    const float coarse = __uint_as_float(__float_as_uint(whole) & 0xffffe000u);
    sums[0] = coarse;
    sums[8] = whole - coarse;
  }
};

// One chunk of a row by one warp; the four lanes of a quad have a group of 32.
__device__ inline void split_chunk(const float4 (&values)[2], int chunk_number, int row, int rows, std::byte* split) {
  const float v[8] = {values[0].x, values[0].y, values[0].z, values[0].w,
                      values[1].x, values[1].y, values[1].z, values[1].w};
  float maximum = fabsf(v[0]);
#pragma unroll
  for (int i = 1; i < 8; ++i) maximum = larger_or_nan(maximum, fabsf(v[i]));
#pragma unroll
  for (int mask = 1; mask < 4; mask <<= 1) {
    maximum = larger_or_nan(maximum, __shfl_xor_sync(~0u, maximum, mask));
  }
  const GroupScale scale(maximum);
  std::uint32_t high[2];
  std::uint32_t low[2];
  std::uint32_t sum = 0u - 8u * GroupScale::kZero;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint32_t q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) q[i] = scale.integer(v[4 * half + i]);
    sum += (q[0] + q[1]) + (q[2] + q[3]);
    const std::uint32_t first = __byte_perm(q[0], q[1], 0x5140);
    const std::uint32_t second = __byte_perm(q[2], q[3], 0x5140);
    low[half] = __byte_perm(first, second, 0x5410) ^ 0x80808080u;
    high[half] = __byte_perm(first, second, 0x7632);
  }
#pragma unroll
  for (int mask = 1; mask < 4; mask <<= 1) sum += __shfl_xor_sync(~0u, sum, mask);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int step = lane / 4;
  std::byte* chunk = split + static_cast<std::size_t>(chunk_number) * split_chunk_bytes(rows);
  auto* operands = reinterpret_cast<uint2*>(chunk) + (step * 2 * rows + 2 * row) * 4 + lane % 4;
  operands[0] = {high[0], high[1]};
  operands[4] = {low[0], low[1]};
  if (lane % 4 == 0) scale.store(chunk, row, rows, step, sum);
}

// 32 values of a warp, one a lane, as step `step` of a split row that is alone: what split_chunk() makes of them.
__device__ inline void split_step(float value, std::byte* split, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float maximum = fabsf(value);
#pragma unroll
  for (int mask = 1; mask < 32; mask <<= 1) {
    maximum = larger_or_nan(maximum, __shfl_xor_sync(~0u, maximum, mask));
  }
  const GroupScale scale(maximum);
  const std::uint32_t q = scale.integer(value);
  std::uint32_t low = (q & 255u) << (8 * (lane % 4));
  std::uint32_t high = (q >> 8 & 255u) << (8 * (lane % 4));
#pragma unroll
  for (int mask = 1; mask < 4; mask <<= 1) {
    high |= __shfl_xor_sync(~0u, high, mask);
    low |= __shfl_xor_sync(~0u, low, mask);
  }
  const auto sum = __reduce_add_sync(~0u, q) - 32u * GroupScale::kZero;
  std::byte* chunk = split + static_cast<std::size_t>(step / kChunkSteps) * split_chunk_bytes(1);
  step %= kChunkSteps;
  const int word = lane / 4;
  if (lane % 4 == 0) {
    auto* operands = reinterpret_cast<std::uint32_t*>(chunk) + step * 16 + word % 4 * 2 + word / 4;
    operands[0] = high;
    operands[8] = low ^ 0x80808080u;
  }
  if (lane == 0) scale.store(chunk, 0, 1, step, sum);
}

// What the last chunk of a row of `steps` steps lacks.
__device__ inline void split_rest_of_chunk(std::byte* split, int steps) {
  for (; steps % kChunkSteps != 0; ++steps) split_step(0.0f, split, steps);
}

// What a warp asks for before it needs it: its first chunk of a row, and of the norm's weights.
struct FirstChunk {
  HeldChunk weights;
  HeldChunk row;

  // The weights have been there all along: before the kernel waits.
  __device__ explicit FirstChunk(const SplitInput& input) {
    weights.load_weights(input, static_cast<int>(threadIdx.x) / 32);
  }
  __device__ void load_row(const SplitInput& input, int number) {
    row.load_row(input, number, static_cast<int>(threadIdx.x) / 32);
  }
};

// A warp's chunks of row `row`, whose first one `first` has; into place `place` of `rows`. The row's last chunk is
// padded with zeros. `squares` gets each warp's part of the sum of squares: left_scale() needs them after a barrier.
__device__ inline void split_row(const SplitInput& input, const FirstChunk& first, int row, bool report, int place,
                                 int rows, float* squares, float* scratch, std::byte* split) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int chunks = (input.columns + kChunkColumns - 1) / kChunkColumns;
  const bool is_normed = input.norm != NormKind::none && !leaves_scale(input);
  RowNorm norm;
  if (is_normed) norm = row_norm(input, row, report, scratch);
  HeldChunk x = first.row;
  HeldChunk w = first.weights;
  float total = 0.0f;
#pragma unroll 1
  for (int chunk = warp; chunk < chunks; chunk += kSplitWarps) {
    HeldChunk next_x;
    HeldChunk next_w;
    if (chunk + kSplitWarps < chunks) {
      next_x.load_row(input, row, chunk + kSplitWarps);
      next_w.load_weights(input, chunk + kSplitWarps);
    }
    total += x.squares();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float4& v = x.v[half];
      const float4& f = w.v[half];
      if (!is_normed) {
        v = {v.x * f.x, v.y * f.y, v.z * f.z, v.w * f.w};
      } else if (lane_column(chunk, half) < input.columns) {
        v = normed(input, norm, v, f, lane_column(chunk, half));
      }
    }
    split_chunk(x.v, chunk, place, rows, split);
    x = next_x;
    w = next_w;
  }
  if (!leaves_scale(input)) return;
  for (int mask = 16; mask > 0; mask >>= 1) total += __shfl_xor_sync(~0u, total, mask);
  if (threadIdx.x % 32 == 0) squares[warp] = total;
}

}  // namespace quarrel::cuda

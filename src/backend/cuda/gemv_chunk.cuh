// The inner loop of the GEMV: what a warp does with one chunk, 16 rows by 256 columns of weights in shared memory, for
// groups of four input rows. One specialisation a way of scaling; the formats differ in how codes become operands.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/activation_split.h"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/weight_format.h"

namespace quarrel::cuda {

// What a lane needs of the activations of one chunk. Lanes whose row does not exist read the last one, and nobody
// reads their results.
template <int kGroups>
struct ActivationView {
  int step_bytes;               // from one step's operands to the next's
  int operand_offset[kGroups];  // of B column 8 j + g
  int scale_offset[kGroups];    // of row 4 j + t
  int sum_offset[kGroups];      // of B column 8 j + g

  __device__ ActivationView(int rows, int lane) : step_bytes(2 * rows * kStepColumns) {
    const int g = lane / 4;
    const int t = lane % 4;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int column = min(8 * j + g, 2 * rows - 1);
      operand_offset[j] = (column * 4 + t) * 8;
      scale_offset[j] = split_operand_bytes(rows) + min(4 * j + t, rows - 1) * kChunkSteps * 4;
      sum_offset[j] = split_operand_bytes(rows) + split_scale_bytes(rows) + (column * 4 + t) * 8;
    }
  }
};

template <typename T>
__device__ inline T at(const std::byte* place) {
  return *reinterpret_cast<const T*>(place);
}

__device__ inline std::uint32_t element(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

__device__ inline float half_of(std::uint32_t pair, int i) {
  const __half2 halves = *reinterpret_cast<const __half2*>(&pair);
  return i == 0 ? __low2float(halves) : __high2float(halves);
}

// Byte i of a word, as it is or with its sign.
__device__ inline int byte_of_word(std::uint32_t word, int i) {
  return static_cast<int>(__byte_perm(word, 0, 0x4440u + static_cast<std::uint32_t>(i)));
}
__device__ inline int signed_byte_of_word(std::uint32_t word, int i) {
  const auto s = static_cast<std::uint32_t>(i);
  return static_cast<int>(__byte_perm(word, 0, (8u + s) << 12 | (8u + s) << 8 | (8u + s) << 4 | s));
}

__device__ inline std::uint32_t shifted(std::uint32_t word, int left) {
  return left >= 0 ? word << left : word >> -left;
}

// The A operand of step `step` (a constant after unrolling). Symmetric codes end at the top of their byte.
template <WeightFormat F>
__device__ inline void operand(const uint4& codes, const uint4& high, int step, std::uint32_t (&a)[4]) {
  constexpr int kBits = code_bits(F);
  constexpr int kTop = is_symmetric(F) ? 8 - kBits : 0;  // how far codes are shifted up
  constexpr std::uint32_t kNibbles = 0x0f0f0f0fu << kTop;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t word = element(codes, i);
    if constexpr (kBits == 8) {
      a[i] = word;
    } else {
      a[i] = shifted(word, kTop - step % 2 * 4) & kNibbles;
    }
    if constexpr (kBits == 5) a[i] |= shifted(element(high, i), 4 + kTop - step) & (0x10101010u << kTop);
    if constexpr (kBits == 6) a[i] |= shifted(element(high, i), 4 + kTop - step % 4 * 2) & (0x30303030u << kTop);
  }
}

// hi and lo of one input row to one number.
__device__ inline int joined(int high, int low) { return high * 128 + low; }

// Blocks of 32 with a scale each, and a minimum if they are not symmetric.
template <WeightFormat F, int kGroups>
__device__ inline void consume_block_scales(const std::byte* chunk, const std::byte* activations,
                                            const ActivationView<kGroups>& view, int lane, float (&sums)[kGroups][2]) {
  constexpr int kBits = code_bits(F);
  constexpr float kUnit = is_symmetric(F) ? 1.0f / (1 << (8 - kBits)) : 1.0f;
  const int g = lane / 4;
  const int t = lane % 4;
  const std::byte* records = chunk + records_offset(F) + g * record_bytes(F);
  constexpr int kOther = 8 * record_bytes(F);  // from row g to row g + 8
  const auto scales0 = at<uint4>(records);
  const auto scales1 = at<uint4>(records + kOther);
  uint4 high{};
  if constexpr (kBits == 5) high = at<uint4>(chunk + high_bits_offset(F) + lane * 16);
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    float4 scales[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) scales[j] = at<float4>(activations + view.scale_offset[j] + quad * 16);
    uint4 codes{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int step = quad * 4 + i;
      if (kBits == 8) {
        codes = at<uint4>(chunk + step * 512 + lane * 16);
      } else if (i % 2 == 0) {
        codes = at<uint4>(chunk + step / 2 * 512 + lane * 16);
      }
      std::uint32_t a[4];
      operand<F>(codes, high, step, a);
      const float weight0 = half_of(element(scales0, step / 2), step % 2) * kUnit;
      const float weight1 = half_of(element(scales1, step / 2), step % 2) * kUnit;
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        int c[4] = {0, 0, 0, 0};
        mma_k32<is_symmetric(F)>(c, a, at<uint2>(activations + view.operand_offset[j] + step * view.step_bytes));
        const float scale = i == 0 ? scales[j].x : i == 1 ? scales[j].y : i == 2 ? scales[j].z : scales[j].w;
        sums[j][0] = fmaf(static_cast<float>(joined(c[0], c[1])), weight0 * scale, sums[j][0]);
        sums[j][1] = fmaf(static_cast<float>(joined(c[2], c[3])), weight1 * scale, sums[j][1]);
      }
    }
  }
  if constexpr (!is_symmetric(F)) {
    const auto minimum = [&](int row_offset, int step) {
      return __half2float(at<__half>(records + row_offset + (kChunkSteps + step) * 2));
    };
    const float m[4] = {minimum(0, t), minimum(kOther, t), minimum(0, t + 4), minimum(kOther, t + 4)};
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const auto b = at<float2>(activations + view.sum_offset[j]);
      float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      mma_tf32(c, m[0], m[1], m[2], m[3], b.x, b.y);
      sums[j][0] += c[0] + c[1];
      sums[j][1] += c[2] + c[3];
    }
  }
}

// Q4_K's and Q5_K's six-bit scales and minimums of a row, a byte each: steps 0-3 and 4-7.
struct UnpackedScales {
  std::uint32_t scales[2];
  std::uint32_t minimums[2];

  __device__ explicit UnpackedScales(const uint4& record) {
    scales[0] = record.y & 0x3f3f3f3fu;
    minimums[0] = record.z & 0x3f3f3f3fu;
    scales[1] = (record.w & 0x0f0f0f0fu) | (record.y >> 2 & 0x30303030u);
    minimums[1] = (record.w >> 4 & 0x0f0f0f0fu) | (record.z >> 2 & 0x30303030u);
  }
};

// Q4_K and Q5_K: the group's integer scale is multiplied in as an integer, at most 32 * 31 * 16256 * 63 < 2^31.
template <WeightFormat F, int kGroups>
__device__ inline void consume_k_scales(const std::byte* chunk, const std::byte* activations,
                                        const ActivationView<kGroups>& view, int lane, float (&sums)[kGroups][2]) {
  const int g = lane / 4;
  const int t = lane % 4;
  const std::byte* records = chunk + records_offset(F) + g * record_bytes(F);
  const auto record0 = at<uint4>(records);
  const auto record1 = at<uint4>(records + 8 * record_bytes(F));
  const UnpackedScales row0(record0);
  const UnpackedScales row1(record1);
  uint4 high{};
  if constexpr (code_bits(F) == 5) high = at<uint4>(chunk + high_bits_offset(F) + lane * 16);
  float parts[kGroups][2] = {};
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    float4 scales[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) scales[j] = at<float4>(activations + view.scale_offset[j] + quad * 16);
    uint4 codes{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int step = quad * 4 + i;
      if (i % 2 == 0) codes = at<uint4>(chunk + step / 2 * 512 + lane * 16);
      std::uint32_t a[4];
      operand<F>(codes, high, step, a);
      const int weight0 = byte_of_word(row0.scales[quad], i);
      const int weight1 = byte_of_word(row1.scales[quad], i);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        int c[4] = {0, 0, 0, 0};
        mma_k32<false>(c, a, at<uint2>(activations + view.operand_offset[j] + step * view.step_bytes));
        const float scale = i == 0 ? scales[j].x : i == 1 ? scales[j].y : i == 2 ? scales[j].z : scales[j].w;
        parts[j][0] = fmaf(static_cast<float>(joined(c[0], c[1]) * weight0), scale, parts[j][0]);
        parts[j][1] = fmaf(static_cast<float>(joined(c[2], c[3]) * weight1), scale, parts[j][1]);
      }
    }
  }
  const auto minimum = [t](const UnpackedScales& row, int half) {
    return static_cast<float>(row.minimums[half] >> (8 * t) & 255u);
  };
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const auto b = at<float2>(activations + view.sum_offset[j]);
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    mma_tf32(c, minimum(row0, 0), minimum(row1, 0), minimum(row0, 1), minimum(row1, 1), b.x, b.y);
    sums[j][0] = fmaf(half_of(record0.x, 0), parts[j][0], sums[j][0]);
    sums[j][1] = fmaf(half_of(record1.x, 0), parts[j][1], sums[j][1]);
    sums[j][0] = fmaf(half_of(record0.x, 1), -(c[0] + c[1]), sums[j][0]);
    sums[j][1] = fmaf(half_of(record1.x, 1), -(c[2] + c[3]), sums[j][1]);
  }
}

// Q6_K: a scale every 16 columns. Codes stand four times too large at the top of their bytes; the sums are made smaller
// again before the scales come, at most 2 * 16 * 32 * 16256 * 128 < 2^31.
template <int kGroups>
__device__ inline void consume_q6_k(const std::byte* chunk, const std::byte* activations,
                                    const ActivationView<kGroups>& view, int lane, float (&sums)[kGroups][2]) {
  constexpr WeightFormat F = WeightFormat::q6_k;
  const int g = lane / 4;
  const auto scales0 = at<uint4>(chunk + records_offset(F) + g * 16);
  const auto scales1 = at<uint4>(chunk + records_offset(F) + g * 16 + 128);
  const auto joined_quarter = [](int high, int low) { return high * 32 + (low >> 2); };
  float parts[kGroups][2] = {};
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    const auto high = at<uint4>(chunk + high_bits_offset(F) + quad * 512 + lane * 16);
    float4 scales[kGroups];
#pragma unroll
    for (int j = 0; j < kGroups; ++j) scales[j] = at<float4>(activations + view.scale_offset[j] + quad * 16);
    uint4 codes{};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int step = quad * 4 + i;
      if (i % 2 == 0) codes = at<uint4>(chunk + step / 2 * 512 + lane * 16);
      std::uint32_t a[4];
      operand<F>(codes, high, step, a);
      const std::uint32_t word0 = element(scales0, step / 2);
      const std::uint32_t word1 = element(scales1, step / 2);
      const int weight0[2] = {signed_byte_of_word(word0, step % 2 * 2), signed_byte_of_word(word0, step % 2 * 2 + 1)};
      const int weight1[2] = {signed_byte_of_word(word1, step % 2 * 2), signed_byte_of_word(word1, step % 2 * 2 + 1)};
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const auto b = at<uint2>(activations + view.operand_offset[j] + step * view.step_bytes);
        int c[4] = {0, 0, 0, 0};
        int d[4] = {0, 0, 0, 0};
        mma_k16(c, a[0], a[1], b.x);
        mma_k16(d, a[2], a[3], b.y);
        const int sum0 = joined_quarter(c[0], c[1]) * weight0[0] + joined_quarter(d[0], d[1]) * weight0[1];
        const int sum1 = joined_quarter(c[2], c[3]) * weight1[0] + joined_quarter(d[2], d[3]) * weight1[1];
        const float scale = i == 0 ? scales[j].x : i == 1 ? scales[j].y : i == 2 ? scales[j].z : scales[j].w;
        parts[j][0] = fmaf(static_cast<float>(sum0), scale, parts[j][0]);
        parts[j][1] = fmaf(static_cast<float>(sum1), scale, parts[j][1]);
      }
    }
  }
  const float row0 = __half2float(at<__half>(chunk + row_scales_offset(F) + g * 2));
  const float row1 = __half2float(at<__half>(chunk + row_scales_offset(F) + (g + 8) * 2));
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    sums[j][0] = fmaf(row0, parts[j][0], sums[j][0]);
    sums[j][1] = fmaf(row1, parts[j][1], sums[j][1]);
  }
}

// sums[j][h] += rows g + 8 h of the chunk times input row 4 j + t.
template <WeightFormat F, int kGroups>
__device__ inline void consume_chunk(const std::byte* chunk, const std::byte* activations,
                                     const ActivationView<kGroups>& view, int lane, float (&sums)[kGroups][2]) {
  if constexpr (F == WeightFormat::q6_k) {
    consume_q6_k(chunk, activations, view, lane, sums);
  } else if constexpr (is_k_format(F)) {
    consume_k_scales<F>(chunk, activations, view, lane, sums);
  } else {
    consume_block_scales<F>(chunk, activations, view, lane, sums);
  }
}

}  // namespace quarrel::cuda

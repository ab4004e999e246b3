// Activations as register_gemm() takes them, a chunk of 256 columns in one piece. Its columns are those of packed
// weights, of 16 the even ones before the odd ones; and behind them are the means of every 16 columns, which minimums
// are multiplied with.
//
//   chunk   [stage of 64 columns][row][64], 16-byte pieces swizzled as in wgmma.cuh
//   means   [high, low][eight rows][first or last eight of the chunk's 16 means][row][8]: a mean is the sum of two
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/saturated_half.cuh"
#include "backend/cuda/weight_format.h"

namespace quarrel::cuda {

inline constexpr int kMeanColumns = 16;
inline constexpr int kChunkMeans = kChunkColumns / kMeanColumns;

// A multiple of 1024 bytes, as the swizzled chunk behind it must be aligned.
constexpr int chunk_image_numbers(int rows) {
  const int means = 2 * kChunkMeans * rows;
  return kChunkColumns * rows + (means < 512 ? 512 : means);
}

struct RegisterImage {
  std::uint16_t* numbers;
  int rows;  // that there is room for: image_rows()

  // Returns the number as it was rounded.
  __device__ float put(int row, int column, float value) const {
    unsigned saturated = 0;
    const std::uint16_t half = saturated_half(value, saturated);
    *place_of(row, column - column % 16 + column % 2 * 8 + column % 16 / 2) = half;
    return __half2float(__ushort_as_half(half));
  }
  // Of columns [16 mean, 16 mean + 16).
  __device__ void put_mean(int row, int mean, float value) const {
    const int within = mean % kChunkMeans;
    std::uint16_t* high = chunk_at(mean / kChunkMeans) + kChunkColumns * rows +
                          ((row / 8 * 2 + within / 8) * 8 + row % 8) * 8 + within % 8;
    const __half rounded = __float2half_rn(value);
    high[0] = __half_as_ushort(rounded);
    high[kChunkMeans * rows] = __half_as_ushort(__float2half_rn(value - __half2float(rounded)));
  }
  // By the 16 lanes of half a warp that have the columns of a mean.
  __device__ void put_by_half_warp(int row, int column, float value) const {
    float sum = put(row, column, value);
    const unsigned lanes = 0xffffu << (threadIdx.x & 16);
#pragma unroll
    for (int mask = kMeanColumns / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(lanes, sum, mask);
    if (column % kMeanColumns == 0) put_mean(row, column / kMeanColumns, sum * (1.0f / kMeanColumns));
  }
  // By the four neighbouring lanes that have the columns of a mean, all of which call this.
  __device__ void put_four(int row, int column, float4 values) const {
    unsigned saturated = 0;
    const auto pair = [&](float first, float second) {
      const std::uint32_t low = saturated_half(first, saturated);
      return low | static_cast<std::uint32_t>(saturated_half(second, saturated)) << 16;
    };
    const std::uint32_t pairs[2] = {pair(values.x, values.z), pair(values.y, values.w)};
    const int first = column - column % kMeanColumns;
    float sum = 0.0f;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      *reinterpret_cast<std::uint32_t*>(place_of(row, first + odd * 8 + column % kMeanColumns / 2)) = pairs[odd];
      const float2 both = __half22float2(*reinterpret_cast<const __half2*>(pairs + odd));
      sum += both.x + both.y;
    }
    const unsigned lanes = 0xfu << (threadIdx.x % 32 & ~3u);
    sum += __shfl_xor_sync(lanes, sum, 1);
    sum += __shfl_xor_sync(lanes, sum, 2);
    if (column == first) put_mean(row, column / kMeanColumns, sum * (1.0f / kMeanColumns));
  }

 private:
  __device__ std::uint16_t* chunk_at(int chunk) const {
    return numbers + static_cast<std::size_t>(chunk) * static_cast<std::size_t>(chunk_image_numbers(rows));
  }
  __device__ std::uint16_t* place_of(int row, int place) const {
    const int within = place % kChunkColumns;
    return chunk_at(place / kChunkColumns) + (within / 64 * rows + row) * 64 + (within % 64 / 8 ^ row % 8) * 8 +
           within % 8;
  }
};

}  // namespace quarrel::cuda

// A tile of packed weights, 16 rows, decoded to F16 for the tensor cores of Hopper: 64 columns at a time into shared
// memory, in the swizzled order of wgmma.cuh.
//
// A weight is code * scale + rest: codes from the middle of their range, exact in F16, the scale of their group and
// what is left of the minimum rounded to F16. Three roundings then stand between a weight and what is multiplied, of
// which the mirrors in F16 have one.
#pragma once

#include "backend/cuda/activation_image.cuh"
#include "backend/cuda/packed_gemm_chunk.cuh"

namespace quarrel::cuda {

inline constexpr int kStageSteps = kStageColumns / kStepColumns;
inline constexpr int kStagesOfChunk = kChunkColumns / kStageColumns;
inline constexpr int kStageRowBytes = kStageColumns * 2;

// What a byte of an operand must be multiplied with to be the code itself.
constexpr float code_of_byte(WeightFormat format, int step) {
  if (format == WeightFormat::mxfp4) return 0.25f;
  if (is_symmetric(format)) return 1.0f / static_cast<float>(1 << (8 - code_bits(format)));
  return 1.0f / code_unit(format, step);
}

// The scales of a chunk's groups for all 16 rows, twice in a word each, and what is left of the minimums: eight bytes a
// row and group of 32, or four a row and group of 16. By the whole warp.
inline constexpr int kScaleTableBytes = kChunkSteps * kTileRows * 8;

__device__ inline std::uint32_t twice(float value) { return as_bits(__half2half2(__float2half_rn(value))); }

template <WeightFormat F>
__device__ inline void fill_scale_table(const std::byte* chunk, int lane, std::byte* table) {
  const int row = lane % kTileRows;
  const int half = lane / kTileRows & 1;  // so that the compiler knows groups by their four
  const RowScales<F> scales(chunk, row);
  constexpr float kUnit = is_symmetric(F) ? 1.0f / code_of_byte(F, 0) : 1.0f;
  if constexpr (F == WeightFormat::q6_k) {
#pragma unroll
    for (int i = 0; i < kChunkSteps; ++i) {
      const int group = 2 * i | half;
      *reinterpret_cast<std::uint32_t*>(table + (group * kTileRows + row) * 4) = twice(scales.scale(group) * kUnit);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int group = 2 * i | half;
      uint2 words[2] = {{twice(scales.scale(group) * kUnit), 0u}, {twice(scales.scale(group + 4) * kUnit), 0u}};
      if constexpr (!is_symmetric(F)) {
        const float2 rest = middles<F>(chunk, row, group);
        words[0].y = twice(rest.x);
        words[1].y = twice(rest.y);
      }
      *reinterpret_cast<uint2*>(table + (group * kTileRows + row) * 8) = words[0];
      *reinterpret_cast<uint2*>(table + ((group + 4) * kTileRows + row) * 8) = words[1];
    }
  }
}

// Which lane's share of a tile a lane takes: 4 g + t, where the halves of a warp have one of the rows 2 i and 2 i + 1
// each, whose pieces would lie in the same banks, and the quarters an even g and an odd one, to read codes from all.
__device__ inline int decoding_lane(int lane) { return (0x65217430 >> lane / 4 * 4 & 7) * 4 + lane % 4; }

// Where a lane 4 g + t puts its weights of a row: pieces of 16 bytes change places by the row.
struct SwizzledLane {
  std::uint32_t places[4];  // of columns 16 i + 4 t

  __device__ explicit SwizzledLane(int lane) {
    const auto g = static_cast<std::uint32_t>(lane / 4);
    const auto t = static_cast<std::uint32_t>(lane % 4);
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      places[i] = g * kStageRowBytes + (((2 * i + t / 2) ^ g) << 4) + t % 2 * 8;
    }
  }
};

// Steps 2 `stage` and 2 `stage` + 1 of a chunk (a constant after unrolling) to `to`, where the tile's first row lies.
// Everything is read before anything is written: the compiler would keep reads behind writes that it cannot tell apart.
template <WeightFormat F>
__device__ inline void decode_stage(CodeReader<F>& reader, int stage, int lane, const SwizzledLane& swizzled,
                                    const std::byte* table, std::byte* to) {
  constexpr bool kHalfGroups = F == WeightFormat::q6_k;
  constexpr float kOffset = is_symmetric(F) ? 1152.0f : 1024.0f;
  const int g = lane / 4;
  uint2 scales[kStageSteps][2][2];  // of a step, row and half; both halves have one, but for Q6_K
  std::uint32_t words[kStageSteps][4];
#pragma unroll
  for (int s = 0; s < kStageSteps; ++s) {
    const int step = stage * kStageSteps + s;
    reader.operand_of(step, words[s]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (kHalfGroups) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          scales[s][r][half].x = at<std::uint32_t>(table + ((2 * step + half) * kTileRows + g + 8 * r) * 4);
        }
      } else {
        scales[s][r][0] = at<uint2>(table + (step * kTileRows + g + 8 * r) * 8);
        scales[s][r][1] = scales[s][r][0];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < kStageSteps; ++s) {
    const float unit = code_of_byte(F, stage * kStageSteps + s);
    const __half2 units = __float2half2_rn(unit);
    const __half2 offset = __float2half2_rn(-kOffset * unit - code_middle(F));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint2 scale = scales[s][i % 2][i / 2];
      std::uint32_t word = words[s][i];
      if constexpr (is_symmetric(F)) word ^= 0x80808080u;
      const auto weights_of = [&](unsigned bytes) {
        const __half2 code = __hfma2(as_half2(__byte_perm(word, 0x64646464u, bytes)), units, offset);
        if constexpr (is_symmetric(F)) return as_bits(__hmul2(code, as_half2(scale.x)));
        return as_bits(__hfma2(code, as_half2(scale.x), as_half2(scale.y)));
      };
      *reinterpret_cast<uint2*>(to + swizzled.places[2 * s + i / 2] + i % 2 * 8 * kStageRowBytes) =
          uint2{weights_of(0x4140u), weights_of(0x4342u)};
    }
  }
}

}  // namespace quarrel::cuda

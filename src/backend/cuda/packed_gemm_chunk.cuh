// A chunk of packed weights, 16 rows by 256 columns, as F16 operands of mma.m16n8k16. Lane 4 g + t has rows g and g + 8
// and four neighbouring columns at a time; since the order of columns within a product is free, these are its columns
// 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
//
// Weights stand sixteen times too large, so that small scales are normal numbers of F16.
#pragma once

#include "backend/cuda/gemv_chunk.cuh"

namespace quarrel::cuda {

inline constexpr float kHalfWeightUnit = 1.0f / 16.0f;

__device__ inline __half2 as_half2(std::uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ inline std::uint32_t as_bits(__half2 halves) { return *reinterpret_cast<const std::uint32_t*>(&halves); }

// Bytes 2 i and 2 i + 1 of a word as numbers: 0x64nn is 1024 + nn.
template <bool kSigned>
__device__ inline __half2 bytes_to_half2(std::uint32_t word, int i) {
  if constexpr (kSigned) word ^= 0x80808080u;
  const std::uint32_t bits = __byte_perm(word, 0x64646464u, i == 0 ? 0x4140u : 0x4342u);
  return __hsub2(as_half2(bits), __float2half2_rn(kSigned ? 1152.0f : 1024.0f));
}

// The scales of one row of a chunk, two of neighbouring groups in a word, and its minimums if it has them.
template <WeightFormat F>
struct HalfScales {
  static constexpr int kGroups = F == WeightFormat::q6_k ? 16 : 8;
  std::uint32_t scales[kGroups / 2];
  std::uint32_t minimums[is_symmetric(F) ? 1 : 4];

  __device__ HalfScales(const std::byte* chunk, int row) {
    const std::byte* record = chunk + records_offset(F) + row * record_bytes(F);
    const auto words = at<uint4>(record);
    if constexpr (F == WeightFormat::q6_k) {
      // Codes stand at the top of their bytes, four times too large.
      const __half scale = at<__half>(chunk + row_scales_offset(F) + row * 2);
      const __half2 unit = __hmul2(__half2half2(scale), __float2half2_rn(4.0f));
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        scales[i] = as_bits(__hmul2(bytes_to_half2<true>(element(words, i / 2), i % 2), unit));
      }
    } else if constexpr (is_k_format(F)) {
      const UnpackedScales unpacked(words);
      const __half2 units = __hmul2(as_half2(words.x), __float2half2_rn(16.0f));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scales[i] = as_bits(__hmul2(bytes_to_half2<false>(unpacked.scales[i / 2], i % 2), __low2half2(units)));
        minimums[i] =
            as_bits(__hneg2(__hmul2(bytes_to_half2<false>(unpacked.minimums[i / 2], i % 2), __high2half2(units))));
      }
    } else {
      constexpr float kUnit = is_symmetric(F) ? 16.0f / (1 << (8 - code_bits(F))) : 16.0f;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scales[i] = as_bits(__hmul2(as_half2(element(words, i)), __float2half2_rn(kUnit)));
      }
      if constexpr (!is_symmetric(F)) {
        const auto more = at<uint4>(record + 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          minimums[i] = as_bits(__hmul2(as_half2(element(more, i)), __float2half2_rn(16.0f)));
        }
      }
    }
  }

  __device__ static __half2 both(std::uint32_t pair, int i) {
    return as_half2(__byte_perm(pair, pair, i == 0 ? 0x1010u : 0x3232u));
  }
  __device__ __half2 scale(int step, int half) const {
    const int group = F == WeightFormat::q6_k ? 2 * step + half : step;
    return both(scales[group / 2], group % 2);
  }
  __device__ __half2 minimum(int step) const { return both(minimums[step / 2], step % 2); }
};

// The codes of a step, a byte each.
template <WeightFormat F>
__device__ inline void step_codes(CodeReader<F>& reader, int step, std::uint32_t (&words)[4]) {
  reader.operand_of(step, words);
  if constexpr (shifts_sums(F)) {
    if (step % 2 == 1) {
#pragma unroll
      for (std::uint32_t& word : words) word >>= 4;
    }
  }
}

// sums[n] += the chunk's part of 16 weight rows and the eight input rows of tile n. `activations` is the lane's place:
// row g, column 4 t of the chunk; tiles are `tile_bytes` apart.
template <WeightFormat F, int kTiles>
__device__ inline void add_chunk(const std::byte* chunk, int lane, const std::byte* activations, int tile_bytes,
                                 float (&sums)[kTiles][4]) {
  const int g = lane / 4;
  const HalfScales<F> rows[2] = {HalfScales<F>(chunk, g), HalfScales<F>(chunk, g + 8)};
  CodeReader<F> reader{.chunk = chunk, .lane = lane};
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step) {
    std::uint32_t words[4];
    step_codes<F>(reader, step, words);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t a[4];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const __half2 scale = rows[r].scale(step, half);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const __half2 codes = bytes_to_half2<is_symmetric(F)>(words[2 * half + r], i);
          if constexpr (is_symmetric(F)) {
            a[2 * i + r] = as_bits(__hmul2(codes, scale));
          } else {
            a[2 * i + r] = as_bits(__hfma2(codes, scale, rows[r].minimum(step)));
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const auto b = at<uint2>(activations + n * tile_bytes + step * 64 + half * 32);
        mma_f16(sums[n], a, b.x, b.y);
      }
    }
  }
}

}  // namespace quarrel::cuda

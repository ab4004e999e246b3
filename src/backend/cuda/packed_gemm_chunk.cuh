// A chunk of packed weights, 16 rows by 256 columns, times up to 32 rows of F16 activations. Lane 4 g + t has rows g
// and g + 8 of the weights and four neighbouring columns at a time; since the order of columns within an `mma` is
// free, these are its columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of mma.m16n8k16.
//
// The operands are the weights' codes themselves, which F16 holds exactly; sums over a scale group are multiplied by
// the group's scale in F32. Codes of types with minimums are taken from the middle of their range: what is left of the
// minimum, small as it is, is multiplied with the sum of the group's activations in one tf32 `mma` a chunk.
#pragma once

#include "backend/cuda/gemv_chunk.cuh"

namespace quarrel::cuda {

__device__ inline __half2 as_half2(std::uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ inline std::uint32_t as_bits(__half2 halves) { return *reinterpret_cast<const std::uint32_t*>(&halves); }

// Bytes 2 i and 2 i + 1 of a word, less `middle`, as F16: 0x64nn is 1024 + nn.
template <bool kSigned>
__device__ inline std::uint32_t bytes_to_halves(std::uint32_t word, int i, float middle) {
  if constexpr (kSigned) word ^= 0x80808080u;
  const std::uint32_t bits = __byte_perm(word, 0x64646464u, i == 0 ? 0x4140u : 0x4342u);
  return as_bits(__hsub2(as_half2(bits), __float2half2_rn((kSigned ? 1152.0f : 1024.0f) + middle)));
}

// The middle of a type's codes; symmetric ones have it at zero.
constexpr float code_middle(WeightFormat format) {
  return is_symmetric(format) ? 0.0f : static_cast<float>(1 << (code_bits(format) - 1));
}

// Codes of odd steps that are left in the high nibbles stand sixteen times too large.
constexpr float code_unit(WeightFormat format, int step) { return shifts_sums(format) && step % 2 == 1 ? 16.0f : 1.0f; }

// The scales of one row of a chunk.
template <WeightFormat F>
struct RowScales {
  uint4 words = {};
  std::uint32_t unpacked[2] = {};  // of Q4_K, Q5_K and MXFP4: a byte a group
  float unit = 1.0f;

  __device__ RowScales(const std::byte* chunk, int row) {
    if constexpr (F == WeightFormat::mxfp4) {
      const auto exponents = at<uint2>(chunk + records_offset(F) + row * record_bytes(F));
      unpacked[0] = exponents.x;
      unpacked[1] = exponents.y;
      return;
    }
    words = at<uint4>(chunk + records_offset(F) + row * record_bytes(F));
    if constexpr (F == WeightFormat::q6_k) {
      // Codes stand at the top of their bytes.
      unit = __half2float(at<__half>(chunk + row_scales_offset(F) + row * 2)) * 0.25f;
    } else if constexpr (is_k_format(F)) {
      const UnpackedScales both(words);
      unpacked[0] = both.scales[0];
      unpacked[1] = both.scales[1];
      unit = half_of(words.x, 0);
    } else {
      unit = code_scale(F);
    }
  }
  // Of group `group` (a constant after unrolling) of eight, or of sixteen for Q6_K.
  __device__ float scale(int group) const {
    if constexpr (F == WeightFormat::mxfp4) {
      return code_scale(F) *
             mxfp4_scale(static_cast<std::uint32_t>(byte_of_word<false>(unpacked[group / 4], group % 4)));
    } else if constexpr (F == WeightFormat::q6_k) {
      return unit * static_cast<float>(byte_of_word<true>(element(words, group / 4), group % 4));
    } else if constexpr (is_k_format(F)) {
      return unit * static_cast<float>(byte_of_word<false>(unpacked[group / 4], group % 4));
    } else {
      return unit * half_of(element(words, group / 2), group % 2);
    }
  }
};

__device__ inline float rounded_to_tf32(float value) { return __uint_as_float(__float_as_uint(value) + 0x1000u); }

// What is left of the minimum of a row's group, for groups t and t + 4: the code's middle times the scale, and the
// minimum.
template <WeightFormat F>
__device__ inline float2 middles(const std::byte* chunk, int row, int t) {
  const std::byte* record = chunk + records_offset(F) + row * record_bytes(F);
  if constexpr (is_k_format(F)) {
    const auto words = at<uint4>(record);
    const UnpackedScales both(words);
    const float scale = half_of(words.x, 0) * code_middle(F);
    const float minimum = half_of(words.x, 1);
    const auto of_group = [&](int half) {
      return scale * static_cast<float>(byte_of_word<false>(both.scales[half], t)) -
             minimum * static_cast<float>(byte_of_word<false>(both.minimums[half], t));
    };
    return {of_group(0), of_group(1)};
  } else {
    const auto half_at = [&](int group) { return __half2float(at<__half>(record + group * 2)); };
    return {half_at(t) * code_middle(F) + half_at(kChunkSteps + t),
            half_at(t + 4) * code_middle(F) + half_at(kChunkSteps + t + 4)};
  }
}

// What a lane reads of the activations of a chunk.
struct ChunkActivations {
  const std::byte* halves;  // row g, column 4 t
  int tile_bytes;           // from eight rows to the next eight
  const std::byte* sums;    // row g: sums over groups t and t + 4, as two F32
  int tile_sum_bytes;
};

// sums[n] += the chunk's part of 16 weight rows and the eight input rows of tile n.
template <WeightFormat F, int kTiles>
__device__ inline void add_chunk(const std::byte* chunk, int lane, const ChunkActivations& in,
                                 float (&sums)[kTiles][4]) {
  constexpr bool kHalfGroups = F == WeightFormat::q6_k;  // a scale every 16 columns
  const int g = lane / 4;
  const RowScales<F> rows[2] = {RowScales<F>(chunk, g), RowScales<F>(chunk, g + 8)};
  CodeReader<F> reader{.chunk = chunk, .lane = lane};
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step) {
    std::uint32_t words[4];
    reader.operand_of(step, words);
    float products[kTiles][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t a[4];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          a[2 * i + r] = bytes_to_halves<is_symmetric(F)>(words[2 * half + r], i, code_middle(F) * code_unit(F, step));
        }
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const auto b = at<uint2>(in.halves + n * in.tile_bytes + step * 64 + half * 32);
        if (half == 0 || kHalfGroups) {
          mma_f16_first(products[n], a, b.x, b.y);
        } else {
          mma_f16(products[n], a, b.x, b.y);
        }
      }
      if (half == 0 && !kHalfGroups) continue;
      const int group = kHalfGroups ? 2 * step + half : step;
      const float scale0 = rows[0].scale(group) * (1.0f / code_unit(F, step));
      const float scale1 = rows[1].scale(group) * (1.0f / code_unit(F, step));
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        sums[n][0] = fmaf(scale0, products[n][0], sums[n][0]);
        sums[n][1] = fmaf(scale0, products[n][1], sums[n][1]);
        sums[n][2] = fmaf(scale1, products[n][2], sums[n][2]);
        sums[n][3] = fmaf(scale1, products[n][3], sums[n][3]);
      }
    }
  }
  if constexpr (!is_symmetric(F)) {
    const float2 row0 = middles<F>(chunk, g, lane % 4);
    const float2 row1 = middles<F>(chunk, g + 8, lane % 4);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const auto b = at<float2>(in.sums + n * in.tile_sum_bytes);
      mma_tf32(sums[n], rounded_to_tf32(row0.x), rounded_to_tf32(row1.x), rounded_to_tf32(row0.y),
               rounded_to_tf32(row1.y), b.x, b.y);
    }
  }
}

}  // namespace quarrel::cuda

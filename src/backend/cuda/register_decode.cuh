// A chunk of a tile of packed weights as operands of `wgmma` in registers, in the order of register_image.cuh. Codes
// are masked where they lie: as F16 they are so many times 2^-24 or, in a high nibble, 2^-20, exactly. So is a code
// times its scale (Q6_K's largest have one bit more than F16 and are rounded); what these and the minimums are
// multiplied with is left to F32.
#pragma once

#include "backend/cuda/packed_gemm_chunk.cuh"

namespace quarrel::cuda {

constexpr bool has_integer_operands(WeightFormat format) { return is_k_format(format); }

// Calls `action` with one of those as a compile-time constant.
template <typename Action>
__device__ inline void with_integer_format(WeightFormat format, const Action& action) {
  switch (format) {
    case WeightFormat::q4_k: return action.template operator()<WeightFormat::q4_k>();
    case WeightFormat::q5_k: return action.template operator()<WeightFormat::q5_k>();
    default: return action.template operator()<WeightFormat::q6_k>();
  }
}

// A byte of a word as F16, behind 1024, twice: 0x64nn is 1024 + nn.
__device__ inline __half2 twice_behind_1024(std::uint32_t word, int byte) {
  return as_half2(__byte_perm(word, 0x64646464u, 0x4040u + 0x0101u * static_cast<unsigned>(byte)));
}

template <WeightFormat F>
class IntegerChunk {
 public:
  static constexpr bool kHasMinimums = !is_symmetric(F);

  __device__ IntegerChunk(const std::byte* chunk, int lane)
      : chunk_(chunk + lane * 16), record_(chunk + records_offset(F) + lane / 4 * record_bytes(F)) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (kHasMinimums) {
        const auto words = at<uint4>(record_ + 8 * r * record_bytes(F));
        const UnpackedScales unpacked(words);
        units_[r] = half_of(words.x, 0);
        minimum_units_[r] = half_of(words.x, 1);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          scales_[r][half] = unpacked.scales[half];
          // Sixteen times the minimum, for means of 16 columns instead of sums.
          minimums_[r + 2 * half] = as_bits(__hfma2(twice_behind_1024(unpacked.minimums[half], lane % 4),
                                                    __float2half2_rn(16.0f), __float2half2_rn(-16384.0f)));
        }
      } else {
        units_[r] = __half2float(at<__half>(chunk + row_scales_offset(F) + (lane / 4 + 8 * r) * 2));
      }
    }
  }

  // What sums of row g + 8 r are multiplied with.
  __device__ float unit(int r) const { return units_[r] * 16777216.0f; }
  __device__ float minimum_unit(int r) const { return minimum_units_[r]; }
  // The operand for a chunk's means.
  __device__ const std::uint32_t (&minimums() const)[4] { return minimums_; }

  // Goes on to steps 2 `pair` and 2 `pair` + 1, in ascending order.
  __device__ void read_pair(int pair) {
    codes_ = at<uint4>(chunk_ + pair * 512);
    if constexpr (code_bits(F) == 5) {
      if (pair == 0) {
        high_ = at<uint4>(chunk_ + high_bits_offset(F));
      } else {
        high_ = {high_.x >> 2, high_.y >> 2, high_.z >> 2, high_.w >> 2};
      }
    }
    if constexpr (code_bits(F) == 6) {
      // The sign turned over makes codes from zero on of those from -32 on.
      const auto high = at<uint4>(chunk_ + high_bits_offset(F) + pair / 2 * 512);
      const auto turned = [&](std::uint32_t word) { return (word ^ 0xaaaaaaaau) >> (pair % 2 * 4); };
      high_ = {turned(high.x), turned(high.y), turned(high.z), turned(high.w)};
    }
    // Behind 0x54 a byte is a sixteenth of what it is behind 0x64, and so are the scales of odd steps, whose codes are
    // left in the high nibbles.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (kHasMinimums) {
        const std::uint32_t scales = pair < 2 ? scales_[r][0] : scales_[r][1];
        own_scales_[r][0] = __hadd2(as_half2(__byte_perm(scales, behind_, pair % 2 == 0 ? 0x5140u : 0x5342u)),
                                    __halves2half2(__float2half_rn(-1024.0f), __float2half_rn(-64.0f)));
      } else {
        const auto scales = at<std::uint32_t>(record_ + 8 * r * record_bytes(F) + pair * 4) ^ 0x80808080u;
        own_scales_[r][0] = __hadd2(as_half2(__byte_perm(scales, behind_, 0x4140u)), __float2half2_rn(-1152.0f));
        own_scales_[r][1] = __hadd2(as_half2(__byte_perm(scales, behind_, 0x5352u)), __float2half2_rn(-72.0f));
        own_rests_[r][0] = __hmul2(own_scales_[r][0], __float2half2_rn(-32.0f / 16777216.0f));
        own_rests_[r][1] = __hmul2(own_scales_[r][1], __float2half2_rn(-512.0f / 16777216.0f));
      }
    }
  }

  // Step `odd` (a constant) of the pair: operands[k] has columns [16 k, 16 k + 16) of rows g and g + 8, as
  // mma.m16n8k16 takes them.
  __device__ void operands_of(int odd, std::uint32_t (&operands)[2][4]) const {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const auto twice = [&](__half2 two) {
          return (kHasMinimums ? odd : k) == 0 ? __low2half2(two) : __high2half2(two);
        };
        const __half2 scale = twice(own_scales_[r][kHasMinimums ? 0 : odd]);
#pragma unroll
        for (int byte = 0; byte < 2; ++byte) {
          const std::uint32_t codes = every_other_code(odd, 2 * k + r, byte);
          std::uint32_t& operand = operands[k][r + 2 * byte];
          if constexpr (kHasMinimums) {
            operand = as_bits(__hmul2(as_half2(codes), scale));
          } else {
            operand = as_bits(__hfma2(as_half2(codes), scale, twice(own_rests_[r][odd])));
          }
        }
      }
    }
  }

 private:
  // Those of bytes `byte` and `byte` + 2 of word i.
  __device__ std::uint32_t every_other_code(int odd, int i, int byte) const {
    const std::uint32_t low = element(codes_, i) >> 8 * byte & 0x000f000fu << 4 * odd;
    if constexpr (code_bits(F) == 4) return low;
    constexpr int kHighBits = code_bits(F) - 4;
    const std::uint32_t mask = ((1u << kHighBits) - 1u) * 0x00100010u << 4 * odd;
    return low | (shifted(element(high_, i), 4 + 4 * odd - kHighBits * odd - 8 * byte) & mask);
  }

  const std::byte* chunk_;
  const std::byte* record_;
  const std::uint32_t behind_ = opaque(0x5464u);
  float units_[2];
  float minimum_units_[2];
  std::uint32_t minimums_[4];
  std::uint32_t scales_[2][2];  // a byte a step
  // Of this pair: with minimums those of both steps, without (a scale every 16 columns) two of each.
  __half2 own_scales_[2][kHasMinimums ? 1 : 2];
  __half2 own_rests_[2][2];  // without minimums: what makes codes of those from zero on
  uint4 codes_;
  uint4 high_;
};

}  // namespace quarrel::cuda

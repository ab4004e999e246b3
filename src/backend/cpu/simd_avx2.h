// The vector type on AVX2 with FMA and F16C: eight lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/int8_rows.h"

#define QUARREL_LEVEL avx2_level

namespace quarrel::avx2_level {

inline constexpr int kLanes = 8;
inline constexpr int kBytes = 32;
inline constexpr std::size_t kTileTokens = 4;   // the most rows whose int8 sums registers hold
inline constexpr std::size_t kBothTokens = 2;   // the same where sums of high and low parts are made at once
inline constexpr std::size_t kFloatTokens = 4;  // the same in F32, beside two panels

inline constexpr int kAccumulators = 12;  // vectors that a tile may sum into without leaving the registers

using Floats = __m256;
using Ints = __m256i;
using Bytes = __m256i;

static inline Floats set(float value) { return _mm256_set1_ps(value); }
static inline Floats load(const float* from) { return _mm256_loadu_ps(from); }
static inline void store(float* to, Floats v) { _mm256_storeu_ps(to, v); }
static inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
static inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
static inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
static inline Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }
static inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
static inline Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
static inline Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
static inline Floats round(Floats a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Floats power_of_two(Floats n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
// x * 2^n for whole n.
static inline Floats times_power_of_two(Floats x, Floats n) { return mul(x, power_of_two(n)); }
// Lanes [first, last) of v, with 0 <= first < last <= kLanes, among those of `other`.
static inline Floats keep_lanes(Floats v, Floats other, int first, int last) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i kept = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                           _mm256_cmpgt_epi32(_mm256_set1_epi32(last), lane));
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(kept));
}
static inline float sum(Floats v) {
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  four = _mm_add_ss(four, _mm_shuffle_ps(four, four, 1));
  return _mm_cvtss_f32(four);
}
static inline float largest(Floats v) {
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  four = _mm_max_ss(four, _mm_shuffle_ps(four, four, 1));
  return _mm_cvtss_f32(four);
}

// Fewer lanes than all; the others are zero, and the memory beyond is not touched.
inline constexpr std::int32_t kLaneMasks[2 * kLanes] = {-1, -1, -1, -1, -1, -1, -1, -1};
static inline Ints first_lanes(std::size_t count) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kLaneMasks + kLanes - count));
}
static inline Floats load_some(const float* from, std::size_t count) {
  return _mm256_maskload_ps(from, first_lanes(count));
}
static inline void store_some(float* to, Floats v, std::size_t count) {
  _mm256_maskstore_ps(to, first_lanes(count), v);
}

static inline std::uint32_t above(Floats a, Floats b) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
}
static inline std::uint32_t not_below(Floats a, Floats b) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ)));
}
static inline Floats zero_below(Floats v, Floats x, Floats limit) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, limit, _CMP_LT_OQ), v);
}

static inline Floats swap_pairs(Floats v) { return _mm256_permute_ps(v, 0xb1); }
static inline Floats twice_each(const float* from) {
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0));
}
static inline Floats subtract_add(Floats a, Floats b) { return _mm256_addsub_ps(a, b); }

static inline float half_to_float(std::uint16_t bits) { return _cvtsh_ss(bits); }
static inline std::uint16_t float_to_half(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
static inline Floats load_half(const std::uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
static inline void store_half(std::uint16_t* to, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline Floats load_half_some(const std::uint16_t* from, std::size_t count) {
  std::uint16_t halves[kLanes] = {};
  std::memcpy(halves, from, count * sizeof(std::uint16_t));
  return load_half(halves);
}
static inline void store_half_some(std::uint16_t* to, Floats v, std::size_t count) {
  std::uint16_t halves[kLanes];
  store_half(halves, v);
  std::memcpy(to, halves, count * sizeof(std::uint16_t));
}
static inline Floats load_bf16(const std::uint16_t* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

using Doubles = __m256d;
static inline Doubles set_wide(double value) { return _mm256_set1_pd(value); }
static inline Doubles widen(const float* from) { return _mm256_cvtps_pd(_mm_loadu_ps(from)); }
static inline Doubles add(Doubles a, Doubles b) { return _mm256_add_pd(a, b); }
static inline Doubles sub(Doubles a, Doubles b) { return _mm256_sub_pd(a, b); }
static inline Doubles mul(Doubles a, Doubles b) { return _mm256_mul_pd(a, b); }
static inline Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
static inline Doubles max(Doubles a, Doubles b) { return _mm256_max_pd(a, b); }
static inline Doubles round(Doubles a) { return _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Doubles power_of_two(Doubles n) {
  const __m256i whole = _mm256_castpd_si256(_mm256_add_pd(n, _mm256_set1_pd(6755399441055744.0)));
  return _mm256_castsi256_pd(_mm256_slli_epi64(_mm256_add_epi64(whole, _mm256_set1_epi64x(1023)), 52));
}
static inline double sum(Doubles v) {
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
static inline Ints broadcast(std::int32_t value) { return _mm256_set1_epi32(value); }
static inline Ints load_ints(const std::int32_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
static inline void store_ints(std::int32_t* to, Ints v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
static inline Ints add_ints(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
static inline Ints multiply_ints(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
static inline Ints and_ints(Ints a, std::int32_t mask) { return _mm256_and_si256(a, _mm256_set1_epi32(mask)); }
static inline Ints or_ints(Ints a, Ints b) { return _mm256_or_si256(a, b); }
static inline Ints xor_ints(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
template <int kBits>
static inline Ints shift_ints_left(Ints v) {
  return _mm256_slli_epi32(v, kBits);
}
template <int kBits>
static inline Ints shift_ints_right(Ints v) {
  return _mm256_srli_epi32(v, kBits);
}
static inline Ints shifted_right(Ints v, int bits) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
// Each lane's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Ints move_lane_bits(Ints v, int from, int to, int mask) {
  const Ints moved = from < to ? _mm256_sll_epi32(v, _mm_cvtsi32_si128(to - from)) : shifted_right(v, from - to);
  return and_ints(moved, mask);
}
// Both halves of each lane moved left by so many bits, each on its own; to the right where negative.
template <int kLow, int kHigh>
static inline Ints move_halves(Ints v) {
  const auto moved = [&](int left) { return left > 0 ? _mm256_slli_epi16(v, left) : _mm256_srli_epi16(v, -left); };
  return _mm256_blend_epi16(moved(kLow), moved(kHigh), 0xaa);
}
// The bytes of each lane, chosen by the bytes of `order`: 0 is the lowest.
static inline Ints order_bytes(Ints v, std::int32_t order) {
  const __m256i lanes = _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
  return _mm256_shuffle_epi8(v, _mm256_or_si256(lanes, _mm256_set1_epi32(order)));
}
// (v & mask) | other
static inline Ints masked_or(Ints v, std::int32_t mask, Ints other) { return or_ints(and_ints(v, mask), other); }

struct IntPair {
  Ints low, high;
};
// Entries of a table by the number in each lane.
static inline Ints look_up_each(const std::int32_t* table, Ints indices) {
  return _mm256_i32gather_epi32(table, indices, 4);
}
// Entries of a table of 16-bit numbers by the lower and by the upper 16-bit index of each lane, each entry twice in its
// lane; 32 bits are read at each.
template <std::size_t kEntries>
static inline IntPair look_up_pairs(const std::uint16_t* table, Ints indices) {
  const auto gather = [&](Ints index) {
    return order_bytes(_mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, 2), 0x01000100);
  };
  return {gather(and_ints(indices, 0xffff)), gather(_mm256_srli_epi32(indices, 16))};
}
// Two bytes a lane.
static inline Ints load_lane_words(const std::uint16_t* from) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// One byte a lane.
static inline Ints load_lane_bytes(const std::uint8_t* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
static inline Ints load_lane_bytes(const std::int8_t* from) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}
static inline Floats as_floats(Ints bits) { return _mm256_castsi256_ps(bits); }

static inline Bytes load_bytes(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
static inline void store_bytes(std::uint8_t* to, Bytes v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
static inline Bytes as_bytes(Ints v) { return v; }
static inline Ints as_ints(Bytes v) { return v; }
static inline Bytes or_bytes(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
// Each byte's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Bytes move_bits(Bytes v, int from, int to, int mask) {
  const __m128i left = _mm_cvtsi32_si128(to - from);
  const __m128i right = _mm_cvtsi32_si128(from - to);
  const Bytes moved = from < to ? _mm256_sll_epi16(v, left) : _mm256_srl_epi16(v, right);
  return _mm256_and_si256(moved, _mm256_set1_epi8(static_cast<char>(mask)));
}
static inline Bytes look_up(const std::uint8_t* sixteen, Bytes indices) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), indices);
}

// Byte b of a lane: the entry that its index, below eight, names, or where bit b of the lane's nibble number `nibble`
// is set the one eight further.
static inline Bytes look_up_signed(const std::uint8_t* sixteen, Ints indices, Ints signs, int nibble) {
  const Ints each = _mm256_set1_epi32(nibble % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010));
  const Ints bits = _mm256_and_si256(order_bytes(signs, nibble / 2 * 0x01010101), each);
  const Ints eight = and_ints(_mm256_cmpeq_epi8(bits, each), 0x08080808);
  return look_up(sixteen, or_ints(indices, eight));
}

// Bytes that are fractions: three times each, without its whole part, and that whole part. The second way rounds up
// twice on the way to three quarters, which one less makes good.
static inline Bytes ternary_rest(Bytes v) { return _mm256_add_epi8(v, _mm256_add_epi8(v, v)); }
static inline Bytes ternary_digit(Bytes v) {
  const __m256i zero = _mm256_setzero_si256();
  const __m256i less = _mm256_subs_epu8(v, _mm256_set1_epi8(1));
  return move_bits(_mm256_avg_epu8(less, _mm256_avg_epu8(less, zero)), 6, 0, 3);
}

// How much less than its byte `dots` takes a weight for: a pair of products of bytes above 127 may not fit 16 bits, so
// it makes signed numbers of such.
template <int kMaxByte>
inline constexpr int kDotOffset = kMaxByte > 127 ? 128 : 0;

// GCC would make all products of a sum first and add them up in a tree, for which there are too few registers.
static inline void keep_order(__m256i& sum) { asm("" : "+x"(sum)); }

// acc[token] += sums of four neighbouring weights, none above kMaxByte, times four values of that token: vector i of
// the weights goes with values 4 i to 4 i + 3. Token t's values lie int8_offset<kFirst>(t) behind the first.
template <std::size_t kTokens, std::size_t kVectors, int kMaxByte, std::size_t kFirst, typename Weights>
static inline void dots(const Weights& weights, const std::int8_t* values, Ints (&acc)[kTokens]) {
  const __m256i ones = _mm256_set1_epi16(1);
  const auto four = [&](std::size_t t, std::size_t i) {
    std::int32_t bits;
    std::memcpy(&bits, values + int8_offset<kFirst>(t) + 4 * i, sizeof bits);
    return _mm256_set1_epi32(bits);
  };
  if constexpr (kMaxByte > 127) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kVectors; ++i) {
      const __m256i weight = _mm256_xor_si256(weights(i), _mm256_set1_epi8(static_cast<char>(0x80)));
      const __m256i size = _mm256_abs_epi8(weight);
#pragma GCC unroll 4
      for (std::size_t t = 0; t < kTokens; ++t) {
        const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(four(t, i), weight));
        acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(pairs, ones));
        keep_order(acc[t]);
      }
    }
  } else {
    // So many pairs of products fit 16 bits together.
    constexpr int kFit = 32767 / (2 * 127 * kMaxByte);
    constexpr std::size_t kRun = kFit >= 8 ? 8 : kFit >= 4 ? 4 : kFit >= 2 ? 2 : 1;
    constexpr std::size_t kStep = kRun < kVectors ? kRun : kVectors;
#pragma GCC unroll 8
    for (std::size_t first = 0; first < kVectors; first += kStep) {
      __m256i pairs[kTokens];
#pragma GCC unroll 8
      for (std::size_t i = first; i < first + kStep; ++i) {
        const __m256i weight = weights(i);
#pragma GCC unroll 4
        for (std::size_t t = 0; t < kTokens; ++t) {
          const __m256i more = _mm256_maddubs_epi16(weight, four(t, i));
          pairs[t] = i == first ? more : _mm256_add_epi16(pairs[t], more);
          keep_order(pairs[t]);
        }
      }
#pragma GCC unroll 4
      for (std::size_t t = 0; t < kTokens; ++t) acc[t] = _mm256_add_epi32(acc[t], _mm256_madd_epi16(pairs[t], ones));
    }
  }
}

static inline void prefetch_near(const void* address) { _mm_prefetch(address, _MM_HINT_T0); }
static inline void prefetch_far(const void* address) { _mm_prefetch(address, _MM_HINT_T1); }

}  // namespace quarrel::avx2_level

// The vector type on AVX-512 (F, BW, DQ, VL) with VNNI: sixteen lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/digits.h"

#ifndef QUARREL_LEVEL  // AMX stands on this
#define QUARREL_LEVEL avx512_level
#endif

namespace quarrel::QUARREL_LEVEL {

inline constexpr int kLanes = 16;
inline constexpr int kBytes = 64;
inline constexpr std::size_t kTileTokens = 12;  // the most that a tile of integer products holds in registers
inline constexpr std::size_t kBothTokens = 4;   // the same where sums of both digits are made at once
inline constexpr std::size_t kFloatTokens = 8;  // the same for products of floats, beside two panels

inline constexpr int kAccumulators = 24;  // vectors that a tile may sum into without leaving the registers

using Floats = __m512;
using Ints = __m512i;
using Bytes = __m512i;

static inline Floats set(float value) { return _mm512_set1_ps(value); }
static inline Floats load(const float* from) { return _mm512_loadu_ps(from); }
static inline void store(float* to, Floats v) { _mm512_storeu_ps(to, v); }
static inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
static inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
static inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
static inline Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
static inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
static inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
static inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
static inline Floats round(Floats a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline Floats power_of_two(Floats n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
// x * 2^n for whole n.
static inline Floats times_power_of_two(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
// Lanes [first, last) of v, with 0 <= first < last <= kLanes, among those of `other`.
static inline Floats keep_lanes(Floats v, Floats other, int first, int last) {
  const auto lanes = static_cast<__mmask16>(((1u << last) - 1u) & ~((1u << first) - 1u));
  return _mm512_mask_mov_ps(other, lanes, v);
}
static inline float sum(Floats v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  four = _mm_add_ss(four, _mm_shuffle_ps(four, four, 1));
  return _mm_cvtss_f32(four);
}
static inline float largest(Floats v) { return _mm512_reduce_max_ps(v); }

static inline __mmask16 first_lanes(std::size_t count) { return static_cast<__mmask16>((1u << count) - 1u); }
static inline Floats load_some(const float* from, std::size_t count) {
  return _mm512_maskz_loadu_ps(first_lanes(count), from);
}
static inline void store_some(float* to, Floats v, std::size_t count) {
  _mm512_mask_storeu_ps(to, first_lanes(count), v);
}

static inline std::uint32_t above(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline std::uint32_t not_below(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
static inline Floats zero_below(Floats v, Floats x, Floats limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), v);
}

static inline Floats swap_pairs(Floats v) { return _mm512_permute_ps(v, 0xb1); }
static inline Floats twice_each(const float* from) {
  const __m512i places = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_permutexvar_ps(places, _mm512_castps256_ps512(_mm256_loadu_ps(from)));
}
static inline Floats subtract_add(Floats a, Floats b) { return _mm512_fmaddsub_ps(a, _mm512_set1_ps(1.0f), b); }

static inline float half_to_float(std::uint16_t bits) { return _cvtsh_ss(bits); }
static inline std::uint16_t float_to_half(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
static inline Floats load_half(const std::uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
static inline void store_half(std::uint16_t* to, Floats v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline Floats load_half_some(const std::uint16_t* from, std::size_t count) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(count), from));
}
static inline void store_half_some(std::uint16_t* to, Floats v, std::size_t count) {
  _mm256_mask_storeu_epi16(to, first_lanes(count), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline Floats load_bfloat(const std::uint16_t* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

using Doubles = __m512d;
static inline Doubles set_wide(double value) { return _mm512_set1_pd(value); }
static inline Doubles widen(const float* from) { return _mm512_cvtps_pd(_mm256_loadu_ps(from)); }
static inline Doubles add(Doubles a, Doubles b) { return _mm512_add_pd(a, b); }
static inline Doubles sub(Doubles a, Doubles b) { return _mm512_sub_pd(a, b); }
static inline Doubles mul(Doubles a, Doubles b) { return _mm512_mul_pd(a, b); }
static inline Doubles fma(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
static inline Doubles max(Doubles a, Doubles b) { return _mm512_max_pd(a, b); }
static inline Doubles round(Doubles a) {
  return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline Doubles power_of_two(Doubles n) {
  return _mm512_castsi512_pd(_mm512_slli_epi64(_mm512_add_epi64(_mm512_cvtpd_epi64(n), _mm512_set1_epi64(1023)), 52));
}
static inline double sum(Doubles v) {
  const __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1));
  const __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
  return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

static inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
static inline Ints broadcast(std::int32_t value) { return _mm512_set1_epi32(value); }
static inline Ints load_ints(const std::int32_t* from) { return _mm512_loadu_si512(from); }
static inline void store_ints(std::int32_t* to, Ints v) { _mm512_storeu_si512(to, v); }
static inline Ints add_ints(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
static inline Ints multiply_ints(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
static inline Ints and_ints(Ints a, std::int32_t mask) { return _mm512_and_si512(a, _mm512_set1_epi32(mask)); }
static inline Ints or_ints(Ints a, Ints b) { return _mm512_or_si512(a, b); }
static inline Ints xor_ints(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
template <int kBits>
static inline Ints shift_ints_left(Ints v) {
  return _mm512_slli_epi32(v, kBits);
}
template <int kBits>
static inline Ints shift_ints_right(Ints v) {
  return _mm512_srli_epi32(v, kBits);
}
static inline Ints shifted_right(Ints v, int bits) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
// Each lane's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Ints move_lane_bits(Ints v, int from, int to, int mask) {
  const Ints moved = from < to ? _mm512_sll_epi32(v, _mm_cvtsi32_si128(to - from)) : shifted_right(v, from - to);
  return and_ints(moved, mask);
}
// Entries of a table of 16-bit numbers by the two 16-bit indices of each lane. A table of up to 512 fits in registers:
// permutations give what the index's low six bits choose of each 64 entries, the others choose among these. A larger
// one is gathered, into zeros, because what is left undefined is some register's last value, and the instruction would
// wait for it; and 32 bits are read at each entry.
template <std::size_t kEntries>
static inline Ints look_up_pairs(const std::uint16_t* table, Ints indices) {
  if constexpr (kEntries <= 512) {
    constexpr std::size_t kParts = kEntries / 64;
    Ints found[kParts];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kParts; ++i) {
      found[i] = _mm512_permutex2var_epi16(_mm512_loadu_si512(table + 64 * i), indices,
                                           _mm512_loadu_si512(table + 64 * i + 32));
    }
    short bit = 64;
#pragma GCC unroll 3
    for (std::size_t parts = kParts / 2; parts > 0; parts /= 2, bit = static_cast<short>(2 * bit)) {
      const __mmask32 second = _mm512_test_epi16_mask(indices, _mm512_set1_epi16(bit));
#pragma GCC unroll 4
      for (std::size_t i = 0; i < parts; ++i) found[i] = _mm512_mask_mov_epi16(found[2 * i], second, found[2 * i + 1]);
    }
    return found[0];
  } else {
    const auto gather = [&](Ints index) {
      return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, index, table, 2);
    };
    const Ints low = gather(and_ints(indices, 0xffff));
    return _mm512_or_si512(and_ints(low, 0xffff), _mm512_slli_epi32(gather(_mm512_srli_epi32(indices, 16)), 16));
  }
}
// Byte i of a lane: 255 where bit i of the lane is set.
static inline Ints sign_masks(Ints bits) {
  const Ints masks =
      _mm512_set_epi32(-1, static_cast<int>(0xffffff00), static_cast<int>(0xffff00ff), static_cast<int>(0xffff0000),
                       static_cast<int>(0xff00ffff), static_cast<int>(0xff00ff00), static_cast<int>(0xff0000ff),
                       static_cast<int>(0xff000000), 0xffffff, 0xffff00, 0xff00ff, 0xff0000, 0xffff, 0xff00, 0xff, 0);
  return _mm512_permutexvar_epi32(bits, masks);
}
// Two bytes a lane.
static inline Ints load_lane_words(const std::uint16_t* from) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
// One byte a lane.
static inline Ints load_lane_bytes(const std::uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
static inline Ints load_lane_bytes(const std::int8_t* from) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
static inline Floats as_floats(Ints bits) { return _mm512_castsi512_ps(bits); }

static inline Bytes load_bytes(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
static inline void store_bytes(std::uint8_t* to, Bytes v) { _mm512_storeu_si512(to, v); }
static inline Bytes as_bytes(Ints v) { return v; }
static inline Ints as_ints(Bytes v) { return v; }
static inline Bytes or_bytes(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
// Each byte's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Bytes move_bits(Bytes v, int from, int to, int mask) {
  const __m128i left = _mm_cvtsi32_si128(to - from);
  const __m128i right = _mm_cvtsi32_si128(from - to);
  const Bytes moved = from < to ? _mm512_sll_epi16(v, left) : _mm512_srl_epi16(v, right);
  return _mm512_and_si512(moved, _mm512_set1_epi8(static_cast<char>(mask)));
}
static inline Bytes look_up(const std::uint8_t* sixteen, Bytes indices) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(sixteen));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), indices);
}

// Digit number `digit` in base three of a byte that is a fraction: whole parts of three times what is left of it.
static inline Bytes ternary_digit(Bytes v, int digit) {
  constexpr short kPowers[5] = {1, 3, 9, 27, 81};
  const __m512i power = _mm512_set1_epi16(kPowers[digit]);
  const __m512i low = _mm512_set1_epi16(255);
  const auto whole = [&](__m512i bytes) {
    const __m512i rest = _mm512_and_si512(_mm512_mullo_epi16(bytes, power), low);
    return _mm512_srli_epi16(_mm512_add_epi16(rest, _mm512_add_epi16(rest, rest)), 8);
  };
  const __m512i odd = whole(_mm512_srli_epi16(v, 8));
  return _mm512_or_si512(whole(_mm512_and_si512(v, low)), _mm512_slli_epi16(odd, 8));
}

// How much less than its byte `dots` takes a weight for.
template <int kMost>
inline constexpr int kDotOffset = 0;

// acc += weights * four values, repeated. GCC 12 does not fold the repetition into the instruction by itself.
static inline Ints dot_repeated(Ints acc, Bytes weights, const std::int8_t* four) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(weights), "m"(*reinterpret_cast<const std::int32_t*>(four)));
  return acc;
}

// acc[token] += sums of four neighbouring weights, none above kMost, times four values of that token: vector i of the
// weights meets values 4 i to 4 i + 3. Token t's values lie digits_at<kFirst>(t) behind the first.
template <std::size_t kTokens, std::size_t kVectors, int kMost, std::size_t kFirst, typename Weights>
static inline void dots(const Weights& weights, const std::int8_t* values, Ints (&acc)[kTokens]) {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kVectors; ++i) {
    const Bytes weight = weights(i);
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t)
      acc[t] = dot_repeated(acc[t], weight, values + digits_at<kFirst>(t) + 4 * i);
  }
}

static inline void prefetch_near(const void* address) { _mm_prefetch(address, _MM_HINT_T0); }
static inline void prefetch_far(const void* address) { _mm_prefetch(address, _MM_HINT_T1); }

}  // namespace quarrel::QUARREL_LEVEL

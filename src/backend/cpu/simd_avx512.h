// The vector type on AVX-512 (F, BW, DQ, VL) with VNNI: sixteen lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/int8_rows.h"

#ifndef QUARREL_LEVEL  // AMX stands on this
#define QUARREL_LEVEL avx512_level
#endif

namespace quarrel::QUARREL_LEVEL {

inline constexpr int kLanes = 16;
inline constexpr int kBytes = 64;
inline constexpr std::size_t kTileTokens = 12;  // the most rows whose int8 sums registers hold
inline constexpr std::size_t kBothTokens = 4;   // the same where sums of high and low parts are made at once
inline constexpr std::size_t kFloatTokens = 8;  // the same in F32, beside two panels

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
static inline Floats load_bf16(const std::uint16_t* from) {
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
// Both halves of each lane moved left by so many bits, each on its own; to the right where negative.
template <int kLow, int kHigh>
static inline Ints move_halves(Ints v) {
  if constexpr (kLow > 0) {
    static_assert(kHigh > 0);
    return _mm512_sllv_epi16(v, _mm512_set1_epi32(kHigh << 16 | kLow));
  } else {
    static_assert(kHigh <= 0);
    return _mm512_srlv_epi16(v, _mm512_set1_epi32(-kHigh << 16 | -kLow));
  }
}
// The bytes of each lane, chosen by the bytes of `order`: 0 is the lowest.
static inline Ints order_bytes(Ints v, std::int32_t order) {
  const __m512i lanes = _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
  return _mm512_shuffle_epi8(v, _mm512_or_si512(lanes, _mm512_set1_epi32(order)));
}
// (v & mask) | other
static inline Ints masked_or(Ints v, std::int32_t mask, Ints other) {
  return _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(mask), other, 0xea);
}

struct IntPair {
  Ints low, high;
};
// Permutations give what the index's low six bits choose of each 64 entries, the other bits choose among these. Halves
// first, so that few registers are wanted at a time.
template <std::size_t kEntries>
static inline Ints look_up_halves(const std::uint16_t* table, Ints indices) {
  if constexpr (kEntries == 64) {
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(table), indices, _mm512_loadu_si512(table + 32));
  } else {
    const Ints first = look_up_halves<kEntries / 2>(table, indices);
    const Ints second = look_up_halves<kEntries / 2>(table + kEntries / 2, indices);
    return _mm512_mask_mov_epi16(first, _mm512_test_epi16_mask(indices, _mm512_set1_epi16(kEntries / 2)), second);
  }
}
// Entries of a larger table are gathered: 64 take 24 ns on Zen 4, where the permutations of 1024 take 12 and of 2048
// take 28; processors with tiles gather them in 15, and take 17 to permute 512. They are gathered into zeros, because
// what is left undefined is some register's last value, and the instruction would wait for it.
#ifdef __AMX_TILE__
inline constexpr std::size_t kMostPermuted = 256;
#else
inline constexpr std::size_t kMostPermuted = 1024;
#endif
// Entries of a table by the number in each lane.
static inline Ints look_up_each(const std::int32_t* table, Ints indices) {
  return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, indices, table, 4);
}
// Entries of a table of 16-bit numbers by the lower and by the upper 16-bit index of each lane, each entry twice in its
// lane; 32 bits are read at each that is gathered.
template <std::size_t kEntries>
static inline IntPair look_up_pairs(const std::uint16_t* table, Ints indices) {
  if constexpr (kEntries <= kMostPermuted) {
    const Ints found = look_up_halves<kEntries>(table, indices);
    return {order_bytes(found, 0x01000100), order_bytes(found, 0x03020302)};
  } else {
    const auto gather = [&](Ints index) {
      return order_bytes(_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), 0xffff, index, table, 2), 0x01000100);
    };
    return {gather(and_ints(indices, 0xffff)), gather(_mm512_srli_epi32(indices, 16))};
  }
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

// Byte b of a lane: the entry that its index, below eight, names, or where bit b of the lane's nibble number `nibble`
// is set the one eight further.
static inline Bytes look_up_signed(const std::uint8_t* sixteen, Ints indices, Ints signs, int nibble) {
  const Ints repeated = order_bytes(signs, nibble / 2 * 0x01010101);
  const Ints each = _mm512_set1_epi32(nibble % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010));
  const __mmask64 set = _mm512_test_epi8_mask(repeated, each);
  return look_up(sixteen, _mm512_mask_add_epi8(indices, set, indices, _mm512_set1_epi8(8)));
}

// Bytes that are fractions: three times each, without its whole part, and that whole part. The second way rounds up
// twice on the way to three quarters, which one less makes good.
static inline Bytes ternary_rest(Bytes v) { return _mm512_add_epi8(v, _mm512_add_epi8(v, v)); }
static inline Bytes ternary_digit(Bytes v) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i less = _mm512_subs_epu8(v, _mm512_set1_epi8(1));
  return move_bits(_mm512_avg_epu8(less, _mm512_avg_epu8(less, zero)), 6, 0, 3);
}

// How much less than its byte `dots` takes a weight for.
template <int kMaxByte>
inline constexpr int kDotOffset = 0;

// acc += weights * four values, repeated. GCC 12 does not fold the repetition into the instruction by itself.
static inline Ints dot_repeated(Ints acc, Bytes weights, const std::int8_t* four) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(weights), "m"(*reinterpret_cast<const std::int32_t*>(four)));
  return acc;
}

// acc[token] += sums of four neighbouring weights, none above kMaxByte, times four values of that token: vector i of
// the weights goes with values 4 i to 4 i + 3. Token t's values lie int8_offset<kFirst>(t) behind the first.
template <std::size_t kTokens, std::size_t kVectors, int kMaxByte, std::size_t kFirst, typename Weights>
static inline void dots(const Weights& weights, const std::int8_t* values, Ints (&acc)[kTokens]) {
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kVectors; ++i) {
    const Bytes weight = weights(i);
#pragma GCC unroll 16
    for (std::size_t t = 0; t < kTokens; ++t)
      acc[t] = dot_repeated(acc[t], weight, values + int8_offset<kFirst>(t) + 4 * i);
  }
}

static inline void prefetch_near(const void* address) { _mm_prefetch(address, _MM_HINT_T0); }
static inline void prefetch_far(const void* address) { _mm_prefetch(address, _MM_HINT_T1); }

}  // namespace quarrel::QUARREL_LEVEL

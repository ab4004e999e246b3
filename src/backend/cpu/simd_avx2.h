// The vector type on AVX2 with FMA and F16C: eight lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#define QUARREL_LEVEL avx2_level

namespace quarrel::avx2_level {

inline constexpr int kLanes = 8;
inline constexpr int kBytes = 32;
inline constexpr int kUnroll = 16;                // of the innermost loop over vectors
inline constexpr bool kWideWeightsDiffer = true;  // bytes above 127 need another dot product

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
static inline Floats load_bfloat(const std::uint16_t* from) {
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
static inline Bytes load_bytes(const std::uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

template <bool kWide>
static inline Ints dot(Bytes weights, const std::int8_t* values) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values));
  if constexpr (kWide) {
    // A pair of products may not fit 16 bits: the even and the odd bytes are multiplied apart, in 16 bits each.
    const __m256i low_byte = _mm256_set1_epi16(0x00ff);
    const __m256i even =
        _mm256_madd_epi16(_mm256_and_si256(weights, low_byte), _mm256_srai_epi16(_mm256_slli_epi16(a, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(weights, 8), _mm256_srai_epi16(a, 8));
    return _mm256_add_epi32(even, odd);
  } else {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, a), _mm256_set1_epi16(1));
  }
}
template <bool kWide>
static inline Ints dot_two(Bytes weights, const std::int8_t* high, const std::int8_t* low) {
  return _mm256_add_epi32(_mm256_slli_epi32(dot<kWide>(weights, high), 8), dot<kWide>(weights, low));
}

struct Scales {
  alignas(32) float product[16];
};
static inline Scales scale_products(const float* a, const float* b) {
  Scales r;
  _mm256_store_ps(r.product, _mm256_mul_ps(_mm256_loadu_ps(a), _mm256_loadu_ps(b)));
  _mm256_store_ps(r.product + 8, _mm256_mul_ps(_mm256_loadu_ps(a + 8), _mm256_loadu_ps(b + 8)));
  return r;
}
template <int kGroup>
static inline Floats spread(const Scales& scales, int index) {
  if constexpr (kGroup == 32) {
    return _mm256_broadcast_ss(scales.product + index);
  } else {
    return _mm256_set_m128(_mm_broadcast_ss(scales.product + 2 * index + 1),
                           _mm_broadcast_ss(scales.product + 2 * index));
  }
}

}  // namespace quarrel::avx2_level

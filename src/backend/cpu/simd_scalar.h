// The vector type in portable C++: eight lanes as two vectors of sixteen bytes, a type that GCC and Clang compile to
// what every processor of an architecture has (SSE2, NEON) or to single numbers. It is the fallback everywhere and what
// the other levels are compared with.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "backend/cpu/int8_rows.h"

#define QUARREL_LEVEL scalar_level

namespace quarrel::scalar_level {

inline constexpr int kLanes = 8;
inline constexpr int kBytes = 32;
inline constexpr std::size_t kTileTokens = 4;   // the most rows whose int8 sums registers hold
inline constexpr std::size_t kBothTokens = 2;   // the same where sums of high and low parts are made at once
inline constexpr std::size_t kFloatTokens = 4;  // the same in F32, beside two panels

inline constexpr int kAccumulators = 4;  // vectors that a tile may sum into without leaving the registers

using FloatHalf = float __attribute__((vector_size(16)));
using DoubleHalf = double __attribute__((vector_size(16)));
using IntHalf = std::int32_t __attribute__((vector_size(16)));
using WordHalf = std::uint32_t __attribute__((vector_size(16)));
using ShortHalf = std::int16_t __attribute__((vector_size(16)));
using UnsignedShortHalf = std::uint16_t __attribute__((vector_size(16)));
using ByteHalf = std::uint8_t __attribute__((vector_size(16)));

struct Floats {
  FloatHalf low, high;
};
struct Ints {
  IntHalf low, high;
};

// Both halves by one function, and lanes one by one where no vector can do it.
template <typename Function>
static inline Floats halves(Floats v, Function function) {
  return {.low = function(v.low), .high = function(v.high)};
}
template <typename Function>
static inline Ints halves(Ints v, Function function) {
  return {.low = function(v.low), .high = function(v.high)};
}
static inline WordHalf words_of(IntHalf v) { return std::bit_cast<WordHalf>(v); }
static inline IntHalf ints_of(WordHalf v) { return std::bit_cast<IntHalf>(v); }
static inline FloatHalf either(IntHalf condition, FloatHalf yes, FloatHalf no) {
  return std::bit_cast<FloatHalf>((condition & std::bit_cast<IntHalf>(yes)) |
                                  (~condition & std::bit_cast<IntHalf>(no)));
}

static inline Floats set(float value) {
  const FloatHalf half = {value, value, value, value};
  return {.low = half, .high = half};
}
static inline Floats load(const float* from) {
  Floats r;
  std::memcpy(&r, from, sizeof r);
  return r;
}
static inline void store(float* to, Floats v) { std::memcpy(to, &v, sizeof v); }
static inline Floats add(Floats a, Floats b) { return {.low = a.low + b.low, .high = a.high + b.high}; }
static inline Floats sub(Floats a, Floats b) { return {.low = a.low - b.low, .high = a.high - b.high}; }
static inline Floats mul(Floats a, Floats b) { return {.low = a.low * b.low, .high = a.high * b.high}; }
static inline Floats div(Floats a, Floats b) { return {.low = a.low / b.low, .high = a.high / b.high}; }
static inline Floats fma(Floats a, Floats b, Floats c) {
  return {.low = c.low + a.low * b.low, .high = c.high + a.high * b.high};
}
static inline Floats max(Floats a, Floats b) {
  return {.low = either(a.low > b.low, a.low, b.low), .high = either(a.high > b.high, a.high, b.high)};
}
static inline Floats min(Floats a, Floats b) {
  return {.low = either(a.low < b.low, a.low, b.low), .high = either(a.high < b.high, a.high, b.high)};
}
// To the nearest whole number, ties to even, for |x| < 2^22.
static inline Floats round(Floats a) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return halves(a, [](FloatHalf half) { return (half + kMagic) - kMagic; });
}
// 2^n for whole n in [-126, 127]; anything at all for a NaN, which has no integer to be cast to.
static inline Floats power_of_two(Floats n) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are n's
  return halves(n, [](FloatHalf half) {
    return std::bit_cast<FloatHalf>((std::bit_cast<WordHalf>(half + kMagic) + 127u) << 23);
  });
}
// x * 2^n for whole n.
static inline Floats times_power_of_two(Floats x, Floats n) { return mul(x, power_of_two(n)); }
// Lanes [first, last) of v, with 0 <= first < last <= kLanes, among those of `other`.
static inline Floats keep_lanes(Floats v, Floats other, int first, int last) {
  const IntHalf low = {0, 1, 2, 3};
  const IntHalf high = {4, 5, 6, 7};
  return {.low = either((low >= first) & (low < last), v.low, other.low),
          .high = either((high >= first) & (high < last), v.high, other.high)};
}
// The halves are added until one lane is left: the same tree at every level of that width.
static inline float sum(Floats v) {
  const FloatHalf four = v.low + v.high;
  return (four[0] + four[2]) + (four[1] + four[3]);
}
static inline float largest(Floats v) {
  float r = v.low[0];
  for (int i = 0; i < kLanes / 2; ++i) r = v.low[i] > r ? v.low[i] : r;
  for (int i = 0; i < kLanes / 2; ++i) r = v.high[i] > r ? v.high[i] : r;
  return r;
}

// Fewer lanes than all; the others are zero, and the memory beyond is not touched.
static inline Floats load_some(const float* from, std::size_t count) {
  Floats r = {};
  std::memcpy(&r, from, count * sizeof(float));
  return r;
}
static inline void store_some(float* to, Floats v, std::size_t count) { std::memcpy(to, &v, count * sizeof(float)); }

// A bit for each lane whose condition holds.
static inline std::uint32_t lane_bits(IntHalf low, IntHalf high) {
  const IntHalf each = (low & IntHalf{1, 2, 4, 8}) | (high & IntHalf{16, 32, 64, 128});
  return static_cast<std::uint32_t>(each[0] | each[1] | each[2] | each[3]);
}
// A bit for each lane where a > b.
static inline std::uint32_t above(Floats a, Floats b) { return lane_bits(a.low > b.low, a.high > b.high); }
// A bit for each lane where a < b is false: also where one of them is a NaN.
static inline std::uint32_t not_below(Floats a, Floats b) { return lane_bits(~(a.low < b.low), ~(a.high < b.high)); }
// v, and zero where x < limit.
static inline Floats zero_below(Floats v, Floats x, Floats limit) {
  return {.low = either(x.low < limit.low, FloatHalf{}, v.low),
          .high = either(x.high < limit.high, FloatHalf{}, v.high)};
}

// Neighbouring lanes as pairs: the two change places; kLanes / 2 values, each in both lanes of a pair; a - b in the
// first lane of a pair and a + b in the second.
static inline Floats swap_pairs(Floats v) {
  return halves(v, [](FloatHalf half) { return __builtin_shufflevector(half, half, 1, 0, 3, 2); });
}
static inline Floats twice_each(const float* from) {
  return {.low = FloatHalf{from[0], from[0], from[1], from[1]}, .high = FloatHalf{from[2], from[2], from[3], from[3]}};
}
static inline Floats subtract_add(Floats a, Floats b) {
  const FloatHalf signs = {-1.0f, 1.0f, -1.0f, 1.0f};
  return {.low = a.low + b.low * signs, .high = a.high + b.high * signs};
}

// A NaN keeps its sign and what fits of its payload and becomes a quiet one, here and on the way back, as the
// instructions of other levels have it.
static inline float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  std::uint32_t exponent = (bits >> 10) & 31u;
  std::uint32_t mantissa = bits & 0x3ffu;
  std::uint32_t out;
  if (exponent == 31) {
    out = sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u);
  } else if (exponent != 0) {
    out = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&out, &value, sizeof out);
    out |= sign;
  }
  float result;
  std::memcpy(&result, &out, sizeof result);
  return result;
}

static inline std::uint16_t float_to_half(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | ((bits >> 13) & 0x3ffu));
  if (bits >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (bits >= 0x38800000u) {
    const std::uint32_t rebiased = bits - 0x38000000u;
    return static_cast<std::uint16_t>(sign | ((rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13));
  }
  // Adding 0.5 lets the adder round a subnormal half to the nearest even.
  float magnitude;
  std::memcpy(&magnitude, &bits, sizeof magnitude);
  magnitude += 0.5f;
  std::memcpy(&bits, &magnitude, sizeof bits);
  return static_cast<std::uint16_t>(sign | (bits - 0x3f000000u));
}

// Four numbers of sixteen bits, each in a lane of its own.
static inline WordHalf load_words(const std::uint16_t* from) { return WordHalf{from[0], from[1], from[2], from[3]}; }
static inline FloatHalf halves_to_floats(WordHalf bits) {
  const IntHalf magnitude = ints_of(bits & 0x7fffu);
  // What has no exponent is a small whole number times 2^-24.
  const FloatHalf tiny = __builtin_convertvector(magnitude, FloatHalf) * 5.9604644775390625e-8f;
  const WordHalf ordinary = (words_of(magnitude) << 13) + 0x38000000u;
  const IntHalf special = magnitude >= 0x7c00;
  const IntHalf payload = magnitude > 0x7c00;
  const WordHalf raised = ordinary | (words_of(special) & 0x7f800000u) | (words_of(payload) & 0x400000u);
  const FloatHalf value = either(magnitude < 0x400, tiny, std::bit_cast<FloatHalf>(raised));
  return std::bit_cast<FloatHalf>(std::bit_cast<WordHalf>(value) | (bits & 0x8000u) << 16);
}
static inline Floats load_half(const std::uint16_t* from) {
  std::uint16_t bits[kLanes];
  std::memcpy(bits, from, sizeof bits);  // a file's weights may lie at any address
  return {.low = halves_to_floats(load_words(bits)), .high = halves_to_floats(load_words(bits + 4))};
}
static inline void store_half(std::uint16_t* to, Floats v) {
  for (int i = 0; i < kLanes / 2; ++i) {
    to[i] = float_to_half(v.low[i]);
    to[i + kLanes / 2] = float_to_half(v.high[i]);
  }
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
  std::uint16_t bits[kLanes];
  std::memcpy(bits, from, sizeof bits);
  return {.low = std::bit_cast<FloatHalf>(load_words(bits) << 16),
          .high = std::bit_cast<FloatHalf>(load_words(bits + 4) << 16)};
}

// Half as many lanes of double, for sums over a whole vocabulary. Rounding and powers are for |n| < 2^51.
struct Doubles {
  DoubleHalf low, high;
};
static inline Doubles set_wide(double value) {
  return {.low = DoubleHalf{value, value}, .high = DoubleHalf{value, value}};
}
static inline Doubles widen(const float* from) {
  return {.low = DoubleHalf{static_cast<double>(from[0]), static_cast<double>(from[1])},
          .high = DoubleHalf{static_cast<double>(from[2]), static_cast<double>(from[3])}};
}
static inline Doubles add(Doubles a, Doubles b) { return {.low = a.low + b.low, .high = a.high + b.high}; }
static inline Doubles sub(Doubles a, Doubles b) { return {.low = a.low - b.low, .high = a.high - b.high}; }
static inline Doubles mul(Doubles a, Doubles b) { return {.low = a.low * b.low, .high = a.high * b.high}; }
static inline Doubles fma(Doubles a, Doubles b, Doubles c) {
  return {.low = c.low + a.low * b.low, .high = c.high + a.high * b.high};
}
static inline Doubles max(Doubles a, Doubles b) {
  const auto larger = [](double x, double y) { return x > y ? x : y; };
  return {.low = DoubleHalf{larger(a.low[0], b.low[0]), larger(a.low[1], b.low[1])},
          .high = DoubleHalf{larger(a.high[0], b.high[0]), larger(a.high[1], b.high[1])}};
}
static inline Doubles round(Doubles a) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  return {.low = (a.low + kMagic) - kMagic, .high = (a.high + kMagic) - kMagic};
}
static inline Doubles power_of_two(Doubles n) {
  constexpr double kMagic = 6755399441055744.0;
  const auto power = [](double x) {
    return std::bit_cast<double>((std::bit_cast<std::uint64_t>(x + kMagic) + 1023u) << 52);
  };
  return {.low = DoubleHalf{power(n.low[0]), power(n.low[1])}, .high = DoubleHalf{power(n.high[0]), power(n.high[1])}};
}
static inline double sum(Doubles v) {
  const DoubleHalf two = v.low + v.high;
  return two[0] + two[1];
}

static inline Floats to_floats(Ints v) {
  return {.low = __builtin_convertvector(v.low, FloatHalf), .high = __builtin_convertvector(v.high, FloatHalf)};
}

static inline Ints broadcast(std::int32_t value) {
  const IntHalf half = {value, value, value, value};
  return {.low = half, .high = half};
}
static inline Ints load_ints(const std::int32_t* from) {
  Ints r;
  std::memcpy(&r, from, sizeof r);
  return r;
}
static inline void store_ints(std::int32_t* to, Ints v) { std::memcpy(to, &v, sizeof v); }
// Lanes that nobody wants may hold anything, so both wrap.
static inline std::uint32_t bits_of(std::int32_t value) { return static_cast<std::uint32_t>(value); }
static inline Ints add_ints(Ints a, Ints b) {
  return {.low = ints_of(words_of(a.low) + words_of(b.low)), .high = ints_of(words_of(a.high) + words_of(b.high))};
}
static inline Ints multiply_ints(Ints a, Ints b) {
  return {.low = ints_of(words_of(a.low) * words_of(b.low)), .high = ints_of(words_of(a.high) * words_of(b.high))};
}
static inline Ints and_ints(Ints a, std::int32_t mask) { return {.low = a.low & mask, .high = a.high & mask}; }
static inline Ints or_ints(Ints a, Ints b) { return {.low = a.low | b.low, .high = a.high | b.high}; }
static inline Ints xor_ints(Ints a, Ints b) { return {.low = a.low ^ b.low, .high = a.high ^ b.high}; }
template <int kBits>
static inline Ints shift_ints_left(Ints v) {
  return halves(v, [](IntHalf half) { return ints_of(words_of(half) << kBits); });
}
template <int kBits>
static inline Ints shift_ints_right(Ints v) {
  return halves(v, [](IntHalf half) { return ints_of(words_of(half) >> kBits); });
}
static inline Ints shifted_right(Ints v, int bits) {
  return halves(v, [bits](IntHalf half) { return ints_of(words_of(half) >> bits_of(bits)); });
}
// Each lane's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Ints move_lane_bits(Ints v, int from, int to, int mask) {
  const std::uint32_t left = bits_of(from < to ? to - from : 0);
  const std::uint32_t right = bits_of(from < to ? 0 : from - to);
  return halves(v, [=](IntHalf half) { return ints_of((words_of(half) << left >> right) & bits_of(mask)); });
}
// Both halves of each lane moved left by so many bits, each on its own; to the right where negative.
template <int kLow, int kHigh>
static inline Ints move_halves(Ints v) {
  const auto moved = []<int kLeft>(WordHalf half) {
    if constexpr (kLeft > 0) {
      return (half << kLeft) & 0xffffu;
    } else {
      return half >> -kLeft;
    }
  };
  return halves(v, [moved](IntHalf half) {
    const WordHalf low = moved.template operator()<kLow>(words_of(half) & 0xffffu);
    return ints_of(low | moved.template operator()<kHigh>(words_of(half) >> 16) << 16);
  });
}
// The bytes of each lane, chosen by the bytes of `order`: 0 is the lowest.
static inline Ints order_bytes(Ints v, std::int32_t order) {
  return halves(v, [order](IntHalf half) {
    WordHalf ordered = {};
    for (std::uint32_t b = 0; b < 4; ++b) {
      const std::uint32_t place = bits_of(order) >> (8 * b) & 3;
      ordered |= (words_of(half) >> (8 * place) & 255u) << (8 * b);
    }
    return ints_of(ordered);
  });
}
// (v & mask) | other
static inline Ints masked_or(Ints v, std::int32_t mask, Ints other) { return or_ints(and_ints(v, mask), other); }

struct IntPair {
  Ints low, high;
};
// Entries of a table by the number in each lane.
static inline Ints look_up_each(const std::int32_t* table, Ints indices) {
  return halves(indices, [table](IntHalf i) { return IntHalf{table[i[0]], table[i[1]], table[i[2]], table[i[3]]}; });
}
// Entries of a table of 16-bit numbers by the lower and by the upper 16-bit index of each lane, each entry twice in its
// lane.
template <std::size_t kEntries>
static inline IntPair look_up_pairs(const std::uint16_t* table, Ints indices) {
  const auto entries = [table](WordHalf i) {
    return ints_of(WordHalf{table[i[0]], table[i[1]], table[i[2]], table[i[3]]} * 0x10001u);
  };
  return {.low = halves(indices, [&](IntHalf half) { return entries(words_of(half) & 0xffffu); }),
          .high = halves(indices, [&](IntHalf half) { return entries(words_of(half) >> 16); })};
}
template <typename Number>
static inline Ints load_lanes(const Number* from) {
  return {.low = IntHalf{from[0], from[1], from[2], from[3]}, .high = IntHalf{from[4], from[5], from[6], from[7]}};
}
// Two bytes a lane.
static inline Ints load_lane_words(const std::uint16_t* from) { return load_lanes(from); }
// One byte a lane.
static inline Ints load_lane_bytes(const std::uint8_t* from) { return load_lanes(from); }
static inline Ints load_lane_bytes(const std::int8_t* from) { return load_lanes(from); }
static inline Floats as_floats(Ints bits) { return std::bit_cast<Floats>(bits); }

struct Bytes {
  ByteHalf low, high;
};
static inline Bytes load_bytes(const std::uint8_t* from) {
  Bytes r;
  std::memcpy(&r, from, sizeof r);
  return r;
}
static inline void store_bytes(std::uint8_t* to, Bytes v) { std::memcpy(to, &v, sizeof v); }
static inline Bytes as_bytes(Ints v) { return std::bit_cast<Bytes>(v); }
static inline Ints as_ints(Bytes v) { return std::bit_cast<Ints>(v); }
static inline Bytes or_bytes(Bytes a, Bytes b) { return {.low = a.low | b.low, .high = a.high | b.high}; }
// Each byte's bits moved from place `from` to place `to`, all but those of `mask` cleared. Four bytes are moved as one:
// the mask clears what came from a neighbour, and what would leave its byte.
static inline Bytes move_bits(Bytes v, int from, int to, int mask) {
  const int left = from < to ? to - from : 0;
  const int right = from < to ? 0 : from - to;
  const int stays = (255 << left & 255) >> right;
  return as_bytes(move_lane_bits(as_ints(v), from, to, static_cast<int>(bits_of(mask & stays) * 0x01010101u)));
}
// Bytes one by one, by a table or the like.
template <typename Function>
static inline Bytes each_byte(Bytes v, Function function) {
  std::uint8_t bytes[kBytes];
  store_bytes(bytes, v);
  for (int i = 0; i < kBytes; ++i) bytes[i] = function(bytes[i], i);
  return load_bytes(bytes);
}
static inline Bytes look_up(const std::uint8_t* sixteen, Bytes indices) {
  return each_byte(indices, [sixteen](std::uint8_t byte, int) { return sixteen[byte]; });
}

// Byte b of a lane: the entry that its index, below eight, names, or where bit b of the lane's nibble number `nibble`
// is set the one eight further.
static inline Bytes look_up_signed(const std::uint8_t* sixteen, Ints indices, Ints signs, int nibble) {
  std::int32_t lanes[kLanes];
  store_ints(lanes, signs);
  return each_byte(as_bytes(indices), [&](std::uint8_t byte, int b) {
    const std::uint32_t bit = bits_of(lanes[b / 4]) >> (4 * nibble + b % 4) & 1;
    return sixteen[byte + 8 * bit];
  });
}

// Bytes that are fractions: three times each, without its whole part, and that whole part.
static inline Bytes ternary_rest(Bytes v) { return {.low = v.low + v.low + v.low, .high = v.high + v.high + v.high}; }
static inline Bytes ternary_digit(Bytes v) {
  const auto whole = [](ByteHalf half) {
    const auto pairs = std::bit_cast<UnsignedShortHalf>(half);
    return std::bit_cast<ByteHalf>(((pairs & 0xff) * 3 >> 8) | ((pairs >> 8) * 3 & 0xff00));
  };
  return {.low = whole(v.low), .high = whole(v.high)};
}

// How much less than its byte `dots` takes a weight for.
template <int kMaxByte>
inline constexpr int kDotOffset = 0;

// Sums of the two numbers of sixteen bits in each lane.
static inline WordHalf pair_sums(ShortHalf pairs) {
  const IntHalf both = std::bit_cast<IntHalf>(pairs);
  return words_of(ints_of(words_of(both) << 16) >> 16) + words_of(both >> 16);
}
// Sums of the four weights in each lane, none above kMaxByte, times four values: the weights at even and at odd places
// apart, as numbers of sixteen bits, beside the values that belong there. Two terms fit into that where the weights
// are small.
template <int kMaxByte>
static inline IntHalf four_terms(IntHalf acc, IntHalf weights, WordHalf even, WordHalf odd) {
  const auto bytes = std::bit_cast<UnsignedShortHalf>(weights);
  const ShortHalf first = std::bit_cast<ShortHalf>(bytes & 0xff) * std::bit_cast<ShortHalf>(even);
  const ShortHalf second = std::bit_cast<ShortHalf>(bytes >> 8) * std::bit_cast<ShortHalf>(odd);
  if constexpr (2 * kMaxByte * 128 <= 32767) return ints_of(words_of(acc) + pair_sums(first + second));
  return ints_of(words_of(acc) + pair_sums(first) + pair_sums(second));
}

// acc[token] += sums of four neighbouring weights, none above kMaxByte, times four values of that token: vector i of
// the weights goes with values 4 i to 4 i + 3. Token t's values lie int8_offset<kFirst>(t) behind the first.
template <std::size_t kTokens, std::size_t kVectors, int kMaxByte, std::size_t kFirst, typename Weights>
static inline void dots(const Weights& weights, const std::int8_t* values, Ints (&acc)[kTokens]) {
  const auto pair = [](int low, int high) { return (bits_of(low) & 0xffff) | bits_of(high) << 16; };
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Ints weight = as_ints(weights(v));
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::int8_t* four = values + int8_offset<kFirst>(t) + 4 * v;
      const WordHalf even = WordHalf{} + pair(four[0], four[2]);
      const WordHalf odd = WordHalf{} + pair(four[1], four[3]);
      acc[t].low = four_terms<kMaxByte>(acc[t].low, weight.low, even, odd);
      acc[t].high = four_terms<kMaxByte>(acc[t].high, weight.high, even, odd);
    }
  }
}

static inline void prefetch_near(const void* /*address*/) {}
static inline void prefetch_far(const void* /*address*/) {}

}  // namespace quarrel::scalar_level

// The vector type in portable C++: eight lanes in arrays, which a compiler may or may not turn into instructions. It is
// the fallback everywhere and what the other levels are compared with.
#pragma once

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

struct Floats {
  float lane[kLanes];
};
struct Ints {
  std::int32_t lane[kLanes];
};

#define QUARREL_EACH_LANE for (int i = 0; i < kLanes; ++i)

static inline Floats set(float value) {
  Floats r;
  QUARREL_EACH_LANE r.lane[i] = value;
  return r;
}
static inline Floats load(const float* from) {
  Floats r;
  std::memcpy(r.lane, from, sizeof r.lane);
  return r;
}
static inline void store(float* to, Floats v) { std::memcpy(to, v.lane, sizeof v.lane); }
static inline Floats add(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] += b.lane[i];
  return a;
}
static inline Floats sub(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] -= b.lane[i];
  return a;
}
static inline Floats mul(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] *= b.lane[i];
  return a;
}
static inline Floats div(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] /= b.lane[i];
  return a;
}
static inline Floats fma(Floats a, Floats b, Floats c) {
  QUARREL_EACH_LANE c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}
static inline Floats max(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
static inline Floats min(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
// To the nearest whole number, ties to even, for |x| < 2^22.
static inline Floats round(Floats a) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  QUARREL_EACH_LANE {
    volatile float shifted = a.lane[i] + kMagic;
    a.lane[i] = shifted - kMagic;
  }
  return a;
}
// 2^n for whole n in [-126, 127]; anything at all for a NaN, which has no integer to be cast to.
static inline Floats power_of_two(Floats n) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are n's
  Floats r;
  QUARREL_EACH_LANE {
    const float shifted = n.lane[i] + kMagic;
    std::uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127u) << 23;
    std::memcpy(&r.lane[i], &bits, sizeof bits);
  }
  return r;
}
// x * 2^n for whole n.
static inline Floats times_power_of_two(Floats x, Floats n) { return mul(x, power_of_two(n)); }
// Lanes [first, last) of v, with 0 <= first < last <= kLanes, among those of `other`.
static inline Floats keep_lanes(Floats v, Floats other, int first, int last) {
  for (int i = first; i < last; ++i) other.lane[i] = v.lane[i];
  return other;
}
// The halves are added until one lane is left: the same tree at every level of that width.
static inline float sum(Floats v) {
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v.lane[i] += v.lane[i + width];
  }
  return v.lane[0];
}
static inline float largest(Floats v) {
  float r = v.lane[0];
  QUARREL_EACH_LANE r = v.lane[i] > r ? v.lane[i] : r;
  return r;
}

// Fewer lanes than all; the others are zero, and the memory beyond is not touched.
static inline Floats load_some(const float* from, std::size_t count) {
  Floats r = {};
  std::memcpy(r.lane, from, count * sizeof(float));
  return r;
}
static inline void store_some(float* to, Floats v, std::size_t count) {
  std::memcpy(to, v.lane, count * sizeof(float));
}

// A bit for each lane where a > b.
static inline std::uint32_t above(Floats a, Floats b) {
  std::uint32_t bits = 0;
  QUARREL_EACH_LANE bits |= static_cast<std::uint32_t>(a.lane[i] > b.lane[i]) << i;
  return bits;
}
// A bit for each lane where a < b is false: also where one of them is a NaN.
static inline std::uint32_t not_below(Floats a, Floats b) {
  std::uint32_t bits = 0;
  QUARREL_EACH_LANE bits |= static_cast<std::uint32_t>(!(a.lane[i] < b.lane[i])) << i;
  return bits;
}
// v, and zero where x < limit.
static inline Floats zero_below(Floats v, Floats x, Floats limit) {
  QUARREL_EACH_LANE v.lane[i] = x.lane[i] < limit.lane[i] ? 0.0f : v.lane[i];
  return v;
}

// Neighbouring lanes as pairs: the two change places; kLanes / 2 values, each in both lanes of a pair; a - b in the
// first lane of a pair and a + b in the second.
static inline Floats swap_pairs(Floats v) {
  Floats r;
  QUARREL_EACH_LANE r.lane[i] = v.lane[i ^ 1];
  return r;
}
static inline Floats twice_each(const float* from) {
  Floats r;
  QUARREL_EACH_LANE r.lane[i] = from[i / 2];
  return r;
}
static inline Floats subtract_add(Floats a, Floats b) {
  QUARREL_EACH_LANE a.lane[i] = i % 2 == 0 ? a.lane[i] - b.lane[i] : a.lane[i] + b.lane[i];
  return a;
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

static inline Floats load_half(const std::uint16_t* from) {
  std::uint16_t bits[kLanes];
  std::memcpy(bits, from, sizeof bits);  // a file's weights may lie at any address
  Floats r;
  QUARREL_EACH_LANE r.lane[i] = half_to_float(bits[i]);
  return r;
}
static inline void store_half(std::uint16_t* to, Floats v) { QUARREL_EACH_LANE to[i] = float_to_half(v.lane[i]); }
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
  std::uint16_t halves[kLanes];
  std::memcpy(halves, from, sizeof halves);
  Floats r;
  QUARREL_EACH_LANE {
    const std::uint32_t bits = static_cast<std::uint32_t>(halves[i]) << 16;
    std::memcpy(&r.lane[i], &bits, sizeof bits);
  }
  return r;
}

// Half as many lanes of double, for sums over a whole vocabulary. Rounding and powers are for |n| < 2^51.
struct Doubles {
  double lane[kLanes / 2];
};
#define QUARREL_EACH_WIDE_LANE for (int i = 0; i < kLanes / 2; ++i)
static inline Doubles set_wide(double value) {
  Doubles r;
  QUARREL_EACH_WIDE_LANE r.lane[i] = value;
  return r;
}
static inline Doubles widen(const float* from) {
  Doubles r;
  QUARREL_EACH_WIDE_LANE r.lane[i] = static_cast<double>(from[i]);
  return r;
}
static inline Doubles add(Doubles a, Doubles b) {
  QUARREL_EACH_WIDE_LANE a.lane[i] += b.lane[i];
  return a;
}
static inline Doubles sub(Doubles a, Doubles b) {
  QUARREL_EACH_WIDE_LANE a.lane[i] -= b.lane[i];
  return a;
}
static inline Doubles mul(Doubles a, Doubles b) {
  QUARREL_EACH_WIDE_LANE a.lane[i] *= b.lane[i];
  return a;
}
static inline Doubles fma(Doubles a, Doubles b, Doubles c) {
  QUARREL_EACH_WIDE_LANE c.lane[i] += a.lane[i] * b.lane[i];
  return c;
}
static inline Doubles max(Doubles a, Doubles b) {
  QUARREL_EACH_WIDE_LANE a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
static inline Doubles round(Doubles a) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52
  QUARREL_EACH_WIDE_LANE a.lane[i] = (a.lane[i] + kMagic) - kMagic;
  return a;
}
static inline Doubles power_of_two(Doubles n) {
  constexpr double kMagic = 6755399441055744.0;
  Doubles r;
  QUARREL_EACH_WIDE_LANE {
    const double shifted = n.lane[i] + kMagic;
    std::uint64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023u) << 52;
    std::memcpy(&r.lane[i], &bits, sizeof bits);
  }
  return r;
}
static inline double sum(Doubles v) {
  for (int width = kLanes / 4; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) v.lane[i] += v.lane[i + width];
  }
  return v.lane[0];
}
#undef QUARREL_EACH_WIDE_LANE

static inline Floats to_floats(Ints v) {
  Floats r;
  QUARREL_EACH_LANE r.lane[i] = static_cast<float>(v.lane[i]);
  return r;
}

static inline Ints broadcast(std::int32_t value) {
  Ints r;
  QUARREL_EACH_LANE r.lane[i] = value;
  return r;
}
static inline Ints load_ints(const std::int32_t* from) {
  Ints r;
  std::memcpy(r.lane, from, sizeof r.lane);
  return r;
}
static inline void store_ints(std::int32_t* to, Ints v) { std::memcpy(to, v.lane, sizeof v.lane); }
// Lanes that nobody wants may hold anything, so both wrap as vectors do.
static inline std::uint32_t bits_of(std::int32_t value) { return static_cast<std::uint32_t>(value); }
static inline Ints add_ints(Ints a, Ints b) {
  QUARREL_EACH_LANE a.lane[i] = static_cast<std::int32_t>(bits_of(a.lane[i]) + bits_of(b.lane[i]));
  return a;
}
static inline Ints multiply_ints(Ints a, Ints b) {
  QUARREL_EACH_LANE a.lane[i] = static_cast<std::int32_t>(bits_of(a.lane[i]) * bits_of(b.lane[i]));
  return a;
}
static inline Ints and_ints(Ints a, std::int32_t mask) {
  QUARREL_EACH_LANE a.lane[i] &= mask;
  return a;
}
static inline Ints or_ints(Ints a, Ints b) {
  QUARREL_EACH_LANE a.lane[i] |= b.lane[i];
  return a;
}
static inline Ints xor_ints(Ints a, Ints b) {
  QUARREL_EACH_LANE a.lane[i] ^= b.lane[i];
  return a;
}
template <int kBits>
static inline Ints shift_ints_left(Ints v) {
  QUARREL_EACH_LANE v.lane[i] = static_cast<std::int32_t>(bits_of(v.lane[i]) << kBits);
  return v;
}
template <int kBits>
static inline Ints shift_ints_right(Ints v) {
  QUARREL_EACH_LANE v.lane[i] = static_cast<std::int32_t>(bits_of(v.lane[i]) >> kBits);
  return v;
}
static inline Ints shifted_right(Ints v, int bits) {
  QUARREL_EACH_LANE v.lane[i] = static_cast<std::int32_t>(bits_of(v.lane[i]) >> bits);
  return v;
}
// Each lane's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Ints move_lane_bits(Ints v, int from, int to, int mask) {
  const int left = from < to ? to - from : 0;
  const int right = from < to ? 0 : from - to;
  QUARREL_EACH_LANE v.lane[i] = static_cast<std::int32_t>(bits_of(v.lane[i]) << left >> right) & mask;
  return v;
}
// Both halves of each lane moved left by so many bits, each on its own; to the right where negative.
template <int kLow, int kHigh>
static inline Ints move_halves(Ints v) {
  const auto moved = [](std::uint32_t half, int left) { return (left > 0 ? half << left : half >> -left) & 0xffff; };
  QUARREL_EACH_LANE {
    const std::uint32_t bits = bits_of(v.lane[i]);
    v.lane[i] = static_cast<std::int32_t>(moved(bits & 0xffff, kLow) | moved(bits >> 16, kHigh) << 16);
  }
  return v;
}
// The bytes of each lane, chosen by the bytes of `order`: 0 is the lowest.
static inline Ints order_bytes(Ints v, std::int32_t order) {
  QUARREL_EACH_LANE {
    std::uint32_t ordered = 0;
    for (int b = 0; b < 4; ++b) {
      const std::uint32_t place = bits_of(order) >> (8 * b) & 3;
      ordered |= (bits_of(v.lane[i]) >> (8 * place) & 255) << (8 * b);
    }
    v.lane[i] = static_cast<std::int32_t>(ordered);
  }
  return v;
}
// (v & mask) | other
static inline Ints masked_or(Ints v, std::int32_t mask, Ints other) { return or_ints(and_ints(v, mask), other); }

struct IntPair {
  Ints low, high;
};
// Entries of a table by the number in each lane.
static inline Ints look_up_each(const std::int32_t* table, Ints indices) {
  QUARREL_EACH_LANE indices.lane[i] = table[indices.lane[i]];
  return indices;
}
// Entries of a table of 16-bit numbers by the lower and by the upper 16-bit index of each lane, each entry twice in its
// lane.
template <std::size_t kEntries>
static inline IntPair look_up_pairs(const std::uint16_t* table, Ints indices) {
  IntPair found;
  QUARREL_EACH_LANE {
    const std::uint32_t pair = bits_of(indices.lane[i]);
    found.low.lane[i] = static_cast<std::int32_t>(table[pair & 0xffff] * 0x10001u);
    found.high.lane[i] = static_cast<std::int32_t>(table[pair >> 16] * 0x10001u);
  }
  return found;
}
// Two bytes a lane.
static inline Ints load_lane_words(const std::uint16_t* from) {
  Ints r;
  QUARREL_EACH_LANE r.lane[i] = from[i];
  return r;
}
// One byte a lane.
static inline Ints load_lane_bytes(const std::uint8_t* from) {
  Ints r;
  QUARREL_EACH_LANE r.lane[i] = from[i];
  return r;
}
static inline Ints load_lane_bytes(const std::int8_t* from) {
  Ints r;
  QUARREL_EACH_LANE r.lane[i] = from[i];
  return r;
}
static inline Floats as_floats(Ints bits) {
  Floats r;
  std::memcpy(r.lane, bits.lane, sizeof r.lane);
  return r;
}

struct Bytes {
  std::uint8_t lane[kBytes];
};
static inline Bytes load_bytes(const std::uint8_t* from) {
  Bytes r;
  std::memcpy(r.lane, from, sizeof r.lane);
  return r;
}
static inline void store_bytes(std::uint8_t* to, Bytes v) { std::memcpy(to, v.lane, sizeof v.lane); }
static inline Bytes as_bytes(Ints v) {
  Bytes r;
  std::memcpy(r.lane, v.lane, sizeof r.lane);
  return r;
}
static inline Ints as_ints(Bytes v) {
  Ints r;
  std::memcpy(r.lane, v.lane, sizeof r.lane);
  return r;
}
static inline Bytes or_bytes(Bytes a, Bytes b) {
  for (int i = 0; i < kBytes; ++i) a.lane[i] |= b.lane[i];
  return a;
}
// Each byte's bits moved from place `from` to place `to`, all but those of `mask` cleared.
static inline Bytes move_bits(Bytes v, int from, int to, int mask) {
  const int left = from < to ? to - from : 0;
  const int right = from < to ? 0 : from - to;
  for (std::uint8_t& byte : v.lane) byte = static_cast<std::uint8_t>(((byte << left) >> right) & mask);
  return v;
}
static inline Bytes look_up(const std::uint8_t* sixteen, Bytes indices) {
  for (std::uint8_t& byte : indices.lane) byte = sixteen[byte];
  return indices;
}

// Byte b of a lane: the entry that its index, below eight, names, or where bit b of the lane's nibble number `nibble`
// is set the one eight further.
static inline Bytes look_up_signed(const std::uint8_t* sixteen, Ints indices, Ints signs, int nibble) {
  Bytes bytes = as_bytes(indices);
  for (int b = 0; b < kBytes; ++b) {
    const std::uint32_t bit = bits_of(signs.lane[b / 4]) >> (4 * nibble + b % 4) & 1;
    bytes.lane[b] = sixteen[bytes.lane[b] + 8 * bit];
  }
  return bytes;
}

// Bytes that are fractions: three times each, without its whole part, and that whole part.
static inline Bytes ternary_rest(Bytes v) {
  for (std::uint8_t& byte : v.lane) byte = static_cast<std::uint8_t>(3 * byte);
  return v;
}
static inline Bytes ternary_digit(Bytes v) {
  for (std::uint8_t& byte : v.lane) byte = static_cast<std::uint8_t>(3 * byte >> 8);
  return v;
}

// How much less than its byte `dots` takes a weight for.
template <int kMaxByte>
inline constexpr int kDotOffset = 0;

// acc[token] += sums of four neighbouring weights, none above kMaxByte, times four values of that token: vector i of
// the weights goes with values 4 i to 4 i + 3. Token t's values lie int8_offset<kFirst>(t) behind the first.
template <std::size_t kTokens, std::size_t kVectors, int kMaxByte, std::size_t kFirst, typename Weights>
static inline void dots(const Weights& weights, const std::int8_t* values, Ints (&acc)[kTokens]) {
  for (std::size_t v = 0; v < kVectors; ++v) {
    const Bytes weight = weights(v);
    for (std::size_t t = 0; t < kTokens; ++t) {
      const std::int8_t* four = values + int8_offset<kFirst>(t) + 4 * v;
      QUARREL_EACH_LANE {
        for (int j = 0; j < 4; ++j) acc[t].lane[i] += weight.lane[4 * i + j] * four[j];
      }
    }
  }
}

static inline void prefetch_near(const void* /*address*/) {}
static inline void prefetch_far(const void* /*address*/) {}

#undef QUARREL_EACH_LANE

}  // namespace quarrel::scalar_level

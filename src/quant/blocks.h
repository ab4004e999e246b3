// The block of every weight type exactly as it lies in a file: one packed struct a type, little-endian, no padding.
// Read by the decoders here and by the backends' kernels. `kWeights` is the number of weights a block holds. A
// HalfBits field is an IEEE half (quant/half.h). The decoders are the definition of what the fields mean; the
// comments say how the bits are laid out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

using HalfBits = std::uint16_t;

struct [[gnu::packed]] BlockF32 {
  static constexpr std::size_t kWeights = 1;
  float value;
};
static_assert(sizeof(BlockF32) == 4);

struct [[gnu::packed]] BlockF16 {
  static constexpr std::size_t kWeights = 1;
  HalfBits value;
};
static_assert(sizeof(BlockF16) == 2);

struct [[gnu::packed]] BlockBf16 {
  static constexpr std::size_t kWeights = 1;
  std::uint16_t value;  // the upper half of a float
};
static_assert(sizeof(BlockBf16) == 2);

// Blocks of 32. The low nibbles are weights 0-15, the high nibbles 16-31; a fifth bit lies at the weight's own number.

struct [[gnu::packed]] BlockQ4_0 {
  static constexpr std::size_t kWeights = 32;
  HalfBits scale;
  std::uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

struct [[gnu::packed]] BlockQ4_1 {
  static constexpr std::size_t kWeights = 32;
  HalfBits scale;
  HalfBits minimum;
  std::uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

struct [[gnu::packed]] BlockQ5_0 {
  static constexpr std::size_t kWeights = 32;
  HalfBits scale;
  std::uint32_t fifth_bits;
  std::uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

struct [[gnu::packed]] BlockQ5_1 {
  static constexpr std::size_t kWeights = 32;
  HalfBits scale;
  HalfBits minimum;
  std::uint32_t fifth_bits;
  std::uint8_t nibbles[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

struct [[gnu::packed]] BlockQ8_0 {
  static constexpr std::size_t kWeights = 32;
  HalfBits scale;
  std::int8_t quants[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct [[gnu::packed]] BlockIq4Nl {
  static constexpr std::size_t kWeights = 32;
  HalfBits scale;
  std::uint8_t nibbles[16];  // indices into kIq4Values
};
static_assert(sizeof(BlockIq4Nl) == 18);

struct [[gnu::packed]] BlockMxfp4 {
  static constexpr std::size_t kWeights = 32;
  std::uint8_t exponent;     // the scale is 2^(exponent - 127)
  std::uint8_t nibbles[16];  // E2M1 numbers: sign, two bits of exponent, one of mantissa
};
static_assert(sizeof(BlockMxfp4) == 17);

// The same numbers with the nibbles of neighbours in one byte, as the first files of gpt-oss for Ollama have them.
struct [[gnu::packed]] BlockMxfp4Pairs {
  static constexpr std::size_t kWeights = 32;
  std::uint8_t exponent;
  std::uint8_t nibbles[16];  // weights 2 i and 2 i + 1
};
static_assert(sizeof(BlockMxfp4Pairs) == 17);

// Blocks of 256. Where bits of a weight are spread over bytes, 32 neighbouring weights take the same bit positions of
// 32 neighbouring bytes.

struct [[gnu::packed]] BlockQ2K {
  static constexpr std::size_t kWeights = 256;
  std::uint8_t scales[16];  // of 16 weights each: scale in the low nibble, minimum in the high one
  std::uint8_t quants[64];  // two bits a weight
  HalfBits scale;
  HalfBits min_scale;
};
static_assert(sizeof(BlockQ2K) == 84);

struct [[gnu::packed]] BlockQ3K {
  static constexpr std::size_t kWeights = 256;
  std::uint8_t third_bits[32];
  std::uint8_t quants[64];  // the low two bits a weight
  std::uint8_t scales[12];  // 16 of six bits: eight bytes of low nibbles, four bytes of high bits
  HalfBits scale;
};
static_assert(sizeof(BlockQ3K) == 110);

// Eight pairs of a six-bit scale and minimum in twelve bytes, for 32 weights each (q4_k_scale_min unpacks them).
struct [[gnu::packed]] BlockQ4K {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  HalfBits min_scale;
  std::uint8_t scales[12];
  std::uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ4K) == 144);

struct [[gnu::packed]] BlockQ5K {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  HalfBits min_scale;
  std::uint8_t scales[12];
  std::uint8_t fifth_bits[32];
  std::uint8_t nibbles[128];
};
static_assert(sizeof(BlockQ5K) == 176);

struct [[gnu::packed]] BlockQ6K {
  static constexpr std::size_t kWeights = 256;
  std::uint8_t nibbles[128];   // the low four bits
  std::uint8_t high_bits[64];  // the upper two
  std::int8_t scales[16];      // of 16 weights each
  HalfBits scale;
};
static_assert(sizeof(BlockQ6K) == 210);

struct [[gnu::packed]] BlockQ8K {
  static constexpr std::size_t kWeights = 256;
  float scale;
  std::int8_t quants[256];
  std::int16_t sums[16];  // of 16 quants each; redundant, for dot products with types that have minimums
};
static_assert(sizeof(BlockQ8K) == 292);

// Ternary: a byte is a fixed-point fraction whose digits in base three are the weights.
struct [[gnu::packed]] BlockTq1_0 {
  static constexpr std::size_t kWeights = 256;
  std::uint8_t fives[48];  // five weights a byte
  std::uint8_t fours[4];   // four weights a byte
  HalfBits scale;
};
static_assert(sizeof(BlockTq1_0) == 54);

struct [[gnu::packed]] BlockTq2_0 {
  static constexpr std::size_t kWeights = 256;
  std::uint8_t quants[64];  // two bits a weight
  HalfBits scale;
};
static_assert(sizeof(BlockTq2_0) == 66);

struct [[gnu::packed]] BlockIq4Xs {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  std::uint16_t scales_high;   // two bits for each 32 weights
  std::uint8_t scales_low[4];  // four bits for each 32 weights
  std::uint8_t nibbles[128];   // eight runs of 16 bytes, each laid out as in BlockIq4Nl
};
static_assert(sizeof(BlockIq4Xs) == 136);

// The types below take eight (or four) weights at a time from a codebook of quant/iq_tables.h.

struct [[gnu::packed]] BlockIq2Xxs {
  static constexpr std::size_t kWeights = 256;
  struct [[gnu::packed]] Group {    // of 32 weights
    std::uint8_t entries[4];        // of kIq2XxsCodebook
    std::uint32_t signs_and_scale;  // four sign patterns of seven bits, a scale of four
  };
  HalfBits scale;
  Group groups[8];
};
static_assert(sizeof(BlockIq2Xxs) == 66);

struct [[gnu::packed]] BlockIq2Xs {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  std::uint16_t quants[32];  // entry of kIq2XsCodebook in nine bits, sign pattern in seven
  std::uint8_t scales[8];    // a nibble for each 16 weights
};
static_assert(sizeof(BlockIq2Xs) == 74);

struct [[gnu::packed]] BlockIq2S {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  std::uint8_t entries[32];  // of kIq2SCodebook, the low eight bits
  std::uint8_t signs[32];
  std::uint8_t entries_high[8];  // two bits an entry
  std::uint8_t scales[8];        // a nibble for each 16 weights
};
static_assert(sizeof(BlockIq2S) == 82);

struct [[gnu::packed]] BlockIq3Xxs {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  std::uint8_t entries[64];          // of kIq3XxsCodebook
  std::uint32_t signs_and_scale[8];  // as in BlockIq2Xxs
};
static_assert(sizeof(BlockIq3Xxs) == 98);

struct [[gnu::packed]] BlockIq3S {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  std::uint8_t entries[64];      // of kIq3SCodebook, the low eight bits
  std::uint8_t entries_high[8];  // one bit an entry
  std::uint8_t signs[32];
  std::uint8_t scales[4];  // a nibble for each 32 weights
};
static_assert(sizeof(BlockIq3S) == 110);

struct [[gnu::packed]] BlockIq1S {
  static constexpr std::size_t kWeights = 256;
  HalfBits scale;
  std::uint8_t entries[32];  // of kIq1Codebook, the low eight bits
  std::uint16_t extra[8];    // for each 32 weights: four times three high row bits, a scale of three, the shift's sign
};
static_assert(sizeof(BlockIq1S) == 50);

struct [[gnu::packed]] BlockIq1M {
  static constexpr std::size_t kWeights = 256;
  std::uint8_t entries[32];  // of kIq1Codebook, the low eight bits
  std::uint8_t extra[16];    // a nibble a row: three high row bits, the shift's sign
  std::uint16_t scales[4];  // four scales of three bits for 16 weights each; the top nibbles are the block's half scale
};
static_assert(sizeof(BlockIq1M) == 56);

struct ScaleMin {
  std::uint8_t scale;
  std::uint8_t minimum;
};

// The six-bit pair of 32 weights number `group` (0-7) of a Q4_K or Q5_K block. The first four pairs lie in the low bits
// of bytes 0-7; the last four have their low nibbles in bytes 8-11 and their high bits on top of bytes 0-7.
constexpr ScaleMin q4_k_scale_min(const std::uint8_t (&packed)[12], std::size_t group) noexcept {
  if (group < 4) {
    return {static_cast<std::uint8_t>(packed[group] & 63), static_cast<std::uint8_t>(packed[group + 4] & 63)};
  }
  return {static_cast<std::uint8_t>((packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4)),
          static_cast<std::uint8_t>((packed[group + 4] >> 4) | (packed[group] >> 6 << 4))};
}

}  // namespace quarrel

// How each weight type becomes bytes that an integer dot product takes: weight = scale * byte + offset, with one scale
// and offset a group of 16 or 32. The loops are plain, so that each level's compiler flags turn them into its vectors.
// To make a type fast on the CPU: an Unpack here, and a row in matmul.inl's table.

namespace quarrel::QUARREL_LEVEL {

// One row of weights, unpacked.
struct UnpackedRow {
  std::uint8_t* bytes;
  float* scales;
  float* offsets;
};

template <typename Block>
struct Unpack;

// Bytes may alias anything, so a loop from memory to memory is compiled one byte at a time. These work on copies, which
// the compiler keeps in registers.
template <std::size_t kCount>
struct ByteCopy {
  std::uint8_t at[kCount];
  explicit ByteCopy(const void* from) { std::memcpy(at, from, kCount); }
  ByteCopy() = default;
  void put(std::uint8_t* to) const { std::memcpy(to, at, kCount); }
};

// Nibbles of 32 weights: the low ones first.
static inline void unpack_nibbles32(const std::uint8_t* nibbles, std::uint8_t* bytes) {
  const ByteCopy<16> in(nibbles);
  ByteCopy<16> low, high;
  for (int i = 0; i < 16; ++i) low.at[i] = in.at[i] & 15;
  for (int i = 0; i < 16; ++i) high.at[i] = in.at[i] >> 4;
  low.put(bytes);
  high.put(bytes + 16);
}

// Adds a fifth bit to each of 32 weights: each byte of `bits` is repeated eight times and meets a mask of its own bit.
static inline void add_fifth_bits32(std::uint32_t bits, std::uint8_t* bytes) {
  ByteCopy<32> out(bytes);
  ByteCopy<32> spread;
  for (int i = 0; i < 32; ++i) spread.at[i] = static_cast<std::uint8_t>(bits >> (i / 8 * 8));
  for (int i = 0; i < 32; ++i) {
    out.at[i] = static_cast<std::uint8_t>(out.at[i] | ((spread.at[i] & (1 << (i % 8))) != 0 ? 16 : 0));
  }
  out.put(bytes);
}

template <>
struct Unpack<BlockQ4_0> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ4_0& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    unpack_nibbles32(b.nibbles, to.bytes);
    to.scales[0] = scale;
    to.offsets[0] = -8.0f * scale;
  }
};

template <>
struct Unpack<BlockQ4_1> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ4_1& b, const UnpackedRow& to) {
    unpack_nibbles32(b.nibbles, to.bytes);
    to.scales[0] = half_to_float(b.scale);
    to.offsets[0] = half_to_float(b.minimum);
  }
};

template <>
struct Unpack<BlockQ5_0> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ5_0& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    unpack_nibbles32(b.nibbles, to.bytes);
    add_fifth_bits32(b.fifth_bits, to.bytes);
    to.scales[0] = scale;
    to.offsets[0] = -16.0f * scale;
  }
};

template <>
struct Unpack<BlockQ5_1> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ5_1& b, const UnpackedRow& to) {
    unpack_nibbles32(b.nibbles, to.bytes);
    add_fifth_bits32(b.fifth_bits, to.bytes);
    to.scales[0] = half_to_float(b.scale);
    to.offsets[0] = half_to_float(b.minimum);
  }
};

template <>
struct Unpack<BlockQ8_0> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = true;
  static inline void block(const BlockQ8_0& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    ByteCopy<32> out(b.quants);
    for (int i = 0; i < 32; ++i) out.at[i] ^= 0x80;
    out.put(to.bytes);
    to.scales[0] = scale;
    to.offsets[0] = -128.0f * scale;
  }
};

template <>
struct Unpack<BlockQ8K> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = true;
  static inline void block(const BlockQ8K& b, const UnpackedRow& to) {
    ByteCopy<256> out(b.quants);
    for (int i = 0; i < 256; ++i) out.at[i] ^= 0x80;
    out.put(to.bytes);
    for (int g = 0; g < 8; ++g) {
      to.scales[g] = b.scale;
      to.offsets[g] = -128.0f * b.scale;
    }
  }
};

// Two bits of each of 256 weights: 32 bytes hold 128 of them, in four runs from the low bits up.
static inline void unpack_two_bits(const std::uint8_t* quants, std::uint8_t* bytes) {
  for (int half = 0; half < 2; ++half) {
    const ByteCopy<32> in(quants + 32 * half);
    for (int shift = 0; shift < 4; ++shift) {
      ByteCopy<32> out;
      for (int i = 0; i < 32; ++i) out.at[i] = (in.at[i] >> (2 * shift)) & 3;
      out.put(bytes + 128 * half + 32 * shift);
    }
  }
}

template <>
struct Unpack<BlockQ2K> {
  static constexpr int kGroup = 16;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ2K& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    const float min_scale = half_to_float(b.min_scale);
    unpack_two_bits(b.quants, to.bytes);
    for (int g = 0; g < 16; ++g) {
      to.scales[g] = scale * static_cast<float>(b.scales[g] & 15);
      to.offsets[g] = -min_scale * static_cast<float>(b.scales[g] >> 4);
    }
  }
};

template <>
struct Unpack<BlockQ3K> {
  static constexpr int kGroup = 16;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ3K& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    unpack_two_bits(b.quants, to.bytes);
    const ByteCopy<32> third(b.third_bits);
    for (int run = 0; run < 8; ++run) {
      ByteCopy<32> out(to.bytes + 32 * run);
      for (int i = 0; i < 32; ++i) out.at[i] = static_cast<std::uint8_t>(out.at[i] | ((third.at[i] >> run) & 1) << 2);
      out.put(to.bytes + 32 * run);
    }
    for (int g = 0; g < 16; ++g) {
      const int low = (b.scales[g % 8] >> (g / 8 * 4)) & 15;
      const int high = (b.scales[8 + g % 4] >> (g / 4 * 2)) & 3;
      const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
      to.scales[g] = group_scale;
      to.offsets[g] = -4.0f * group_scale;
    }
  }
};

// The scales of Q4_K and Q5_K: eight six-bit pairs in twelve bytes.
static inline void unpack_k_scales(const std::uint8_t* packed, float scale, float min_scale, const UnpackedRow& to) {
  for (int g = 0; g < 4; ++g) {
    to.scales[g] = scale * static_cast<float>(packed[g] & 63);
    to.offsets[g] = -min_scale * static_cast<float>(packed[g + 4] & 63);
    to.scales[g + 4] = scale * static_cast<float>((packed[g + 8] & 15) | (packed[g] >> 6 << 4));
    to.offsets[g + 4] = -min_scale * static_cast<float>((packed[g + 8] >> 4) | (packed[g + 4] >> 6 << 4));
  }
}

static inline void unpack_nibbles256(const std::uint8_t* nibbles, std::uint8_t* bytes) {
  for (int quarter = 0; quarter < 4; ++quarter) {
    const ByteCopy<32> in(nibbles + 32 * quarter);
    ByteCopy<32> low, high;
    for (int i = 0; i < 32; ++i) low.at[i] = in.at[i] & 15;
    for (int i = 0; i < 32; ++i) high.at[i] = in.at[i] >> 4;
    low.put(bytes + 64 * quarter);
    high.put(bytes + 64 * quarter + 32);
  }
}

template <>
struct Unpack<BlockQ4K> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ4K& b, const UnpackedRow& to) {
    unpack_nibbles256(b.nibbles, to.bytes);
    unpack_k_scales(b.scales, half_to_float(b.scale), half_to_float(b.min_scale), to);
  }
};

template <>
struct Unpack<BlockQ5K> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ5K& b, const UnpackedRow& to) {
    unpack_nibbles256(b.nibbles, to.bytes);
    const ByteCopy<32> fifth(b.fifth_bits);
    for (int run = 0; run < 8; ++run) {
      ByteCopy<32> out(to.bytes + 32 * run);
      for (int i = 0; i < 32; ++i) out.at[i] = static_cast<std::uint8_t>(out.at[i] | ((fifth.at[i] >> run) & 1) << 4);
      out.put(to.bytes + 32 * run);
    }
    unpack_k_scales(b.scales, half_to_float(b.scale), half_to_float(b.min_scale), to);
  }
};

template <>
struct Unpack<BlockQ6K> {
  static constexpr int kGroup = 16;
  static constexpr bool kWide = false;
  static inline void block(const BlockQ6K& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    for (int half = 0; half < 2; ++half) {
      const ByteCopy<64> low(b.nibbles + 64 * half);
      const ByteCopy<32> high(b.high_bits + 32 * half);
      ByteCopy<128> out;
      for (int i = 0; i < 32; ++i) out.at[i] = static_cast<std::uint8_t>((low.at[i] & 15) | (high.at[i] & 3) << 4);
      for (int i = 0; i < 32; ++i) {
        out.at[32 + i] = static_cast<std::uint8_t>((low.at[32 + i] & 15) | (high.at[i] & 12) << 2);
      }
      for (int i = 0; i < 32; ++i) out.at[64 + i] = static_cast<std::uint8_t>((low.at[i] >> 4) | (high.at[i] & 48));
      for (int i = 0; i < 32; ++i) {
        out.at[96 + i] = static_cast<std::uint8_t>((low.at[32 + i] >> 4) | (high.at[i] & 192) >> 2);
      }
      out.put(to.bytes + 128 * half);
    }
    for (int g = 0; g < 16; ++g) {
      const float group_scale = scale * static_cast<float>(b.scales[g]);
      to.scales[g] = group_scale;
      to.offsets[g] = -32.0f * group_scale;
    }
  }
};

// The 16 values of IQ4_NL and IQ4_XS with 128 added, and those of MXFP4, doubled, with 12 added.
static constexpr std::uint8_t kIq4Bytes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static constexpr std::uint8_t kMxfp4Bytes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

static inline void look_up_nibbles32(const std::uint8_t* nibbles, const std::uint8_t* table, std::uint8_t* bytes) {
  const ByteCopy<16> in(nibbles);
  ByteCopy<32> out;
  for (int i = 0; i < 16; ++i) out.at[i] = table[in.at[i] & 15];
  for (int i = 0; i < 16; ++i) out.at[16 + i] = table[in.at[i] >> 4];
  out.put(bytes);
}

template <>
struct Unpack<BlockIq4Nl> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = true;
  static inline void block(const BlockIq4Nl& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    look_up_nibbles32(b.nibbles, kIq4Bytes, to.bytes);
    to.scales[0] = scale;
    to.offsets[0] = -128.0f * scale;
  }
};

template <>
struct Unpack<BlockIq4Xs> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = true;
  static inline void block(const BlockIq4Xs& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    for (int g = 0; g < 8; ++g) {
      look_up_nibbles32(b.nibbles + 16 * g, kIq4Bytes, to.bytes + 32 * g);
      const int low = (b.scales_low[g / 2] >> (4 * (g % 2))) & 15;
      const int high = (b.scales_high >> (2 * g)) & 3;
      const float group_scale = scale * static_cast<float>((low | high << 4) - 32);
      to.scales[g] = group_scale;
      to.offsets[g] = -128.0f * group_scale;
    }
  }
};

// Half of 2^(exponent - 127), because the table is doubled; the two smallest exponents are subnormal floats.
static inline void put_mxfp4_scale(std::uint8_t exponent, const UnpackedRow& to) {
  const std::uint32_t bits = exponent >= 2 ? static_cast<std::uint32_t>(exponent - 1) << 23 : 0x00200000u << exponent;
  float scale;
  std::memcpy(&scale, &bits, sizeof scale);
  to.scales[0] = scale;
  to.offsets[0] = -12.0f * scale;
}

template <>
struct Unpack<BlockMxfp4> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockMxfp4& b, const UnpackedRow& to) {
    look_up_nibbles32(b.nibbles, kMxfp4Bytes, to.bytes);
    put_mxfp4_scale(b.exponent, to);
  }
};

template <>
struct Unpack<BlockMxfp4Pairs> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockMxfp4Pairs& b, const UnpackedRow& to) {
    const ByteCopy<16> in(b.nibbles);
    ByteCopy<32> out;
    for (int i = 0; i < 32; ++i) out.at[i] = kMxfp4Bytes[(in.at[i / 2] >> (4 * (i % 2))) & 15];
    out.put(to.bytes);
    put_mxfp4_scale(b.exponent, to);
  }
};

template <>
struct Unpack<BlockTq2_0> {
  static constexpr int kGroup = 32;
  static constexpr bool kWide = false;
  static inline void block(const BlockTq2_0& b, const UnpackedRow& to) {
    const float scale = half_to_float(b.scale);
    unpack_two_bits(b.quants, to.bytes);
    for (int g = 0; g < 8; ++g) {
      to.scales[g] = scale;
      to.offsets[g] = -scale;
    }
  }
};

}  // namespace quarrel::QUARREL_LEVEL

// How the weights of the rarer types become bytes that an integer dot product takes: weight = scale * byte + offset,
// with one scale and offset a group of 16 or 32. They are read where they lie, a row at a time; the loops are plain, so
// that each level's compiler flags turn them into its vectors. To make a type fast for many rows: an Unpack here, and a
// row in matmul.inl's table. To make it fast for one row too: a Packed in packed.inl.

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
struct Unpack<BlockQ8K> {
  static constexpr int kGroup = 32;
  static constexpr int kMost = 255;
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
  static constexpr int kMost = 3;
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
  static constexpr int kMost = 7;
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

template <>
struct Unpack<BlockIq4Xs> {
  static constexpr int kGroup = 32;
  static constexpr int kMost = 255;
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

template <>
struct Unpack<BlockTq2_0> {
  static constexpr int kGroup = 32;
  static constexpr int kMost = 3;
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

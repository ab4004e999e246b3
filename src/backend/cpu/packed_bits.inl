// Panels of the types whose weights are a few bits each, or a table's: Q2_K, Q3_K, Q8_K, IQ4_XS and the ternary ones.
// What a panel is: packed.inl.

namespace quarrel::QUARREL_LEVEL {

// Two bits of each of 256 weights: 32 bytes hold 128 of them, in four runs from the low bits up.
static inline Bytes two_bits(const std::uint8_t (&quants)[16][kBytes], int group, int i) {
  return move_bits(load_bytes(quants[8 * (group / 4) + i]), 2 * (group % 4), 0, 3);
}

template <>
struct Packed<BlockQ2K> {
  static constexpr int kScaleColumns = 16, kBias = 0, kMaxByte = 3;
  static constexpr bool kHasMinimum = true;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    HalfBits min_scale[kPanelRows];
    std::uint8_t scales[16][kPanelRows];  // scale in the low nibble, minimum in the high one
    std::uint8_t quants[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ2K& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ2K, scale), panel.scale[lane]);
    move_field<kPack>(block, offsetof(BlockQ2K, min_scale), panel.min_scale[lane]);
    for (int g = 0; g < 16; ++g) move_value<kPack>(block.scales[g], panel.scales[g][lane]);
    move_bytes<kPack>(block.quants, panel.quants, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) { return two_bits(panel.quants, group, i); }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return mul(load_half(panel.scale), to_floats(and_ints(load_lane_bytes(panel.scales[index]), 15)));
  }
  static inline Floats minimum(const PanelBlock& panel, std::size_t index) {
    const Floats least = to_floats(shift_ints_right<4>(load_lane_bytes(panel.scales[index])));
    return mul(sub(set(0.0f), load_half(panel.min_scale)), least);
  }
};

template <>
struct Packed<BlockQ3K> {
  static constexpr int kScaleColumns = 16, kBias = 4, kMaxByte = 7;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t scales[12][kPanelRows];
    std::uint8_t third_bits[8][kBytes];
    std::uint8_t quants[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ3K& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ3K, scale), panel.scale[lane]);
    for (int i = 0; i < 12; ++i) move_value<kPack>(block.scales[i], panel.scales[i][lane]);
    move_bytes<kPack>(block.third_bits, panel.third_bits, lane);
    move_bytes<kPack>(block.quants, panel.quants, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) {
    return or_bytes(two_bits(panel.quants, group, i), move_bits(load_bytes(panel.third_bits[i]), group, 2, 4));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    const int p = static_cast<int>(index);
    const Ints low = move_lane_bits(load_lane_bytes(panel.scales[p % 8]), p / 8 * 4, 0, 15);
    const Ints high = move_lane_bits(load_lane_bytes(panel.scales[8 + p % 4]), p / 4 * 2, 4, 48);
    return mul(load_half(panel.scale), to_floats(add_ints(or_ints(low, high), broadcast(-32))));
  }
};

template <>
struct Packed<BlockQ8K> {
  static constexpr int kScaleColumns = 32, kBias = 128, kMaxByte = 255;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    float scale[kPanelRows];
    std::uint8_t quants[64][kBytes];    // 128 added
    std::int16_t sums[16][kPanelRows];  // kept, so that a lane comes out as it went in
  };
  template <bool kPack>
  static inline void move(BlockQ8K& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ8K, scale), panel.scale[lane]);
    std::uint8_t shifted[256];
    for (int i = 0; kPack && i < 256; ++i) shifted[i] = static_cast<std::uint8_t>(block.quants[i] ^ 0x80);
    move_bytes<kPack>(shifted, panel.quants, lane);
    for (int i = 0; !kPack && i < 256; ++i) block.quants[i] = static_cast<std::int8_t>(shifted[i] ^ 0x80);
    for (int i = 0; i < 16; ++i) {
      const std::size_t offset = offsetof(BlockQ8K, sums) + static_cast<std::size_t>(i) * sizeof(std::int16_t);
      move_field<kPack>(block, offset, panel.sums[i][lane]);
    }
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) {
    return load_bytes(panel.quants[8 * group + i]);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load(panel.scale); }
};

template <>
struct Packed<BlockIq4Xs> {
  static constexpr int kScaleColumns = 32, kBias = 128, kMaxByte = 255;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t scales_high[2][kPanelRows];
    std::uint8_t scales_low[4][kPanelRows];
    std::uint8_t nibbles[32][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq4Xs& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq4Xs, scale), panel.scale[lane]);
    if constexpr (kPack) {
      for (int i = 0; i < 2; ++i) panel.scales_high[i][lane] = static_cast<std::uint8_t>(block.scales_high >> (8 * i));
    } else {
      block.scales_high = static_cast<std::uint16_t>(panel.scales_high[0][lane] | panel.scales_high[1][lane] << 8);
    }
    for (int i = 0; i < 4; ++i) move_value<kPack>(block.scales_low[i], panel.scales_low[i][lane]);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) {
    const std::uint8_t* nibbles = panel.nibbles[4 * group + i % 4];
    return look_up(kIq4Bytes, i < 4 ? low_nibbles(nibbles) : high_nibbles(nibbles));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    const int g = static_cast<int>(index);
    const Ints low = move_lane_bits(load_lane_bytes(panel.scales_low[g / 2]), g % 2 * 4, 0, 15);
    const Ints high = move_lane_bits(load_lane_bytes(panel.scales_high[g / 4]), g % 4 * 2, 4, 48);
    return mul(load_half(panel.scale), to_floats(add_ints(or_ints(low, high), broadcast(-32))));
  }
};

template <>
struct Packed<BlockTq2_0> {
  static constexpr int kScaleColumns = 32, kBias = 1, kMaxByte = 3;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t quants[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockTq2_0& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockTq2_0, scale), panel.scale[lane]);
    move_bytes<kPack>(block.quants, panel.quants, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) { return two_bits(panel.quants, group, i); }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
};

// A byte holds five weights, or in the last four bytes four: digits in base three of a fixed-point fraction.
template <>
struct Packed<BlockTq1_0> {
  static constexpr int kScaleColumns = 32, kBias = 1, kMaxByte = 2;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t fives[12][kBytes];
    std::uint8_t fours[1][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockTq1_0& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockTq1_0, scale), panel.scale[lane]);
    move_bytes<kPack>(block.fives, panel.fives, lane);
    move_bytes<kPack>(block.fours, panel.fours, lane);
  }
  // The first 32 bytes are groups 0 to 4, a digit each; a digit of the next 16 is half a group, and the rest is the
  // last four bytes', a digit a vector.
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    Bytes rest[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) rest[i] = load_bytes(panel.fives[g < 5 ? i : 8 + i % 4]);
    for (int digit = g < 5 ? g : 2 * (g - 5); digit > 0; --digit) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) rest[i] = ternary_rest(rest[i]);
    }
    if (g >= 5) {
      Bytes last = load_bytes(panel.fours[0]);
#pragma GCC unroll 4
      for (int i = 4; i < 8; ++i, last = ternary_rest(last)) rest[i] = g == 7 ? last : ternary_rest(rest[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) vectors[i] = ternary_digit(rest[i]);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
};

}  // namespace quarrel::QUARREL_LEVEL

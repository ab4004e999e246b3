// Panels of the types whose weights are a few bits each, or a table's: Q2_K, Q3_K, Q8_K, IQ4_XS and the ternary ones.
// What a panel is: packed.inl.

namespace quarrel::QUARREL_LEVEL {

// Two bits of each of 256 weights: 32 bytes hold 128 of them, in four runs from the low bits up.
static inline Bytes two_bits(const std::uint8_t (&quants)[16][kBytes], int group, int i) {
  return move_bits(load_bytes(quants[8 * (group / 4) + i]), 2 * (group % 4), 0, 3);
}

template <>
struct Packed<BlockQ2K> {
  static constexpr int kGroup = 16, kBias = 0, kMost = 3;
  static constexpr bool kMinimums = true;
  struct Rows {
    HalfBits scale[kPanelRows];
    HalfBits min_scale[kPanelRows];
    std::uint8_t scales[16][kPanelRows];  // scale in the low nibble, minimum in the high one
    std::uint8_t quants[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ2K& block, Rows& rows, int row) {
    move_field<kPack>(block, offsetof(BlockQ2K, scale), rows.scale[row]);
    move_field<kPack>(block, offsetof(BlockQ2K, min_scale), rows.min_scale[row]);
    for (int g = 0; g < 16; ++g) move_value<kPack>(block.scales[g], rows.scales[g][row]);
    move_bytes<kPack>(block.quants, rows.quants, row);
  }
  static inline Bytes bytes(const Rows& rows, int group, int i) { return two_bits(rows.quants, group, i); }
  static inline Floats scale(const Rows& rows, std::size_t part) {
    return mul(load_half(rows.scale), to_floats(and_ints(load_lane_bytes(rows.scales[part]), 15)));
  }
  static inline Floats minimum(const Rows& rows, std::size_t part) {
    const Floats least = to_floats(shift_ints_right<4>(load_lane_bytes(rows.scales[part])));
    return mul(sub(set(0.0f), load_half(rows.min_scale)), least);
  }
};

template <>
struct Packed<BlockQ3K> {
  static constexpr int kGroup = 16, kBias = 4, kMost = 7;
  static constexpr bool kMinimums = false;
  struct Rows {
    HalfBits scale[kPanelRows];
    std::uint8_t scales[12][kPanelRows];
    std::uint8_t third_bits[8][kBytes];
    std::uint8_t quants[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ3K& block, Rows& rows, int row) {
    move_field<kPack>(block, offsetof(BlockQ3K, scale), rows.scale[row]);
    for (int i = 0; i < 12; ++i) move_value<kPack>(block.scales[i], rows.scales[i][row]);
    move_bytes<kPack>(block.third_bits, rows.third_bits, row);
    move_bytes<kPack>(block.quants, rows.quants, row);
  }
  static inline Bytes bytes(const Rows& rows, int group, int i) {
    return or_bytes(two_bits(rows.quants, group, i), move_bits(load_bytes(rows.third_bits[i]), group, 2, 4));
  }
  static inline Floats scale(const Rows& rows, std::size_t part) {
    const int p = static_cast<int>(part);
    const Ints low = move_lane_bits(load_lane_bytes(rows.scales[p % 8]), p / 8 * 4, 0, 15);
    const Ints high = move_lane_bits(load_lane_bytes(rows.scales[8 + p % 4]), p / 4 * 2, 4, 48);
    return mul(load_half(rows.scale), to_floats(add_ints(or_ints(low, high), broadcast(-32))));
  }
};

template <>
struct Packed<BlockQ8K> {
  static constexpr int kGroup = 32, kBias = 128, kMost = 255;
  static constexpr bool kMinimums = false;
  struct Rows {
    float scale[kPanelRows];
    std::uint8_t quants[64][kBytes];    // 128 added
    std::int16_t sums[16][kPanelRows];  // kept, so that a row comes out as it went in
  };
  template <bool kPack>
  static inline void move(BlockQ8K& block, Rows& rows, int row) {
    move_field<kPack>(block, offsetof(BlockQ8K, scale), rows.scale[row]);
    std::uint8_t shifted[256];
    for (int i = 0; kPack && i < 256; ++i) shifted[i] = static_cast<std::uint8_t>(block.quants[i] ^ 0x80);
    move_bytes<kPack>(shifted, rows.quants, row);
    for (int i = 0; !kPack && i < 256; ++i) block.quants[i] = static_cast<std::int8_t>(shifted[i] ^ 0x80);
    for (int i = 0; i < 16; ++i) {
      const std::size_t offset = offsetof(BlockQ8K, sums) + static_cast<std::size_t>(i) * sizeof(std::int16_t);
      move_field<kPack>(block, offset, rows.sums[i][row]);
    }
  }
  static inline Bytes bytes(const Rows& rows, int group, int i) { return load_bytes(rows.quants[8 * group + i]); }
  static inline Floats scale(const Rows& rows, std::size_t /*part*/) { return load(rows.scale); }
};

template <>
struct Packed<BlockIq4Xs> {
  static constexpr int kGroup = 32, kBias = 128, kMost = 255;
  static constexpr bool kMinimums = false;
  struct Rows {
    HalfBits scale[kPanelRows];
    std::uint8_t scales_high[2][kPanelRows];
    std::uint8_t scales_low[4][kPanelRows];
    std::uint8_t nibbles[32][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq4Xs& block, Rows& rows, int row) {
    move_field<kPack>(block, offsetof(BlockIq4Xs, scale), rows.scale[row]);
    if constexpr (kPack) {
      for (int i = 0; i < 2; ++i) rows.scales_high[i][row] = static_cast<std::uint8_t>(block.scales_high >> (8 * i));
    } else {
      block.scales_high = static_cast<std::uint16_t>(rows.scales_high[0][row] | rows.scales_high[1][row] << 8);
    }
    for (int i = 0; i < 4; ++i) move_value<kPack>(block.scales_low[i], rows.scales_low[i][row]);
    move_bytes<kPack>(block.nibbles, rows.nibbles, row);
  }
  static inline Bytes bytes(const Rows& rows, int group, int i) {
    const std::uint8_t* nibbles = rows.nibbles[4 * group + i % 4];
    return look_up(kIq4Bytes, i < 4 ? low_nibbles(nibbles) : high_nibbles(nibbles));
  }
  static inline Floats scale(const Rows& rows, std::size_t part) {
    const int g = static_cast<int>(part);
    const Ints low = move_lane_bits(load_lane_bytes(rows.scales_low[g / 2]), g % 2 * 4, 0, 15);
    const Ints high = move_lane_bits(load_lane_bytes(rows.scales_high[g / 4]), g % 4 * 2, 4, 48);
    return mul(load_half(rows.scale), to_floats(add_ints(or_ints(low, high), broadcast(-32))));
  }
};

template <>
struct Packed<BlockTq2_0> {
  static constexpr int kGroup = 32, kBias = 1, kMost = 3;
  static constexpr bool kMinimums = false;
  struct Rows {
    HalfBits scale[kPanelRows];
    std::uint8_t quants[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockTq2_0& block, Rows& rows, int row) {
    move_field<kPack>(block, offsetof(BlockTq2_0, scale), rows.scale[row]);
    move_bytes<kPack>(block.quants, rows.quants, row);
  }
  static inline Bytes bytes(const Rows& rows, int group, int i) { return two_bits(rows.quants, group, i); }
  static inline Floats scale(const Rows& rows, std::size_t /*part*/) { return load_half(rows.scale); }
};

// A byte holds five weights, or in the last four bytes four: digits in base three of a fixed-point fraction.
template <>
struct Packed<BlockTq1_0> {
  static constexpr int kGroup = 32, kBias = 1, kMost = 2;
  static constexpr bool kMinimums = false;
  struct Rows {
    HalfBits scale[kPanelRows];
    std::uint8_t fives[12][kBytes];
    std::uint8_t fours[1][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockTq1_0& block, Rows& rows, int row) {
    move_field<kPack>(block, offsetof(BlockTq1_0, scale), rows.scale[row]);
    move_bytes<kPack>(block.fives, rows.fives, row);
    move_bytes<kPack>(block.fours, rows.fours, row);
  }
  // The first 32 bytes are groups 0 to 4, a digit each; a digit of the next 16 is half a group, and the rest is the
  // last four bytes', a digit a vector.
  [[gnu::noinline]] static void group(const Rows& rows, int g, Bytes (&vectors)[8]) {
    Bytes rest[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) rest[i] = load_bytes(rows.fives[g < 5 ? i : 8 + i % 4]);
    for (int digit = g < 5 ? g : 2 * (g - 5); digit > 0; --digit) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) rest[i] = ternary_rest(rest[i]);
    }
    if (g >= 5) {
      Bytes last = load_bytes(rows.fours[0]);
#pragma GCC unroll 4
      for (int i = 4; i < 8; ++i, last = ternary_rest(last)) rest[i] = g == 7 ? last : ternary_rest(rest[i]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) vectors[i] = ternary_digit(rest[i]);
  }
  static inline Floats scale(const Rows& rows, std::size_t /*part*/) { return load_half(rows.scale); }
};

}  // namespace quarrel::QUARREL_LEVEL

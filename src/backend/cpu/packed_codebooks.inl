// Panels of the types that take four or eight weights at a time from a codebook (quant/iq_codes.h): a lane looks up its
// own weights, two entries at a time, so that one look-up serves all lanes of the panel. What a panel is: packed.inl.

namespace quarrel::QUARREL_LEVEL {

// Weights are taken for so much more than they are, so that they are positive.
static constexpr int kCodebookBias = 64;

// 32 bits of each lane, of four bytes that move_bytes laid side by side.
static inline Ints load_words(const std::uint8_t* bytes) { return as_ints(load_bytes(bytes)); }

// Indices of codebook entries in pairs: bytes 0 and 2 of a word, and 1 and 3.
static inline Ints even_bytes(Ints words) { return and_ints(words, 0x00ff00ff); }
static inline Ints odd_bytes(Ints words) { return and_ints(shift_ints_right<8>(words), 0x00ff00ff); }

// A byte whose lowest bit makes the number of its bits even, four times: the highest bit of each is to be found.
static inline Ints with_even_bits(Ints sevens) {
  Ints odd = and_ints(xor_ints(sevens, shift_ints_right<4>(sevens)), 0x0f0f0f0f);
  odd = xor_ints(odd, shift_ints_right<2>(odd));
  odd = and_ints(xor_ints(odd, shift_ints_right<1>(odd)), 0x01010101);
  return or_ints(sevens, shift_ints_left<7>(odd));
}

// The 32 signs of a word that holds four patterns of seven, and a scale above them.
static inline Ints packed_signs(Ints word) {
  const Ints low = or_ints(and_ints(word, 0x7f), and_ints(shift_ints_left<1>(word), 0x7f00));
  const Ints high =
      or_ints(and_ints(shift_ints_left<2>(word), 0x7f0000), and_ints(shift_ints_left<3>(word), 0x7f000000));
  return with_even_bits(or_ints(low, high));
}

// The values by number, and from eight on the negative ones.
static constexpr std::uint8_t kIq2Bytes[16] = {
    kCodebookBias + 8, kCodebookBias + 25, kCodebookBias + 43, kCodebookBias,      kCodebookBias,      kCodebookBias,
    kCodebookBias,     kCodebookBias,      kCodebookBias - 8,  kCodebookBias - 25, kCodebookBias - 43, kCodebookBias,
    kCodebookBias,     kCodebookBias,      kCodebookBias,      kCodebookBias};
static constexpr std::uint8_t kIq3XxsBytes[16] = {
    kCodebookBias + 4,  kCodebookBias + 12, kCodebookBias + 20, kCodebookBias + 28,
    kCodebookBias + 36, kCodebookBias + 44, kCodebookBias + 52, kCodebookBias + 62,
    kCodebookBias - 4,  kCodebookBias - 12, kCodebookBias - 20, kCodebookBias - 28,
    kCodebookBias - 36, kCodebookBias - 44, kCodebookBias - 52, kCodebookBias - 62};
static constexpr std::uint8_t kIq3SBytes[16] = {
    kCodebookBias + 1, kCodebookBias + 3,  kCodebookBias + 5,  kCodebookBias + 7,
    kCodebookBias + 9, kCodebookBias + 11, kCodebookBias + 13, kCodebookBias + 15,
    kCodebookBias - 1, kCodebookBias - 3,  kCodebookBias - 5,  kCodebookBias - 7,
    kCodebookBias - 9, kCodebookBias - 11, kCodebookBias - 13, kCodebookBias - 15};

// Entry k of a group of an IQ2 type, whose code stands twice in its lane: vectors 2 k and 2 k + 1. These are the
// group's 32 signs.
static inline void iq2_entry(Ints code, Ints signs, int k, Bytes (&vectors)[8]) {
  const Ints first = and_ints(move_halves<0, -2>(code), 0x03030303);
  const Ints second = and_ints(move_halves<-4, -6>(code), 0x03030303);
  vectors[2 * k] = look_up_signed(kIq2Bytes, first, signs, 2 * k);
  vectors[2 * k + 1] = look_up_signed(kIq2Bytes, second, signs, 2 * k + 1);
}
static inline void iq2_entries(IntPair codes, Ints signs, int k, int second, Bytes (&vectors)[8]) {
  iq2_entry(codes.low, signs, k, vectors);
  iq2_entry(codes.high, signs, second, vectors);
}

// The same for IQ3, whose entries are four weights: vectors i and i + 2.
static inline void iq3_entries(const std::uint8_t* values, IntPair codes, Ints signs, int i, Bytes (&vectors)[8]) {
  const auto numbers = [](Ints code) { return and_ints(move_halves<0, -4>(code), 0x07070707); };
  vectors[i] = look_up_signed(values, numbers(codes.low), signs, i);
  vectors[i + 2] = look_up_signed(values, numbers(codes.high), signs, i + 2);
}

// (1/2 + stored) * unit, of the block's scale.
static inline Floats half_step(const HalfBits* scale, Ints stored, float unit) {
  return mul(mul(load_half(scale), add(to_floats(stored), set(0.5f))), set(unit));
}
static inline Floats odd_step(const HalfBits* scale, Ints stored) {
  return mul(load_half(scale), to_floats(add_ints(shift_ints_left<1>(stored), broadcast(1))));
}

template <>
struct Packed<BlockIq2Xxs> {
  static constexpr int kScaleColumns = 32, kBias = kCodebookBias, kMaxByte = 127;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t groups[16][kBytes];  // of each group the four entries, then signs and scale
  };
  template <bool kPack>
  static inline void move(BlockIq2Xxs& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq2Xxs, scale), panel.scale[lane]);
    move_bytes<kPack>(field_bytes(block, offsetof(BlockIq2Xxs, groups)), panel.groups, lane);
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    const Ints indices = load_words(panel.groups[2 * g]);
    const Ints signs = packed_signs(load_words(panel.groups[2 * g + 1]));
    iq2_entries(look_up_pairs<256>(kIq2XxsCodes.at, even_bytes(indices)), signs, 0, 2, vectors);
    iq2_entries(look_up_pairs<256>(kIq2XxsCodes.at, odd_bytes(indices)), signs, 1, 3, vectors);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return half_step(panel.scale, shift_ints_right<28>(load_words(panel.groups[2 * index + 1])), 0.25f);
  }
};

// Scales of the other IQ2 types: a nibble for each 16 weights.
static inline Floats iq2_scale(const HalfBits* scale, const std::uint8_t (&scales)[2][kBytes], std::size_t index) {
  const int p = static_cast<int>(index);
  return half_step(scale, move_lane_bits(load_words(scales[p / 8]), 4 * (p % 8), 0, 15), 0.25f);
}

template <>
struct Packed<BlockIq2Xs> {
  static constexpr int kScaleColumns = 16, kBias = kCodebookBias, kMaxByte = 127;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t quants[16][kBytes];
    std::uint8_t scales[2][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq2Xs& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq2Xs, scale), panel.scale[lane]);
    move_bytes<kPack>(field_bytes(block, offsetof(BlockIq2Xs, quants)), panel.quants, lane);
    move_bytes<kPack>(block.scales, panel.scales, lane);
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    const Ints first = load_words(panel.quants[2 * g]);
    const Ints second = load_words(panel.quants[2 * g + 1]);
    const Ints low = or_ints(move_lane_bits(first, 9, 0, 0x7f), move_lane_bits(first, 25, 8, 0x7f00));
    const Ints high = or_ints(move_lane_bits(second, 9, 16, 0x7f0000), move_lane_bits(second, 25, 24, 0x7f000000));
    const Ints signs = with_even_bits(or_ints(low, high));
    iq2_entries(look_up_pairs<512>(kIq2XsCodes.at, and_ints(first, 0x01ff01ff)), signs, 0, 1, vectors);
    iq2_entries(look_up_pairs<512>(kIq2XsCodes.at, and_ints(second, 0x01ff01ff)), signs, 2, 3, vectors);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return iq2_scale(panel.scale, panel.scales, index);
  }
};

template <>
struct Packed<BlockIq2S> {
  static constexpr int kScaleColumns = 16, kBias = kCodebookBias, kMaxByte = 127;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t entries[8][kBytes];
    std::uint8_t signs[8][kBytes];
    std::uint8_t entries_high[2][kBytes];
    std::uint8_t scales[2][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq2S& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq2S, scale), panel.scale[lane]);
    move_bytes<kPack>(block.entries, panel.entries, lane);
    move_bytes<kPack>(block.signs, panel.signs, lane);
    move_bytes<kPack>(block.entries_high, panel.entries_high, lane);
    move_bytes<kPack>(block.scales, panel.scales, lane);
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    const Ints indices = load_words(panel.entries[g]);
    const Ints high = shifted_right(load_words(panel.entries_high[g / 4]), 8 * (g % 4));
    const Ints signs = load_words(panel.signs[g]);
    const auto high_of = [&](int k) {
      return or_ints(move_lane_bits(high, 2 * k, 8, 0x300), move_lane_bits(high, 2 * k + 4, 24, 0x3000000));
    };
    iq2_entries(look_up_pairs<1024>(kIq2SCodes.at, or_ints(even_bytes(indices), high_of(0))), signs, 0, 2, vectors);
    iq2_entries(look_up_pairs<1024>(kIq2SCodes.at, or_ints(odd_bytes(indices), high_of(1))), signs, 1, 3, vectors);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return iq2_scale(panel.scale, panel.scales, index);
  }
};

template <>
struct Packed<BlockIq3Xxs> {
  static constexpr int kScaleColumns = 32, kBias = kCodebookBias, kMaxByte = 127;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t entries[16][kBytes];
    std::uint8_t signs_and_scale[8][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq3Xxs& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq3Xxs, scale), panel.scale[lane]);
    move_bytes<kPack>(block.entries, panel.entries, lane);
    move_bytes<kPack>(field_bytes(block, offsetof(BlockIq3Xxs, signs_and_scale)), panel.signs_and_scale, lane);
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    const Ints signs = packed_signs(load_words(panel.signs_and_scale[g]));
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Ints indices = load_words(panel.entries[2 * g + half]);
      iq3_entries(kIq3XxsBytes, look_up_pairs<256>(kIq3XxsCodes.at, even_bytes(indices)), signs, 4 * half, vectors);
      iq3_entries(kIq3XxsBytes, look_up_pairs<256>(kIq3XxsCodes.at, odd_bytes(indices)), signs, 4 * half + 1, vectors);
    }
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return half_step(panel.scale, shift_ints_right<28>(load_words(panel.signs_and_scale[index])), 0.5f);
  }
};

template <>
struct Packed<BlockIq3S> {
  static constexpr int kScaleColumns = 32, kBias = kCodebookBias, kMaxByte = 127;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t entries[16][kBytes];
    std::uint8_t entries_high[2][kBytes];
    std::uint8_t signs[8][kBytes];
    std::uint8_t scales[1][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq3S& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq3S, scale), panel.scale[lane]);
    move_bytes<kPack>(block.entries, panel.entries, lane);
    move_bytes<kPack>(block.entries_high, panel.entries_high, lane);
    move_bytes<kPack>(block.signs, panel.signs, lane);
    move_bytes<kPack>(block.scales, panel.scales, lane);
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    const Ints high = shifted_right(load_words(panel.entries_high[g / 4]), 8 * (g % 4));
    const Ints signs = load_words(panel.signs[g]);
    const auto ninth_of = [&](int i) {
      return or_ints(move_lane_bits(high, i, 8, 0x100), move_lane_bits(high, i + 2, 24, 0x1000000));
    };
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Ints indices = load_words(panel.entries[2 * g + half]);
      const Ints even = or_ints(even_bytes(indices), ninth_of(4 * half));
      const Ints odd = or_ints(odd_bytes(indices), ninth_of(4 * half + 1));
      iq3_entries(kIq3SBytes, look_up_pairs<512>(kIq3SCodes.at, even), signs, 4 * half, vectors);
      iq3_entries(kIq3SBytes, look_up_pairs<512>(kIq3SCodes.at, odd), signs, 4 * half + 1, vectors);
    }
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return odd_step(panel.scale, move_lane_bits(load_words(panel.scales[0]), 4 * static_cast<int>(index), 0, 15));
  }
};

// ---- IQ1: -1, 0 or 1, shifted up or down by an eighth. In eighths they are whole: 8 c - 8 + 1 or - 1, plus kIq1Bias.
// ----

static constexpr int kIq1Bias = 9, kIq1Most = 18;

// A group as a panel holds it: four indices of eleven bits and four bits more in a word and a half, put so that few
// operations take them apart.
struct Iq1Group {
  std::uint32_t index[4];
  std::uint32_t more;
};
template <bool kPack>
static inline void move_iq1_group(Iq1Group& group, std::uint8_t* word_at, std::uint8_t* half_at) {
  std::uint32_t(&index)[4] = group.index;
  if constexpr (kPack) {
    const std::uint32_t word = index[0] | index[1] << 11 | index[2] << 22;
    const auto half = static_cast<std::uint16_t>(index[3] | index[2] >> 10 << 11 | group.more << 12);
    std::memcpy(word_at, &word, sizeof word);
    std::memcpy(half_at, &half, sizeof half);
  } else {
    std::uint32_t word, half = 0;
    std::memcpy(&word, word_at, sizeof word);
    std::memcpy(&half, half_at, sizeof(std::uint16_t));
    index[0] = word & 0x7ff;
    index[1] = word >> 11 & 0x7ff;
    index[2] = word >> 22 | (half >> 11 & 1) << 10;
    index[3] = half & 0x7ff;
    group.more = half >> 12;
  }
}

// What both types have: for each group a word and half a word.
struct Iq1Groups {
  std::uint8_t words[8][kBytes];
  std::uint8_t halves[4][kBytes];

  template <bool kPack>
  void move(Iq1Group& group, int g, int lane) {
    move_iq1_group<kPack>(group, words[g] + 4 * lane, halves[g / 2] + 4 * lane + g % 2 * 2);
  }
  // Lowest bits of a lane; what lies above belongs to somebody else.
  Ints half(int g) const { return shifted_right(load_words(halves[g / 2]), 16 * (g % 2)); }

  // The weights, where bit `down(k)` of the half tells which way entry k is shifted.
  template <typename Down>
  void unpack(int g, const Down& down, Bytes (&vectors)[8]) const {
    const Ints word = load_words(words[g]);
    const Ints rest = half(g);
    const Ints indices[4] = {and_ints(word, 0x7ff), and_ints(shift_ints_right<11>(word), 0x7ff),
                             masked_or(shift_ints_right<1>(rest), 0x400, shift_ints_right<22>(word)),
                             and_ints(rest, 0x7ff)};
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Ints code = look_up_each(kIq1Codes.at, indices[k]);
      const int place = down(k);
      Ints up = order_bytes(rest, place / 8 * 0x01010101);
      up = xor_ints(move_lane_bits(up, place % 8, 1, 0x02020202), broadcast(0x02020202));
      vectors[2 * k] = as_bytes(masked_or(move_halves<3, 1>(code), 0x18181818, up));
      vectors[2 * k + 1] = as_bytes(masked_or(move_halves<-1, -3>(code), 0x18181818, up));
    }
  }
};

template <>
struct Packed<BlockIq1S> {
  static constexpr int kScaleColumns = 32, kBias = kIq1Bias, kMaxByte = kIq1Most;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    Iq1Groups groups;  // beside the indices the group's scale of three bits, then the way of its shift
  };
  template <bool kPack>
  static inline void move(BlockIq1S& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq1S, scale), panel.scale[lane]);
    for (int g = 0; g < 8; ++g) {
      std::uint8_t* low = block.entries + 4 * g;
      std::uint16_t extra = block.extra[g];
      Iq1Group group = {};
      if constexpr (kPack) {
        for (int k = 0; k < 4; ++k) group.index[k] = low[k] | (std::uint32_t{extra} >> (3 * k) & 7) << 8;
        group.more = std::uint32_t{extra} >> 12;
      }
      panel.groups.move<kPack>(group, g, lane);
      if constexpr (!kPack) {
        extra = static_cast<std::uint16_t>(group.more << 12);
        for (int k = 0; k < 4; ++k) {
          low[k] = static_cast<std::uint8_t>(group.index[k]);
          extra = static_cast<std::uint16_t>(extra | group.index[k] >> 8 << (3 * k));
        }
        block.extra[g] = extra;
      }
    }
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    panel.groups.unpack(g, [](int) { return 15; }, vectors);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    const int g = static_cast<int>(index);
    return mul(odd_step(panel.scale, move_lane_bits(panel.groups.half(g), 12, 0, 7)), set(0.125f));
  }
};

// The block's scale, of which four words hold a nibble each, is put together; the words' sixteen scales of three bits
// lie in three words, five from the lowest bit of each and of the last one a bit at the top of each.
template <>
struct Packed<BlockIq1M> {
  static constexpr int kScaleColumns = 16, kBias = kIq1Bias, kMaxByte = kIq1Most;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint16_t scales[3][kPanelRows];
    Iq1Groups groups;  // beside the indices the way of each entry's shift
  };
  template <bool kPack>
  static inline void move(BlockIq1M& block, PanelBlock& panel, int lane) {
    for (int g = 0; g < 8; ++g) {
      std::uint8_t* low = block.entries + 4 * g;
      std::uint8_t* high = block.extra + 2 * g;  // three bits of an index and one of its shift, in nibbles
      Iq1Group group = {};
      for (int k = 0; kPack && k < 4; ++k) {
        const std::uint32_t nibble = std::uint32_t{high[k / 2]} >> (k % 2 * 4) & 15;
        group.index[k] = low[k] | (nibble & 7) << 8;
        group.more |= nibble >> 3 << k;
      }
      panel.groups.move<kPack>(group, g, lane);
      for (int k = 0; !kPack && k < 4; ++k) {
        const std::uint32_t nibble = group.index[k] >> 8 | (group.more >> k & 1) << 3;
        low[k] = static_cast<std::uint8_t>(group.index[k]);
        high[k / 2] = static_cast<std::uint8_t>((k % 2 == 0 ? 0u : high[k / 2]) | nibble << (k % 2 * 4));
      }
    }
    // The place of scale p: its first bit, and how far apart its bits are in words.
    const auto bit_of = [](int p, int bit) { return p < 15 ? 16 * (p / 5) + p % 5 * 3 + bit : 16 * bit + 15; };
    std::uint32_t words[4] = {};
    std::uint32_t packed[4] = {};  // three words, then the scale
    if constexpr (kPack) {
      for (int i = 0; i < 4; ++i) {
        words[i] = block.scales[i];
        packed[3] |= words[i] >> 12 << (4 * i);
      }
    } else {
      for (int i = 0; i < 3; ++i) packed[i] = panel.scales[i][lane];
      for (int i = 0; i < 4; ++i) words[i] = (std::uint32_t{panel.scale[lane]} >> (4 * i) & 15) << 12;
    }
    for (int p = 0; p < 16; ++p) {
      for (int bit = 0; bit < 3; ++bit) {
        const int from = 3 * (p % 4) + bit;
        const int to = bit_of(p, bit);
        if constexpr (kPack) {
          packed[to / 16] |= (words[p / 4] >> from & 1) << (to % 16);
        } else {
          words[p / 4] |= (packed[to / 16] >> (to % 16) & 1) << from;
        }
      }
    }
    if constexpr (kPack) {
      for (int i = 0; i < 3; ++i) panel.scales[i][lane] = static_cast<std::uint16_t>(packed[i]);
      panel.scale[lane] = static_cast<HalfBits>(packed[3]);
    } else {
      for (int i = 0; i < 4; ++i) block.scales[i] = static_cast<std::uint16_t>(words[i]);
    }
  }
  [[gnu::noinline]] static void group(const PanelBlock& panel, int g, Bytes (&vectors)[8]) {
    panel.groups.unpack(g, [](int k) { return 12 + k; }, vectors);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    const int p = static_cast<int>(index);
    Ints stored = broadcast(0);
    if (p < 15) {
      stored = move_lane_bits(load_lane_words(panel.scales[p / 5]), p % 5 * 3, 0, 7);
    } else {
      for (int bit = 0; bit < 3; ++bit) {
        stored = or_ints(stored, move_lane_bits(load_lane_words(panel.scales[bit]), 15, bit, 1 << bit));
      }
    }
    return mul(odd_step(panel.scale, stored), set(0.125f));
  }
};

}  // namespace quarrel::QUARREL_LEVEL

// The packed panel: the layout of weights that every GEMM reads. A panel is kPanelRows weight rows, as many as a vector
// of floats has lanes, with four columns of each side by side. Here the first two vectors of a panel of eight weight
// rows (AVX2); w r,c is the weight of lane r and column c, as a byte:
//
//                lane 0              lane 1                    lane 7
//   vector 0   | w0,0 w0,1 w0,2 w0,3 | w1,0 w1,1 w1,2 w1,3 | … | w7,0 w7,1 w7,2 w7,3 |
//   vector 1   | w0,4 w0,5 w0,6 w0,7 | w1,4 w1,5 w1,6 w1,7 | … | w7,4 w7,5 w7,6 w7,7 |
//
// Four values of an activation, repeated in every lane, are multiplied with a vector in one instruction (VNNI's dot
// product of four bytes), and a lane sums the dot product of its weight row: no shuffles, no sums across lanes, one
// pass over memory from the first byte to the last. Weights stay quantised, so a panel takes the bytes that its weight
// rows take in the file; a vector of nibbles, say, holds vector i in its low halves and vector i + 4 in its high ones.
//
// A type is a struct: its fields for the columns of one block (PanelBlock), the way in and out of them for a lane, and
// its weights as vectors of unsigned bytes with a scale a lane: weight = scale * (byte - kBias), or
// scale * byte + minimum. No byte is above kMaxByte, and kScaleColumns columns share a scale. The vectors come one by
// one (`bytes`) or, where they share work, a group of 32 columns at a time (`group`, which is not inlined: it is long
// and would stand in many places).

namespace quarrel::QUARREL_LEVEL {

static constexpr int kPanelRows = kLanes;

// Moves a value between a file's block and a panel.
template <bool kPack, typename T, typename U>
static inline void move_value(T& in_block, U& in_panel) {
  if constexpr (kPack) {
    in_panel = static_cast<U>(in_block);
  } else {
    in_block = static_cast<T>(in_panel);
  }
}

// The same for bytes, four at a time: byte i of lane r goes to panel[i / 4][4 r + i % 4].
template <bool kPack, std::size_t kVectors, typename Byte>
static inline void move_bytes(Byte* in_block, std::uint8_t (&panel)[kVectors][kBytes], int lane) {
  for (std::size_t i = 0; i < kVectors; ++i) {
    if constexpr (kPack) {
      std::memcpy(panel[i] + 4 * lane, in_block + 4 * i, 4);
    } else {
      std::memcpy(in_block + 4 * i, panel[i] + 4 * lane, 4);
    }
  }
}

// Where a field of a block begins that is not made of bytes: a block is packed, so that nothing may refer to it.
template <typename Block>
static inline std::uint8_t* field_bytes(Block& block, std::size_t offset) {
  return reinterpret_cast<std::uint8_t*>(&block) + offset;
}
// Moves such a field, one value.
template <bool kPack, typename Block, typename T>
static inline void move_field(Block& block, std::size_t offset, T& in_panel) {
  if constexpr (kPack) {
    std::memcpy(&in_panel, field_bytes(block, offset), sizeof in_panel);
  } else {
    std::memcpy(field_bytes(block, offset), &in_panel, sizeof in_panel);
  }
}

// The 16 values of IQ4_NL and IQ4_XS with 128 added, and those of MXFP4, doubled, with 12 added.
static constexpr std::uint8_t kIq4Bytes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static constexpr std::uint8_t kMxfp4Bytes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

static inline Bytes low_nibbles(const std::uint8_t* bytes) { return move_bits(load_bytes(bytes), 0, 0, 15); }
static inline Bytes high_nibbles(const std::uint8_t* bytes) { return move_bits(load_bytes(bytes), 4, 0, 15); }
// Vector i of a group of 32 whose low nibbles come first.
static inline Bytes nibbles32(const std::uint8_t (&nibbles)[4][kBytes], int i) {
  return i < 4 ? low_nibbles(nibbles[i]) : high_nibbles(nibbles[i - 4]);
}

template <typename Block>
struct Packed;

template <typename Block>
static constexpr bool kHasPacked = requires { typename Packed<Block>::PanelBlock; };

template <>
struct Packed<BlockQ4_0> {
  static constexpr int kScaleColumns = 32, kBias = 8, kMaxByte = 15;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t nibbles[4][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ4_0& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ4_0, scale), panel.scale[lane]);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) { return nibbles32(panel.nibbles, i); }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
};

template <>
struct Packed<BlockQ4_1> {
  static constexpr int kScaleColumns = 32, kBias = 0, kMaxByte = 15;
  static constexpr bool kHasMinimum = true;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    HalfBits minimum[kPanelRows];
    std::uint8_t nibbles[4][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ4_1& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ4_1, scale), panel.scale[lane]);
    move_field<kPack>(block, offsetof(BlockQ4_1, minimum), panel.minimum[lane]);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) { return nibbles32(panel.nibbles, i); }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
  static inline Floats minimum(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.minimum); }
};

// The fifth bits of 32 weights: bit i of byte b of a lane belongs to weight 4 i + b, that is to vector i.
template <bool kPack>
static inline void move_fifth_bits(std::uint32_t& in_block, std::uint8_t (&panel)[kBytes], int lane) {
  if constexpr (kPack) {
    for (int b = 0; b < 4; ++b) {
      std::uint32_t byte = 0;
      for (int i = 0; i < 8; ++i) byte |= (in_block >> (4 * i + b) & 1) << i;
      panel[4 * lane + b] = static_cast<std::uint8_t>(byte);
    }
  } else {
    in_block = 0;
    for (int b = 0; b < 4; ++b) {
      for (int i = 0; i < 8; ++i) in_block |= (std::uint32_t{panel[4 * lane + b]} >> i & 1) << (4 * i + b);
    }
  }
}

template <>
struct Packed<BlockQ5_0> {
  static constexpr int kScaleColumns = 32, kBias = 16, kMaxByte = 31;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t fifth_bits[kBytes];
    std::uint8_t nibbles[4][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ5_0& block, PanelBlock& panel, int lane) {
    std::uint32_t fifth = block.fifth_bits;
    move_field<kPack>(block, offsetof(BlockQ5_0, scale), panel.scale[lane]);
    move_fifth_bits<kPack>(fifth, panel.fifth_bits, lane);
    block.fifth_bits = fifth;
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) {
    return or_bytes(nibbles32(panel.nibbles, i), move_bits(load_bytes(panel.fifth_bits), i, 4, 16));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
};

template <>
struct Packed<BlockQ5_1> {
  static constexpr int kScaleColumns = 32, kBias = 0, kMaxByte = 31;
  static constexpr bool kHasMinimum = true;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    HalfBits minimum[kPanelRows];
    std::uint8_t fifth_bits[kBytes];
    std::uint8_t nibbles[4][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ5_1& block, PanelBlock& panel, int lane) {
    std::uint32_t fifth = block.fifth_bits;
    move_field<kPack>(block, offsetof(BlockQ5_1, scale), panel.scale[lane]);
    move_field<kPack>(block, offsetof(BlockQ5_1, minimum), panel.minimum[lane]);
    move_fifth_bits<kPack>(fifth, panel.fifth_bits, lane);
    block.fifth_bits = fifth;
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) {
    return or_bytes(nibbles32(panel.nibbles, i), move_bits(load_bytes(panel.fifth_bits), i, 4, 16));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
  static inline Floats minimum(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.minimum); }
};

template <>
struct Packed<BlockQ8_0> {
  static constexpr int kScaleColumns = 32, kBias = 128, kMaxByte = 255;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t quants[8][kBytes];  // 128 added
  };
  template <bool kPack>
  static inline void move(BlockQ8_0& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ8_0, scale), panel.scale[lane]);
    std::uint8_t shifted[32];
    for (int i = 0; kPack && i < 32; ++i) shifted[i] = static_cast<std::uint8_t>(block.quants[i] ^ 0x80);
    move_bytes<kPack>(shifted, panel.quants, lane);
    for (int i = 0; !kPack && i < 32; ++i) block.quants[i] = static_cast<std::int8_t>(shifted[i] ^ 0x80);
  }
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) { return load_bytes(panel.quants[i]); }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
};

template <>
struct Packed<BlockIq4Nl> {
  static constexpr int kScaleColumns = 32, kBias = 128, kMaxByte = 255;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::uint8_t nibbles[4][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockIq4Nl& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockIq4Nl, scale), panel.scale[lane]);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) {
    return look_up(kIq4Bytes, nibbles32(panel.nibbles, i));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) { return load_half(panel.scale); }
};

// Panels of both kinds of MXFP4 are alike; only the way in and out differs.
struct PackedMxfp4 {
  static constexpr int kScaleColumns = 32, kBias = 12, kMaxByte = 24;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    std::uint8_t exponent[kPanelRows];
    std::uint8_t nibbles[4][kBytes];
  };
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) {
    return look_up(kMxfp4Bytes, nibbles32(panel.nibbles, i));
  }
  // Half of 2^(exponent - 127), because the table is doubled.
  static inline Floats scale(const PanelBlock& panel, std::size_t /*index*/) {
    return mul(as_floats(shift_ints_left<23>(load_lane_bytes(panel.exponent))), set(0.5f));
  }
};

template <>
struct Packed<BlockMxfp4> : PackedMxfp4 {
  template <bool kPack>
  static inline void move(BlockMxfp4& block, PanelBlock& panel, int lane) {
    move_value<kPack>(block.exponent, panel.exponent[lane]);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
};

template <>
struct Packed<BlockMxfp4Pairs> : PackedMxfp4 {
  template <bool kPack>
  static inline void move(BlockMxfp4Pairs& block, PanelBlock& panel, int lane) {
    move_value<kPack>(block.exponent, panel.exponent[lane]);
    const auto nibble = [](const std::uint8_t* bytes, int low_byte, int i) {
      return static_cast<std::uint8_t>(bytes[low_byte] >> (4 * i) & 15);
    };
    std::uint8_t halves[16];
    for (int i = 0; kPack && i < 16; ++i) {
      halves[i] =
          static_cast<std::uint8_t>(nibble(block.nibbles, i / 2, i % 2) | nibble(block.nibbles, 8 + i / 2, i % 2) << 4);
    }
    move_bytes<kPack>(halves, panel.nibbles, lane);
    for (int i = 0; !kPack && i < 16; ++i) {
      const int first = 2 * i % 16;
      const int half = i / 8;
      block.nibbles[i] = static_cast<std::uint8_t>(nibble(halves, first, half) | nibble(halves, first + 1, half) << 4);
    }
  }
};

// The scales of Q4_K and Q5_K, 12 bytes a lane as in the file: for each of eight groups a byte with the scale and the
// two upper bits of the minimum, and the minimums' lower nibbles in pairs.
struct PackedKScales {
  HalfBits scale[kPanelRows];
  HalfBits min_scale[kPanelRows];
  std::uint8_t scales[8][kPanelRows];
  std::uint8_t minimums[4][kPanelRows];

  template <bool kPack, typename Block>
  inline void move(Block& block, int lane) {
    move_field<kPack>(block, offsetof(Block, scale), scale[lane]);
    move_field<kPack>(block, offsetof(Block, min_scale), min_scale[lane]);
    std::uint8_t* packed = block.scales;
    if constexpr (kPack) {
      for (int g = 0; g < 4; ++g) minimums[g][lane] = 0;
      for (int g = 0; g < 8; ++g) {
        const int low = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | (packed[g - 4] >> 6 << 4);
        const int least = g < 4 ? packed[g + 4] & 63 : (packed[g + 4] >> 4) | (packed[g] >> 6 << 4);
        scales[g][lane] = static_cast<std::uint8_t>(low | least >> 4 << 6);
        minimums[g / 2][lane] = static_cast<std::uint8_t>(minimums[g / 2][lane] | (least & 15) << (4 * (g % 2)));
      }
    } else {
      const auto low = [&](int g) { return scales[g][lane] & 63; };
      const auto least = [&](int g) {
        return scales[g][lane] >> 6 << 4 | (minimums[g / 2][lane] >> (4 * (g % 2)) & 15);
      };
      for (int g = 0; g < 4; ++g) {
        packed[g] = static_cast<std::uint8_t>(low(g) | low(g + 4) >> 4 << 6);
        packed[g + 4] = static_cast<std::uint8_t>(least(g) | least(g + 4) >> 4 << 6);
        packed[g + 8] = static_cast<std::uint8_t>((low(g + 4) & 15) | (least(g + 4) & 15) << 4);
      }
    }
  }
  inline Floats group_scale(int g) const {
    return mul(load_half(scale), to_floats(and_ints(load_lane_bytes(scales[g]), 63)));
  }
  inline Floats group_minimum(int g) const {
    const Ints pair = load_lane_bytes(minimums[g / 2]);
    const Ints low = and_ints(g % 2 == 0 ? pair : shift_ints_right<4>(pair), 15);
    const Ints high = shift_ints_left<4>(shift_ints_right<6>(load_lane_bytes(scales[g])));
    return mul(sub(set(0.0f), load_half(min_scale)), to_floats(or_ints(low, high)));
  }
};

// Vector i of group g of a block whose groups share bytes in pairs.
static inline Bytes paired_nibbles(const std::uint8_t (&nibbles)[32][kBytes], int g, int i) {
  const std::uint8_t* bytes = nibbles[g / 2 * 8 + i];
  return g % 2 == 0 ? low_nibbles(bytes) : high_nibbles(bytes);
}

template <>
struct Packed<BlockQ4K> {
  static constexpr int kScaleColumns = 32, kBias = 0, kMaxByte = 15;
  static constexpr bool kHasMinimum = true;
  struct PanelBlock {
    PackedKScales scales;
    std::uint8_t nibbles[32][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ4K& block, PanelBlock& panel, int lane) {
    panel.scales.template move<kPack>(block, lane);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) {
    return paired_nibbles(panel.nibbles, group, i);
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return panel.scales.group_scale(static_cast<int>(index));
  }
  static inline Floats minimum(const PanelBlock& panel, std::size_t index) {
    return panel.scales.group_minimum(static_cast<int>(index));
  }
};

template <>
struct Packed<BlockQ5K> {
  static constexpr int kScaleColumns = 32, kBias = 0, kMaxByte = 31;
  static constexpr bool kHasMinimum = true;
  struct PanelBlock {
    PackedKScales scales;
    std::uint8_t fifth_bits[8][kBytes];
    std::uint8_t nibbles[32][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ5K& block, PanelBlock& panel, int lane) {
    panel.scales.template move<kPack>(block, lane);
    move_bytes<kPack>(block.fifth_bits, panel.fifth_bits, lane);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
  }
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) {
    return or_bytes(paired_nibbles(panel.nibbles, group, i), move_bits(load_bytes(panel.fifth_bits[i]), group, 4, 16));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return panel.scales.group_scale(static_cast<int>(index));
  }
  static inline Floats minimum(const PanelBlock& panel, std::size_t index) {
    return panel.scales.group_minimum(static_cast<int>(index));
  }
};

template <>
struct Packed<BlockQ6K> {
  static constexpr int kScaleColumns = 16, kBias = 32, kMaxByte = 63;
  static constexpr bool kHasMinimum = false;
  struct PanelBlock {
    HalfBits scale[kPanelRows];
    std::int8_t scales[16][kPanelRows];
    std::uint8_t nibbles[32][kBytes];
    std::uint8_t high_bits[16][kBytes];
  };
  template <bool kPack>
  static inline void move(BlockQ6K& block, PanelBlock& panel, int lane) {
    move_field<kPack>(block, offsetof(BlockQ6K, scale), panel.scale[lane]);
    for (int g = 0; g < 16; ++g) move_value<kPack>(block.scales[g], panel.scales[g][lane]);
    move_bytes<kPack>(block.nibbles, panel.nibbles, lane);
    move_bytes<kPack>(block.high_bits, panel.high_bits, lane);
  }
  // Group 4 h + q of 32 lies in half h: its nibbles are the low or high ones of 64 bytes, its upper bits at place 2 q.
  static inline Bytes bytes(const PanelBlock& panel, int group, int i) {
    const int half = group / 4;
    const int quarter = group % 4;
    const std::uint8_t* nibbles = panel.nibbles[16 * half + 8 * (quarter % 2) + i];
    const Bytes low = quarter < 2 ? low_nibbles(nibbles) : high_nibbles(nibbles);
    return or_bytes(low, move_bits(load_bytes(panel.high_bits[8 * half + i]), 2 * quarter, 4, 48));
  }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) {
    return mul(load_half(panel.scale), to_floats(load_lane_bytes(panel.scales[index])));
  }
};

template <typename Block>
static std::size_t packed_bytes(std::size_t columns) {
  using PanelBlock = typename Packed<Block>::PanelBlock;
  static_assert(sizeof(PanelBlock) == kPanelRows * sizeof(Block), "a panel takes the bytes of its weight rows");
  return columns / Block::kWeights * sizeof(PanelBlock);
}

template <typename Block>
static void pack_rows(const PackTask& task) {
  auto* out = reinterpret_cast<typename Packed<Block>::PanelBlock*>(task.out);
  const std::size_t blocks = task.columns / Block::kWeights;
  const Block nothing = {};
  for (std::size_t b = 0; b < blocks; ++b) {
    for (std::size_t lane = 0; lane < kPanelRows; ++lane) {
      Block block = nothing;
      if (lane < task.count)
        std::memcpy(&block, task.weight_rows + lane * task.row_stride + b * sizeof(Block), sizeof(Block));
      Packed<Block>::template move<true>(block, out[b], static_cast<int>(lane));
    }
  }
}

template <QuantType kType, typename Block>
static void decode_packed_row(const std::byte* panel, std::size_t lane, std::size_t columns, float* values) {
  using PanelBlock = typename Packed<Block>::PanelBlock;
  const std::size_t blocks = columns / Block::kWeights;
  for (std::size_t b = 0; b < blocks; ++b) {
    PanelBlock packed;
    std::memcpy(&packed, panel + b * sizeof(PanelBlock), sizeof packed);
    Block block = {};
    Packed<Block>::template move<false>(block, packed, static_cast<int>(lane));
    decode_row(kType, reinterpret_cast<const std::byte*>(&block), values + b * Block::kWeights, Block::kWeights);
  }
}

}  // namespace quarrel::QUARREL_LEVEL

// Quantised weights times activations in digits. A lane sums one row of weights: integer dots exact within a group of
// 32 (or 16) columns, then one F32 multiply-add a group in ascending order. Every pair of rows goes through exactly
// these operations, whatever the tile it was computed in and wherever its weights came from:
//
//   a packed panel, unpacked in registers        for few rows, since memory is the limit, and for rows of two digits,
//                                                since then there is arithmetic enough beside the unpacking
//   a plain panel: bytes and F32 scales          for many: unpacked once into the second-level cache, then met by all
//
// A matrix that was not packed is packed panel by panel on the way.

namespace quarrel::QUARREL_LEVEL {

static constexpr std::size_t kNearAhead = 2048;  // bytes
static constexpr std::size_t kFarAhead = 8192;

// The bytes of columns [32 g, 32 g + 32) of a block: in registers if they had to be unpacked, in memory if not.
template <typename Source>
struct GroupBytes {
  Bytes vectors[8];
  GroupBytes(const typename Source::Rows& rows, int g) { unpack_group<Source>(rows, g, vectors); }
  Bytes operator()(std::size_t i) const { return vectors[i]; }
  const GroupBytes& again() const { return *this; }
};
template <int kGroupSize, bool kHasMinimums, int kLargest>
struct GroupBytes<Plain<kGroupSize, kHasMinimums, kLargest>> {
  using Rows = typename Plain<kGroupSize, kHasMinimums, kLargest>::Rows;
  const Rows* rows;
  GroupBytes(const Rows& from, int /*g*/) : rows(&from) {}
  Bytes operator()(std::size_t i) const { return load_bytes(rows->bytes[i]); }
  GroupBytes again() const { return GroupBytes(*hidden(rows), 0); }
};

template <std::size_t kTokens>
static inline bool any_low(const std::uint8_t* has_low) {
  if constexpr (kTokens == 1) {
    return has_low[0] != 0;
  } else {
    std::uint64_t all = 0;
    constexpr int kFirst = kTokens < 8 ? kTokens : 8;
    std::memcpy(&all, has_low, kFirst);
    std::uint64_t more = 0;
    if constexpr (kTokens > 8) std::memcpy(&more, has_low + 8, kTokens - 8);
    return (all | more) != 0;
  }
}

// What the bias takes off each token's sum: the bytes of weights are larger than the weights by it. Sums of both halves
// are wanted where one scale serves them.
template <bool kHalves, std::size_t kTokens>
static inline void bias_of(const std::int32_t (&sums)[2][kDigitRows], std::size_t slot, std::size_t part, int bias,
                           Ints (&acc)[kTokens]) {
  if constexpr (kTokens <= 2) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      acc[t] = broadcast(-bias * (sums[part][slot + t] + (kHalves ? 0 : sums[1][slot + t])));
    }
  } else {
    static_assert(kTokens <= kLanes);
    Ints all = load_ints(sums[part] + slot);
    if constexpr (!kHalves) all = add_ints(all, load_ints(sums[1] + slot));
    std::int32_t offsets[kLanes];
    store_ints(offsets, multiply_ints(all, broadcast(-bias)));
    // Repeating a number from memory costs no arithmetic unit; taking it out of a vector costs two.
    const std::int32_t* stored = hidden(offsets);
#pragma GCC unroll 12
    for (std::size_t t = 0; t < kTokens; ++t) acc[t] = broadcast(stored[t]);
  }
}

template <std::size_t kTokens>
static inline void no_sums(Ints (&acc)[kTokens]) {
#pragma GCC unroll 16
  for (std::size_t t = 0; t < kTokens; ++t) acc[t] = broadcast(0);
}

template <std::size_t kTokens>
static inline void add_sums(Ints (&acc)[kTokens], const Ints (&more)[kTokens]) {
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kTokens; ++t) acc[t] = add_ints(acc[t], more[t]);
}

// acc[t] = 256 acc[t] + more[t]
template <std::size_t kTokens>
static inline void next_digit(Ints (&acc)[kTokens], const Ints (&more)[kTokens]) {
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kTokens; ++t) acc[t] = add_ints(shift_ints_left<8>(acc[t]), more[t]);
}

// The integer sums of one scale's columns with some tokens: of their first digits, or of both (`two`): 256 times the
// first digits' plus the second digits'. There are two ways to the same numbers. Where registers do, both digits are
// summed at once, so that a vector of weights is done with when it has met them, and the bias is taken off at the end.
// For a tile of many tokens the digits come one after the other, the first written once for both cases.
template <typename Source, std::size_t kTokens, typename Weights>
static inline void sums_of_part(const Weights& weights, const DigitGroup& x, std::size_t slot, std::size_t part,
                                int bias, bool two, Ints (&acc)[kTokens]) {
  constexpr bool kHalves = Source::kGroup < 32;
  constexpr std::size_t kVectors = Source::kGroup / 4;
  const auto part_of = [part](const auto& all) {
    return [part, &all](std::size_t i) { return all(kVectors * part + i); };
  };
  const auto add_dots = [&](const auto& bytes, const std::int8_t* values) {
    dots<kTokens, kVectors, Source::kMost, kTokens>(part_of(bytes), values, acc);
  };
  Ints other[kTokens];
  if constexpr (kTokens <= kBothTokens || kTileTokens <= 4) {
    if (two && kTokens <= kBothTokens) {
      Ints both[2 * kTokens];
      no_sums(both);
      dots<2 * kTokens, kVectors, Source::kMost, kTokens>(part_of(weights), x.high[slot] + 16 * part, both);
#pragma GCC unroll 8
      for (std::size_t t = 0; t < kTokens; ++t) acc[t] = add_ints(shift_ints_left<8>(both[t]), both[kTokens + t]);
    } else {
      no_sums(acc);
      add_dots(weights, x.high[slot] + 16 * part);
      if (two) {
        no_sums(other);
        next_digit(acc, other);
        add_dots(weights.again(), x.low[slot] + 16 * part);
      }
    }
    if (bias == 0) return;
    bias_of<kHalves>(two ? x.both_sums : x.high_sums, slot, part, bias, other);
    add_sums(acc, other);
  } else {
    no_sums(acc);
    add_dots(weights, x.high[slot] + 16 * part);
    no_sums(other);
    if (two) {
      if (bias != 0) bias_of<kHalves>(x.both_sums, slot, part, bias, other);
      next_digit(acc, other);
      add_dots(weights.again(), x.low[slot] + 16 * part);
    } else {
      if (bias != 0) bias_of<kHalves>(x.high_sums, slot, part, bias, other);
      add_sums(acc, other);
    }
  }
}

// Columns [32 g, 32 g + 32) of a block into the totals.
template <typename Source, std::size_t kTokens>
static inline void add_group(const typename Source::Rows& rows, int g, int bias, const DigitGroup& x, std::size_t slot,
                             Floats (&total)[kTokens]) {
  constexpr std::size_t kParts = 32 / Source::kGroup;
  const GroupBytes<Source> weights(rows, g);
  const bool two = any_low<kTokens>(x.has_low + slot);
#pragma GCC unroll 2
  for (std::size_t part = 0; part < kParts; ++part) {
    Floats scale = Source::scale(rows, kParts * static_cast<std::size_t>(g) + part);
    Ints acc[kTokens];
    sums_of_part<Source>(weights, x, slot, part, bias, two, acc);
    if (two) scale = mul(scale, set(1.0f / 256.0f));
#pragma GCC unroll 12
    for (std::size_t t = 0; t < kTokens; ++t) {
      total[t] = fma(to_floats(acc[t]), mul(scale, set(x.scale[slot + t])), total[t]);
    }
    if constexpr (Source::kMinimums) {
      const Floats minimum = Source::minimum(rows, kParts * static_cast<std::size_t>(g) + part);
      const float* values = (kParts == 1 ? x.value_sum : x.value_sums[part]) + slot;
#pragma GCC unroll 12
      for (std::size_t t = 0; t < kTokens; ++t) total[t] = fma(minimum, set(values[t]), total[t]);
    }
  }
}

// Where the results of a tile go: `count` of the panel's rows. Every loop over tokens is unrolled, for an array that is
// indexed by a variable anywhere lives in memory everywhere.
template <std::size_t kTokens>
static inline void put_tile(const Floats (&total)[kTokens], float* out, std::size_t stride, std::size_t count) {
  if (count == kPanelRows) {
#pragma GCC unroll 12
    for (std::size_t t = 0; t < kTokens; ++t) store(out + t * stride, total[t]);
    return;
  }
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kTokens; ++t) {
    float lanes[kPanelRows];
    store(lanes, total[t]);
    std::memcpy(out + t * stride, lanes, count * sizeof(float));
  }
}

// A panel of `columns` groups and kTokens rows of activations from place `slot` of their tile on.
template <typename Source, std::size_t kTokens, bool kFromMemory>
[[gnu::noinline]] static void multiply_tile(const typename Source::Rows* rows, std::size_t columns, int bias,
                                            const DigitGroup* x, std::size_t slot, float* out, std::size_t stride,
                                            std::size_t count) {
  constexpr int kGroups = columns_of_block<Source>() / 32;
  Floats total[kTokens];
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kTokens; ++t) total[t] = set(0.0f);
  for (std::size_t done = 0; done < columns; done += kGroups, ++rows) {
    QUARREL_UNROLL_GROUPS
    for (int g = 0; g < kGroups; ++g, ++x) {
      if constexpr (kFromMemory) {
        constexpr std::size_t kShare = sizeof(*rows) / kGroups;
        const auto* at = reinterpret_cast<const std::byte*>(rows) + static_cast<std::size_t>(g) * kShare;
#pragma GCC unroll 16
        for (std::size_t line = 0; line < kShare; line += 64) {
          prefetch_near(at + kNearAhead + line);
          prefetch_far(at + kFarAhead + line);
        }
      }
      add_group<Source>(*rows, g, bias, *x, slot, total);
    }
  }
  put_tile(total, out, stride, count);
}

template <typename Source>
struct TileShape {
  const typename Source::Rows* rows;
  std::size_t columns;  // in groups
  int bias;
  std::size_t count;  // of the panel's rows that are wanted
};

// As many rows from `row` on as one tile takes; returns how many.
template <typename Source, bool kFromMemory>
static inline std::size_t multiply_some(const TileShape<Source>& shape, const DigitRows& x, std::size_t row,
                                        std::size_t rows, float* out, std::size_t stride) {
  const std::size_t slot = row % kDigitRows;
  const std::size_t left = kDigitRows - slot < rows ? kDigitRows - slot : rows;
  const auto run = [&]<std::size_t kTokens>() {
    multiply_tile<Source, kTokens, kFromMemory>(shape.rows, shape.columns, shape.bias, x.tile(row), slot, out, stride,
                                                shape.count);
    return kTokens;
  };
  if constexpr (kTileTokens >= 12 && !kFromMemory) {
    if (left >= 12) return run.template operator()<12>();
  }
  if constexpr (kTileTokens >= 8) {
    if (left >= 8) return run.template operator()<8>();
  }
  if (left >= 4) return run.template operator()<4>();
  if (left >= 2) return run.template operator()<2>();
  return run.template operator()<1>();
}

template <typename Source, bool kFromMemory>
static inline void multiply_panel(const TileShape<Source>& shape, const MatmulTask& task, std::size_t first,
                                  std::size_t rows, float* out) {
  for (std::size_t done = 0; done < rows;) {
    done += multiply_some<Source, kFromMemory>(shape, *task.digits, task.first_row + first + done, rows - done,
                                               out + done * task.out_stride, task.out_stride);
  }
}

// Tiles of activations against plain panels.
template <typename Source>
static inline auto multiply_plain_panel(const MatmulTask& task, int bias) {
  return [&task, bias](const typename Source::Rows* plain, std::size_t count, std::size_t row, std::size_t rows,
                       float* out) {
    multiply_panel<Source, false>({plain, task.columns / 32, bias, count}, task, row, rows, out);
  };
}

// More rows than these are quicker with a plain panel, if they have one digit or unpacking takes long.
static constexpr std::size_t kRowsForPacked = 32;
static constexpr std::size_t kRowsForLongUnpacking = 8;

// Whether rows meet the packed panel itself, tile by tile, each of which unpacks it again.
template <typename Source>
static inline bool meets_packed(const MatmulTask& task) {
  if constexpr (kUnpacksLong<Source>) return task.rows <= kRowsForLongUnpacking;
  return task.both_digits || task.rows <= kRowsForPacked;
}

template <typename Block>
static void packed_matmul(const MatmulTask& task) {
  using Source = Packed<Block>;
  constexpr int kBias = Source::kBias - kDotOffset<Source::kMost>;
  if (!meets_packed<Source>(task)) {
    std::byte* space = task.scratch + padded(packed_bytes<Block>(task.columns), 64);
    for_plain_panels<PlainOf<Block>, 1>(task, space, packed_to_plain<Block>(task),
                                        multiply_plain_panel<PlainOf<Block>>(task, kBias));
    return;
  }
  for (std::size_t begin = task.first; begin < task.last; begin += kPanelRows) {
    const std::size_t count = smaller(kPanelRows, task.last - begin);
    const TileShape<Source> shape{packed_panel<Block>(task, begin, count, task.scratch), task.columns / 32, kBias,
                                  count};
    multiply_panel<Source, true>(shape, task, 0, task.rows, task.out + (begin - task.first));
  }
}

// ---- The table of types ----

// What a level has for a type; nothing where the type has no packed panel.
struct IntegerType {
  QuantType type;
  void (*matmul)(const MatmulTask&) = nullptr;
  std::size_t (*bytes)(std::size_t columns) = nullptr;
  void (*pack)(const PackTask&) = nullptr;
  void (*decode)(QuantType, const std::byte*, std::size_t, std::size_t, float*) = nullptr;
};

template <typename Block>
static constexpr IntegerType integer_type_of(QuantType type) {
  if constexpr (kHasPacked<Block>) {
    return {type, packed_matmul<Block>, packed_bytes<Block>, pack_rows<Block>, decode_packed_row<Block>};
  } else {
    return {.type = type};
  }
}

static constexpr IntegerType kIntegerTypes[] = {
#define QUARREL_TYPE(type, number, name, Block) integer_type_of<Block>(QuantType::type),
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
};

static inline const IntegerType* integer_type(QuantType type) {
  for (const IntegerType& row : kIntegerTypes) {
    if (row.type == type) return row.matmul == nullptr ? nullptr : &row;
  }
  return nullptr;
}

static bool has_integer_kernel(QuantType type) { return integer_type(type) != nullptr; }

static std::size_t panel_bytes(QuantType type, std::size_t columns) {
  const std::size_t float_bytes = float_panel_bytes(type, columns);
  if (float_bytes > 0) return float_bytes;
  const IntegerType* row = integer_type(type);
  return row == nullptr ? 0 : row->bytes(columns);
}

static void pack(const PackTask& task) {
  if (float_panel_bytes(task.type, task.columns) > 0) return pack_floats(task);
  integer_type(task.type)->pack(task);
}

static void decode_packed(QuantType type, const std::byte* panel, std::size_t row, std::size_t columns, float* values) {
  if (float_panel_bytes(type, columns) > 0) return decode_float_row(type, panel, row, columns, values);
  integer_type(type)->decode(type, panel, row, columns, values);
}

static void decode_panel(const MatmulTask& task, std::size_t begin, std::size_t count, float* row_space, float* to) {
  const std::byte* panel = task.weights + begin / kPanelRows * panel_bytes(task.type, task.columns);
  for (std::size_t row = 0; row < kPanelRows; ++row) {
    if (row >= count) {
      std::memset(row_space, 0, task.columns * sizeof(float));
    } else if (task.packed) {
      decode_packed(task.type, panel, row, task.columns, row_space);
    } else {
      decode_row(task.type, task.weights + (begin + row) * task.row_stride, row_space, task.columns);
    }
    for (std::size_t k = 0; k < task.columns; ++k) to[k * kPanelRows + row] = row_space[k];
  }
}

static void matmul(const MatmulTask& task) {
  if (task.digits != nullptr) {
    integer_type(task.type)->matmul(task);
  } else {
    float_matmul(task);
  }
}

}  // namespace quarrel::QUARREL_LEVEL

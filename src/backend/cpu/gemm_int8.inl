// GEMM and GEMV of quantised weights with int8 activations. A lane sums one weight row: integer dot products exact
// within a group of 32 (or 16) columns, then one F32 multiply-add a group in ascending order. Every pair of rows goes
// through exactly these operations, whatever the tile it was computed in and wherever its weights came from:
//
// - a packed panel, unpacked in registers: for few rows, since memory is the limit, and for rows with a low part
//   everywhere, since then there is arithmetic enough beside the unpacking;
// - an unpacked panel, bytes and F32 scales: for many, unpacked once into the second-level cache, then used by all.
//
// A matrix that was not packed is packed panel by panel on the way. From the outside in: gemm_int8 (panels of weights),
// multiply_panel (tiles of rows), multiply_tile (groups of columns), add_group (scales), scale_sums (dot products).

namespace quarrel::QUARREL_LEVEL {

static constexpr std::size_t kNearAhead = 2048;  // bytes
static constexpr std::size_t kFarAhead = 8192;

// The bytes of columns [32 g, 32 g + 32) of a block: in registers if they had to be unpacked, in memory if not.
template <typename Source>
struct GroupBytes {
  Bytes vectors[8];
  GroupBytes(const typename Source::PanelBlock& panel, int g) { unpack_group<Source>(panel, g, vectors); }
  Bytes operator()(std::size_t i) const { return vectors[i]; }
  const GroupBytes& again() const { return *this; }
};
template <int kColumnsOfScale, bool kMinimums, int kMaximum>
struct GroupBytes<Unpacked<kColumnsOfScale, kMinimums, kMaximum>> {
  using PanelBlock = typename Unpacked<kColumnsOfScale, kMinimums, kMaximum>::PanelBlock;
  const PanelBlock* panel;
  GroupBytes(const PanelBlock& from, int /*g*/) : panel(&from) {}
  Bytes operator()(std::size_t i) const { return load_bytes(panel->bytes[i]); }
  GroupBytes again() const { return GroupBytes(*hidden(panel), 0); }
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
// of a group are wanted where one scale serves them.
template <bool kHalves, std::size_t kTokens>
static inline void bias_of(const std::int32_t (&sums)[2][kInt8TileRows], std::size_t at, std::size_t s, int bias,
                           Ints (&acc)[kTokens]) {
  if constexpr (kTokens <= 2) {
    for (std::size_t t = 0; t < kTokens; ++t) {
      acc[t] = broadcast(-bias * (sums[s][at + t] + (kHalves ? 0 : sums[1][at + t])));
    }
  } else {
    static_assert(kTokens <= kLanes);
    Ints all = load_ints(sums[s] + at);
    if constexpr (!kHalves) all = add_ints(all, load_ints(sums[1] + at));
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
static inline void append_low(Ints (&acc)[kTokens], const Ints (&more)[kTokens]) {
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kTokens; ++t) acc[t] = add_ints(shift_ints_left<8>(acc[t]), more[t]);
}

// The integer sums of a group's s-th scale with the tokens of a tile from place `at` on: of their high parts, or of
// both
// (`two`): 256 times the high parts' plus the low parts'. There are two ways to the same numbers. Where registers do,
// both parts are summed at once, so that a vector of weights is done with after both, and the bias is taken
// off at the end. For a tile of many tokens the parts come one after the other, the first written once for both cases.
template <typename Source, std::size_t kTokens, typename Weights>
static inline void scale_sums(const Weights& weights, const Int8Group& x, std::size_t at, std::size_t s, int bias,
                              bool two, Ints (&acc)[kTokens]) {
  constexpr bool kHalves = Source::kScaleColumns < 32;
  constexpr std::size_t kVectors = Source::kScaleColumns / 4;
  const auto columns_of_scale = [s](const auto& all) {
    return [s, &all](std::size_t i) { return all(kVectors * s + i); };
  };
  const auto add_dots = [&](const auto& bytes, const std::int8_t* values) {
    dots<kTokens, kVectors, Source::kMaxByte, kTokens>(columns_of_scale(bytes), values, acc);
  };
  Ints other[kTokens];
  if constexpr (kTokens <= kBothTokens || kTileTokens <= 4) {
    if (two && kTokens <= kBothTokens) {
      Ints both[2 * kTokens];
      no_sums(both);
      dots<2 * kTokens, kVectors, Source::kMaxByte, kTokens>(columns_of_scale(weights), x.high[at] + 16 * s, both);
#pragma GCC unroll 8
      for (std::size_t t = 0; t < kTokens; ++t) acc[t] = add_ints(shift_ints_left<8>(both[t]), both[kTokens + t]);
    } else {
      no_sums(acc);
      add_dots(weights, x.high[at] + 16 * s);
      if (two) {
        no_sums(other);
        append_low(acc, other);
        add_dots(weights.again(), x.low[at] + 16 * s);
      }
    }
    if (bias == 0) return;
    bias_of<kHalves>(two ? x.both_sums : x.high_sums, at, s, bias, other);
    add_sums(acc, other);
  } else {
    no_sums(acc);
    add_dots(weights, x.high[at] + 16 * s);
    no_sums(other);
    if (two) {
      if (bias != 0) bias_of<kHalves>(x.both_sums, at, s, bias, other);
      append_low(acc, other);
      add_dots(weights.again(), x.low[at] + 16 * s);
    } else {
      if (bias != 0) bias_of<kHalves>(x.high_sums, at, s, bias, other);
      add_sums(acc, other);
    }
  }
}

// Columns [32 g, 32 g + 32) of a block into the totals.
template <typename Source, std::size_t kTokens>
static inline void add_group(const typename Source::PanelBlock& panel, int g, int bias, const Int8Group& x,
                             std::size_t at, Floats (&total)[kTokens]) {
  constexpr std::size_t kScales = 32 / Source::kScaleColumns;
  const GroupBytes<Source> weights(panel, g);
  const bool two = any_low<kTokens>(x.has_low + at);
#pragma GCC unroll 2
  for (std::size_t s = 0; s < kScales; ++s) {
    Floats scale = Source::scale(panel, kScales * static_cast<std::size_t>(g) + s);
    Ints acc[kTokens];
    scale_sums<Source>(weights, x, at, s, bias, two, acc);
    if (two) scale = mul(scale, set(1.0f / 256.0f));
#pragma GCC unroll 12
    for (std::size_t t = 0; t < kTokens; ++t) {
      total[t] = fma(to_floats(acc[t]), mul(scale, set(x.scale[at + t])), total[t]);
    }
    if constexpr (Source::kHasMinimum) {
      const Floats minimum = Source::minimum(panel, kScales * static_cast<std::size_t>(g) + s);
      const float* values = (kScales == 1 ? x.value_sum : x.value_sums[s]) + at;
#pragma GCC unroll 12
      for (std::size_t t = 0; t < kTokens; ++t) total[t] = fma(minimum, set(values[t]), total[t]);
    }
  }
}

// Where the results of a tile go: `count` of the panel's lanes. Every loop over tokens is unrolled, for an array that
// is indexed by a variable anywhere lives in memory everywhere.
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

// A panel of weights and the columns it has, in groups.
template <typename Source>
struct PanelView {
  const typename Source::PanelBlock* blocks;
  std::size_t groups;
  int bias;
  std::size_t count;  // of the panel's lanes that are wanted
};

// A panel and kTokens rows of activations from place `at` of their tile on.
template <typename Source, std::size_t kTokens, bool kFromMemory>
[[gnu::noinline]] static void multiply_tile(const PanelView<Source>& panel, const Int8Group* x, std::size_t at,
                                            float* out, std::size_t stride) {
  constexpr int kGroups = kBlockGroups<Source>;
  const typename Source::PanelBlock* blocks = panel.blocks;
  const std::size_t groups = panel.groups;
  const int bias = panel.bias;
  Floats total[kTokens];
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kTokens; ++t) total[t] = set(0.0f);
  for (std::size_t done = 0; done < groups; done += kGroups, ++blocks) {
    QUARREL_UNROLL_GROUPS
    for (int g = 0; g < kGroups; ++g, ++x) {
      if constexpr (kFromMemory) {
        constexpr std::size_t kShare = sizeof(*blocks) / kGroups;
        const auto* bytes = reinterpret_cast<const std::byte*>(blocks) + static_cast<std::size_t>(g) * kShare;
#pragma GCC unroll 16
        for (std::size_t line = 0; line < kShare; line += 64) {
          prefetch_near(bytes + kNearAhead + line);
          prefetch_far(bytes + kFarAhead + line);
        }
      }
      add_group<Source>(*blocks, g, bias, *x, at, total);
    }
  }
  put_tile(total, out, stride, panel.count);
}

// A panel and `rows` rows of activations from `first` on, as many at a time as registers hold sums for.
template <typename Source, bool kFromMemory>
static inline void multiply_panel(const PanelView<Source>& panel, const Int8Rows& x, std::size_t first,
                                  std::size_t rows, float* out, std::size_t stride) {
  for (std::size_t done = 0; done < rows;) {
    const std::size_t row = first + done;
    const std::size_t at = row % kInt8TileRows;
    const std::size_t left = smaller(kInt8TileRows - at, rows - done);
    const auto run = [&]<std::size_t kTokens>() {
      multiply_tile<Source, kTokens, kFromMemory>(panel, x.tile(row), at, out + done * stride, stride);
      return kTokens;
    };
    const auto run_widest = [&] {
      if constexpr (kTileTokens >= 12 && !kFromMemory) {
        if (left >= 12) return run.template operator()<12>();
      }
      if constexpr (kTileTokens >= 8) {
        if (left >= 8) return run.template operator()<8>();
      }
      if (left >= 4) return run.template operator()<4>();
      if (left >= 2) return run.template operator()<2>();
      return run.template operator()<1>();
    };
    done += run_widest();
  }
}

// More rows than these are quicker with an unpacked panel, if they have no low part or unpacking takes long.
static constexpr std::size_t kRowsForPacked = 32;
static constexpr std::size_t kRowsForLongUnpacking = 8;

// Whether the packed panel itself is read, by tile after tile, each of which unpacks it again.
template <typename Source>
static inline bool reads_packed(const Int8Gemm& task) {
  if constexpr (kUnpacksLong<Source>) return task.rows <= kRowsForLongUnpacking;
  return task.split || task.rows <= kRowsForPacked;
}

template <typename Block>
static void gemm_int8(const Int8Gemm& task) {
  using Source = Packed<Block>;
  constexpr int kBias = Source::kBias - kDotOffset<Source::kMaxByte>;
  const WeightRows& weights = task.weights;
  const std::size_t groups = weights.columns / 32;
  if (!reads_packed<Source>(task)) {
    using PanelBlock = typename UnpackedOf<Block>::PanelBlock;
    for_unpacked_panels<Block, 1>(
        task, [&](const PanelBlock* panel, std::size_t count, std::size_t row, std::size_t rows, float* out) {
          multiply_panel<UnpackedOf<Block>, false>({panel, groups, kBias, count}, *task.x, task.first_row + row, rows,
                                                   out, task.out.stride);
        });
    return;
  }
  for (std::size_t begin = weights.first; begin < weights.last; begin += kPanelRows) {
    const std::size_t count = smaller(kPanelRows, weights.last - begin);
    multiply_panel<Source, true>({packed_panel<Block>(weights, begin, count, task.scratch), groups, kBias, count},
                                 *task.x, task.first_row, task.rows, task.out.data + (begin - weights.first),
                                 task.out.stride);
  }
}

// ---- What this level has for each type ----

template <QuantType kType, typename Block>
static constexpr TypeKernels type_kernels() {
  TypeKernels kernels = {.gemm_f32 = gemm_f32<kType, Block>};
  if constexpr (kIsFloat<Block>) {
    kernels.panel_bytes = float_panel_bytes<Block>;
    kernels.pack = pack_floats<Block>;
    kernels.decode_packed = decode_float_row<kType, Block>;
  } else if constexpr (kHasPacked<Block>) {
    kernels.panel_bytes = packed_bytes<Block>;
    kernels.pack = pack_rows<Block>;
    kernels.decode_packed = decode_packed_row<kType, Block>;
    kernels.gemm_int8 = gemm_int8<Block>;
  }
  return kernels;
}

}  // namespace quarrel::QUARREL_LEVEL

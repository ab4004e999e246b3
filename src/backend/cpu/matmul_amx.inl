// Products of prompt rows on AMX: tiles of bf16 numbers. A panel's weights are unpacked once, rounded to bf16, in the
// order a tile wants (pairs of columns, a row's beside the next's), and stay in the second-level cache while all rows
// of activations meet them. A tile sums all columns in ascending order without leaving its registers, so a row's result
// does not depend on the tile it was in. F16 weights are two bf16 numbers, and so are the activations that meet them:
// three products. Generated rows go to the kernels of AVX-512.

namespace quarrel::QUARREL_LEVEL {

static_assert(kPanelRows == kTileRows);

static constexpr std::size_t kBfloatBytes = 512 * 1024;  // of panels that stay in the second-level cache together

// Two vectors of F32 as bf16 pairs: lane r holds even[r] below odd[r].
static inline __m512i bfloat_pairs(Floats even, Floats odd) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both);
}

static inline Floats rounded_to_bfloat(Floats v) {
  const __m256i bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// A panel's columns [32 g, 32 g + 32) from vectors of bytes.
template <typename Source>
static inline void group_to_bfloats(const typename Source::Rows& rows, int g, int bias, std::uint16_t* to) {
  constexpr std::size_t kParts = 32 / Source::kGroup;
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const std::size_t part = kParts * static_cast<std::size_t>(g) + static_cast<std::size_t>(i) * kParts / 8;
    const Floats scale = Source::scale(rows, part);
    Floats offset = mul(scale, set(static_cast<float>(-bias)));
    if constexpr (Source::kMinimums) offset = Source::minimum(rows, part);
    const Ints bytes = Source::bytes(rows, g, i);
    const auto value = [&](Ints byte) { return fma(to_floats(and_ints(byte, 255)), scale, offset); };
    _mm512_store_si512(to + 64 * i, bfloat_pairs(value(bytes), value(shift_ints_right<8>(bytes))));
    _mm512_store_si512(to + 64 * i + 32,
                       bfloat_pairs(value(shift_ints_right<16>(bytes)), value(shift_ints_right<24>(bytes))));
  }
}

template <typename Block>
static void packed_to_bfloats(const MatmulTask& task, std::size_t begin, std::size_t count, std::uint16_t* to,
                              std::byte* space) {
  using Source = Packed<Block>;
  constexpr int kGroups = static_cast<int>(Block::kWeights) / 32;
  const auto* rows = packed_panel<Block>(task, begin, count, space);
  for (std::size_t done = 0; done < task.columns; done += Block::kWeights, ++rows) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g, to += kTileValues) group_to_bfloats<Source>(*rows, g, Source::kBias, to);
  }
}

template <typename Block>
static void gathered_to_bfloats(const MatmulTask& task, std::size_t begin, std::size_t count, std::uint16_t* to,
                                std::byte* space) {
  using Source = GatheredPlain<Block>;
  auto* plain = reinterpret_cast<typename Source::Rows*>(space);
  gather_plain<Block>(task, begin, count, plain);
  for (std::size_t g = 0; g < task.columns / 32; ++g, to += kTileValues) {
    group_to_bfloats<Source>(plain[g], 0, 0, to);
  }
}

// Float weights: column by column of the panel, or row by row of the file. `low` gets what `to` leaves of them.
static void floats_to_bfloats(const MatmulTask& task, std::size_t begin, std::size_t count, std::uint16_t* to,
                              std::uint16_t* low) {
  const std::size_t panel = begin / kPanelRows * task.columns * kPanelRows * sizeof(std::uint16_t);
  const auto* packed = reinterpret_cast<const std::uint16_t*>(task.weights + panel);
  const auto column = [&](std::size_t k) {
    if (k >= task.columns) return set(0.0f);
    std::uint16_t values[kPanelRows] = {};
    const std::uint16_t* from = values;
    if (task.packed) {
      from = packed + k * kPanelRows;
    } else {
      for (std::size_t r = 0; r < count; ++r) {
        std::memcpy(values + r, task.weights + (begin + r) * task.row_stride + 2 * k, sizeof(std::uint16_t));
      }
    }
    return task.type == QuantType::f16 ? load_half(from) : load_bfloat(from);
  };
  for (std::size_t k = 0; k < task.columns; k += 2, to += 32) {
    const Floats even = column(k);
    const Floats odd = column(k + 1);
    _mm512_store_si512(to, bfloat_pairs(even, odd));
    if (low == nullptr) continue;
    _mm512_store_si512(low, bfloat_pairs(sub(even, rounded_to_bfloat(even)), sub(odd, rounded_to_bfloat(odd))));
    low += 32;
  }
  // The last tile's other lines.
  for (std::size_t k = padded(task.columns, 2); k < padded(task.columns, kTileColumns); k += 2, to += 32) {
    _mm512_store_si512(to, _mm512_setzero_si512());
    if (low == nullptr) continue;
    _mm512_store_si512(low, _mm512_setzero_si512());
    low += 32;
  }
}

static inline void prefetch_tile(const std::uint16_t* tile) {
#pragma GCC unroll 16
  for (std::size_t line = 0; line < kTileRows; ++line) prefetch_near(tile + line * kTileColumns);
}

// C[4] += A[2] x B[2] over all columns, where the second of each may be missing.
template <bool kTwoTokens, bool kTwoPanels>
static inline void add_tiles(const std::uint16_t* x, const std::uint16_t* panel, std::size_t tiles) {
  const std::size_t next = tiles * kTileValues;
  for (std::size_t k = 0; k < tiles; ++k, x += kTileValues, panel += kTileValues) {
    prefetch_tile(x + 2 * kTileValues);
    prefetch_tile(panel + 2 * kTileValues);
    if constexpr (kTwoTokens) prefetch_tile(x + next + 2 * kTileValues);
    if constexpr (kTwoPanels) prefetch_tile(panel + next + 2 * kTileValues);
    _tile_loadd(4, x, 64);
    _tile_loadd(6, panel, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoPanels) {
      _tile_loadd(7, panel + next, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kTwoTokens) {
      _tile_loadd(5, x + next, 64);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kTwoPanels) _tile_dpbf16ps(3, 5, 7);
    }
  }
}

// Where a tile of results goes: its rows [first, last) of activations and `count` of weights.
struct TilePlace {
  float* out;  // of row 0
  std::size_t stride;
  std::size_t first, last;
  std::size_t count;
};

template <int kTile>
static inline void store_tile(const TilePlace& place) {
  if (place.first >= place.last) return;
  alignas(64) float values[kTileRows][kTileRows];
  const auto line = static_cast<long>(place.stride * sizeof(float));
  if (place.last - place.first == kTileRows && place.count == kTileRows) {
    if constexpr (kTile == 0) _tile_stored(0, place.out, line);
    if constexpr (kTile == 1) _tile_stored(1, place.out, line);
    if constexpr (kTile == 2) _tile_stored(2, place.out, line);
    if constexpr (kTile == 3) _tile_stored(3, place.out, line);
    return;
  }
  if constexpr (kTile == 0) _tile_stored(0, values, 64);
  if constexpr (kTile == 1) _tile_stored(1, values, 64);
  if constexpr (kTile == 2) _tile_stored(2, values, 64);
  if constexpr (kTile == 3) _tile_stored(3, values, 64);
  asm volatile("" : : : "memory");
  for (std::size_t r = place.first; r < place.last; ++r) {
    std::memcpy(place.out + r * place.stride, values[r], place.count * sizeof(float));
  }
}

struct BfloatPanels {
  const std::uint16_t* high;
  const std::uint16_t* low;  // null: none
  std::size_t count;         // rows of weights
  float* out;                // of row 0
};

// One or two panels, and the one or two rows of tiles that begin at `row` of the product.
template <bool kTwoTokens, bool kTwoPanels>
static void multiply_tiles(const MatmulTask& task, const BfloatPanels& panels, std::size_t row) {
  const BfloatRows& x = *task.bfloats;
  const std::size_t first = x.tile_row(task.first_bfloat + row);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  add_tiles<kTwoTokens, kTwoPanels>(x.high + first, panels.high, x.tiles);
  if (panels.low != nullptr) {
    add_tiles<kTwoTokens, kTwoPanels>(x.high + first, panels.low, x.tiles);
    add_tiles<kTwoTokens, kTwoPanels>(x.low + first, panels.high, x.tiles);
  }
  const auto place = [&](std::size_t token, std::size_t panel) {
    const std::size_t begin = row + token * kTileRows;
    return TilePlace{.out = panels.out + begin * task.out_stride + panel * kTileRows,
                     .stride = task.out_stride,
                     .first = task.digit_rows > begin ? task.digit_rows - begin : 0,
                     .last = smaller(kTileRows, task.rows - begin),
                     .count = smaller(kTileRows, panels.count - panel * kTileRows)};
  };
  store_tile<0>(place(0, 0));
  if constexpr (kTwoPanels) store_tile<1>(place(0, 1));
  if constexpr (kTwoTokens) store_tile<2>(place(1, 0));
  if constexpr (kTwoTokens && kTwoPanels) store_tile<3>(place(1, 1));
}

template <bool kTwoTokens>
static void multiply_tiles(const MatmulTask& task, const BfloatPanels& panels, std::size_t row) {
  if (panels.count > kTileRows) {
    multiply_tiles<kTwoTokens, true>(task, panels, row);
  } else {
    multiply_tiles<kTwoTokens, false>(task, panels, row);
  }
}

using ToBfloats = void (*)(const MatmulTask&, std::size_t begin, std::size_t count, std::uint16_t* to,
                           std::byte* space);

struct BfloatType {
  QuantType type;
  ToBfloats unpack;
};
static constexpr BfloatType kBfloatTypes[] = {
    {QuantType::q4_0, packed_to_bfloats<BlockQ4_0>},      {QuantType::q4_1, packed_to_bfloats<BlockQ4_1>},
    {QuantType::q5_0, packed_to_bfloats<BlockQ5_0>},      {QuantType::q5_1, packed_to_bfloats<BlockQ5_1>},
    {QuantType::q8_0, packed_to_bfloats<BlockQ8_0>},      {QuantType::q4_k, packed_to_bfloats<BlockQ4K>},
    {QuantType::q5_k, packed_to_bfloats<BlockQ5K>},       {QuantType::q6_k, packed_to_bfloats<BlockQ6K>},
    {QuantType::iq4_nl, packed_to_bfloats<BlockIq4Nl>},   {QuantType::mxfp4, packed_to_bfloats<BlockMxfp4>},
    {QuantType::q2_k, gathered_to_bfloats<BlockQ2K>},     {QuantType::mxfp4_pairs, packed_to_bfloats<BlockMxfp4Pairs>},
    {QuantType::q3_k, gathered_to_bfloats<BlockQ3K>},     {QuantType::q8_k, gathered_to_bfloats<BlockQ8K>},
    {QuantType::iq4_xs, gathered_to_bfloats<BlockIq4Xs>}, {QuantType::tq2_0, gathered_to_bfloats<BlockTq2_0>},
};

static ToBfloats bfloat_unpacking(QuantType type) {
  for (const BfloatType& row : kBfloatTypes) {
    if (row.type == type) return row.unpack;
  }
  return nullptr;
}

static bool has_bfloat_kernel(QuantType type) {
  return type == QuantType::f16 || type == QuantType::bf16 || bfloat_unpacking(type) != nullptr;
}

// How many panels are unpacked at a time: an even number of them.
static std::size_t panels_together(std::size_t panel_values) {
  const std::size_t fit = kBfloatBytes / (panel_values * sizeof(std::uint16_t)) / 2 * 2;
  return fit < 2 ? 2 : fit;
}

// Panels in bf16, as many for what F16 leaves, and a packed or plain one on the way.
static std::size_t bfloat_scratch_bytes(std::size_t columns) {
  const std::size_t values = bfloat_tiles(columns) * kTileValues;
  const std::size_t two = 2 * values * sizeof(std::uint16_t);
  const std::size_t panels = kBfloatBytes > two ? kBfloatBytes : two;
  return 2 * panels + digit_columns(columns) * (32 * 16 + 4 * 16 * sizeof(float)) + 64;
}

static void unpack_panel(const MatmulTask& task, std::size_t begin, std::size_t count, std::uint16_t* high,
                         std::uint16_t* low, std::byte* space) {
  const ToBfloats unpack = bfloat_unpacking(task.type);
  if (unpack != nullptr) {
    unpack(task, begin, count, high, space);
  } else {
    floats_to_bfloats(task, begin, count, high, low);
  }
}

static void matmul_bfloats(const MatmulTask& task) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const std::size_t values = task.bfloats->tiles * kTileValues;
  const std::size_t together = panels_together(values);
  const bool pairs = task.type == QuantType::f16;
  auto* high = reinterpret_cast<std::uint16_t*>(task.scratch);
  std::uint16_t* low = pairs ? high + together * values : nullptr;
  auto* space = reinterpret_cast<std::byte*>(high + 2 * together * values);
  for (std::size_t begin = task.first; begin < task.last; begin += together * kPanelRows) {
    const std::size_t end = smaller(task.last, begin + together * kPanelRows);
    for (std::size_t at = begin; at < end; at += kPanelRows) {
      const std::size_t place = (at - begin) / kPanelRows * values;
      unpack_panel(task, at, smaller(kPanelRows, end - at), high + place, pairs ? low + place : nullptr, space);
    }
    // The compiler does not know what tile loads read.
    asm volatile("" : : : "memory");
    for (std::size_t row = task.digit_rows / kTileRows * kTileRows; row < task.rows; row += 2 * kTileRows) {
      for (std::size_t at = begin; at < end; at += 2 * kPanelRows) {
        const std::size_t place = (at - begin) / kPanelRows * values;
        const BfloatPanels panels{high + place, pairs ? low + place : nullptr, end - at, task.out + (at - task.first)};
        if (row + kTileRows < task.rows) {
          multiply_tiles<true>(task, panels, row);
        } else {
          multiply_tiles<false>(task, panels, row);
        }
      }
    }
    asm volatile("" : : : "memory");
  }
  _tile_release();
}

static void to_bfloats(const float* values, std::size_t count, const BfloatRows& to, std::size_t row, bool with_low) {
  for (std::size_t tile = 0; tile < to.tiles; ++tile) {
    const std::size_t place = to.place(row, tile);
    for (std::size_t i = 0; i < kTileColumns; i += kLanes) {
      const std::size_t k = tile * kTileColumns + i;
      float rest[kLanes] = {};
      const float* from = values + k;
      if (k + kLanes > count) {
        if (k < count) std::memcpy(rest, from, (count - k) * sizeof(float));
        from = rest;
      }
      const Floats v = load(from);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.high + place + i),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
      if (!with_low) continue;
      const Floats left = sub(v, rounded_to_bfloat(v));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.low + place + i),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(left)));
    }
  }
}

}  // namespace quarrel::QUARREL_LEVEL

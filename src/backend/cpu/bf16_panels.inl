// Panels of weights as bf16 numbers, in the order an AMX tile wants: pairs of columns, a lane's beside the next's.

namespace quarrel::QUARREL_LEVEL {

static_assert(kPanelRows == kBf16TileRows);

struct ColumnRange {
  std::size_t first, count;  // `first` is a multiple of every type's block
};

// Some columns of the panel that begins at weight row `begin` of the matrix and has `count` of them.
struct PanelColumns {
  std::size_t begin, count;
  ColumnRange columns;
};

// Two columns in F32 as one vector of bf16: lane r holds even[r] below odd[r].
static inline __m512i interleaved_bf16(Floats even, Floats odd) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), both);
}

static inline Floats rounded_to_bf16(Floats v) {
  const __m256i bits = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// A panel's columns [32 g, 32 g + 32) from vectors of bytes.
template <typename Source>
static inline void group_to_bf16(const typename Source::PanelBlock& panel, int g, std::uint16_t* to) {
  constexpr std::size_t kScales = 32 / Source::kScaleColumns;
  Bytes vectors[8];
  unpack_group<Source>(panel, g, vectors);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const std::size_t index = kScales * static_cast<std::size_t>(g) + static_cast<std::size_t>(i) * kScales / 8;
    const Floats scale = Source::scale(panel, index);
    Floats offset = mul(scale, set(static_cast<float>(-Source::kBias)));
    if constexpr (Source::kHasMinimum) offset = Source::minimum(panel, index);
    const Ints bytes = vectors[i];
    const auto value = [&](Ints byte) { return fma(to_floats(and_ints(byte, 255)), scale, offset); };
    _mm512_store_si512(to + 64 * i, interleaved_bf16(value(bytes), value(shift_ints_right<8>(bytes))));
    _mm512_store_si512(to + 64 * i + 32,
                       interleaved_bf16(value(shift_ints_right<16>(bytes)), value(shift_ints_right<24>(bytes))));
  }
}

// The same matrix from column `columns.first` on, where its weight rows lie as in the file.
template <typename Block>
static WeightRows from_column(const WeightRows& weights, const ColumnRange& columns) {
  WeightRows rest = weights;
  rest.data += columns.first / Block::kWeights * sizeof(Block);
  rest.columns = columns.count;
  return rest;
}

template <typename Block>
static void packed_to_bf16(const WeightRows& weights, const PanelColumns& panel, std::uint16_t* to, std::byte* space) {
  using Source = Packed<Block>;
  constexpr int kGroups = kBlockGroups<Source>;
  const ColumnRange& columns = panel.columns;
  const auto* blocks =
      weights.packed ? packed_panel<Block>(weights, panel.begin, panel.count, space) + columns.first / Block::kWeights
                     : packed_panel<Block>(from_column<Block>(weights, columns), panel.begin, panel.count, space);
  for (std::size_t done = 0; done < columns.count; done += Block::kWeights, ++blocks) {
    QUARREL_UNROLL_GROUPS
    for (int g = 0; g < kGroups; ++g, to += kBf16TileValues) group_to_bf16<Source>(*blocks, g, to);
  }
}

// Float weights: column by column of the panel, or row by row of the file. `low` gets what `to` leaves of F16 weights,
// and is null for others.
template <typename Block>
static void floats_to_bf16(const WeightRows& weights, const PanelColumns& panel, std::uint16_t* to,
                           std::uint16_t* low) {
  const std::size_t panel_at = panel.begin / kPanelRows * weights.columns * kPanelRows * sizeof(std::uint16_t);
  const auto* packed = reinterpret_cast<const std::uint16_t*>(weights.data + panel_at);
  const auto column = [&](std::size_t k) {
    if (k >= weights.columns) return set(0.0f);
    std::uint16_t values[kPanelRows] = {};
    const std::uint16_t* from = values;
    if (weights.packed) {
      from = packed + k * kPanelRows;
    } else {
      for (std::size_t r = 0; r < panel.count; ++r) {
        std::memcpy(values + r, weights.data + (panel.begin + r) * weights.row_stride + 2 * k, sizeof(std::uint16_t));
      }
    }
    return FloatPanel<Block>::load_column(from);
  };
  const std::size_t end = panel.columns.first + panel.columns.count;
  for (std::size_t k = panel.columns.first; k < end; k += 2, to += 32) {
    const Floats even = column(k);
    const Floats odd = column(k + 1);
    _mm512_store_si512(to, interleaved_bf16(even, odd));
    if (low == nullptr) continue;
    _mm512_store_si512(low, interleaved_bf16(sub(even, rounded_to_bf16(even)), sub(odd, rounded_to_bf16(odd))));
    low += 32;
  }
  // The last tile's other lines.
  for (std::size_t k = padded(end, 2); k < padded(end, kBf16TileColumns); k += 2, to += 32) {
    _mm512_store_si512(to, _mm512_setzero_si512());
    if (low == nullptr) continue;
    _mm512_store_si512(low, _mm512_setzero_si512());
    low += 32;
  }
}

// Types that have a GEMM in bf16. F32 weights are none: they would lose half their bits.
template <typename Block>
static constexpr bool kHasBf16 = kHasPacked<Block> || (kIsFloat<Block> && sizeof(Block) == 2);
// F16 has more bits than one bf16 number holds: its weights become two.
template <typename Block>
static constexpr bool kTwoNumbers = false;
template <>
constexpr bool kTwoNumbers<BlockF16> = true;

template <typename Block>
static inline void panel_to_bf16(const WeightRows& weights, const PanelColumns& panel, std::uint16_t* high,
                                 std::uint16_t* low, std::byte* space) {
  if constexpr (kIsFloat<Block>) {
    floats_to_bf16<Block>(weights, panel, high, low);
  } else {
    packed_to_bf16<Block>(weights, panel, high, space);
  }
}

}  // namespace quarrel::QUARREL_LEVEL

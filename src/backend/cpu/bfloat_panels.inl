// Panels of weights as bf16 numbers, in the order a tile wants: pairs of columns, a row's beside the next's.

namespace quarrel::QUARREL_LEVEL {

static_assert(kPanelRows == kTileRows);

struct ColumnRange {
  std::size_t first, count;  // `first` is a multiple of every type's block
};

// Some columns of the panel that begins at row `begin` of the matrix and has `count` rows.
struct PanelPart {
  std::size_t begin, count;
  ColumnRange columns;
};

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
  Bytes vectors[8];
  unpack_group<Source>(rows, g, vectors);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    const std::size_t part = kParts * static_cast<std::size_t>(g) + static_cast<std::size_t>(i) * kParts / 8;
    const Floats scale = Source::scale(rows, part);
    Floats offset = mul(scale, set(static_cast<float>(-bias)));
    if constexpr (Source::kMinimums) offset = Source::minimum(rows, part);
    const Ints bytes = vectors[i];
    const auto value = [&](Ints byte) { return fma(to_floats(and_ints(byte, 255)), scale, offset); };
    _mm512_store_si512(to + 64 * i, bfloat_pairs(value(bytes), value(shift_ints_right<8>(bytes))));
    _mm512_store_si512(to + 64 * i + 32,
                       bfloat_pairs(value(shift_ints_right<16>(bytes)), value(shift_ints_right<24>(bytes))));
  }
}

// The same matrix from column `columns.first` on, where its rows lie as in the file.
template <typename Block>
static MatmulTask from_column(const MatmulTask& task, const ColumnRange& columns) {
  MatmulTask part = task;
  part.weights += columns.first / Block::kWeights * sizeof(Block);
  part.columns = columns.count;
  return part;
}

template <typename Block>
static void packed_to_bfloats(const MatmulTask& task, const PanelPart& part, std::uint16_t* to, std::byte* space) {
  using Source = Packed<Block>;
  constexpr int kGroups = static_cast<int>(Block::kWeights) / 32;
  const ColumnRange& columns = part.columns;
  const auto* rows = task.packed
                         ? packed_panel<Block>(task, part.begin, part.count, space) + columns.first / Block::kWeights
                         : packed_panel<Block>(from_column<Block>(task, columns), part.begin, part.count, space);
  for (std::size_t done = 0; done < columns.count; done += Block::kWeights, ++rows) {
    QUARREL_UNROLL_GROUPS
    for (int g = 0; g < kGroups; ++g, to += kTileValues) group_to_bfloats<Source>(*rows, g, Source::kBias, to);
  }
}

// Float weights: column by column of the panel, or row by row of the file. `low` gets what `to` leaves of them.
static void floats_to_bfloats(const MatmulTask& task, const PanelPart& part, std::uint16_t* to, std::uint16_t* low) {
  const std::size_t panel = part.begin / kPanelRows * task.columns * kPanelRows * sizeof(std::uint16_t);
  const auto* packed = reinterpret_cast<const std::uint16_t*>(task.weights + panel);
  const auto column = [&](std::size_t k) {
    if (k >= task.columns) return set(0.0f);
    std::uint16_t values[kPanelRows] = {};
    const std::uint16_t* from = values;
    if (task.packed) {
      from = packed + k * kPanelRows;
    } else {
      for (std::size_t r = 0; r < part.count; ++r) {
        std::memcpy(values + r, task.weights + (part.begin + r) * task.row_stride + 2 * k, sizeof(std::uint16_t));
      }
    }
    return task.type == QuantType::f16 ? load_half(from) : load_bfloat(from);
  };
  const std::size_t end = part.columns.first + part.columns.count;
  for (std::size_t k = part.columns.first; k < end; k += 2, to += 32) {
    const Floats even = column(k);
    const Floats odd = column(k + 1);
    _mm512_store_si512(to, bfloat_pairs(even, odd));
    if (low == nullptr) continue;
    _mm512_store_si512(low, bfloat_pairs(sub(even, rounded_to_bfloat(even)), sub(odd, rounded_to_bfloat(odd))));
    low += 32;
  }
  // The last tile's other lines.
  for (std::size_t k = padded(end, 2); k < padded(end, kTileColumns); k += 2, to += 32) {
    _mm512_store_si512(to, _mm512_setzero_si512());
    if (low == nullptr) continue;
    _mm512_store_si512(low, _mm512_setzero_si512());
    low += 32;
  }
}

using ToBfloats = void (*)(const MatmulTask&, const PanelPart& part, std::uint16_t* to, std::byte* space);

template <typename Block>
static constexpr ToBfloats bfloat_unpacking_of() {
  if constexpr (kHasPacked<Block>) return packed_to_bfloats<Block>;
  return nullptr;
}

static ToBfloats bfloat_unpacking(QuantType type) {
  switch (type) {
#define QUARREL_TYPE(type, number, name, Block) \
  case QuantType::type: return bfloat_unpacking_of<Block>();
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
  }
  return nullptr;
}

static bool has_bfloat_kernel(QuantType type) {
  return type == QuantType::f16 || type == QuantType::bf16 || bfloat_unpacking(type) != nullptr;
}

// `low` is null but for F16.
static void unpack_panel(const MatmulTask& task, const PanelPart& part, std::uint16_t* high, std::uint16_t* low,
                         std::byte* space) {
  const ToBfloats unpack = bfloat_unpacking(task.type);
  if (unpack != nullptr) {
    unpack(task, part, high, space);
  } else {
    floats_to_bfloats(task, part, high, low);
  }
}

}  // namespace quarrel::QUARREL_LEVEL

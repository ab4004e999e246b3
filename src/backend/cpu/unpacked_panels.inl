// Panels on their way from a file's rows to a GEMM: packed where they are not, and unpacked where many rows of
// activations need them. An unpacked panel is a packed one (packed.inl) with a byte a weight and F32 scales.

// Before a loop over the groups of a block: everything in it is then known to the compiler. Under a sanitizer that
// would take it minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUARREL_UNROLL_GROUPS _Pragma("GCC unroll 1")
#else
#define QUARREL_UNROLL_GROUPS _Pragma("GCC unroll 8")
#endif

namespace quarrel::QUARREL_LEVEL {

static inline std::size_t smaller(std::size_t a, std::size_t b) { return a < b ? a : b; }

// The same pointer, of which the compiler knows nothing: what it points at is read again instead of kept in registers.
template <typename T>
static inline const T* hidden(const T* pointer) {
  asm volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

// What a type leaves of a group of 32 columns once unpacked. `kMaxByte` stays known, for the dot product's sake.
template <int kColumnsOfScale, bool kMinimums, int kMaximum>
struct Unpacked {
  static constexpr int kScaleColumns = kColumnsOfScale, kMaxByte = kMaximum;
  static constexpr bool kHasMinimum = kMinimums;
  static constexpr std::size_t kScales = 32 / kScaleColumns;  // of a group
  struct PanelBlock {
    float scale[kScales][kPanelRows];
    float minimum[kHasMinimum ? kScales : 1][kPanelRows];
    std::uint8_t bytes[8][kBytes];
  };
  static inline Bytes bytes(const PanelBlock& panel, int /*group*/, int i) { return load_bytes(panel.bytes[i]); }
  static inline Floats scale(const PanelBlock& panel, std::size_t index) { return load(panel.scale[index]); }
  static inline Floats minimum(const PanelBlock& panel, std::size_t index) { return load(panel.minimum[index]); }
};

template <typename Block>
using UnpackedOf = Unpacked<Packed<Block>::kScaleColumns, Packed<Block>::kHasMinimum, Packed<Block>::kMaxByte>;

// Groups of 32 columns in a source's PanelBlock.
template <typename Source>
inline constexpr int kBlockGroups = 1;
template <typename Block>
inline constexpr int kBlockGroups<Packed<Block>> = static_cast<int>(Block::kWeights) / 32;

template <typename Source>
static constexpr bool kUnpacksLong =
    requires(const typename Source::PanelBlock& panel, Bytes (&vectors)[8]) { Source::group(panel, 0, vectors); };

// Columns [32 g, 32 g + 32) of a block.
template <typename Source>
static inline void unpack_group(const typename Source::PanelBlock& panel, int g, Bytes (&vectors)[8]) {
  if constexpr (kUnpacksLong<Source>) {
    Source::group(panel, g, vectors);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) vectors[i] = Source::bytes(panel, g, i);
  }
}

// A panel of `groups` groups of columns.
template <typename Block>
static void unpack_panel(const typename Packed<Block>::PanelBlock* from, std::size_t groups,
                         typename UnpackedOf<Block>::PanelBlock* to) {
  using Source = Packed<Block>;
  constexpr int kGroups = kBlockGroups<Source>;
  constexpr std::size_t kScales = 32 / Source::kScaleColumns;
  for (std::size_t done = 0; done < groups; done += kGroups, ++from) {
    for (int g = 0; g < kGroups; ++g, ++to) {
      Bytes vectors[8];
      unpack_group<Source>(*from, g, vectors);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) store_bytes(to->bytes[i], vectors[i]);
      for (std::size_t s = 0; s < kScales; ++s) {
        store(to->scale[s], Source::scale(*from, kScales * static_cast<std::size_t>(g) + s));
        if constexpr (Source::kHasMinimum)
          store(to->minimum[s], Source::minimum(*from, kScales * static_cast<std::size_t>(g) + s));
      }
    }
  }
}

// The panel of a matrix that begins at weight row `begin`, packed: where it lies, or packed into `space` now.
template <typename Block>
static const typename Packed<Block>::PanelBlock* packed_panel(const WeightRows& weights, std::size_t begin,
                                                              std::size_t count, std::byte* space) {
  using PanelBlock = typename Packed<Block>::PanelBlock;
  if (weights.packed) {
    return reinterpret_cast<const PanelBlock*>(weights.data +
                                               begin / kPanelRows * packed_bytes<Block>(weights.columns));
  }
  pack_rows<Block>({.weight_rows = weights.data + begin * weights.row_stride,
                    .row_stride = weights.row_stride,
                    .count = count,
                    .columns = weights.columns,
                    .out = space});
  return reinterpret_cast<const PanelBlock*>(space);
}

// As many panels as fit the cache together are unpacked, then every tile of activations is multiplied with all of them,
// kPanels at a time: multiply(panels, their weight rows, first row of the tile, its rows, where results go).
template <typename Block, std::size_t kPanels, typename Multiply>
static void for_unpacked_panels(const Int8Gemm& task, const Multiply& multiply) {
  using PanelBlock = typename UnpackedOf<Block>::PanelBlock;
  const WeightRows& weights = task.weights;
  const std::size_t groups = weights.columns / 32;
  const std::size_t fit = kUnpackedBytes / (groups * sizeof(PanelBlock)) / kPanels * kPanels;
  const std::size_t step = (fit < kPanels ? kPanels : fit) * kPanelRows;
  auto* unpacked = reinterpret_cast<PanelBlock*>(task.scratch + padded(packed_bytes<Block>(weights.columns), 64));
  for (std::size_t begin = weights.first; begin < weights.last; begin += step) {
    const std::size_t end = smaller(weights.last, begin + step);
    std::size_t place = 0;
    for (std::size_t panel = begin; panel < end; panel += kPanelRows, ++place) {
      unpack_panel<Block>(packed_panel<Block>(weights, panel, smaller(kPanelRows, end - panel), task.scratch), groups,
                          unpacked + place * groups);
    }
    for (std::size_t row = 0; row < task.rows; row += kInt8TileRows) {
      place = 0;
      for (std::size_t panel = begin; panel < end; panel += kPanels * kPanelRows, place += kPanels) {
        multiply(unpacked + place * groups, smaller(kPanels * kPanelRows, end - panel), row,
                 smaller(kInt8TileRows, task.rows - row),
                 task.out.data + row * task.out.stride + (panel - weights.first));
      }
    }
  }
}

}  // namespace quarrel::QUARREL_LEVEL

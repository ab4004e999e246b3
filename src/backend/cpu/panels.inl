// Panels on their way from a file's rows to a product: packed where they are not, and made plain where many rows of
// activations are to meet them.

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

// What a type leaves of a group of 32 columns once unpacked. `kMost` stays known, for the dot product's sake.
template <int kGroupSize, bool kHasMinimums, int kLargest>
struct Plain {
  static constexpr int kGroup = kGroupSize, kMost = kLargest;
  static constexpr bool kMinimums = kHasMinimums;
  static constexpr std::size_t kParts = 32 / kGroup;
  struct Rows {
    float scale[kParts][kPanelRows];
    float minimum[kMinimums ? kParts : 1][kPanelRows];
    std::uint8_t bytes[8][kBytes];
  };
  static inline Bytes bytes(const Rows& rows, int /*group*/, int i) { return load_bytes(rows.bytes[i]); }
  static inline Floats scale(const Rows& rows, std::size_t part) { return load(rows.scale[part]); }
  static inline Floats minimum(const Rows& rows, std::size_t part) { return load(rows.minimum[part]); }
};

template <typename Block>
using PlainOf = Plain<Packed<Block>::kGroup, Packed<Block>::kMinimums, Packed<Block>::kMost>;

template <typename Source>
struct BlockColumns {
  static constexpr int kColumns = 32;
};
template <typename Block>
struct BlockColumns<Packed<Block>> {
  static constexpr int kColumns = static_cast<int>(Block::kWeights);
};
template <typename Source>
static constexpr int columns_of_block() {
  return BlockColumns<Source>::kColumns;
}

template <typename Source>
static constexpr bool kUnpacksLong =
    requires(const typename Source::Rows& rows, Bytes (&vectors)[8]) { Source::group(rows, 0, vectors); };

// Columns [32 g, 32 g + 32) of a block.
template <typename Source>
static inline void unpack_group(const typename Source::Rows& rows, int g, Bytes (&vectors)[8]) {
  if constexpr (kUnpacksLong<Source>) {
    Source::group(rows, g, vectors);
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) vectors[i] = Source::bytes(rows, g, i);
  }
}

template <typename Block>
static void make_plain(const typename Packed<Block>::Rows* from, std::size_t columns,
                       typename PlainOf<Block>::Rows* to) {
  using Source = Packed<Block>;
  constexpr int kGroups = static_cast<int>(Block::kWeights) / 32;
  constexpr std::size_t kParts = 32 / Source::kGroup;
  for (std::size_t done = 0; done < columns; done += kGroups, ++from) {
    for (int g = 0; g < kGroups; ++g, ++to) {
      Bytes vectors[8];
      unpack_group<Source>(*from, g, vectors);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) store_bytes(to->bytes[i], vectors[i]);
      for (std::size_t part = 0; part < kParts; ++part) {
        store(to->scale[part], Source::scale(*from, kParts * static_cast<std::size_t>(g) + part));
        if constexpr (Source::kMinimums)
          store(to->minimum[part], Source::minimum(*from, kParts * static_cast<std::size_t>(g) + part));
      }
    }
  }
}

// The panel of a matrix that begins at row `begin`, packed: where it lies, or packed into `space` now.
template <typename Block>
static const typename Packed<Block>::Rows* packed_panel(const MatmulTask& task, std::size_t begin, std::size_t count,
                                                        std::byte* space) {
  using Rows = typename Packed<Block>::Rows;
  if (task.packed) {
    return reinterpret_cast<const Rows*>(task.weights + begin / kPanelRows * packed_bytes<Block>(task.columns));
  }
  pack_rows<Block>({.type = task.type,
                    .rows = task.weights + begin * task.row_stride,
                    .row_stride = task.row_stride,
                    .count = count,
                    .columns = task.columns,
                    .out = space});
  return reinterpret_cast<const Rows*>(space);
}

// What makes a panel plain: make(first row, rows, where).
template <typename Block>
static inline auto packed_to_plain(const MatmulTask& task) {
  return [&task](std::size_t begin, std::size_t count, typename PlainOf<Block>::Rows* to) {
    make_plain<Block>(packed_panel<Block>(task, begin, count, task.scratch), task.columns / 32, to);
  };
}
// As many panels as fit the cache together are made plain, then every tile of activations meets all of them, kPanels at
// a time: multiply(panels, rows of weights, first row of the tile, its rows, where results go).
template <typename Source, std::size_t kPanels, typename MakePlain, typename Multiply>
static void for_plain_panels(const MatmulTask& task, std::byte* space, const MakePlain& make,
                             const Multiply& multiply) {
  using Rows = typename Source::Rows;
  const std::size_t columns = task.columns / 32;
  const std::size_t fit = kPlainBytes / (columns * sizeof(Rows)) / kPanels * kPanels;
  const std::size_t step = (fit < kPanels ? kPanels : fit) * kPanelRows;
  auto* plain = reinterpret_cast<Rows*>(space);
  for (std::size_t begin = task.first; begin < task.last; begin += step) {
    const std::size_t end = smaller(task.last, begin + step);
    std::size_t place = 0;
    for (std::size_t panel = begin; panel < end; panel += kPanelRows, ++place) {
      make(panel, smaller(kPanelRows, end - panel), plain + place * columns);
    }
    for (std::size_t row = 0; row < task.rows; row += kDigitRows) {
      place = 0;
      for (std::size_t panel = begin; panel < end; panel += kPanels * kPanelRows, place += kPanels) {
        multiply(plain + place * columns, smaller(kPanels * kPanelRows, end - panel), row,
                 smaller(kDigitRows, task.rows - row), task.out + row * task.out_stride + (panel - task.first));
      }
    }
  }
}

}  // namespace quarrel::QUARREL_LEVEL

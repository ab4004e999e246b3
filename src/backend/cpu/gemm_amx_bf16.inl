// GEMM of prompt rows on AMX: tiles of bf16 numbers. A chunk of panels is unpacked once, rounded to bf16, and stays in
// the second-level cache while all rows of activations are multiplied with it, two rows of tiles by two panels at a
// time. Sums are made in tiles, columns in ascending order; after kSliceColumns of them they rest in the result, bit
// for bit, while the next columns are unpacked. So a row's result does not depend on the tile it was in. F16 weights
// are two bf16 numbers, and so are their activations: three dot products. Generated rows go to the int8 kernels.

namespace quarrel::QUARREL_LEVEL {

static constexpr std::size_t kSliceColumns = 2048;
static constexpr std::size_t kSliceTiles = kSliceColumns / kBf16TileColumns;
static constexpr std::size_t kChunkPanels = 16;  // of kSliceColumns: a megabyte
static constexpr std::size_t kTileSums = kBf16TileRows * kBf16TileRows;

// Lines of the rows that come next, called into the second-level cache a few a step.
struct Ahead {
  const std::uint16_t* first;
  const std::uint16_t* second;
  std::size_t lines;  // of each, a step

  void step() {
    for (std::size_t line = 0; line < lines; ++line, first += kBf16TileColumns, second += kBf16TileColumns) {
      prefetch_far(first);
      prefetch_far(second);
    }
  }
};

// C[4] += A[2] x B[2] over some columns, where the second of each may be missing. Each operand of the next step is
// loaded as soon as its register was read for the last time: tile loads do not run far ahead by themselves.
template <bool kTwoTokens, bool kTwoPanels>
static inline void add_tiles(const std::uint16_t* x, std::size_t x_next, const std::uint16_t* panel,
                             std::size_t panel_next, std::size_t tiles, Ahead& ahead) {
  const auto multiply = [&](bool more) __attribute__((always_inline)) {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTwoPanels) _tile_dpbf16ps(1, 4, 7);
    if (more) _tile_loadd(4, x, 64);
    if constexpr (kTwoTokens) _tile_dpbf16ps(2, 5, 6);
    if (more) _tile_loadd(6, panel, 64);
    if constexpr (kTwoTokens && kTwoPanels) _tile_dpbf16ps(3, 5, 7);
    if constexpr (kTwoPanels) {
      if (more) _tile_loadd(7, panel + panel_next, 64);
    }
    if constexpr (kTwoTokens) {
      if (more) _tile_loadd(5, x + x_next, 64);
    }
  };
  _tile_loadd(4, x, 64);
  _tile_loadd(6, panel, 64);
  if constexpr (kTwoPanels) _tile_loadd(7, panel + panel_next, 64);
  if constexpr (kTwoTokens) _tile_loadd(5, x + x_next, 64);
  for (std::size_t k = 1; k < tiles; ++k) {
    x += kBf16TileValues;
    panel += kBf16TileValues;
    ahead.step();
    multiply(true);
  }
  multiply(false);
}

// Some columns of a chunk's panels, and the sums of two rows of tiles with each panel.
struct Bf16Chunk {
  const std::uint16_t* high;  // [panels][tiles]
  const std::uint16_t* low;   // null: none
  bool pairs;                 // both numbers of each activation count
  std::size_t tiles;
  float* sums;  // [panels][2][kTileSums]
};

// One or two panels of a chunk and one or two rows of tiles, of which `x` are the same columns.
template <bool kTwoTokens, bool kTwoPanels>
static inline void multiply_tiles(const Bf16Chunk& chunk, std::size_t panel, const Bf16Rows& rows, std::size_t x,
                                  bool first, Ahead& ahead) {
  float* sums = chunk.sums + panel * 2 * kTileSums;
  if (first) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, sums, 64);
    if constexpr (kTwoTokens) _tile_loadd(2, sums + kTileSums, 64);
    if constexpr (kTwoPanels) _tile_loadd(1, sums + 2 * kTileSums, 64);
    if constexpr (kTwoTokens && kTwoPanels) _tile_loadd(3, sums + 3 * kTileSums, 64);
  }
  const std::size_t x_next = rows.tiles * kBf16TileValues;
  const std::size_t panel_next = chunk.tiles * kBf16TileValues;
  const auto add = [&](const std::uint16_t* values, const std::uint16_t* panels) {
    add_tiles<kTwoTokens, kTwoPanels>(values + x, x_next, panels + panel * panel_next, panel_next, chunk.tiles, ahead);
  };
  add(rows.high, chunk.high);
  if (chunk.low != nullptr) add(rows.high, chunk.low);
  if (chunk.pairs) add(rows.low, chunk.high);
  _tile_stored(0, sums, 64);
  if constexpr (kTwoTokens) _tile_stored(2, sums + kTileSums, 64);
  if constexpr (kTwoPanels) _tile_stored(1, sums + 2 * kTileSums, 64);
  if constexpr (kTwoTokens && kTwoPanels) _tile_stored(3, sums + 3 * kTileSums, 64);
}

template <bool kTwoTokens>
static void multiply_chunk(const Bf16Chunk& chunk, std::size_t panels, const Bf16Rows& rows, std::size_t x, bool first,
                           bool more_rows) {
  const std::size_t pairs = (panels + 1) / 2;
  const std::size_t next = x + 2 * rows.tiles * kBf16TileValues;
  Ahead ahead{rows.high + next, rows.high + next + rows.tiles * kBf16TileValues,
              more_rows ? (kBf16TileRows + pairs - 1) / pairs : 0};
  std::size_t panel = 0;
  for (; panel + 1 < panels; panel += 2) multiply_tiles<kTwoTokens, true>(chunk, panel, rows, x, first, ahead);
  if (panel < panels) multiply_tiles<kTwoTokens, false>(chunk, panel, rows, x, first, ahead);
}

// The piece of a result that two rows of tiles give with a chunk: rows [first, last) of them, `columns` of the chunk.
struct SumsPlace {
  float* out;
  std::size_t stride;
  std::size_t first, last;
  std::size_t columns;
};

// Calls copy(a panel's place in the result, in the sums, how many) for each.
template <typename Copy>
static inline void for_each_line(const SumsPlace& place, float* sums, Copy copy) {
  for (std::size_t r = place.first; r < place.last; ++r) {
    float* in_sums = sums + r / kBf16TileRows * kTileSums + r % kBf16TileRows * kBf16TileRows;
    for (std::size_t c = 0; c < place.columns; c += kBf16TileRows, in_sums += 2 * kTileSums) {
      copy(place.out + r * place.stride + c, in_sums, smaller(kBf16TileRows, place.columns - c));
    }
  }
}

static void put_sums(const SumsPlace& place, float* sums) {
  for_each_line(place, sums, [](float* out, const float* line, std::size_t count) {
    if (count == kBf16TileRows) {
      store(out, load(line));
    } else {
      std::memcpy(out, line, count * sizeof(float));
    }
  });
}

static void take_sums(const SumsPlace& place, float* sums) {
  for_each_line(place, sums, [](const float* out, float* line, std::size_t count) {
    if (count == kBf16TileRows) {
      store(line, load(out));
    } else {
      std::memcpy(line, out, count * sizeof(float));
    }
  });
}

// Sums, panels, and a packed or unpacked panel on the way.
static std::size_t bf16_scratch_bytes(std::size_t columns) {
  const std::size_t some = smaller(columns, kSliceColumns);
  return kChunkPanels * (2 * kTileSums * sizeof(float) + bf16_tiles(some) * kBf16TileValues * sizeof(std::uint16_t)) +
         int8_groups(some) * (32 * 16 + 4 * 16 * sizeof(float)) + 64;
}

// All rows with weight rows [begin, end), whose columns from `first_column` on are in the chunk.
static void multiply_all_rows(const Bf16Gemm& task, const Bf16Chunk& chunk, std::size_t begin, std::size_t end,
                              std::size_t first_column) {
  const Bf16Rows& rows = *task.x;
  const std::size_t panels = (end - begin + kPanelRows - 1) / kPanelRows;
  for (std::size_t row = task.skipped / kBf16TileRows * kBf16TileRows; row < task.rows; row += 2 * kBf16TileRows) {
    const SumsPlace place{.out = task.out.data + row * task.out.stride + (begin - task.weights.first),
                          .stride = task.out.stride,
                          .first = task.skipped > row ? task.skipped - row : 0,
                          .last = smaller(2 * kBf16TileRows, task.rows - row),
                          .columns = end - begin};
    if (first_column > 0) take_sums(place, chunk.sums);
    // The compiler does not know what tiles load and store.
    asm volatile("" : : : "memory");
    const std::size_t x = rows.tile_row(task.first_row + row) + first_column / kBf16TileColumns * kBf16TileValues;
    const bool more_rows = row + 2 * kBf16TileRows < task.rows;
    if (row + kBf16TileRows < task.rows) {
      multiply_chunk<true>(chunk, panels, rows, x, first_column == 0, more_rows);
    } else {
      multiply_chunk<false>(chunk, panels, rows, x, first_column == 0, more_rows);
    }
    asm volatile("" : : : "memory");
    put_sums(place, chunk.sums);
  }
}

template <typename Block>
static void gemm_bf16(const Bf16Gemm& task) {
  const TileConfig config;
  _tile_loadconfig(&config);
  constexpr bool kTwo = kTwoNumbers<Block>;
  constexpr std::size_t kTogether = kTwo ? kChunkPanels / 2 : kChunkPanels;
  const WeightRows& weights = task.weights;
  const std::size_t most_tiles = smaller(task.x->tiles, kSliceTiles);
  auto* sums = reinterpret_cast<float*>(task.scratch);
  auto* high = reinterpret_cast<std::uint16_t*>(sums + kChunkPanels * 2 * kTileSums);
  std::uint16_t* low = kTwo ? high + kTogether * most_tiles * kBf16TileValues : nullptr;
  auto* space = reinterpret_cast<std::byte*>(high + kChunkPanels * most_tiles * kBf16TileValues);
  for (std::size_t begin = weights.first; begin < weights.last; begin += kTogether * kPanelRows) {
    const std::size_t end = smaller(weights.last, begin + kTogether * kPanelRows);
    for (std::size_t column = 0; column < weights.columns; column += kSliceColumns) {
      const ColumnRange columns{column, smaller(kSliceColumns, weights.columns - column)};
      const std::size_t values = bf16_tiles(columns.count) * kBf16TileValues;
      std::size_t place = 0;
      for (std::size_t at = begin; at < end; at += kPanelRows, place += values) {
        panel_to_bf16<Block>(weights, {at, smaller(kPanelRows, end - at), columns}, high + place,
                             kTwo ? low + place : nullptr, space);
      }
      multiply_all_rows(task, {high, low, task.pairs, values / kBf16TileValues, sums}, begin, end, column);
    }
  }
  _tile_release();
}

static void to_bf16_row(const float* values, std::size_t count, const Bf16Rows& to, std::size_t row, bool with_low) {
  for (std::size_t tile = 0; tile < to.tiles; ++tile) {
    const std::size_t place = to.place(row, tile);
    for (std::size_t i = 0; i < kBf16TileColumns; i += kLanes) {
      const std::size_t k = tile * kBf16TileColumns + i;
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
      const Floats left = sub(v, rounded_to_bf16(v));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.low + place + i),
                          reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(left)));
    }
  }
}

}  // namespace quarrel::QUARREL_LEVEL

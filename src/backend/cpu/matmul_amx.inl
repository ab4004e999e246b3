// Products of prompt rows on AMX: tiles of bf16 numbers. A chunk of panels is unpacked once, rounded to bf16, and stays
// in the second-level cache while all rows of activations meet it, two rows of tiles by two panels at a time. Sums are
// made in tiles, columns in ascending order; after kBlockColumns of them they rest in the result, bit for bit, while
// the next columns are unpacked. So a row's result does not depend on the tile it was in. F16 weights are two bf16
// numbers, and so are the activations that meet them: three products. Generated rows go to the kernels of digits.

namespace quarrel::QUARREL_LEVEL {

static constexpr std::size_t kBlockColumns = 2048;
static constexpr std::size_t kBlockTiles = kBlockColumns / kTileColumns;
static constexpr std::size_t kChunkPanels = 16;  // of kBlockColumns: a megabyte
static constexpr std::size_t kTileSums = kTileRows * kTileRows;

// Lines of the rows that come next, called into the second-level cache a few a step.
struct Ahead {
  const std::uint16_t* first;
  const std::uint16_t* second;
  std::size_t lines;  // of each, a step

  void step() {
    for (std::size_t line = 0; line < lines; ++line, first += kTileColumns, second += kTileColumns) {
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
    x += kTileValues;
    panel += kTileValues;
    ahead.step();
    multiply(true);
  }
  multiply(false);
}

// Some columns of a chunk's panels, and the sums of two rows of tiles with each panel.
struct BfloatChunk {
  const std::uint16_t* high;  // [panels][tiles]
  const std::uint16_t* low;   // null: none
  bool pairs;                 // both numbers of each activation count
  std::size_t tiles;
  float* sums;  // [panels][2][kTileSums]
};

// One or two panels of a chunk and one or two rows of tiles, of which `x` are the same columns.
template <bool kTwoTokens, bool kTwoPanels>
static inline void multiply_tiles(const BfloatChunk& chunk, std::size_t panel, const BfloatRows& rows, std::size_t x,
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
  const std::size_t x_next = rows.tiles * kTileValues;
  const std::size_t panel_next = chunk.tiles * kTileValues;
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
static void multiply_chunk(const BfloatChunk& chunk, std::size_t panels, const BfloatRows& rows, std::size_t x,
                           bool first, bool more_rows) {
  const std::size_t pairs = (panels + 1) / 2;
  const std::size_t next = x + 2 * rows.tiles * kTileValues;
  Ahead ahead{rows.high + next, rows.high + next + rows.tiles * kTileValues,
              more_rows ? (kTileRows + pairs - 1) / pairs : 0};
  std::size_t panel = 0;
  for (; panel + 1 < panels; panel += 2) multiply_tiles<kTwoTokens, true>(chunk, panel, rows, x, first, ahead);
  if (panel < panels) multiply_tiles<kTwoTokens, false>(chunk, panel, rows, x, first, ahead);
}

// The part of a result that two rows of tiles give with a chunk: rows [first, last) of them, `columns` of the chunk.
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
    float* in_sums = sums + r / kTileRows * kTileSums + r % kTileRows * kTileRows;
    for (std::size_t c = 0; c < place.columns; c += kTileRows, in_sums += 2 * kTileSums) {
      copy(place.out + r * place.stride + c, in_sums, smaller(kTileRows, place.columns - c));
    }
  }
}

static void put_sums(const SumsPlace& place, float* sums) {
  for_each_line(place, sums, [](float* out, const float* line, std::size_t count) {
    if (count == kTileRows) {
      store(out, load(line));
    } else {
      std::memcpy(out, line, count * sizeof(float));
    }
  });
}

static void take_sums(const SumsPlace& place, float* sums) {
  for_each_line(place, sums, [](const float* out, float* line, std::size_t count) {
    if (count == kTileRows) {
      store(line, load(out));
    } else {
      std::memcpy(line, out, count * sizeof(float));
    }
  });
}

// Sums, panels, and a packed or plain panel on the way.
static std::size_t bfloat_scratch_bytes(std::size_t columns) {
  const std::size_t some = smaller(columns, kBlockColumns);
  return kChunkPanels * (2 * kTileSums * sizeof(float) + bfloat_tiles(some) * kTileValues * sizeof(std::uint16_t)) +
         digit_columns(some) * (32 * 16 + 4 * 16 * sizeof(float)) + 64;
}

// All rows with the weights of rows [begin, end), whose columns `columns` are in the chunk.
static void multiply_all_rows(const MatmulTask& task, const BfloatChunk& chunk, std::size_t begin, std::size_t end,
                              std::size_t first_column) {
  const BfloatRows& rows = *task.bfloats;
  const std::size_t panels = (end - begin + kPanelRows - 1) / kPanelRows;
  for (std::size_t row = task.digit_rows / kTileRows * kTileRows; row < task.rows; row += 2 * kTileRows) {
    const SumsPlace place{.out = task.out + row * task.out_stride + (begin - task.first),
                          .stride = task.out_stride,
                          .first = task.digit_rows > row ? task.digit_rows - row : 0,
                          .last = smaller(2 * kTileRows, task.rows - row),
                          .columns = end - begin};
    if (first_column > 0) take_sums(place, chunk.sums);
    // The compiler does not know what tiles load and store.
    asm volatile("" : : : "memory");
    const std::size_t x = rows.tile_row(task.first_bfloat + row) + first_column / kTileColumns * kTileValues;
    const bool more_rows = row + 2 * kTileRows < task.rows;
    if (row + kTileRows < task.rows) {
      multiply_chunk<true>(chunk, panels, rows, x, first_column == 0, more_rows);
    } else {
      multiply_chunk<false>(chunk, panels, rows, x, first_column == 0, more_rows);
    }
    asm volatile("" : : : "memory");
    put_sums(place, chunk.sums);
  }
}

static void matmul_bfloats(const MatmulTask& task) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const bool two = task.type == QuantType::f16;
  const std::size_t together = two ? kChunkPanels / 2 : kChunkPanels;
  const std::size_t most_tiles = smaller(task.bfloats->tiles, kBlockTiles);
  auto* sums = reinterpret_cast<float*>(task.scratch);
  auto* high = reinterpret_cast<std::uint16_t*>(sums + kChunkPanels * 2 * kTileSums);
  std::uint16_t* low = two ? high + together * most_tiles * kTileValues : nullptr;
  auto* space = reinterpret_cast<std::byte*>(high + kChunkPanels * most_tiles * kTileValues);
  for (std::size_t begin = task.first; begin < task.last; begin += together * kPanelRows) {
    const std::size_t end = smaller(task.last, begin + together * kPanelRows);
    for (std::size_t column = 0; column < task.columns; column += kBlockColumns) {
      const ColumnRange columns{column, smaller(kBlockColumns, task.columns - column)};
      const std::size_t values = bfloat_tiles(columns.count) * kTileValues;
      std::size_t place = 0;
      for (std::size_t at = begin; at < end; at += kPanelRows, place += values) {
        unpack_panel(task, {at, smaller(kPanelRows, end - at), columns}, high + place, two ? low + place : nullptr,
                     space);
      }
      multiply_all_rows(task, {high, low, task.bfloat_pairs, values / kTileValues, sums}, begin, end, column);
    }
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

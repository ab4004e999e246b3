// GEMM with int8 activations of many rows on AMX: tiles of int8. A tile's integer sums are exact, so they are what the
// vector kernels of gemm_int8.inl would have found; from there on the same operations follow in the same order, and the
// bits are the same. A tile holds the columns of one scale, 32 or 16: its sums must leave it for every scale, which is
// why tiles are worth it for many rows only.

namespace quarrel::QUARREL_LEVEL {

// Tiles of activations (kInt8TileRows by the columns of a scale), of weights, and of sums.
struct Int8TileConfig : TileConfig {
  explicit Int8TileConfig(std::size_t scale_columns) {
    for (std::size_t tile = 0; tile < 6; ++tile) rows[tile] = kInt8TileRows;
    for (std::size_t tile = 4; tile < 6; ++tile) row_bytes[tile] = static_cast<std::uint16_t>(scale_columns);
    for (std::size_t tile = 6; tile < 8; ++tile) rows[tile] = static_cast<std::uint8_t>(scale_columns / 4);
  }
};

// Sums of the high and of the low parts of a tile's rows with one or two panels.
struct alignas(64) Int8Sums {
  std::int32_t high[2][kInt8TileRows][kPanelRows];
  std::int32_t low[2][kInt8TileRows][kPanelRows];
};

// The s-th scale's columns of a group.
template <typename Source, bool kTwoPanels>
static inline void multiply_scale(const typename Source::PanelBlock* first, const typename Source::PanelBlock* second,
                                  const Int8Group& x, std::size_t at, std::size_t s, Int8Sums& sums) {
  constexpr std::size_t kVectors = Source::kScaleColumns / 4;
  _tile_loadd(4, x.high[at] + Source::kScaleColumns * s, kGroupColumns);
  _tile_loadd(5, x.low[at] + Source::kScaleColumns * s, kGroupColumns);
  _tile_loadd(6, first->bytes[kVectors * s], 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_dpbsud(0, 4, 6);
  _tile_dpbsud(1, 5, 6);
  if constexpr (kTwoPanels) {
    _tile_loadd(7, second->bytes[kVectors * s], 64);
    _tile_zero(2);
    _tile_zero(3);
    _tile_dpbsud(2, 4, 7);
    _tile_dpbsud(3, 5, 7);
  }
  _tile_stored(0, sums.high[0], 64);
  _tile_stored(1, sums.low[0], 64);
  if constexpr (kTwoPanels) {
    _tile_stored(2, sums.high[1], 64);
    _tile_stored(3, sums.low[1], 64);
  }
}

// What the biases of the weights take off the sums of each row.
static inline void begin_sums(const Int8Group& x, std::size_t at, std::size_t s, bool whole, int bias,
                              std::int32_t* offsets) {
  Ints sums = load_ints(x.both_sums[s] + at);
  if (whole) sums = add_ints(sums, load_ints(x.both_sums[1] + at));
  store_ints(offsets, multiply_ints(sums, broadcast(-bias)));
}

template <typename Source>
static inline void add_sums(const typename Source::PanelBlock& panel, const Int8Group& x, std::size_t at, std::size_t s,
                            const Int8Sums& sums, std::size_t which, const std::int32_t* offsets,
                            Floats (&total)[kInt8TileRows]) {
  const Floats scale = mul(Source::scale(panel, s), set(1.0f / 256.0f));
  const float* scales = x.scale + at;
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kInt8TileRows; ++t) {
    Ints acc = add_ints(shift_ints_left<8>(load_ints(sums.high[which][t])), load_ints(sums.low[which][t]));
    if (offsets != nullptr) acc = add_ints(acc, broadcast(offsets[t]));
    total[t] = fma(to_floats(acc), mul(scale, set(scales[t])), total[t]);
  }
  if constexpr (Source::kHasMinimum) {
    const Floats minimum = Source::minimum(panel, s);
    const float* values = (Source::kScales == 1 ? x.value_sum : x.value_sums[s]) + at;
#pragma GCC unroll 12
    for (std::size_t t = 0; t < kInt8TileRows; ++t) total[t] = fma(minimum, set(values[t]), total[t]);
  }
}

// One or two panels and the rows of a tile from place `at` on; rows behind the last that is wanted are computed from
// whatever lies there, and dropped. Sums are fetched one scale late, when their tiles have long been stored.
template <typename Source, int kBias, bool kTwoPanels>
[[gnu::noinline]] static void multiply_tile(const typename Source::PanelBlock* first, std::size_t groups,
                                            const Int8Group* x, std::size_t at, std::size_t rows, float* out,
                                            std::size_t stride, std::size_t count) {
  constexpr std::size_t kScales = Source::kScales;
  const typename Source::PanelBlock* second = first + groups;
  Int8Sums sums[2];
  alignas(64) std::int32_t offsets[kPanelRows];
  Floats total[2][kInt8TileRows];
#pragma GCC unroll 24
  for (std::size_t t = 0; t < 2 * kInt8TileRows; ++t) total[t / kInt8TileRows][t % kInt8TileRows] = set(0.0f);
  const auto finish = [&](std::size_t unit) __attribute__((always_inline)) {
    const std::size_t g = unit / kScales;
    const std::size_t s = unit % kScales;
    if constexpr (kBias != 0) {
      begin_sums(x[g], at, s, kScales == 1, kBias, offsets);
      asm volatile("" : : : "memory");
    }
    const std::int32_t* taken = kBias == 0 ? nullptr : offsets;
    add_sums<Source>(first[g], x[g], at, s, sums[unit % 2], 0, taken, total[0]);
    if constexpr (kTwoPanels) {
      // Numbers of the rows are repeated from memory again: kept, they would drive the totals out of the registers.
      add_sums<Source>(second[g], *hidden(x + g), at, s, sums[unit % 2], 1, kBias == 0 ? nullptr : hidden(taken),
                       total[1]);
    }
  };
  const std::size_t units = groups * kScales;
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::size_t g = unit / kScales;
    multiply_scale<Source, kTwoPanels>(first + g, second + g, x[g], at, unit % kScales, sums[unit % 2]);
    if (unit > 0) finish(unit - 1);
  }
  asm volatile("" : : : "memory");
  finish(units - 1);
  const auto put = [&](const Floats& lanes, std::size_t t, std::size_t panel) __attribute__((always_inline)) {
    if (t >= rows || count <= panel * kPanelRows) return;
    float* to = out + t * stride + panel * kPanelRows;
    const std::size_t left = smaller(kPanelRows, count - panel * kPanelRows);
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << left) - 1u), lanes);
  };
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kInt8TileRows; ++t) {
    put(total[0][t], t, 0);
    if constexpr (kTwoPanels) put(total[1][t], t, 1);
  }
}

template <typename Block>
static void gemm_int8_amx(const Int8Gemm& task) {
  using Source = UnpackedOf<Block>;
  constexpr int kBias = Packed<Block>::kBias;
  const std::size_t groups = task.weights.columns / 32;
  const Int8TileConfig config(Source::kScaleColumns);
  _tile_loadconfig(&config);
  for_unpacked_panels<Block, 2>(task, [&](const typename Source::PanelBlock* panels, std::size_t count, std::size_t row,
                                          std::size_t rows, float* out) {
    for (std::size_t done = 0; done < rows;) {
      const std::size_t first = task.first_row + row + done;
      const std::size_t at = first % kInt8TileRows;
      const std::size_t some = smaller(rows - done, kInt8TileRows - at);
      const auto run = [&]<bool kTwoPanels>() {
        multiply_tile<Source, kBias, kTwoPanels>(panels, groups, task.x->tile(first), at, some,
                                                 out + done * task.out.stride, task.out.stride, count);
      };
      if (count > kPanelRows) {
        run.template operator()<true>();
      } else {
        run.template operator()<false>();
      }
      done += some;
    }
  });
  _tile_release();
}

// A packed panel and unpacked ones, as gemm_scratch_bytes has them, but two at least.
static std::size_t int8_scratch_bytes(std::size_t columns) {
  const std::size_t groups = int8_groups(columns);
  const std::size_t two = 2 * groups * (32 * 16 + 4 * 16 * sizeof(float));
  return groups * 40 * 16 + 128 + (two > kUnpackedBytes ? two : kUnpackedBytes);
}

}  // namespace quarrel::QUARREL_LEVEL

// Products of many rows in digits on AMX: tiles of int8. A tile's integer sums are exact, so they are what the vector
// kernels of matmul.inl would have found; from there on the same operations follow in the same order, and the bits are
// the same. A tile holds the columns of one scale, 32 or 16: its sums must leave it for every scale, which is why tiles
// are worth it for many rows only.

namespace quarrel::QUARREL_LEVEL {

// Tiles of digits (kDigitRows by the columns of a scale), of weights, and of sums.
struct DigitTileConfig : TileConfig {
  explicit DigitTileConfig(std::size_t group_columns) {
    for (std::size_t tile = 0; tile < 6; ++tile) rows[tile] = kDigitRows;
    for (std::size_t tile = 4; tile < 6; ++tile) row_bytes[tile] = static_cast<std::uint16_t>(group_columns);
    for (std::size_t tile = 6; tile < 8; ++tile) rows[tile] = static_cast<std::uint8_t>(group_columns / 4);
  }
};

// Sums of the high and of the low digits of a tile's rows with one or two panels.
struct alignas(64) DigitSums {
  std::int32_t high[2][kDigitRows][kPanelRows];
  std::int32_t low[2][kDigitRows][kPanelRows];
};

// The `part`-th scale's columns of a group.
template <typename Source, bool kTwoPanels>
static inline void multiply_digits(const typename Source::Rows* first, const typename Source::Rows* second,
                                   const DigitGroup& x, std::size_t slot, std::size_t part, DigitSums& sums) {
  constexpr std::size_t kVectors = Source::kGroup / 4;
  _tile_loadd(4, x.high[slot] + Source::kGroup * part, kGroupColumns);
  _tile_loadd(5, x.low[slot] + Source::kGroup * part, kGroupColumns);
  _tile_loadd(6, first->bytes[kVectors * part], 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_dpbsud(0, 4, 6);
  _tile_dpbsud(1, 5, 6);
  if constexpr (kTwoPanels) {
    _tile_loadd(7, second->bytes[kVectors * part], 64);
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
static inline void begin_sums(const DigitGroup& x, std::size_t slot, std::size_t part, bool whole, int bias,
                              std::int32_t* offsets) {
  Ints sums = load_ints(x.both_sums[part] + slot);
  if (whole) sums = add_ints(sums, load_ints(x.both_sums[1] + slot));
  store_ints(offsets, multiply_ints(sums, broadcast(-bias)));
}

template <typename Source>
static inline void add_sums(const typename Source::Rows& rows, const DigitGroup& x, std::size_t slot, std::size_t part,
                            const DigitSums& sums, std::size_t panel, const std::int32_t* offsets,
                            Floats (&total)[kDigitRows]) {
  const Floats scale = mul(Source::scale(rows, part), set(1.0f / 256.0f));
  const float* scales = x.scale + slot;
#pragma GCC unroll 12
  for (std::size_t t = 0; t < kDigitRows; ++t) {
    Ints acc = add_ints(shift_ints_left<8>(load_ints(sums.high[panel][t])), load_ints(sums.low[panel][t]));
    if (offsets != nullptr) acc = add_ints(acc, broadcast(offsets[t]));
    total[t] = fma(to_floats(acc), mul(scale, set(scales[t])), total[t]);
  }
  if constexpr (Source::kMinimums) {
    const Floats minimum = Source::minimum(rows, part);
    const float* values = (Source::kParts == 1 ? x.value_sum : x.value_sums[part]) + slot;
#pragma GCC unroll 12
    for (std::size_t t = 0; t < kDigitRows; ++t) total[t] = fma(minimum, set(values[t]), total[t]);
  }
}

// One or two panels and the rows of a tile from place `slot` on; rows behind the last that is wanted are computed from
// whatever lies there, and dropped. Sums are fetched one scale late, when their tiles have long been stored.
template <typename Source, int kBias, bool kTwoPanels>
[[gnu::noinline]] static void multiply_digit_tile(const typename Source::Rows* first, std::size_t columns,
                                                  const DigitGroup* x, std::size_t slot, std::size_t rows, float* out,
                                                  std::size_t stride, std::size_t count) {
  constexpr std::size_t kParts = Source::kParts;
  const typename Source::Rows* second = first + columns;
  DigitSums sums[2];
  alignas(64) std::int32_t offsets[kPanelRows];
  Floats total[2][kDigitRows];
#pragma GCC unroll 24
  for (std::size_t t = 0; t < 2 * kDigitRows; ++t) total[t / kDigitRows][t % kDigitRows] = set(0.0f);
  const auto finish = [&](std::size_t unit) __attribute__((always_inline)) {
    const std::size_t g = unit / kParts;
    const std::size_t part = unit % kParts;
    if constexpr (kBias != 0) {
      begin_sums(x[g], slot, part, kParts == 1, kBias, offsets);
      asm volatile("" : : : "memory");
    }
    const std::int32_t* taken = kBias == 0 ? nullptr : offsets;
    add_sums<Source>(first[g], x[g], slot, part, sums[unit % 2], 0, taken, total[0]);
    if constexpr (kTwoPanels) {
      // Numbers of the rows are repeated from memory again: kept, they would drive the totals out of the registers.
      add_sums<Source>(second[g], *hidden(x + g), slot, part, sums[unit % 2], 1, kBias == 0 ? nullptr : hidden(taken),
                       total[1]);
    }
  };
  const std::size_t units = columns * kParts;
  for (std::size_t unit = 0; unit < units; ++unit) {
    const std::size_t g = unit / kParts;
    multiply_digits<Source, kTwoPanels>(first + g, second + g, x[g], slot, unit % kParts, sums[unit % 2]);
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
  for (std::size_t t = 0; t < kDigitRows; ++t) {
    put(total[0][t], t, 0);
    if constexpr (kTwoPanels) put(total[1][t], t, 1);
  }
}

template <typename Source, int kBias>
static inline auto multiply_in_tiles(const MatmulTask& task) {
  return [&task](const typename Source::Rows* plain, std::size_t count, std::size_t row, std::size_t rows, float* out) {
    const std::size_t columns = task.columns / 32;
    for (std::size_t done = 0; done < rows;) {
      const std::size_t at = task.first_row + row + done;
      const std::size_t slot = at % kDigitRows;
      const std::size_t some = smaller(rows - done, kDigitRows - slot);
      const auto run = [&]<bool kTwoPanels>() {
        multiply_digit_tile<Source, kBias, kTwoPanels>(plain, columns, task.digits->tile(at), slot, some,
                                                       out + done * task.out_stride, task.out_stride, count);
      };
      if (count > kPanelRows) {
        run.template operator()<true>();
      } else {
        run.template operator()<false>();
      }
      done += some;
    }
  };
}

template <typename Block>
static void packed_digit_tiles(const MatmulTask& task) {
  using Source = PlainOf<Block>;
  const DigitTileConfig config(Source::kGroup);
  _tile_loadconfig(&config);
  std::byte* space = task.scratch + padded(packed_bytes<Block>(task.columns), 64);
  for_plain_panels<Source, 2>(task, space, packed_to_plain<Block>(task),
                              multiply_in_tiles<Source, Packed<Block>::kBias>(task));
  _tile_release();
}

// A packed panel and plain ones, as matmul_scratch_bytes has them, but two at least.
static std::size_t digit_tile_scratch_bytes(std::size_t columns) {
  const std::size_t groups = digit_columns(columns);
  const std::size_t two = 2 * groups * (32 * 16 + 4 * 16 * sizeof(float));
  return groups * 40 * 16 + 128 + (two > kPlainBytes ? two : kPlainBytes);
}

template <typename Block>
static void run_digit_tiles(const MatmulTask& task) {
  if constexpr (kHasPacked<Block>) return packed_digit_tiles<Block>(task);
  __builtin_trap();  // a type without packed panels has no int8 activations: nobody may come here with one
}

static void matmul_digit_tiles(const MatmulTask& task) {
  switch (task.type) {
#define QUARREL_TYPE(type, number, name, Block) \
  case QuantType::type: return run_digit_tiles<Block>(task);
    QUARREL_WEIGHT_TYPES(QUARREL_TYPE)
#undef QUARREL_TYPE
  }
  __builtin_trap();
}

}  // namespace quarrel::QUARREL_LEVEL

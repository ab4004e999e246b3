// Rows of activations as int8 with a scale every 32 values, in a hi/lo split: value ≈ scale * (high + low / 256). The
// low part is worth its time only in outlier groups: a group whose largest value stands out of its row has one, the
// others have zeros there. Which groups those are depends on the row alone, so a row's bits never depend on its
// neighbours.
//
// Twelve rows make a tile, and a tile's groups lie one after the other: a GEMM reads one stream, whatever the number of
// columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

inline constexpr std::size_t kGroupColumns = 32;
inline constexpr std::size_t kInt8TileRows = 12;  // of a tile

// 32 columns of a tile's rows.
struct alignas(64) Int8Group {
  std::int8_t high[kInt8TileRows][kGroupColumns];
  std::int8_t low[kInt8TileRows][kGroupColumns];
  float scale[kInt8TileRows];
  float value_sums[2][kInt8TileRows];  // scale * (high + low / 256), summed over each half of the columns
  float value_sum[kInt8TileRows];      // and over all of them
  std::int32_t high_sums[2][kInt8TileRows];
  std::int32_t both_sums[2][kInt8TileRows];  // 256 * high + low
  std::uint8_t has_low[16];                  // of each row: whether any of `low` is not zero
};

// Where the values of row t lie from those of row 0 on, if rows from kFirst on mean the low parts of rows from 0 on.
template <std::size_t kFirst>
static constexpr std::size_t int8_offset(std::size_t t) {
  return kGroupColumns * (t < kFirst ? t : kInt8TileRows + t - kFirst);
}

struct Int8Rows {
  Int8Group* groups = nullptr;  // [tiles][columns / 32]
  std::size_t columns = 0;      // in groups

  Int8Group* tile(std::size_t row) const { return groups + row / kInt8TileRows * columns; }
};

static inline std::size_t int8_tiles(std::size_t rows) { return (rows + kInt8TileRows - 1) / kInt8TileRows; }

static inline std::size_t int8_groups(std::size_t columns) { return (columns + kGroupColumns - 1) / kGroupColumns; }

static inline std::size_t int8_bytes(std::size_t rows, std::size_t columns) {
  return int8_tiles(rows) * int8_groups(columns) * sizeof(Int8Group);
}

static inline Int8Rows lay_out_int8(std::byte* memory, std::size_t columns) {
  return {.groups = reinterpret_cast<Int8Group*>(memory), .columns = int8_groups(columns)};
}

// A row, copied to a place in another tile.
static inline void copy_int8_row(const Int8Rows& from, std::size_t row, const Int8Rows& to, std::size_t place) {
  const Int8Group* source = from.tile(row);
  Int8Group* target = to.tile(place);
  const std::size_t r = row % kInt8TileRows;
  const std::size_t p = place % kInt8TileRows;
  for (std::size_t g = 0; g < from.columns; ++g, ++source, ++target) {
    for (std::size_t i = 0; i < kGroupColumns; ++i) target->high[p][i] = source->high[r][i];
    for (std::size_t i = 0; i < kGroupColumns; ++i) target->low[p][i] = source->low[r][i];
    target->scale[p] = source->scale[r];
    target->value_sum[p] = source->value_sum[r];
    for (std::size_t half = 0; half < 2; ++half) {
      target->value_sums[half][p] = source->value_sums[half][r];
      target->high_sums[half][p] = source->high_sums[half][r];
      target->both_sums[half][p] = source->both_sums[half][r];
    }
    target->has_low[p] = source->has_low[r];
  }
}

}  // namespace quarrel

// Rows of activations as bf16 numbers, for machines whose tiles multiply those: value ≈ high, or high + low where
// weights have more digits than one bf16 number holds. Sixteen rows and 32 columns make a tile, and the tiles of
// sixteen rows lie one after the other, so that a product reads one stream. Nothing comes of a tile's rows that nobody
// has written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

inline constexpr std::size_t kTileRows = 16;
inline constexpr std::size_t kTileColumns = 32;
inline constexpr std::size_t kTileValues = kTileRows * kTileColumns;

struct BfloatRows {
  std::uint16_t* high = nullptr;
  std::uint16_t* low = nullptr;  // the same; null: not needed
  std::size_t tiles = 0;         // of a row; columns behind the last are zeros

  // Where the tiles of 16 rows begin, and how far from there a row's columns of tile `tile` lie.
  std::size_t tile_row(std::size_t row) const { return row / kTileRows * tiles * kTileValues; }
  std::size_t place(std::size_t row, std::size_t tile) const {
    return tile_row(row) + tile * kTileValues + row % kTileRows * kTileColumns;
  }
};

static inline std::size_t bfloat_tiles(std::size_t columns) { return (columns + kTileColumns - 1) / kTileColumns; }

// Of one plane, in values: whole tiles, and one more row of them, because tiles are read in pairs.
static inline std::size_t bfloat_plane(std::size_t rows, std::size_t columns) {
  return ((rows + kTileRows - 1) / kTileRows + 1) * bfloat_tiles(columns) * kTileValues;
}

static inline std::size_t bfloat_bytes(std::size_t rows, std::size_t columns) {
  return 2 * bfloat_plane(rows, columns) * sizeof(std::uint16_t);
}

static inline BfloatRows lay_out_bfloats(std::byte* memory, std::size_t rows, std::size_t columns) {
  auto* high = reinterpret_cast<std::uint16_t*>(memory);
  return {.high = high, .low = high + bfloat_plane(rows, columns), .tiles = bfloat_tiles(columns)};
}

static inline void copy_bfloats(const BfloatRows& from, std::size_t row, const BfloatRows& to, std::size_t place) {
  for (std::size_t tile = 0; tile < from.tiles; ++tile) {
    const std::size_t source = from.place(row, tile);
    const std::size_t target = to.place(place, tile);
    for (std::size_t k = 0; k < kTileColumns; ++k) {
      to.high[target + k] = from.high[source + k];
      to.low[target + k] = from.low[source + k];
    }
  }
}

}  // namespace quarrel

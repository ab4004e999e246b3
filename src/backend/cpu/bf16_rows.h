// Rows of activations as bf16 numbers, for AMX tiles, which multiply those: value ≈ high, or high + low where
// weights have more bits than one bf16 number holds. Sixteen rows and 32 columns make a tile, and the tiles of
// sixteen rows lie one after the other, so that a GEMM reads one stream. Nothing comes of a tile's rows that nobody
// has written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

inline constexpr std::size_t kBf16TileRows = 16;
inline constexpr std::size_t kBf16TileColumns = 32;
inline constexpr std::size_t kBf16TileValues = kBf16TileRows * kBf16TileColumns;

struct Bf16Rows {
  std::uint16_t* high = nullptr;
  std::uint16_t* low = nullptr;  // the same; null: not needed
  std::size_t tiles = 0;         // of a row; columns behind the last are zeros

  // Where the tiles of 16 rows begin, and how far from there a row's columns of tile `tile` lie.
  std::size_t tile_row(std::size_t row) const { return row / kBf16TileRows * tiles * kBf16TileValues; }
  std::size_t place(std::size_t row, std::size_t tile) const {
    return tile_row(row) + tile * kBf16TileValues + row % kBf16TileRows * kBf16TileColumns;
  }
};

static inline std::size_t bf16_tiles(std::size_t columns) {
  return (columns + kBf16TileColumns - 1) / kBf16TileColumns;
}

// Of one plane, in values: whole tiles, and one more row of them, because tiles are read in pairs.
static inline std::size_t bf16_plane(std::size_t rows, std::size_t columns) {
  return ((rows + kBf16TileRows - 1) / kBf16TileRows + 1) * bf16_tiles(columns) * kBf16TileValues;
}

static inline std::size_t bf16_bytes(std::size_t rows, std::size_t columns) {
  return 2 * bf16_plane(rows, columns) * sizeof(std::uint16_t);
}

static inline Bf16Rows lay_out_bf16(std::byte* memory, std::size_t rows, std::size_t columns) {
  auto* high = reinterpret_cast<std::uint16_t*>(memory);
  return {.high = high, .low = high + bf16_plane(rows, columns), .tiles = bf16_tiles(columns)};
}

static inline void copy_bf16_row(const Bf16Rows& from, std::size_t row, const Bf16Rows& to, std::size_t place) {
  for (std::size_t tile = 0; tile < from.tiles; ++tile) {
    const std::size_t source = from.place(row, tile);
    const std::size_t target = to.place(place, tile);
    for (std::size_t k = 0; k < kBf16TileColumns; ++k) {
      to.high[target + k] = from.high[source + k];
      to.low[target + k] = from.low[source + k];
    }
  }
}

}  // namespace quarrel

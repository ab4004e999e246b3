// Rows of activations as bf16 numbers, for machines whose tiles multiply those: value ≈ high, or high + low where
// weights have more digits than one bf16 number holds. Products read whole tiles of rows: memory behind the last row
// must be readable, though nothing comes of what is there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

inline constexpr std::size_t kTileRows = 16;  // of a tile, and how many rows must be readable behind the last

struct BfloatRows {
  std::uint16_t* high = nullptr;  // [rows][stride]
  std::uint16_t* low = nullptr;   // the same; null: not needed
  std::size_t stride = 0;         // columns, padded with zeros to whole tiles
};

static inline std::size_t bfloat_stride(std::size_t columns) { return (columns + 31) / 32 * 32; }

static inline std::size_t bfloat_bytes(std::size_t rows, std::size_t columns) {
  return 2 * (rows + 2 * kTileRows) * bfloat_stride(columns) * sizeof(std::uint16_t);
}

static inline void copy_bfloats(const BfloatRows& from, std::size_t row, const BfloatRows& to, std::size_t place) {
  for (std::size_t k = 0; k < from.stride; ++k) to.high[place * to.stride + k] = from.high[row * from.stride + k];
  for (std::size_t k = 0; k < from.stride; ++k) to.low[place * to.stride + k] = from.low[row * from.stride + k];
}

static inline BfloatRows lay_out_bfloats(std::byte* memory, std::size_t rows, std::size_t columns) {
  auto* high = reinterpret_cast<std::uint16_t*>(memory);
  const std::size_t stride = bfloat_stride(columns);
  return {.high = high, .low = high + (rows + 2 * kTileRows) * stride, .stride = stride};
}

}  // namespace quarrel

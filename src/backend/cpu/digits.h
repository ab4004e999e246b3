// Rows of activations as int8 digits with a scale every 32 values: value ≈ scale * (high + low / 256). The second digit
// is worth its time only where it can be heard: a group whose largest value stands out of its row has one, the others
// have zeros there. Which groups those are depends on the row alone, so a row's bits never depend on its neighbours.
//
// Twelve rows make a tile, and a tile's groups lie one after the other: the product reads one stream, whatever the
// number of columns.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quarrel {

inline constexpr std::size_t kGroupColumns = 32;
inline constexpr std::size_t kDigitRows = 12;  // of a tile

// 32 columns of a tile's rows.
struct alignas(64) DigitGroup {
  std::int8_t high[kDigitRows][kGroupColumns];
  std::int8_t low[kDigitRows][kGroupColumns];
  float scale[kDigitRows];
  float value_sums[2][kDigitRows];  // scale * (high + low / 256), summed over each half of the columns
  float value_sum[kDigitRows];      // and over all of them
  std::int32_t high_sums[2][kDigitRows];
  std::int32_t both_sums[2][kDigitRows];  // 256 * high + low
  std::uint8_t has_low[16];               // of each row: whether any of `low` is not zero
};

// Where the digits of row t lie from those of row 0 on, if rows from kFirst on mean the second digits of rows from 0
// on.
template <std::size_t kFirst>
static constexpr std::size_t digits_at(std::size_t t) {
  return kGroupColumns * (t < kFirst ? t : kDigitRows + t - kFirst);
}

struct DigitRows {
  DigitGroup* groups = nullptr;  // [tiles][columns / 32]
  std::size_t columns = 0;       // in groups

  DigitGroup* tile(std::size_t row) const { return groups + row / kDigitRows * columns; }
};

static inline std::size_t digit_tiles(std::size_t rows) { return (rows + kDigitRows - 1) / kDigitRows; }

static inline std::size_t digit_columns(std::size_t columns) { return (columns + kGroupColumns - 1) / kGroupColumns; }

static inline std::size_t digit_bytes(std::size_t rows, std::size_t columns) {
  return digit_tiles(rows) * digit_columns(columns) * sizeof(DigitGroup);
}

static inline DigitRows lay_out_digits(std::byte* memory, std::size_t columns) {
  return {.groups = reinterpret_cast<DigitGroup*>(memory), .columns = digit_columns(columns)};
}

// A row's digits, copied to a place in another tile.
static inline void copy_digits(const DigitRows& from, std::size_t row, const DigitRows& to, std::size_t place) {
  const DigitGroup* source = from.tile(row);
  DigitGroup* target = to.tile(place);
  const std::size_t r = row % kDigitRows;
  const std::size_t p = place % kDigitRows;
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

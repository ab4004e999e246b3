// How the digits of some rows of activations lie in one piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace quarrel {

// Bytes of the digits of `rows` rows: two planes of int8, scales and sums for groups of 32 and of 16.
struct DigitLayout {
  std::size_t stride, groups32, groups16;
  explicit DigitLayout(std::size_t columns)
      : stride(padded(columns, kRowPadding)),
        groups32(padded(stride / 32, kGroupPadding)),
        groups16(padded(stride / 16, kGroupPadding)) {}
  std::size_t bytes(std::size_t rows) const { return rows * (2 * stride + 2 * (groups32 + groups16) * sizeof(float)); }
};

inline QuantizedRows lay_out_digits(std::byte* memory, std::size_t rows, std::size_t columns) {
  const DigitLayout layout(columns);
  QuantizedRows view{.stride = layout.stride, .groups32 = layout.groups32, .groups16 = layout.groups16};
  view.scales32 = reinterpret_cast<float*>(memory);
  view.sums32 = view.scales32 + rows * layout.groups32;
  view.scales16 = view.sums32 + rows * layout.groups32;
  view.sums16 = view.scales16 + rows * layout.groups16;
  view.high = reinterpret_cast<std::int8_t*>(view.sums16 + rows * layout.groups16);
  view.low = view.high + rows * layout.stride;
  return view;
}

// The same rows without the first ones.
inline QuantizedRows digits_from(QuantizedRows view, std::size_t row) {
  view.high += row * view.stride;
  view.low += row * view.stride;
  view.scales32 += row * view.groups32;
  view.sums32 += row * view.groups32;
  view.scales16 += row * view.groups16;
  view.sums16 += row * view.groups16;
  return view;
}

}  // namespace quarrel

// What a step's rows are, in device memory: rewritten before each run of a captured graph. And where keys and values
// lie: a paged cache of 16-bit numbers, [block][head][64 positions][dimension] a layer.
#pragma once

#include <cstdint>

namespace quarrel::cuda {

inline constexpr int kKvBlockTokens = 64;

struct StepRows {
  const std::int32_t* positions = nullptr;  // [rows]
  const std::int32_t* sequences = nullptr;  // [rows]; -1: padding, which reads and writes nothing
  const std::int32_t* first_new = nullptr;  // [rows]: from which position on this step writes the row's sequence
  const std::int32_t* tables = nullptr;     // [sequences][table_stride]: block of positions [64 i, 64 i + 64)
  int table_stride = 0;
  int count = 0;
};

// One layer's keys and values. A block id is good for all layers of a group; block_stride counts numbers.
struct PagedKv {
  std::uint16_t* keys = nullptr;
  std::uint16_t* values = nullptr;
  std::int64_t key_block_stride = 0;
  std::int64_t value_block_stride = 0;
  int heads = 0;
  int dim = 0;  // of keys and of values
};

}  // namespace quarrel::cuda

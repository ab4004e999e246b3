// What a step's rows are, in device memory: rewritten before each run of a captured graph. And where keys and values
// lie: a paged cache, [block][head][64 positions][dimension] a layer, of F16 numbers or, for those who ask for exact
// ones, of F32.
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
  const std::int32_t* lengths = nullptr;  // [sequences]: positions after this step; only for rows that see all of them

  StepRows from(int first, int rows) const {
    StepRows part = *this;
    part.positions += first;
    part.sequences += first;
    part.first_new += first;
    part.count = rows;
    return part;
  }
};

// The rows of one sequence, and the slots of its recurrent state.
struct StepRun {
  std::int32_t first = -1;  // row; -1: there is no such run
  std::int32_t count = 0;
  std::int32_t state_in = -1;   // -1: it begins with zeros
  std::int32_t state_out = -1;  // -1: it is not kept
  std::int32_t has_snapshots = 0;
};

struct StepRuns {
  const StepRun* runs = nullptr;
  int count = 0;                            // of those that a kernel must look at
  const std::int32_t* run_of = nullptr;     // [rows]; -1: padding
  const std::int32_t* snapshots = nullptr;  // [rows]: the slot that gets the state after the row; -1: none
};

// One layer's keys and values. A block id is good for all layers of a group; block_stride counts numbers.
struct PagedKv {
  std::uint16_t* keys = nullptr;
  std::uint16_t* values = nullptr;
  std::int64_t key_block_stride = 0;
  std::int64_t value_block_stride = 0;
  int heads = 0;
  int dim = 0;          // of keys, and of values where value_dim is 0
  int value_dim = 0;    // only rope_store and general_attention take another one than `dim`
  bool is_f32 = false;  // the same two: both places are of floats then

#ifdef __CUDACC__
  __host__ __device__
#endif
      int
      values_dim() const {
    return value_dim == 0 ? dim : value_dim;
  }
};

}  // namespace quarrel::cuda

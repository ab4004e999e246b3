// Activations as the integer tensor cores take them: groups of 32 values share a scale s, and a value is
// s * (256 hi + lo) with int8 hi and lo: 16 bits together. Sums of products of a group are exact integers.
//
// The rows of a step lie together, with room for 1, 2, 4, 8 or 16 of them. A chunk of 256 columns is one piece for
// `rows` rows (what lies in the places of rows that are not there does not matter):
//
//   operands  [8 steps][2 rows columns of B][4][2] words: lane 4 g + t finds its B operand of mma.m16n8k32 for column g
//   in
//             eight bytes; columns 2 r and 2 r + 1 are hi and lo of row r
//   scales    [rows][8 steps] F32
//   sums      [2 rows][4][2] F32: the sum over each group, as two numbers that tf32 can hold, steps t and t + 4
//             together: the B operand of mma.m16n8k8, for types with minimums
//
// Behind the last chunk:
//
//   squares   [rows][16 warps] F32: parts of the sum of squares, for the scale of an RMS norm, which is left to the end
#pragma once

#include <cstddef>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/weight_format.h"
#include "backend/ops.h"

namespace quarrel::cuda {

inline constexpr int kMaxSplitRows = 16;
inline constexpr int kSplitThreads = 512;  // the same everywhere: the sum of squares depends on it
inline constexpr int kSplitWarps = kSplitThreads / 32;
inline constexpr int kSplitBase = 256;

// The room that `count` rows take.
constexpr int split_rows(int count) { return count <= 2 ? count : count <= 4 ? 4 : count <= 8 ? 8 : 16; }

constexpr int split_operand_bytes(int rows) { return kChunkSteps * 2 * rows * kStepColumns; }
constexpr int split_scale_bytes(int rows) { return rows * kChunkSteps * 4; }
constexpr int split_chunk_bytes(int rows) { return split_operand_bytes(rows) + 3 * split_scale_bytes(rows); }

// What stands before a GEMV: rows of F32 and the norm they go through.
struct SplitInput {
  const float* rows = nullptr;
  int stride = 0;
  int columns = 0;
  int count = 0;
  NormKind norm = NormKind::none;
  float epsilon = 0.0f;
  const float* norm_weight = nullptr;
  const float* norm_bias = nullptr;
  // One a row: set to `layer` where the norm's sum of squares is not finite, unless an earlier layer stands there.
  std::int32_t* first_bad_layer = nullptr;
  int layer = 0;
};

constexpr int split_square_bytes(int rows) { return rows * kSplitWarps * 4; }

constexpr std::size_t split_bytes(int columns, int count) {
  const int rows = split_rows(count);
  return static_cast<std::size_t>((columns + kChunkColumns - 1) / kChunkColumns) *
             static_cast<std::size_t>(split_chunk_bytes(rows)) +
         static_cast<std::size_t>(split_square_bytes(rows));
}

// Norms and splits all rows into `split`, which has room for `room` of them: 1, 2, 4, 8 or 16.
void split_activations(const LaunchContext& context, const SplitInput& input, int room, std::byte* split);

}  // namespace quarrel::cuda

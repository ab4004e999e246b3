// What GEMV kernels have in common around their sums: which tiles a thread block has, and where results go. A kernel's
// `Arguments` have kTileRows, the type Matrix, and members as they are used here.
#pragma once

#include <cstdint>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/gemv.h"
#include "backend/cuda/saturated_half.cuh"

namespace quarrel::cuda {

// With dependent launches a kernel's blocks are to stand beside those of the kernel before, one of each on every
// multiprocessor: each may have half of the shared memory. A kernel that needs more does not let the next one start:
// its blocks would pile up two by two where room becomes free first, and leave the rest of the device idle.
constexpr int kReservedBytes = 1024;  // the system's own, of each block
constexpr int half_of_shared(int block_limit) { return (block_limit + kReservedBytes) / 2 - kReservedBytes; }

// The block's tiles: every gridDim.x-th unit. The two tiles of a pair, of the first and of the second matrix, follow
// each other.
template <typename Arguments>
struct Tile {
  const typename Arguments::Matrix* matrix;
  int tile;

  __device__ Tile(const Arguments& arguments, int number) {
    if (arguments.unit_tiles == 2) {
      matrix = arguments.matrices + number % 2;
      tile = blockIdx.x + number / 2 * gridDim.x;
    } else {
      matrix = arguments.matrices;
      tile = blockIdx.x + number * gridDim.x;
      while (tile >= matrix->tiles) tile -= matrix++->tiles;
    }
  }
};

// How many tiles the block has.
template <typename Arguments>
__device__ int tiles_of_block(const Arguments& arguments) {
  const int blocks = static_cast<int>(gridDim.x);
  return (arguments.units - static_cast<int>(blockIdx.x) + blocks - 1) / blocks * arguments.unit_tiles;
}

// One output of a batch of tiles: which one it is, and where it goes.
template <int kRows, typename Arguments>
struct Output {
  static constexpr int kTileOutputs = Arguments::kTileRows * kRows;
  Tile<Arguments> tile;
  int slot;  // of the tile among those of the batch
  int row_in_tile;
  int input_row;
  bool exists;

  __device__ Output(const Arguments& arguments, int first_tile, int index)
      : tile(arguments, first_tile + index / kTileOutputs * arguments.unit_tiles),
        slot(index / kTileOutputs * arguments.unit_tiles),
        row_in_tile(index % Arguments::kTileRows),
        input_row(index / Arguments::kTileRows % kRows) {
    exists = input_row < arguments.input.count && row() < tile.matrix->rows;
  }
  __device__ int row() const { return tile.tile * Arguments::kTileRows + row_in_tile; }
  __device__ float* place() const {
    return tile.matrix->out + static_cast<std::size_t>(input_row) * tile.matrix->stride + row();
  }
};

// The angle by which row `row` of q or k is turned; (1, 0) where nothing is.
template <typename Arguments>
__device__ float2 angle_of(const Arguments& arguments, const typename Arguments::Matrix* matrix, int input_row,
                           int row) {
  const QkvOutput& qkv = arguments.qkv;
  const int pair = row % qkv.kv.dim / 2;
  const bool turns = matrix != arguments.matrices + 2 && qkv.angles != nullptr && pair < qkv.pairs;
  return turns ? reinterpret_cast<const float2*>(qkv.angles)[input_row * qkv.pairs + pair] : float2{1.0f, 0.0f};
}

constexpr int kept_bytes(int rows) { return (8 * kSplitThreads + 8 * rows + 15) / 16 * 16; }

// What is known at a kernel's beginning and needed at its end waits in shared memory: registers are for the loop
// between.
template <int kRows>
struct KeptForEnd {
  float2 of_output[kSplitThreads];  // of a thread's only output: what it is added to, or its angle
  int positions[kRows];
  int blocks[kRows];  // where keys and values go; -1: the row is padding

  // Before the kernel waits: what the step's rows are has been there all along.
  template <typename Arguments>
  __device__ void keep_places(const Arguments& arguments) {
    const int row = threadIdx.x;
    if (arguments.output != GemvOutput::qkv || row >= arguments.input.count) return;
    const StepRows& rows = arguments.qkv.rows;
    const int sequence = rows.sequences[row];
    const int position = rows.positions[row];
    positions[row] = position;
    blocks[row] = sequence < 0 ? -1 : rows.tables[sequence * rows.table_stride + position / kKvBlockTokens];
  }

  // After it: what the end will need from memory, if the block's outputs are few enough that a thread has one at most.
  // Whether they are.
  template <typename Arguments>
  __device__ bool keep_values(const Arguments& arguments, int tiles) {
    const int outputs = tiles * Arguments::kTileRows * kRows;
    if (arguments.unit_tiles != 1 || tiles > arguments.batch_tiles || outputs > kSplitThreads) return false;
    if (static_cast<int>(threadIdx.x) < outputs) {
      const Output<kRows, Arguments> output(arguments, 0, threadIdx.x);
      if (output.exists && arguments.output == GemvOutput::add) of_output[threadIdx.x].x = *output.place();
      if (output.exists && arguments.output == GemvOutput::qkv) {
        of_output[threadIdx.x] = angle_of(arguments, output.tile.matrix, output.input_row, output.row());
      }
    }
    return true;
  }
};

// One value of a head of q, k or v; `partner` is the other one of its pair.
template <typename Arguments>
__device__ void store_head_value(const Arguments& arguments, const typename Arguments::Matrix* matrix, int position,
                                 std::int64_t block, int row, float value, float partner, float2 angle, float* out) {
  const QkvOutput& qkv = arguments.qkv;
  const int dim = qkv.kv.dim;
  const bool is_q = matrix == arguments.matrices;
  const bool is_v = matrix == arguments.matrices + 2;
  if (!is_v) value = row % 2 == 0 ? value * angle.x - partner * angle.y : partner * angle.y + value * angle.x;
  if (block < 0) return;
  if (is_q) {
    *out = value;
    return;
  }
  unsigned saturated = 0;
  std::uint16_t* target =
      (is_v ? qkv.kv.values + block * qkv.kv.value_block_stride : qkv.kv.keys + block * qkv.kv.key_block_stride);
  target[(row / dim * kKvBlockTokens + position % kKvBlockTokens) * dim + row % dim] = saturated_half(value, saturated);
  if (saturated > 0 && qkv.saturated != nullptr) atomicAdd(qkv.saturated, 1ull);
}

// Writes the results of `count` tiles. sum_of(slot, row in the tile, input row) is an output's sum over all columns;
// slots are the batch's tiles.
template <int kRows, typename Arguments, typename SumOf>
__device__ void finish(const Arguments& arguments, int first_tile, int count, const KeptForEnd<kRows>& kept,
                       bool has_early, const SumOf& sum_of) {
  const int outputs = (arguments.unit_tiles == 2 ? count / 2 : count) * Arguments::kTileRows * kRows;
#pragma unroll 1
  for (int index = threadIdx.x; index < outputs; index += kSplitThreads) {
    const Output<kRows, Arguments> output(arguments, first_tile, index);
    if (!output.exists) continue;
    const auto* matrix = output.tile.matrix;
    const auto biased = [&](float value, const float* bias) {
      return bias == nullptr ? value : value + bias[output.row()];
    };
    const float value = biased(sum_of(output.slot, output.row_in_tile, output.input_row), matrix->bias);
    float* out = output.place();
    if (arguments.output == GemvOutput::glu) {
      const float up = biased(sum_of(output.slot + 1, output.row_in_tile, output.input_row), matrix[1].bias);
      *out = activated(arguments.activation, value) * up;
    } else if (arguments.output == GemvOutput::qkv) {
      const float* bias = matrix->bias;
      const float partner = sum_of(output.slot, output.row_in_tile ^ 1, output.input_row) +
                            (bias == nullptr ? 0.0f : bias[output.row() ^ 1]);
      const float2 angle =
          has_early ? kept.of_output[threadIdx.x] : angle_of(arguments, matrix, output.input_row, output.row());
      store_head_value(arguments, matrix, kept.positions[output.input_row], kept.blocks[output.input_row], output.row(),
                       value, partner, angle, out);
    } else if (arguments.output == GemvOutput::add) {
      *out = (has_early ? kept.of_output[threadIdx.x].x : *out) + arguments.scale * value;
    } else {
      *out = value;
    }
  }
}

}  // namespace quarrel::cuda

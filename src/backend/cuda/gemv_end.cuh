// What GEMV kernels have in common around their sums: which tiles a thread block has, and where results go. A kernel's
// `Arguments` have kTileRows, the type Matrix, and members as they are used here.
#pragma once

#include <bit>
#include <cstdint>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/gemv.h"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/saturated_half.cuh"
#include "backend/cuda/shared_room.h"

namespace quarrel::cuda {

// The block's tiles: every gridDim.x-th unit. A unit may have two tiles, whose sums are needed together: of a gate and
// of what it gates, or of the two halves of a head (`half_shift` says how far these are apart, else it is negative).
template <typename Arguments>
struct Tile {
  const typename Arguments::Matrix* matrix;
  int tile;

  __device__ Tile(const Arguments& arguments, int number) {
    const int blocks = static_cast<int>(gridDim.x);
    if (arguments.unit_tiles == 2 && arguments.half_shift < 0) {
      matrix = arguments.matrices + number % 2;
      tile = static_cast<int>(blockIdx.x) + number / 2 * blocks;
    } else if (arguments.unit_tiles == 2) {
      matrix = arguments.matrices;
      int unit = static_cast<int>(blockIdx.x) + number / 2 * blocks;
      while (unit >= matrix->tiles / 2) unit -= matrix++->tiles / 2;
      const int shift = arguments.half_shift;
      tile = (unit >> shift << (shift + 1)) + (unit & ((1 << shift) - 1)) + (number % 2 << shift);
    } else {
      matrix = arguments.matrices;
      tile = static_cast<int>(blockIdx.x) + number * blocks;
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

// Of how many outputs a block may know beforehand what will be done with them: eight rows have 128 a batch at most.
constexpr int kept_capacity(int rows) { return rows == 4 ? 256 : rows <= 8 ? 128 : 16; }

// What is known of an output before its sum is.
struct OutputEnd {
  void* place;  // null: it goes nowhere
  float bias;
  float other_bias;  // of the unit's other tile
  bool is_half;      // of k and v: a number of the cache
  float2 before;     // what it is added to, or the angle that it and its neighbour are turned by
};

// The part of it that is there before the kernel waits, and where the rest will lie (null: nowhere).
template <int kRows, typename Arguments>
__device__ const float* begin_end(const Arguments& arguments, const Output<kRows, Arguments>& output, OutputEnd& end) {
  const auto* matrix = output.tile.matrix;
  const int row = output.row();
  end = {.place = output.place(),
         .bias = matrix->bias == nullptr ? 0.0f : matrix->bias[row],
         .other_bias = 0.0f,
         .is_half = false,
         .before = {1.0f, 0.0f}};
  if (arguments.output == GemvOutput::add) return output.place();
  if (arguments.output == GemvOutput::glu && matrix[1].bias != nullptr) end.other_bias = matrix[1].bias[row];
  if (arguments.output != GemvOutput::qkv) return nullptr;
  const QkvOutput& qkv = arguments.qkv;
  const int sequence = qkv.rows.sequences[output.input_row];
  const bool is_v = matrix == arguments.matrices + 2;
  const int dim = qkv.kv.dim;
  const int head = row / dim;
  const int at = row - head * dim;
  const bool halves = arguments.half_shift >= 0;
  if (halves && matrix->bias != nullptr) end.other_bias = matrix->bias[row + dim / 2];
  end.is_half = matrix != arguments.matrices;
  if (sequence < 0) {
    end.place = nullptr;
  } else if (end.is_half) {
    const int position = qkv.rows.positions[output.input_row];
    const std::int64_t block = qkv.rows.tables[sequence * qkv.rows.table_stride + position / kKvBlockTokens];
    end.place =
        (is_v ? qkv.kv.values + block * qkv.kv.value_block_stride : qkv.kv.keys + block * qkv.kv.key_block_stride) +
        (head * kKvBlockTokens + position % kKvBlockTokens) * dim + at;
  }
  const int pair = halves ? at : at / 2;
  const bool turns = !is_v && qkv.angles != nullptr && pair < qkv.pairs;
  return turns ? qkv.angles + (output.input_row * qkv.pairs + pair) * 2 : nullptr;
}

// A number of a head, in the cache or among queries.
template <typename Arguments>
__device__ void store_head_number(const Arguments& arguments, const OutputEnd& end, int further, float value) {
  if (!end.is_half) {
    static_cast<float*>(end.place)[further] = value;
    return;
  }
  unsigned saturated = 0;
  static_cast<std::uint16_t*>(end.place)[further] = saturated_half(value, saturated);
  if (saturated > 0 && arguments.qkv.saturated != nullptr) atomicAdd(arguments.qkv.saturated, 1ull);
}

// `other`: the up value of a gate, or the other one of a pair that a rotation turns, biases included.
template <typename Arguments>
__device__ void end_output(const Arguments& arguments, const OutputEnd& end, float value, float other, bool is_odd) {
  if (end.place == nullptr) return;
  auto* out = static_cast<float*>(end.place);
  switch (arguments.output) {
    case GemvOutput::store: *out = value; break;
    case GemvOutput::add: *out = end.before.x + arguments.scale * value; break;
    case GemvOutput::glu: *out = activated(arguments.activation, value) * other; break;
    case GemvOutput::qkv:
      const bool turns = end.before.x != 1.0f || end.before.y != 0.0f;
      const float first = is_odd ? other : value;
      const float second = is_odd ? value : other;
      const float turned = turns ? first * end.before.x - second * end.before.y : first;
      const float turned_second = turns ? first * end.before.y + second * end.before.x : second;
      store_head_number(arguments, end, 0, is_odd ? turned_second : turned);
      if (arguments.half_shift >= 0) store_head_number(arguments, end, arguments.qkv.kv.dim / 2, turned_second);
      break;
  }
}

constexpr int kept_bytes(int rows) { return kept_capacity(rows) * (8 + 8 + 8); }

// What is known at a kernel's beginning and needed at its end waits in shared memory: registers are for the loop
// between. For a block's outputs, if they are few enough that a thread has one at most.
template <int kRows>
struct KeptForEnd {
  static constexpr int kCapacity = kept_capacity(kRows);
  float2 before[kCapacity];
  std::uintptr_t places[kCapacity];  // odd: numbers of the cache
  float biases[kCapacity];
  float other_biases[kCapacity];

  // Before the kernel waits. Returns where the rest lies; nullptr for threads without an output.
  template <typename Arguments>
  __device__ const float* keep_places(const Arguments& arguments, int outputs) {
    const int index = static_cast<int>(threadIdx.x);
    if (index >= outputs) return nullptr;
    const Output<kRows, Arguments> output(arguments, 0, index);
    OutputEnd end{};
    const float* rest = output.exists ? begin_end(arguments, output, end) : nullptr;
    places[index] = reinterpret_cast<std::uintptr_t>(end.place) + (end.is_half && end.place != nullptr ? 1 : 0);
    biases[index] = end.bias;
    other_biases[index] = end.other_bias;
    if (rest == nullptr) before[index] = end.before;
    return rest;
  }
  // After it; nobody waits for it before the end.
  template <typename Arguments>
  __device__ void request_rest(const Arguments& arguments, const float* rest) {
    if (rest == nullptr) return;
    const std::uint32_t to = shared_address(before + threadIdx.x);
    if (arguments.output == GemvOutput::add) {
      copy_async_4(to, rest);
    } else {
      copy_async_8(to, rest);
    }
  }
  __device__ OutputEnd end_of(int index) const {
    return {.place = reinterpret_cast<void*>(places[index] & ~std::uintptr_t{1}),
            .bias = biases[index],
            .other_bias = other_biases[index],
            .is_half = (places[index] & 1) != 0,
            .before = before[index]};
  }
};

// How many outputs the block keeps such things of: all or none.
template <int kRows, typename Arguments>
__device__ int kept_outputs(const Arguments& arguments, int tiles) {
  const int outputs = tiles / arguments.unit_tiles * Arguments::kTileRows * kRows;
  return tiles <= arguments.batch_tiles && outputs <= kept_capacity(kRows) ? outputs : 0;
}

// A sum that four lanes make together, a quarter each, or one thread alone: of quarters in the same order.
template <typename Quarter>
__device__ float sum_of_quad(const Quarter& quarter) {
  float sum = quarter(static_cast<int>(threadIdx.x) % 4);
  sum += __shfl_xor_sync(~0u, sum, 1);
  return sum + __shfl_xor_sync(~0u, sum, 2);
}
template <typename Quarter>
__device__ float sum_of_quarters(const Quarter& quarter) {
  return (quarter(0) + quarter(1)) + (quarter(2) + quarter(3));
}

// Writes the results of a block of which everything is kept, four lanes an output. sums.quarter(slot, row in the tile,
// input row, quarter) is a part of an output's sum, sums.scale_of_quad(input row) what it is multiplied with.
template <int kRows, typename Arguments, typename Sums>
__device__ void finish_kept(const Arguments& arguments, int outputs, const KeptForEnd<kRows>& kept, const Sums& sums) {
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x) / 32 * 8; first < outputs; first += kSplitThreads / 4) {
    const int number = first + static_cast<int>(threadIdx.x) % 32 / 4;
    const int index = min(number, outputs - 1);
    const int slot = index / (Arguments::kTileRows * kRows) * arguments.unit_tiles;
    const int row = index % Arguments::kTileRows;
    const int input_row = index / Arguments::kTileRows % kRows;
    const auto sum_of = [&](int of_slot) {
      return sum_of_quad([&](int quarter) { return sums.quarter(of_slot, row, input_row, quarter); });
    };
    const OutputEnd end = kept.end_of(index);
    const float scale = sums.scale_of_quad(input_row);
    const float value = sum_of(slot) * scale + end.bias;
    const bool has_two = arguments.unit_tiles == 2;
    float other = __shfl_xor_sync(~0u, value, 4);
    if (has_two) other = sum_of(slot + 1) * scale + end.other_bias;
    const bool is_odd = !has_two && index % 2 != 0;
    if (threadIdx.x % 4 == 0 && number < outputs) end_output(arguments, end, value, other, is_odd);
  }
}

// The same for `count` tiles of a block that has kept nothing; slots are the batch's tiles.
template <int kRows, typename Arguments, typename Sums>
__device__ void finish(const Arguments& arguments, int first_tile, int count, const Sums& sums) {
  const int outputs = count / arguments.unit_tiles * Arguments::kTileRows * kRows;
#pragma unroll 1
  for (int index = threadIdx.x; index < outputs; index += kSplitThreads) {
    const Output<kRows, Arguments> output(arguments, first_tile, index);
    if (!output.exists) continue;
    OutputEnd end;
    const float* rest = begin_end(arguments, output, end);
    if (rest != nullptr) {
      end.before = arguments.output == GemvOutput::add ? float2{*rest, 0.0f} : *reinterpret_cast<const float2*>(rest);
    }
    const auto sum_of = [&](int slot, int row) {
      return sum_of_quarters([&](int quarter) { return sums.quarter(slot, row, output.input_row, quarter); });
    };
    const float scale = sums.scale_of(output.input_row);
    const float value = sum_of(output.slot, output.row_in_tile) * scale + end.bias;
    float other = 0.0f;
    const bool has_two = arguments.unit_tiles == 2;
    if (has_two) {
      other = sum_of(output.slot + 1, output.row_in_tile) * scale + end.other_bias;
    } else if (arguments.output == GemvOutput::qkv) {
      const float* bias = output.tile.matrix->bias;
      other = sum_of(output.slot, output.row_in_tile ^ 1) * scale + (bias == nullptr ? 0.0f : bias[output.row() ^ 1]);
    }
    end_output(arguments, end, value, other, !has_two && output.row() % 2 != 0);
  }
}

// How far the tiles of a head's halves are apart, as a power of two; negative where pairs lie side by side.
inline int half_shift_of(const GemvOp& op, int tile_rows) {
  if (op.output != GemvOutput::qkv || !op.qkv.half_split) return -1;
  return std::countr_zero(static_cast<unsigned>(op.qkv.kv.dim / 2 / tile_rows));
}

}  // namespace quarrel::cuda

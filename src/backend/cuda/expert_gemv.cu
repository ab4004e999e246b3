// A thread block has a run of tiles of 16 weight rows, of one pair or two. Its items are a few chunks of a tile each;
// the warps take them in turn, chunk after chunk through a ring in shared memory that each fills itself, across the
// ends of items. The rows of the two pairs are split once a block; sums of a tile's items are added in order.
#include <cuda_fp16.h>

#include <algorithm>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/expert_gemv.h"
#include "backend/cuda/gemv_chunk.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/shared_room.h"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = kSplitWarps;
constexpr int kThreads = kSplitThreads;
constexpr int kMaxStages = 4;
constexpr int kItemChunks = 3;    // few enough that warps have equal shares of a block's chunks
constexpr int kBatchItems = 128;  // whose sums are kept before they are written
constexpr int kDenseWarps = 8;

struct KernelMatrix {
  const std::byte* data;
  const float* bias;
};

struct KernelArguments {
  SplitInput input;
  int pairs_a_row;
  const std::int32_t* chosen;
  int units;  // tiles of all pairs
  int tiles;  // of one expert
  int rows;
  int chunks;
  KernelMatrix matrices[2];
  int matrix_count;
  int parts;       // items of a tile
  int unit_items;  // of the tiles of both matrices
  int batch_items;
  std::size_t expert_bytes;
  int stages;
  bool next_may_start;
  ExpertEnd end;
  GateFunction function;
  float* out;
  int stride;
};

// Of one row: its chunks and its squares.
constexpr int activation_bytes(int chunks) { return chunks * split_chunk_bytes(1) + split_square_bytes(1); }

// The block's tiles: units [first, end). Items go through a unit's matrices, and through a tile's chunks.
struct Run {
  int first;
  int end;
  int first_pair;
  int items;

  __device__ explicit Run(const KernelArguments& a) {
    const auto cut = [&](int block) {
      return static_cast<int>(static_cast<long long>(a.units) * block / static_cast<int>(gridDim.x));
    };
    first = cut(blockIdx.x);
    end = cut(blockIdx.x + 1);
    first_pair = first / a.tiles;
    items = (end - first) * a.unit_items;
  }
};

struct Item {
  int unit;
  int matrix;
  int first_chunk;
  int chunks;

  __device__ Item(const KernelArguments& a, const Run& run, int number) {
    unit = run.first + number / a.unit_items;
    const int of_unit = number % a.unit_items;
    matrix = of_unit / a.parts;
    first_chunk = of_unit % a.parts * kItemChunks;
    chunks = min(kItemChunks, a.chunks - first_chunk);
  }
};

// Fills a warp's ring, chunk after chunk of its items: `warp`, `warp` + kWarps …
template <WeightFormat F>
class RingFiller {
 public:
  __device__ RingFiller(const KernelArguments& arguments, const Run& run, int warp, int lane, std::uint32_t ring)
      : arguments_(arguments), run_(run), lane_(lane), ring_(ring), number_(warp - kWarps) {
    next_item();
  }

  // An empty group when there is nothing left, so that groups can be counted.
  __device__ void fill_next() {
    if (source_ != nullptr) {
      const std::uint32_t to = ring_ + stage_ * chunk_bytes(F) + lane_ * 16;
#pragma unroll
      for (int at = 0; at < chunk_bytes(F); at += 512) {
        if (at + 512 <= chunk_bytes(F) || lane_ * 16 < chunk_bytes(F) - at) copy_async(to + at, source_ + at, policy_);
      }
      stage_ = stage_ + 1 == arguments_.stages ? 0 : stage_ + 1;
      source_ += chunk_bytes(F);
      if (--left_ == 0) next_item();
    }
    commit_copies();
  }

 private:
  // The next item whose pair has an expert.
  __device__ void next_item() {
    source_ = nullptr;
    for (number_ += kWarps; number_ < run_.items; number_ += kWarps) {
      const Item item(arguments_, run_, number_);
      const int expert = arguments_.chosen[item.unit / arguments_.tiles];
      if (expert < 0) continue;
      const std::size_t chunk =
          static_cast<std::size_t>(item.unit % arguments_.tiles) * arguments_.chunks + item.first_chunk;
      source_ = arguments_.matrices[item.matrix].data + lane_ * 16 +
                static_cast<std::size_t>(expert) * arguments_.expert_bytes + chunk * chunk_bytes(F);
      left_ = item.chunks;
      return;
    }
  }

  const KernelArguments& arguments_;
  const Run& run_;
  int lane_;
  std::uint32_t ring_;
  std::uint64_t policy_ = evict_first_policy();
  const std::byte* source_ = nullptr;
  int number_;
  int left_ = 0;  // chunks of the item
  int stage_ = 0;
};

// The block's split rows, one behind the other.
struct Inputs {
  std::byte* rows;
  int first_row;

  __device__ std::byte* row_of(const KernelArguments& a, int pair) const {
    return rows + (pair / a.pairs_a_row - first_row) * activation_bytes(a.chunks);
  }
  __device__ float scale_of(const KernelArguments& a, int pair) const {
    return left_scale(a.input, reinterpret_cast<const float*>(row_of(a, pair) + a.chunks * split_chunk_bytes(1)));
  }
};

// Splits the input rows of the block's pairs.
__device__ Inputs split_inputs(const KernelArguments& arguments, const Run& run, FirstChunk& chunk, float* scratch,
                               std::byte* activations) {
  const int last_pair = (run.end - 1) / arguments.tiles;
  const int first_row = run.first_pair / arguments.pairs_a_row;
  const int last_row = last_pair / arguments.pairs_a_row;
  for (int row = first_row; row <= last_row; ++row) {
    SplitInput one = arguments.input;
    one.rows += static_cast<std::size_t>(row) * one.stride;
    one.count = 1;
    if (one.first_bad_layer != nullptr) one.first_bad_layer += row;
    std::byte* split = activations + (row - first_row) * activation_bytes(arguments.chunks);
    auto* squares = reinterpret_cast<float*>(split + arguments.chunks * split_chunk_bytes(1));
    chunk.load_row(one, 0);
    split_row(one, chunk, 0, true, 0, 1, squares, scratch, split);
  }
  return {.rows = activations, .first_row = first_row};
}

__device__ float biased(const KernelArguments& arguments, int matrix, int expert, int row, float value) {
  const float* bias = arguments.matrices[matrix].bias;
  return bias == nullptr ? value : value + bias[static_cast<std::size_t>(expert) * arguments.rows + row];
}

// The value of a tile's row: its items' sums in ascending order.
__device__ float sum_of_items(const KernelArguments& arguments, const float* sums) {
  float sum = 0.0f;
  for (int part = 0; part < arguments.parts; ++part) sum += sums[part * kTileRows];
  return sum;
}

// Writes what items [first, first + count) of the block gave, whole units.
__device__ void finish(const KernelArguments& arguments, const Run& run, const Inputs& inputs, int first, int count,
                       const float* sums) {
  const int units = count / arguments.unit_items;
  for (int i = threadIdx.x; i < units * kTileRows; i += kThreads) {
    const int unit = run.first + first / arguments.unit_items + i / kTileRows;
    const int pair = unit / arguments.tiles;
    const int row = unit % arguments.tiles * kTileRows + i % kTileRows;
    const int expert = arguments.chosen[pair];
    if (expert < 0 || row >= arguments.rows) continue;
    const float* place = sums + i / kTileRows * arguments.unit_items * kTileRows + i % kTileRows;
    const float scale = inputs.scale_of(arguments, pair);
    float value = biased(arguments, 0, expert, row, sum_of_items(arguments, place) * scale);
    if (arguments.end == ExpertEnd::glu) {
      const float up = sum_of_items(arguments, place + arguments.parts * kTileRows) * scale;
      value = gated(arguments.function, value, biased(arguments, 1, expert, row, up));
    } else if (arguments.end == ExpertEnd::activate) {
      value = activated(arguments.function.kind, value);
    }
    arguments.out[static_cast<std::size_t>(pair) * arguments.stride + row] = value;
  }
}

// Rows whose norm is no number: every block that has one of their pairs says the same.
__device__ void note_bad_rows(const KernelArguments& arguments, const Run& run, const Inputs& inputs) {
  const int pair = run.first_pair + static_cast<int>(threadIdx.x);
  if (pair * arguments.tiles >= run.end || isfinite(inputs.scale_of(arguments, pair))) return;
  note_bad_row(arguments.input, pair / arguments.pairs_a_row);
}

template <WeightFormat F>
__global__ void __launch_bounds__(kThreads, 2) expert_gemv_kernel(const __grid_constant__ KernelArguments arguments) {
  extern __shared__ __align__(16) std::byte shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  std::byte* ring = shared + warp * arguments.stages * chunk_bytes(F);
  auto* sums = reinterpret_cast<float*>(shared + kWarps * arguments.stages * chunk_bytes(F));
  float* scratch = sums + kBatchItems * kTileRows;
  auto* activations = reinterpret_cast<std::byte*>(scratch + kWarps);
  const Run run(arguments);
  FirstChunk first_chunk(arguments.input);
  if (arguments.next_may_start) allow_next_kernel();
  wait_for_previous_kernel();
  RingFiller<F> filler(arguments, run, warp, lane, shared_address(ring));
#pragma unroll 1
  for (int i = 0; i < arguments.stages; ++i) filler.fill_next();
  const Inputs inputs = split_inputs(arguments, run, first_chunk, scratch, activations);
  __syncthreads();

  const ColumnPlan<1> plan(lane);
  int stage = 0;
  int number = warp;
#pragma unroll 1
  for (int batch = 0; batch < run.items; batch += arguments.batch_items) {
    const int end = min(batch + arguments.batch_items, run.items);
#pragma unroll 1
    for (; number < end; number += kWarps) {
      const Item item(arguments, run, number);
      const int pair = item.unit / arguments.tiles;
      if (arguments.chosen[pair] < 0) continue;
      const std::byte* rows = inputs.row_of(arguments, pair) + item.first_chunk * split_chunk_bytes(1);
      Sums<1> parts;
#pragma unroll 1
      for (int chunk = 0; chunk < item.chunks; ++chunk) {
        wait_for_copies(arguments.stages - 1);
        __syncwarp();
        consume_chunk<F, 1>(ring + stage * chunk_bytes(F), rows + chunk * split_chunk_bytes(1), plan, lane, parts);
        stage = stage + 1 == arguments.stages ? 0 : stage + 1;
        __syncwarp();
        filler.fill_next();
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = parts.whole(0, h);
        if (lane % 4 == 0) sums[(number - batch) * kTileRows + lane / 4 + 8 * h] = sum;
      }
    }
    __syncthreads();
    finish(arguments, run, inputs, batch, end - batch, sums);
    __syncthreads();
  }
  note_bad_rows(arguments, run, inputs);
}

// ---- F16 or F32 numbers: a warp an output ----

struct DenseArguments {
  const float* rows;
  int row_stride;
  int pairs_a_row;
  const std::int32_t* chosen;
  ExpertMatrix matrix;
  bool activates;
  GateFunction function;
  float* out;
  int stride;
};

__device__ float number(const __half* place) { return __half2float(*place); }
__device__ float number(const float* place) { return *place; }

template <typename T>
__global__ void __launch_bounds__(kDenseWarps * 32)
    dense_expert_gemv_kernel(const __grid_constant__ DenseArguments arguments) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int lane = threadIdx.x % 32;
  const int row = blockIdx.x * kDenseWarps + threadIdx.x / 32;
  const int pair = blockIdx.y;
  const int expert = arguments.chosen[pair];
  const DenseMatrix& matrix = arguments.matrix.dense;
  if (expert < 0 || row >= matrix.rows) return;
  const auto* first = reinterpret_cast<const T*>(static_cast<const std::byte*>(matrix.data) +
                                                 static_cast<std::size_t>(expert) * arguments.matrix.expert_bytes);
  const T* weights = first + static_cast<std::size_t>(row) * matrix.columns;
  const float* in = arguments.rows + static_cast<std::size_t>(pair / arguments.pairs_a_row) * arguments.row_stride;
  float sum = 0.0f;
  for (int column = lane; column < matrix.columns; column += 32) {
    sum = fmaf(number(weights + column), in[column], sum);
  }
  for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
  if (lane != 0) return;
  const float* bias = arguments.matrix.bias;
  if (bias != nullptr) sum += bias[static_cast<std::size_t>(expert) * matrix.rows + row];
  if (arguments.activates) sum = activated(arguments.function.kind, sum);
  arguments.out[static_cast<std::size_t>(pair) * arguments.stride + row] = sum;
}

constexpr int fixed_bytes() { return (kBatchItems * kTileRows + kWarps) * 4; }

// Stages that fit; 0: none does.
int stages_within(int limit, const PackedMatrix& matrix, int input_rows) {
  const int left = limit - fixed_bytes() - input_rows * activation_bytes(matrix.chunks());
  return std::clamp(left / (kWarps * chunk_bytes(matrix.format)), 0, kMaxStages);
}

// A block may have the end of one input row's pairs and the beginning of the next one's; where there is room for one
// row alone, it has pairs of one.
int rows_of_block(const LaunchContext& context, const PackedMatrix& matrix) {
  return stages_within(context.shared_bytes, matrix, 2) > 0 ? 2 : 1;
}

}  // namespace

bool can_run_expert_gemv(const LaunchContext& context, const PackedMatrix& matrix) {
  const int parts = (matrix.chunks() + kItemChunks - 1) / kItemChunks;
  return stages_within(context.shared_bytes, matrix, 1) > 0 && 2 * parts <= kBatchItems;
}

void prepare_expert_gemv(const LaunchContext& context) {
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    with_expert_format(static_cast<WeightFormat>(format), [&]<WeightFormat F>() {
      allow_shared_bytes("experts", expert_gemv_kernel<F>, context.shared_bytes);
    });
  }
}

void expert_gemv(const LaunchContext& context, const ExpertGemvOp& op) {
  const PackedMatrix& matrix = op.matrices[0].packed;
  if (op.pairs > context.multiprocessors) fail_launch(op.name, "more pairs than multiprocessors");
  KernelArguments arguments{.input = op.input,
                            .pairs_a_row = op.pairs_a_row,
                            .chosen = op.chosen,
                            .units = op.pairs * matrix.tiles(),
                            .tiles = matrix.tiles(),
                            .rows = matrix.rows,
                            .chunks = matrix.chunks(),
                            .matrices = {},
                            .matrix_count = op.end == ExpertEnd::glu ? 2 : 1,
                            .parts = (matrix.chunks() + kItemChunks - 1) / kItemChunks,
                            .unit_items = 0,
                            .batch_items = 0,
                            .expert_bytes = op.matrices[0].expert_bytes,
                            .stages = 0,
                            .next_may_start = false,
                            .end = op.end,
                            .function = op.function,
                            .out = op.out,
                            .stride = op.stride};
  for (int i = 0; i < arguments.matrix_count; ++i) {
    arguments.matrices[i] = {.data = op.matrices[i].packed.data, .bias = op.matrices[i].bias};
  }
  arguments.unit_items = arguments.matrix_count * arguments.parts;
  arguments.batch_items = kBatchItems / arguments.unit_items * arguments.unit_items;
  if (arguments.batch_items == 0) fail_launch(op.name, "these rows are too long");
  // More than half of the shared memory, so that no two blocks pile up on one multiprocessor, and little more, so that
  // the next kernel finds room beside this one; where that is too little, what there is.
  const int half = half_of_shared(context.shared_bytes);
  const int block_rows = rows_of_block(context, matrix);
  arguments.stages = stages_within(half, matrix, block_rows);
  arguments.next_may_start = arguments.stages >= 2;
  if (!arguments.next_may_start) arguments.stages = stages_within(context.shared_bytes, matrix, block_rows);
  if (arguments.stages == 0) fail_launch(op.name, "these rows are too long for the shared memory");
  const int needed_bytes = fixed_bytes() + block_rows * activation_bytes(matrix.chunks()) +
                           kWarps * arguments.stages * chunk_bytes(matrix.format);
  const int shared_bytes = std::max(needed_bytes, std::min(half + 16, context.shared_bytes));
  int blocks = std::min(arguments.units, context.multiprocessors);
  // Equal shares for all rows: none ends within a block.
  if (block_rows == 1) blocks -= blocks % (op.pairs / op.pairs_a_row);
  with_expert_format(matrix.format, [&]<WeightFormat F>() {
    launch(op.name, context, expert_gemv_kernel<F>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), shared_bytes,
           arguments);
  });
}

void dense_expert_gemv(const LaunchContext& context, const ExpertGemvOp& op) {
  const DenseMatrix& matrix = op.matrices[0].dense;
  const DenseArguments arguments{.rows = op.input.rows,
                                 .row_stride = op.input.stride,
                                 .pairs_a_row = op.pairs_a_row,
                                 .chosen = op.chosen,
                                 .matrix = op.matrices[0],
                                 .activates = op.end == ExpertEnd::activate,
                                 .function = op.function,
                                 .out = op.out,
                                 .stride = op.stride};
  const dim3 grid(static_cast<unsigned>((matrix.rows + kDenseWarps - 1) / kDenseWarps),
                  static_cast<unsigned>(op.pairs));
  const auto kernel = matrix.is_f16 ? dense_expert_gemv_kernel<__half> : dense_expert_gemv_kernel<float>;
  launch(op.name, context, kernel, grid, dim3(kDenseWarps * 32), 0, arguments);
}

}  // namespace quarrel::cuda

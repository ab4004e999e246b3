// Each warp has two tiles of 16 weight rows, of the gate and of what it gates or two neighbours, and all rows of the
// block: an operand of activations that is read from shared memory serves both. Weights and activations of a chunk of
// 256 columns arrive together, one or two chunks ahead.
#include <algorithm>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/expert_blocks.cuh"
#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/packed_gemm_chunk.cuh"
#include "backend/cuda/saturated_half.cuh"
#include "backend/cuda/shared_room.h"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * 32;
constexpr int kWeightTiles = 2;  // of a warp
constexpr int kMaxStages = 3;
constexpr int kPitch = kChunkColumns * 2 + 32;  // of a row of activations: eight rows fall into different banks
constexpr int kSumPitch = 32;                   // of the sums over a row's groups
constexpr int kManyTiles = 4;                   // of eight rows each, of a block

struct KernelMatrix {
  const std::byte* data;
  const float* bias;
};

struct KernelArguments {
  const std::uint16_t* in;
  int in_stride;
  const std::int32_t* starts;
  const std::int32_t* order;
  int pairs_a_row;
  int experts;
  KernelMatrix matrices[2];
  std::size_t expert_bytes;
  int rows;
  int columns;
  int tiles;
  int chunks;
  int stages;
  ExpertEnd end;
  GateFunction function;
  float* out;
  std::uint16_t* halves;
  int stride;
};

constexpr int row_stage_bytes(int rows) { return rows * (kPitch + kSumPitch); }
constexpr int weight_stage_bytes(WeightFormat format) { return kWarps * kWeightTiles * chunk_bytes(format); }

// By the whole first warp.
__device__ BlockRows find_rows(const KernelArguments& arguments, int rows, int lane) {
  const ExpertBlock found = find_block(arguments.starts, arguments.experts, rows, blockIdx.x, lane);
  const int before = found.within * rows;
  return {.expert = found.expert, .first = found.start + before, .count = min(rows, found.count - before)};
}

// The two chunks of a warp's weight rows with the activations of `live` of kTiles times eight rows.
template <WeightFormat F, int kTiles>
__device__ void add_chunk_pair(const std::byte* weights, int lane, const ChunkActivations& in, int live,
                               float (&sums)[kWeightTiles][kTiles][4]) {
  constexpr bool kHalfGroups = F == WeightFormat::q6_k;  // a scale every 16 columns
  const int g = lane / 4;
  const std::byte* chunks[kWeightTiles] = {weights, weights + chunk_bytes(F)};
  CodeReader<F> readers[kWeightTiles] = {{.chunk = chunks[0], .lane = lane}, {.chunk = chunks[1], .lane = lane}};
  const RowScales<F> scales[kWeightTiles][2] = {{RowScales<F>(chunks[0], g), RowScales<F>(chunks[0], g + 8)},
                                                {RowScales<F>(chunks[1], g), RowScales<F>(chunks[1], g + 8)}};
#pragma unroll
  for (int step = 0; step < kChunkSteps; ++step) {
    std::uint32_t a[kWeightTiles][2][4];
#pragma unroll
    for (int w = 0; w < kWeightTiles; ++w) {
      std::uint32_t words[4];
      readers[w].operand_of(step, words);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int half = i / 4;
        a[w][half][i % 4] =
            bytes_to_halves<is_symmetric(F)>(words[2 * half + i % 2], i % 4 / 2, code_middle(F) * code_unit(F, step));
      }
    }
    constexpr int kGroups = kHalfGroups ? 2 : 1;  // of a step
    float scale[kWeightTiles][kGroups][2];
#pragma unroll
    for (int w = 0; w < kWeightTiles; ++w) {
#pragma unroll
      for (int i = 0; i < kGroups * 2; ++i) {
        scale[w][i / 2][i % 2] = scales[w][i % 2].scale(step * kGroups + i / 2) * (1.0f / code_unit(F, step));
      }
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (kTiles > 1 && n >= live) break;
      const std::byte* place = in.halves + n * in.tile_bytes + step * 64;
      const uint2 b[2] = {at<uint2>(place), at<uint2>(place + 32)};
#pragma unroll
      for (int w = 0; w < kWeightTiles; ++w) {
        float products[4];
        mma_f16_first(products, a[w][0], b[0].x, b[0].y);
        if constexpr (kHalfGroups) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sums[w][n][c] = fmaf(scale[w][0][c / 2], products[c], sums[w][n][c]);
          mma_f16_first(products, a[w][1], b[1].x, b[1].y);
        } else {
          mma_f16(products, a[w][1], b[1].x, b[1].y);
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[w][n][c] = fmaf(scale[w][kGroups - 1][c / 2], products[c], sums[w][n][c]);
      }
    }
  }
  if constexpr (!is_symmetric(F)) {
#pragma unroll
    for (int w = 0; w < kWeightTiles; ++w) {
      const float2 row0 = middles<F>(chunks[w], g, lane % 4);
      const float2 row1 = middles<F>(chunks[w], g + 8, lane % 4);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const auto b = at<float2>(in.sums + n * in.tile_sum_bytes);
        mma_tf32(sums[w][n], rounded_to_tf32(row0.x), rounded_to_tf32(row1.x), rounded_to_tf32(row0.y),
                 rounded_to_tf32(row1.y), b.x, b.y);
      }
    }
  }
}

// Asks for one chunk of the block's rows and of the warp's weights.
template <WeightFormat F>
__device__ void fill_stage(const KernelArguments& arguments, const std::byte* const (&tiles)[kWeightTiles],
                           const int* input_rows, int count, int chunk, int lane, std::uint32_t rows_to,
                           std::uint32_t weights_to) {
  constexpr int kPieces = kChunkColumns / 8;
  const int rows = (count + 7) / 8 * 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * kPieces; i += kThreads) {
    const int row = i / kPieces;
    const int column = chunk * kChunkColumns + i % kPieces * 8;
    const bool exists = row < count && column < arguments.columns;
    const std::uint16_t* source =
        arguments.in + (exists ? static_cast<std::size_t>(input_rows[row]) * arguments.in_stride + column : 0);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(rows_to + row * kPitch + i % kPieces * 16),
                 "l"(source), "r"(exists ? 16 : 0)
                 : "memory");
  }
#pragma unroll
  for (int w = 0; w < kWeightTiles; ++w) {
    if (tiles[w] == nullptr) continue;
    const std::byte* source = tiles[w] + static_cast<std::size_t>(chunk) * chunk_bytes(F);
#pragma unroll
    for (int at = 0; at < chunk_bytes(F); at += 512) {
      if (at + 512 <= chunk_bytes(F) || lane * 16 < chunk_bytes(F) - at) {
        copy_async(weights_to + w * chunk_bytes(F) + at + lane * 16, source + at + lane * 16);
      }
    }
  }
}

// The sum over every 32 columns, those of groups t and t + 4 together. In tf32, rounded.
template <int kRows>
__device__ void add_up_groups(const std::byte* rows, std::byte* sums) {
  for (int i = threadIdx.x; i < kRows * kChunkSteps; i += kThreads) {
    const int row = i / kChunkSteps;
    const int group = i % kChunkSteps;
    const std::byte* place = rows + row * kPitch + group * 64;
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto words = at<uint4>(place + j * 16);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float2 two = __half22float2(as_half2(element(words, k)));
        sum += two.x + two.y;
      }
    }
    *reinterpret_cast<float*>(sums + row * kSumPitch + (group % 4 * 2 + group / 4) * 4) = rounded_to_tf32(sum);
  }
}

__device__ float biased(const KernelArguments& arguments, int matrix, int expert, int row, float value) {
  const float* bias = arguments.matrices[matrix].bias;
  return bias == nullptr ? value : value + bias[static_cast<std::size_t>(expert) * arguments.rows + row];
}

template <int kTiles>
__device__ void store(const KernelArguments& arguments, const BlockRows& rows, const int (&tile)[kWeightTiles],
                      int lane, const float (&sums)[kWeightTiles][kTiles][4]) {
  const bool glu = arguments.end == ExpertEnd::glu;
#pragma unroll
  for (int w = 0; w < kWeightTiles; ++w) {
    if (glu && w > 0) return;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int in_tile = n * 8 + lane % 4 * 2 + c % 2;
        const int row = tile[w] * kTileRows + lane / 4 + c / 2 * 8;
        if (in_tile >= rows.count || row >= arguments.rows) continue;
        const std::size_t place = static_cast<std::size_t>(rows.first + in_tile) * arguments.stride + row;
        float value = biased(arguments, 0, rows.expert, row, sums[w][n][c]);
        if (arguments.end == ExpertEnd::store) {
          arguments.out[place] = value;
          continue;
        }
        value = glu ? gated(arguments.function, value, biased(arguments, 1, rows.expert, row, sums[1][n][c]))
                    : activated(arguments.function.kind, value);
        unsigned saturated = 0;
        arguments.halves[place] = saturated_half(value, saturated);
      }
    }
  }
}

template <WeightFormat F, int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles <= 4 ? 2 : 1)
    grouped_gemm_kernel(const __grid_constant__ KernelArguments arguments) {
  constexpr int kRows = kTiles * 8;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ BlockRows found;
  __shared__ int input_rows[kRows];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  wait_for_previous_kernel();
  allow_next_kernel();
  if (warp == 0) {
    const BlockRows own = find_rows(arguments, kRows, lane);
    if (lane == 0) found = own;
  }
  __syncthreads();
  const BlockRows rows = found;
  if (rows.expert < 0) return;
  for (int i = threadIdx.x; i < rows.count; i += kThreads) {
    const int place = rows.first + i;
    input_rows[i] = arguments.order == nullptr ? place : arguments.order[place] / arguments.pairs_a_row;
  }
  __syncthreads();

  const bool glu = arguments.end == ExpertEnd::glu;
  const int first_tile = (static_cast<int>(blockIdx.y) * kWarps + warp) * (glu ? 1 : kWeightTiles);
  const int tile[kWeightTiles] = {first_tile, glu ? first_tile : first_tile + 1};
  const std::byte* tiles[kWeightTiles];
#pragma unroll
  for (int w = 0; w < kWeightTiles; ++w) {
    tiles[w] = tile[w] >= arguments.tiles ? nullptr
                                          : arguments.matrices[glu ? w : 0].data +
                                                static_cast<std::size_t>(rows.expert) * arguments.expert_bytes +
                                                static_cast<std::size_t>(tile[w]) * arguments.chunks * chunk_bytes(F);
  }
  std::byte* row_stages = shared + arguments.stages * weight_stage_bytes(F);
  const auto weights_of = [&](int stage) {
    return shared + stage * weight_stage_bytes(F) + warp * kWeightTiles * chunk_bytes(F);
  };
  const auto rows_of = [&](int stage) { return row_stages + stage * row_stage_bytes(kRows); };
  const auto fill = [&](int chunk) {
    const int stage = chunk % arguments.stages;
    if (chunk < arguments.chunks) {
      fill_stage<F>(arguments, tiles, input_rows, rows.count, chunk, lane, shared_address(rows_of(stage)),
                    shared_address(weights_of(stage)));
    }
    commit_copies();
  };
#pragma unroll 1
  for (int chunk = 0; chunk + 1 < arguments.stages; ++chunk) fill(chunk);
  const int live = (rows.count + 7) / 8;
  float sums[kWeightTiles][kTiles][4] = {};
#pragma unroll 1
  for (int chunk = 0; chunk < arguments.chunks; ++chunk) {
    const int stage = chunk % arguments.stages;
    wait_for_copies(arguments.stages - 2);
    __syncthreads();
    fill(chunk + arguments.stages - 1);
    std::byte* own = rows_of(stage);
    if constexpr (!is_symmetric(F)) {
      add_up_groups<kRows>(own, own + kRows * kPitch);
      __syncthreads();
    }
    if (tiles[0] == nullptr) continue;
    const ChunkActivations in{.halves = own + lane / 4 * kPitch + lane % 4 * 8,
                              .tile_bytes = 8 * kPitch,
                              .sums = own + kRows * kPitch + lane / 4 * kSumPitch + lane % 4 * 8,
                              .tile_sum_bytes = 8 * kSumPitch};
    add_chunk_pair<F, kTiles>(weights_of(stage), lane, in, live, sums);
  }
  if (tiles[0] != nullptr) store<kTiles>(arguments, rows, tile, lane, sums);
}

constexpr int kStaticBytes = 1024;  // shared memory that is no part of a stage

constexpr int stage_bytes_of(const PackedMatrix& matrix, int tiles) {
  return weight_stage_bytes(matrix.format) + row_stage_bytes(tiles * 8);
}

// Two blocks a multiprocessor where both have room for two stages at least: one decodes while the other multiplies.
int stages_of(const LaunchContext& context, const PackedMatrix& matrix, int tiles) {
  const int stage_bytes = stage_bytes_of(matrix, tiles);
  const int beside_another = (half_of_shared(context.shared_bytes) - kStaticBytes) / stage_bytes;
  if (beside_another >= 2) return std::min(kMaxStages, beside_another);
  return std::min(kMaxStages, (context.shared_bytes - kStaticBytes) / stage_bytes);
}

template <int kTiles>
void run(const LaunchContext& context, const GroupedGemmOp& op, KernelArguments arguments) {
  constexpr int kRows = kTiles * 8;
  const PackedMatrix& matrix = op.matrices[0].packed;
  const int stage_bytes = stage_bytes_of(matrix, kTiles);
  arguments.stages = stages_of(context, matrix, kTiles);
  if (arguments.stages < 2) fail_launch(op.name, "the shared memory of this device is too small for grouped experts");
  const int tiles_a_block = kWarps * (op.end == ExpertEnd::glu ? 1 : kWeightTiles);
  const dim3 grid(static_cast<unsigned>(op.pairs / kRows + std::min(op.experts, op.pairs)),
                  static_cast<unsigned>((matrix.tiles() + tiles_a_block - 1) / tiles_a_block));
  with_expert_format(matrix.format, [&]<WeightFormat F>() {
    launch(op.name, context, grouped_gemm_kernel<F, kTiles>, grid, dim3(kThreads), arguments.stages * stage_bytes,
           arguments);
  });
}

}  // namespace

bool can_run_grouped_gemm(const LaunchContext& context, const PackedMatrix& matrix) {
  return stages_of(context, matrix, 1) >= 2;
}

void prepare_grouped_gemm(const LaunchContext& context) {
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    with_expert_format(static_cast<WeightFormat>(format), [&]<WeightFormat F>() {
      allow_shared_bytes("experts", grouped_gemm_kernel<F, 1>, context.shared_bytes - kStaticBytes);
      allow_shared_bytes("experts", grouped_gemm_kernel<F, kManyTiles>, context.shared_bytes - kStaticBytes);
    });
  }
}

void grouped_gemm(const LaunchContext& context, const GroupedGemmOp& op) {
  const PackedMatrix& matrix = op.matrices[0].packed;
  const KernelArguments arguments{.in = op.in,
                                  .in_stride = op.in_stride,
                                  .starts = op.starts,
                                  .order = op.order,
                                  .pairs_a_row = op.pairs_a_row,
                                  .experts = op.experts,
                                  .matrices = {{.data = op.matrices[0].packed.data, .bias = op.matrices[0].bias},
                                               {.data = op.matrices[1].packed.data, .bias = op.matrices[1].bias}},
                                  .expert_bytes = op.matrices[0].expert_bytes,
                                  .rows = matrix.rows,
                                  .columns = matrix.columns,
                                  .tiles = matrix.tiles(),
                                  .chunks = matrix.chunks(),
                                  .stages = 0,
                                  .end = op.end,
                                  .function = op.function,
                                  .out = op.out,
                                  .halves = op.halves,
                                  .stride = op.stride};
  // Where experts have few rows, weights are what takes the time, and rows that are not there cost for nothing.
  const bool few = op.pairs <= op.experts * 8 || stages_of(context, matrix, kManyTiles) < 2;
  if (few) return run<1>(context, op, arguments);
  run<kManyTiles>(context, op, arguments);
}

}  // namespace quarrel::cuda

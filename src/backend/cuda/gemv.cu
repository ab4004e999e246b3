// A thread block walks over tiles of 16 rows; its eight warps share a tile's columns, chunk c belonging to warp c % 8.
// Each warp has a ring of chunks in shared memory that it fills itself by asynchronous copies, several ahead and across
// the ends of tiles, so that the memory never waits for arithmetic, a reduction or the kernel before: the first
// chunks are on their way before this kernel waits for its input.
#include <algorithm>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/gemv.h"
#include "backend/cuda/gemv_chunk.cuh"
#include "backend/cuda/launch.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = kSplitWarps;
constexpr int kThreads = kSplitThreads;
constexpr int kMaxStages = 4;
constexpr int kRingBytes = 112 * 1024;  // two kernels at a time on a multiprocessor is what dependent launches need

struct KernelMatrix {
  const std::byte* data;
  const float* bias;
  float* out;
  int stride;
  int rows;
  int tiles;
  WeightFormat format;
};

struct KernelArguments {
  SplitInput input;
  const std::byte* split;
  KernelMatrix matrices[kMaxGemvMatrices];
  int units;  // tiles, or pairs of them
  int chunks;
  int stages;
  int stage_bytes;
  int resident_chunks;  // activations of so many chunks lie in shared memory at a time
  GemvOutput output;
  ActivationKind activation;
  float scale;
};

constexpr int reduction_floats(int groups, int tiles) { return 2 * tiles * kTileRows * 4 * groups * kWarps; }

template <int kTiles>
struct Unit {
  const KernelMatrix* matrix;
  int tile;

  __device__ Unit(const KernelArguments& arguments, int unit) : matrix(arguments.matrices), tile(unit) {
    if constexpr (kTiles == 1) {
      while (tile >= matrix->tiles) tile -= matrix++->tiles;
    }
  }
};

template <int kTiles>
__device__ void issue_copies(const KernelArguments& arguments, int unit, int chunk, std::uint32_t to, int lane,
                             std::uint64_t policy) {
  if (unit < arguments.units) {
    const Unit<kTiles> from(arguments, unit);
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
      const KernelMatrix& matrix = from.matrix[r];
      const int bytes = chunk_bytes(matrix.format);
      const std::byte* source =
          matrix.data + (static_cast<std::size_t>(from.tile) * arguments.chunks + chunk) * static_cast<std::size_t>(bytes);
      for (int at = lane * 16; at < bytes; at += 32 * 16) {
        copy_async(to + r * (arguments.stage_bytes / kTiles) + at, source + at, policy);
      }
    }
  }
  commit_copies();
}

__device__ void load_activations(const KernelArguments& arguments, int first_chunk, int end_chunk,
                                 std::byte* activations) {
  const int chunk_size = split_chunk_bytes(arguments.input.count);
  const std::byte* source = arguments.split + static_cast<std::size_t>(first_chunk) * chunk_size;
  const int bytes = (end_chunk - first_chunk) * chunk_size;
  for (int at = threadIdx.x * 16; at < bytes; at += kThreads * 16) {
    *reinterpret_cast<uint4*>(activations + at) = *reinterpret_cast<const uint4*>(source + at);
  }
}

// One output of the unit, its parts from the warps added in ascending order.
template <int kGroups, int kTiles>
__device__ void finish(const KernelArguments& arguments, const Unit<kTiles>& unit, const float* parts, int index) {
  const int row_in_tile = index % kTileRows;
  const int input_row = index / kTileRows;
  const int row = unit.tile * kTileRows + row_in_tile;
  if (input_row >= arguments.input.count || row >= unit.matrix->rows) return;
  float values[kTiles];
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    const float* place = parts + ((r * kTileRows + row_in_tile) * 4 * kGroups + input_row) * kWarps;
    float value = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) value += place[warp];
    const float* bias = unit.matrix[r].bias;
    values[r] = bias == nullptr ? value : value + bias[row];
  }
  float* out = unit.matrix->out + static_cast<std::size_t>(input_row) * unit.matrix->stride + row;
  if constexpr (kTiles == 2) {
    *out = activated(arguments.activation, values[0]) * values[1];
  } else if (arguments.output == GemvOutput::add) {
    *out += arguments.scale * values[0];
  } else {
    *out = values[0];
  }
}

template <int kGroups, int kTiles>
__global__ void __launch_bounds__(kThreads, kGroups <= 2 ? 2 : 1)
    gemv_kernel(const __grid_constant__ KernelArguments arguments) {
  extern __shared__ __align__(16) std::byte shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int ring_bytes = arguments.stages * arguments.stage_bytes;
  std::byte* ring = shared + warp * ring_bytes;
  const std::uint32_t ring_address = shared_address(ring);
  auto* reduction = reinterpret_cast<float*>(shared + kWarps * ring_bytes);
  float* scratch = reduction + reduction_floats(kGroups, kTiles);
  auto* activations = reinterpret_cast<std::byte*>(scratch + kWarps);

  // The next chunk to ask for, always stages - 1 ahead of the one that is worked on.
  const std::uint64_t policy = evict_first_policy();
  int ahead_unit = warp < arguments.chunks ? static_cast<int>(blockIdx.x) : arguments.units;
  int ahead_chunk = warp;
  int ahead_stage = 0;
  const auto issue_next = [&] {
    issue_copies<kTiles>(arguments, ahead_unit, ahead_chunk, ring_address + ahead_stage * arguments.stage_bytes, lane,
                         policy);
    ahead_stage = ahead_stage + 1 == arguments.stages ? 0 : ahead_stage + 1;
    ahead_chunk += kWarps;
    if (ahead_chunk >= arguments.chunks) {
      ahead_chunk = warp;
      ahead_unit += gridDim.x;
    }
  };
  for (int i = 1; i < arguments.stages; ++i) issue_next();
  allow_next_kernel();
  wait_for_previous_kernel();

  const bool in_phases = arguments.resident_chunks < arguments.chunks;
  if (arguments.split == nullptr) {
    for (int row = 0; row < arguments.input.count; ++row) {
      split_row(arguments.input, row, blockIdx.x == 0, scratch, activations);
    }
  } else if (!in_phases) {
    load_activations(arguments, 0, arguments.chunks, activations);
  }
  __syncthreads();

  const ActivationView<kGroups> view(arguments.input.count, lane);
  const int activation_bytes = split_chunk_bytes(arguments.input.count);
  int stage = 0;
  int iteration = 0;
  for (int number = blockIdx.x; number < arguments.units; number += gridDim.x, ++iteration) {
    const Unit<kTiles> unit(arguments, number);
    float sums[kTiles][kGroups][2] = {};
    int chunk = warp;
    for (int first = 0; first < arguments.chunks; first += arguments.resident_chunks) {
      const int end = min(first + arguments.resident_chunks, arguments.chunks);
      if (in_phases) {
        __syncthreads();
        load_activations(arguments, first, end, activations);
        __syncthreads();
      }
      for (; chunk < end; chunk += kWarps) {
        wait_for_copies(arguments.stages - 2);
        __syncwarp();
        issue_next();
        const std::byte* weights = ring + stage * arguments.stage_bytes;
        const std::byte* rows = activations + (chunk - first) * activation_bytes;
        stage = stage + 1 == arguments.stages ? 0 : stage + 1;
        const auto consume = [&]<WeightFormat F>() {
#pragma unroll
          for (int r = 0; r < kTiles; ++r) {
            consume_chunk<F, kGroups>(weights + r * (arguments.stage_bytes / kTiles), rows, view, lane, sums[r]);
          }
        };
        switch (unit.matrix->format) {
          case WeightFormat::q4_0: consume.template operator()<WeightFormat::q4_0>(); break;
          case WeightFormat::q4_1: consume.template operator()<WeightFormat::q4_1>(); break;
          case WeightFormat::q5_0: consume.template operator()<WeightFormat::q5_0>(); break;
          case WeightFormat::q5_1: consume.template operator()<WeightFormat::q5_1>(); break;
          case WeightFormat::q8_0: consume.template operator()<WeightFormat::q8_0>(); break;
          case WeightFormat::q4_k: consume.template operator()<WeightFormat::q4_k>(); break;
          case WeightFormat::q5_k: consume.template operator()<WeightFormat::q5_k>(); break;
          case WeightFormat::q6_k: consume.template operator()<WeightFormat::q6_k>(); break;
        }
      }
    }
    // Two buffers by turns: nobody can be two tiles ahead of somebody who still reads.
    float* parts = reduction + iteration % 2 * (reduction_floats(kGroups, kTiles) / 2);
#pragma unroll
    for (int r = 0; r < kTiles; ++r) {
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        const int column = 4 * j + lane % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = r * kTileRows + lane / 4 + 8 * h;
          parts[(row * 4 * kGroups + column) * kWarps + warp] = sums[r][j][h];
        }
      }
    }
    __syncthreads();
    finish<kGroups, kTiles>(arguments, unit, parts, (threadIdx.x + kThreads - iteration * 32 % kThreads) % kThreads);
  }
}

template <typename Action>
void with_kernels(int groups, bool pair, const Action& action) {
  if (pair) {
    groups == 1 ? action(gemv_kernel<1, 2>) : groups == 2 ? action(gemv_kernel<2, 2>) : action(gemv_kernel<4, 2>);
  } else {
    groups == 1 ? action(gemv_kernel<1, 1>) : groups == 2 ? action(gemv_kernel<2, 1>) : action(gemv_kernel<4, 1>);
  }
}

}  // namespace

void prepare_gemv(const LaunchContext& context) {
  for (const int groups : {1, 2, 4}) {
    for (const bool pair : {false, true}) {
      with_kernels(groups, pair, [&](auto kernel) { allow_shared_bytes("gemv", kernel, context.shared_bytes); });
    }
  }
}

void gemv(const LaunchContext& context, const GemvOp& op) {
  const bool pair = op.output == GemvOutput::glu;
  const int tiles = pair ? 2 : 1;
  const int rows = op.input.count;
  const int groups = rows <= 4 ? 1 : rows <= 8 ? 2 : 4;
  KernelArguments arguments{.input = op.input,
                            .split = op.split,
                            .matrices = {},
                            .units = 0,
                            .chunks = op.matrices[0].weight.chunks(),
                            .stages = 0,
                            .stage_bytes = 0,
                            .resident_chunks = 0,
                            .output = op.output,
                            .activation = op.activation,
                            .scale = op.scale};
  for (int i = 0; i < op.matrix_count; ++i) {
    const GemvMatrix& matrix = op.matrices[i];
    arguments.matrices[i] = {.data = matrix.weight.data,
                             .bias = matrix.bias,
                             .out = matrix.out,
                             .stride = matrix.stride,
                             .rows = matrix.weight.rows,
                             .tiles = matrix.weight.tiles(),
                             .format = matrix.weight.format};
    arguments.units += matrix.weight.tiles();
    arguments.stage_bytes = std::max(arguments.stage_bytes, tiles * chunk_bytes(matrix.weight.format));
  }
  if (pair) arguments.units /= 2;
  arguments.stages = std::clamp(std::min(kRingBytes, context.shared_bytes / 2) / (kWarps * arguments.stage_bytes), 2,
                                kMaxStages);
  const int fixed = kWarps * arguments.stages * arguments.stage_bytes +
                    4 * (reduction_floats(groups, tiles) + kWarps);
  arguments.resident_chunks =
      std::min(arguments.chunks, (context.shared_bytes - fixed) / split_chunk_bytes(rows));
  if (arguments.resident_chunks < arguments.chunks) {
    arguments.resident_chunks = std::max(1, arguments.resident_chunks / kWarps * kWarps);
  }
  const int shared_bytes = fixed + arguments.resident_chunks * split_chunk_bytes(rows);
  const dim3 grid(static_cast<unsigned>(std::min(arguments.units, context.multiprocessors)));
  with_kernels(groups, pair, [&](auto kernel) {
    launch(op.name, context, kernel, grid, dim3(kThreads), shared_bytes, arguments);
  });
}

}  // namespace quarrel::cuda

#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/packed_gemm_chunk.cuh"
#include "backend/cuda/parts_end.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * 32;
constexpr int kMaxStages = 4;
constexpr int kMixedFormats = -1;
// From a row of activations to the next: eight-byte loads of eight rows then fall into different banks.
constexpr int kRowPadding = 32;

constexpr int row_bytes(int slab_chunks) { return slab_chunks * kChunkColumns * 2 + kRowPadding; }
// The same for the sums over groups: eight F32 a chunk.
constexpr int sum_row_bytes(int slab_chunks) { return (slab_chunks * 32 + 95) / 128 * 128 + 32; }

struct KernelMatrix {
  const std::byte* data;
  int rows;
  int tiles;
  int chunk_bytes;
  int first_row;  // of all
  WeightFormat format;
};

struct KernelArguments {
  const std::uint16_t* in;
  int rows;
  int columns;
  KernelMatrix matrices[kMaxPackedGemmMatrices];
  int tiles;
  int width;
  int chunks;
  int slab_chunks;
  int slabs;
  int stages;
  int stage_bytes;
  bool has_minimums;
  float* parts;
};

// A warp's tiles of its block's slab: every workers-th one.
struct Walk {
  const KernelArguments& arguments;
  int first_chunk;
  int chunks;  // of the slab
  int worker;
  int workers;
  int count;  // of tiles

  __device__ explicit Walk(const KernelArguments& a) : arguments(a) {
    const int slab = blockIdx.x % a.slabs;
    first_chunk = slab * a.slab_chunks;
    chunks = min(a.slab_chunks, a.chunks - first_chunk);
    worker = blockIdx.x / a.slabs * kWarps + threadIdx.x / 32;
    workers = gridDim.x / a.slabs * kWarps;
    count = worker < a.tiles ? (a.tiles - worker + workers - 1) / workers : 0;
  }
  // The matrix of the number-th tile; `tile` is its number there.
  __device__ const KernelMatrix& matrix_of(int number, int& tile) const {
    tile = worker + number * workers;
    const KernelMatrix* matrix = arguments.matrices;
    while (tile >= matrix->tiles) tile -= matrix++->tiles;
    return *matrix;
  }
};

// Asks for one chunk after the other, across the ends of tiles.
class ChunkFiller {
 public:
  __device__ ChunkFiller(const Walk& walk, int lane, std::uint32_t ring)
      : walk_(walk), lane_(lane), ring_(ring), left_(walk.count * walk.chunks) {}

  // An empty group when there is none left, so that groups can be counted.
  __device__ void fill_next() {
    if (left_ > 0) {
      --left_;
      if (chunk_ == 0) {
        int tile;
        const KernelMatrix& matrix = walk_.matrix_of(number_++, tile);
        bytes_ = matrix.chunk_bytes;
        source_ = matrix.data + (static_cast<std::size_t>(tile) * walk_.arguments.chunks + walk_.first_chunk) *
                                    static_cast<std::size_t>(bytes_);
      }
      const std::uint32_t to = ring_ + stage_;
      for (int at = lane_ * 16; at < bytes_; at += 512) copy_async(to + at, source_ + at, policy_);
      source_ += bytes_;
      chunk_ = chunk_ + 1 == walk_.chunks ? 0 : chunk_ + 1;
      stage_ += walk_.arguments.stage_bytes;
      if (stage_ == walk_.arguments.stages * walk_.arguments.stage_bytes) stage_ = 0;
    }
    commit_copies();
  }

 private:
  const Walk& walk_;
  int lane_;
  std::uint32_t ring_;
  int left_;
  std::uint64_t policy_ = evict_first_policy();
  const std::byte* source_ = nullptr;
  int bytes_ = 0;
  int number_ = 0;
  int chunk_ = 0;
  int stage_ = 0;
};

// The slab's columns of all rows; zeros for rows and columns that do not exist.
template <int kTiles>
__device__ void copy_activations(const KernelArguments& arguments, const Walk& walk, std::uint32_t to) {
  const int pieces = walk.chunks * kChunkColumns / 8;  // of a row
  const int first_column = walk.first_chunk * kChunkColumns;
  for (int i = threadIdx.x; i < kTiles * 8 * pieces; i += kThreads) {
    const int row = i / pieces;
    const int column = first_column + i % pieces * 8;
    const bool exists = row < arguments.rows && column < arguments.columns;
    const std::uint16_t* source =
        arguments.in + (exists ? static_cast<std::size_t>(row) * arguments.columns + column : 0);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + row * row_bytes(arguments.slab_chunks) +
                                                                       i % pieces * 16),
                 "l"(source), "r"(exists ? 16 : 0)
                 : "memory");
  }
  commit_copies();
}

// The sum over every 32 columns, those of groups t and t + 4 of a chunk together. In tf32, rounded.
template <int kTiles>
__device__ void add_up_groups(const KernelArguments& arguments, const Walk& walk, const std::byte* activations,
                              std::byte* sums) {
  const int groups = walk.chunks * kChunkSteps;
  for (int i = threadIdx.x; i < kTiles * 8 * groups; i += kThreads) {
    const int row = i / groups;
    const int group = i % groups;
    const std::byte* place = activations + row * row_bytes(arguments.slab_chunks) + group * 64;
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
    std::byte* target = sums + row * sum_row_bytes(arguments.slab_chunks) + group / kChunkSteps * 32 +
                        (group % 4 * 2 + group % kChunkSteps / 4) * 4;
    *reinterpret_cast<float*>(target) = rounded_to_tf32(sum);
  }
}

__device__ void wait_for_stage(int stages) { wait_for_copies(stages - 1); }

template <int kFormat, int kTiles>
__global__ void __launch_bounds__(kThreads, 1) packed_gemm_kernel(const __grid_constant__ KernelArguments arguments) {
  extern __shared__ __align__(16) std::byte shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int ring_bytes = arguments.stages * arguments.stage_bytes;
  std::byte* ring = shared + warp * ring_bytes;
  std::byte* activations = shared + kWarps * ring_bytes;
  const Walk walk(arguments);
  ChunkFiller filler(walk, lane, shared_address(ring));
#pragma unroll 1
  for (int i = 0; i < arguments.stages; ++i) filler.fill_next();
  allow_next_kernel();
  wait_for_previous_kernel();
  copy_activations<kTiles>(arguments, walk, shared_address(activations));
  wait_for_copies(0);
  __syncthreads();
  std::byte* group_sums = activations + kTiles * 8 * row_bytes(arguments.slab_chunks);
  if (arguments.has_minimums) {
    add_up_groups<kTiles>(arguments, walk, activations, group_sums);
    __syncthreads();
  }

  const int g = lane / 4;
  const int t = lane % 4;
  const int pitch = row_bytes(arguments.slab_chunks);
  const int sum_pitch = sum_row_bytes(arguments.slab_chunks);
  const ChunkActivations first{.halves = activations + g * pitch + t * 8,
                               .tile_bytes = 8 * pitch,
                               .sums = group_sums + g * sum_pitch + t * 8,
                               .tile_sum_bytes = 8 * sum_pitch};
  float* parts =
      arguments.parts + static_cast<std::size_t>(blockIdx.x % arguments.slabs) * arguments.rows * arguments.width;
  int stage = 0;
#pragma unroll 1
  for (int number = 0; number < walk.count; ++number) {
    int tile;
    const KernelMatrix& matrix = walk.matrix_of(number, tile);
    const WeightFormat format = matrix.format;
    float sums[kTiles][4] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < walk.chunks; ++chunk) {
      wait_for_stage(arguments.stages);
      __syncwarp();
      const std::byte* weights = ring + stage;
      ChunkActivations rows = first;
      rows.halves += chunk * kChunkColumns * 2;
      rows.sums += chunk * 32;
      stage = stage + arguments.stage_bytes == ring_bytes ? 0 : stage + arguments.stage_bytes;
      const auto add = [&]<WeightFormat F>() { add_chunk<F, kTiles>(weights, lane, rows, sums); };
      if constexpr (kFormat == kMixedFormats) {
        with_format(format, add);
      } else {
        add.template operator()<static_cast<WeightFormat>(kFormat)>();
      }
      __syncwarp();
      filler.fill_next();
    }
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int row = n * 8 + 2 * t + c % 2;
        const int in_matrix = tile * kTileRows + g + c / 2 * 8;
        if (row < arguments.rows && in_matrix < matrix.rows) {
          parts[static_cast<std::size_t>(row) * arguments.width + matrix.first_row + in_matrix] = sums[n][c];
        }
      }
    }
  }
}

template <int kTiles, typename Action>
void with_kernel(int format, const Action& action) {
  if (format == kMixedFormats) return action(packed_gemm_kernel<kMixedFormats, kTiles>);
  with_format(static_cast<WeightFormat>(format),
              [&]<WeightFormat F>() { action(packed_gemm_kernel<static_cast<int>(F), kTiles>); });
}

// Tiles of eight input rows: 1, 2 or 4.
int input_tiles(int rows) { return rows <= 8 ? 1 : rows <= 16 ? 2 : 4; }

template <typename Action>
void with_kernel(int tiles, int format, const Action& action) {
  switch (tiles) {
    case 1: return with_kernel<1>(format, action);
    case 2: return with_kernel<2>(format, action);
    default: return with_kernel<4>(format, action);
  }
}

int largest_chunk(const PackedGemmOp& op) {
  int bytes = 0;
  for (int i = 0; i < op.matrix_count; ++i) bytes = std::max(bytes, chunk_bytes(op.matrices[i].format));
  return bytes;
}

constexpr int kJoinThreads = 256;

__host__ __device__ int outputs_of(const JoinPartsOp& op) { return op.end == PartsEnd::glu ? op.width / 2 : op.width; }

__device__ float joined(const JoinPartsOp& op, int row, int column) {
  const float* place = op.parts + static_cast<std::size_t>(row) * op.width + column;
  const std::size_t stride = static_cast<std::size_t>(op.rows) * op.width;
  float sum = 0.0f;
#pragma unroll 8
  for (int slab = 0; slab < op.slabs; ++slab) sum += place[slab * stride];
  return sum;
}

__global__ void __launch_bounds__(kJoinThreads) join_parts_kernel(const __grid_constant__ JoinPartsOp op) {
  const int i = blockIdx.x * kJoinThreads + threadIdx.x;
  const int row = blockIdx.y;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int outputs = outputs_of(op);
  if (i >= outputs) return;
  if (op.end != PartsEnd::glu) return end_sum(op, row, i, joined(op, row, i));
  const float value = end_glu(op, row, i, joined(op, row, i), joined(op, row, outputs + i));
  if (op.halves == nullptr) return;
  if (op.image_rows > 0) {
    image_of(op).put_by_half_warp(row, i, value);
  } else {
    unsigned saturated = 0;
    op.halves[static_cast<std::size_t>(row) * outputs + i] = saturated_half(value, saturated);
  }
}

}  // namespace

// What a warp has to do one after the other, in chunks, and what the parts cost on their way through the cache.
std::optional<PackedGemmPlan> plan_packed_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                               std::size_t part_floats) {
  const int chunks = op.matrices[0].chunks();
  // By the room that rows have, not by their number: then a row's bits do not depend on how many there are.
  const int rows = input_tiles(op.rows) * 8;
  const int stage_bytes = kWarps * largest_chunk(op);
  int tiles = 0;
  for (int i = 0; i < op.matrix_count; ++i) tiles += op.matrices[i].tiles();
  std::optional<PackedGemmPlan> best;
  double least = 0.0;
  for (int slab_chunks = 1; slab_chunks <= std::min(chunks, 16); ++slab_chunks) {
    const int slabs = (chunks + slab_chunks - 1) / slab_chunks;
    const int slab_row_bytes = row_bytes(slab_chunks) + sum_row_bytes(slab_chunks);
    const int stages = std::min(kMaxStages, (context.shared_bytes - rows * slab_row_bytes) / stage_bytes);
    const int blocks = std::min(context.multiprocessors / slabs, (tiles + kWarps - 1) / kWarps);
    const std::size_t floats =
        static_cast<std::size_t>(slabs) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(op.width());
    if (stages < 2 || blocks < 1 || floats > part_floats) continue;
    const int rounds = (tiles + blocks * kWarps - 1) / (blocks * kWarps);
    const double cost = static_cast<double>(rounds * slab_chunks) + static_cast<double>(floats) * 1.6e-6;
    if (best && cost >= least) continue;
    least = cost;
    best = {.slab_chunks = slab_chunks, .slabs = slabs, .blocks_a_slab = blocks, .stages = stages};
  }
  return best;
}

void prepare_packed_gemm(const LaunchContext& context) {
  for (const int tiles : {1, 2, 4}) {
    for (int format = kMixedFormats; format < kWeightFormats; ++format) {
      with_kernel(tiles, format, [&](auto kernel) { allow_shared_bytes("packed gemm", kernel, context.shared_bytes); });
    }
  }
}

void packed_gemm(const LaunchContext& context, const PackedGemmOp& op, const PackedGemmPlan& plan) {
  KernelArguments arguments{.in = op.in,
                            .rows = op.rows,
                            .columns = op.columns,
                            .matrices = {},
                            .tiles = 0,
                            .width = op.width(),
                            .chunks = op.matrices[0].chunks(),
                            .slab_chunks = plan.slab_chunks,
                            .slabs = plan.slabs,
                            .stages = plan.stages,
                            .stage_bytes = largest_chunk(op),
                            .has_minimums = false,
                            .parts = op.parts};
  int format = static_cast<int>(op.matrices[0].format);
  int first_row = 0;
  for (int i = 0; i < op.matrix_count; ++i) {
    const PackedMatrix& matrix = op.matrices[i];
    if (matrix.format != op.matrices[0].format) format = kMixedFormats;
    arguments.matrices[i] = {.data = matrix.data,
                             .rows = matrix.rows,
                             .tiles = matrix.tiles(),
                             .chunk_bytes = chunk_bytes(matrix.format),
                             .first_row = first_row,
                             .format = matrix.format};
    arguments.has_minimums = arguments.has_minimums || !is_symmetric(matrix.format);
    arguments.tiles += matrix.tiles();
    first_row += matrix.rows;
  }
  const int tiles = input_tiles(op.rows);
  const int slab_row_bytes = row_bytes(plan.slab_chunks) + sum_row_bytes(plan.slab_chunks);
  const int shared_bytes = kWarps * plan.stages * arguments.stage_bytes + tiles * 8 * slab_row_bytes;
  const dim3 grid(static_cast<unsigned>(plan.slabs * plan.blocks_a_slab));
  with_kernel(tiles, format, [&](auto kernel) {
    launch("packed gemm", context, kernel, grid, dim3(kThreads), shared_bytes, arguments);
  });
}

void join_parts(const LaunchContext& context, const JoinPartsOp& op) {
  const dim3 grid(static_cast<unsigned>((outputs_of(op) + kJoinThreads - 1) / kJoinThreads),
                  static_cast<unsigned>(op.rows));
  launch("join parts", context, join_parts_kernel, grid, dim3(kJoinThreads), 0, op);
}

}  // namespace quarrel::cuda

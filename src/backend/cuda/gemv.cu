// A thread block walks over tiles of 16 rows; its sixteen warps share a tile's columns, chunk c belonging to warp c
// % 16. Each warp has a ring of chunks in shared memory that it fills itself by asynchronous copies, across the ends of
// tiles, so that the memory never waits for arithmetic, for a reduction or for the kernel before: the first chunks are
// on their way before this kernel waits for its input. Warps keep their sums in shared memory and wait for each other
// only once a batch of tiles.
#include <algorithm>

#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/gemv.h"
#include "backend/cuda/gemv_chunk.cuh"
#include "backend/cuda/gemv_end.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/shared_room.h"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = kSplitWarps;
constexpr int kThreads = kSplitThreads;
constexpr int kMaxStages = 4;
constexpr int kPartsBytes = 18 * 1024;
// Kernels of so many rows and more can go through a long row in phases.
constexpr int kLeastPhasedRows = 4;
// Kernels for one format are numbered as the formats are; the others are for Q4_K and Q6_K together, which the usual
// mixtures have, and for anything.
constexpr int kMixedFormats = -1;
constexpr int kQ4KAndQ6K = -2;

struct KernelMatrix {
  const std::byte* data;
  const float* bias;
  float* out;
  int stride;
  int rows;
  int tiles;
  int chunk_bytes;
  WeightFormat format;
};

struct KernelArguments {
  using Matrix = KernelMatrix;
  static constexpr int kTileRows = cuda::kTileRows;
  SplitInput input;
  const std::byte* split;
  KernelMatrix matrices[kMaxGemvMatrices];
  int units;       // tiles to be shared out, or pairs of them
  int unit_tiles;  // 1, or 2: those whose sums are needed together
  int half_shift;
  int chunks;
  int stages;
  int stage_bytes;
  int resident_chunks;  // activations of so many chunks lie in shared memory at a time
  int batch_tiles;      // the warps' sums of so many tiles are kept before they are added up
  GemvOutput output;
  ActivationKind activation;
  float scale;
  bool next_may_start;
  QkvOutput qkv;
};

// Of the warps' sums of one output: four of them are read at once, and those of eight outputs begin in different banks.
constexpr int kSumStride = kWarps + 4;
// Of those of one tile.
constexpr int tile_floats(int rows) { return kTileRows * rows * kSumStride; }

// How a block divides its warps' rings: into stages for the largest chunks that it has itself. Where all chunks have
// one size this is known to everybody and takes no registers.
template <int kFormat>
class RingStages {
 public:
  __device__ RingStages(const KernelArguments& arguments, int tiles) : arguments_(arguments) {
    if constexpr (kFormat < 0) {
      for (int i = 0; i < tiles; ++i) bytes_ = max(bytes_, Tile<KernelArguments>(arguments, i).matrix->chunk_bytes);
      count_ = min(kMaxStages, arguments.stages * arguments.stage_bytes / bytes_);
    }
  }
  __device__ int bytes() const { return kFormat < 0 ? bytes_ : arguments_.stage_bytes; }  // of a stage
  __device__ int count() const { return kFormat < 0 ? count_ : arguments_.stages; }
  // Where the next one begins.
  __device__ int after(int stage) const {
    const int next = stage + bytes();
    return next == count() * bytes() ? 0 : next;
  }

 private:
  const KernelArguments& arguments_;
  int bytes_ = 1;
  int count_ = 0;
};

// Fills a warp's ring, chunk after chunk of its share of the block's tiles.
template <int kFormat>
class RingFiller {
 public:
  __device__ RingFiller(const KernelArguments& arguments, const RingStages<kFormat>& stages, int tiles, int warp,
                        int lane, std::uint32_t ring)
      : arguments_(arguments),
        stages_(stages),
        lane_(lane),
        left_(warp < arguments.chunks ? tiles * ((arguments.chunks - warp + kWarps - 1) / kWarps) : 0),
        warp_(warp),
        ring_(ring) {
    if (left_ > 0) start_tile();
  }

  // Asks for the next chunk; an empty group when there is none, so that groups can be counted.
  __device__ void fill_next() {
    if (left_ > 0) {
      --left_;
      const std::uint32_t to = ring_ + stage_ + lane_ * 16;
      if constexpr (kFormat == kQ4KAndQ6K) {
#pragma unroll
        for (int at = 0; at < chunk_bytes(WeightFormat::q6_k); at += 512) {
          if (lane_ * 16 < bytes() - at) copy_async(to + at, source_ + at, policy_);
        }
      } else if constexpr (kFormat == kMixedFormats) {
        for (int at = 0; at < bytes() - lane_ * 16; at += 512) copy_async(to + at, source_ + at, policy_);
      } else {
#pragma unroll
        for (int at = 0; at < bytes(); at += 512) {
          if (at + 512 <= bytes() || lane_ * 16 < bytes() - at) copy_async(to + at, source_ + at, policy_);
        }
      }
      stage_ = stages_.after(stage_);
      step();
    }
    commit_copies();
  }

 private:
  __device__ void step() {
    chunk_ += kWarps;
    source_ += kWarps * bytes();
    if (chunk_ < arguments_.chunks || left_ == 0) return;
    ++number_;
    start_tile();
  }

  __device__ int bytes() const {
    if constexpr (kFormat < 0) {
      return mixed_bytes_;
    } else {
      return chunk_bytes(static_cast<WeightFormat>(kFormat));
    }
  }

  __device__ void start_tile() {
    const Tile<KernelArguments> tile(arguments_, number_);
    mixed_bytes_ = tile.matrix->chunk_bytes;
    chunk_ = warp_;
    source_ = tile.matrix->data + lane_ * 16 +
              static_cast<std::size_t>(tile.tile * arguments_.chunks + chunk_) * static_cast<std::size_t>(bytes());
  }

  const KernelArguments& arguments_;
  const RingStages<kFormat>& stages_;
  int lane_;
  int left_;  // chunks
  int warp_;
  std::uint32_t ring_;
  std::uint64_t policy_ = evict_first_policy();
  const std::byte* source_ = nullptr;
  int mixed_bytes_ = 0;
  int number_ = 0;
  int chunk_ = 0;
  int stage_ = 0;
};

// Asks for them; they are there after a wait for all copies and a barrier.
template <int kRows>
__device__ void copy_activations(const KernelArguments& arguments, int first_chunk, int end_chunk, std::uint32_t to) {
  const std::byte* source = arguments.split + static_cast<std::size_t>(first_chunk) * split_chunk_bytes(kRows);
  const int bytes = (end_chunk - first_chunk) * split_chunk_bytes(kRows);
#pragma unroll 1
  for (int at = threadIdx.x * 16; at < bytes; at += kThreads * 16) copy_async(to + at, source + at);
  commit_copies();
}

// What a row's values are yet to be multiplied with, a row a thread.
template <int kRows>
__device__ void take_scales(const KernelArguments& arguments, float* scales) {
  const int row = threadIdx.x;
  if (row >= kRows) return;
  const std::byte* squares = arguments.split + static_cast<std::size_t>(arguments.chunks) * split_chunk_bytes(kRows);
  scales[row] = left_scale(arguments.input, reinterpret_cast<const float*>(squares) + row * kWarps);
}

// What the end of the kernel reads: sums of all warps, and what an RMS norm has left.
template <int kRows>
struct WarpSums {
  static constexpr bool kSplits = kRows <= kMaxFusedSplitRows;
  const SplitInput& input;
  const float* parts;
  const float* squares;  // of rows that were split before, their scales

  __device__ float quarter(int slot, int row, int input_row, int quarter) const {
    const float* sums = parts + ((slot * kTileRows + row) * kRows + input_row) * kSumStride;
    return quarter_of_warps(sums, quarter);
  }
  __device__ float scale_of(int input_row) const {
    return kSplits ? left_scale(input, squares + input_row * kWarps) : squares[input_row];
  }
  __device__ float scale_of_quad(int input_row) const {
    if (!kSplits) return squares[input_row];
    if (!leaves_scale(input)) return 1.0f;
    return left_scale_of(
        input, sum_of_quad([&](int quarter) { return quarter_of_warps(squares + input_row * kWarps, quarter); }));
  }
};

__device__ void wait_for_stage(int stages) {
  if (stages == 2) {
    wait_for_copies(1);
  } else {
    wait_for_copies(stages - 1);
  }
}

template <int kRows, int kFormat>
__global__ void __launch_bounds__(kThreads, kRows <= 2 ? 2 : 1)
    gemv_kernel(const __grid_constant__ KernelArguments arguments) {
  constexpr bool kMayNeedPhases = kRows >= kLeastPhasedRows;
  constexpr bool kSplits = kRows <= kMaxFusedSplitRows;
  extern __shared__ __align__(16) std::byte shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int ring_bytes = arguments.stages * arguments.stage_bytes;
  std::byte* ring = shared + warp * ring_bytes;
  auto* parts = reinterpret_cast<float*>(shared + kWarps * ring_bytes);
  float* scratch = parts + arguments.batch_tiles * tile_floats(kRows);
  float* squares = scratch + kWarps;
  auto& kept = *reinterpret_cast<KeptForEnd<kRows>*>(squares + kRows * kWarps);
  std::byte* activations = reinterpret_cast<std::byte*>(&kept) + sizeof(kept);
  const int tiles = tiles_of_block(arguments);
  const RingStages<kFormat> stages(arguments, tiles);

  RingFiller<kFormat> filler(arguments, stages, tiles, warp, lane, shared_address(ring));
#pragma unroll 1
  for (int i = 0; i < stages.count(); ++i) filler.fill_next();
  const int outputs = kept_outputs<kRows>(arguments, tiles);
  const float* rest = kept.keep_places(arguments, outputs);
  FirstChunk first_chunk(arguments.input);
  // At once: then the next kernel's blocks take the places that the one before leaves, one on every multiprocessor.
  if (arguments.next_may_start) allow_next_kernel();
  wait_for_previous_kernel();

  const bool in_phases = kMayNeedPhases && arguments.resident_chunks < arguments.chunks;
  if constexpr (kSplits) {
    first_chunk.load_row(arguments.input, 0);
    kept.request_rest(arguments, rest);
#pragma unroll 1
    for (int row = 0; row < kRows; ++row) {
      if (row > 0) first_chunk.load_row(arguments.input, row);
      split_row(arguments.input, first_chunk, row, blockIdx.x == 0, row, kRows, squares + row * kWarps, scratch,
                activations);
    }
    __syncwarp();
  } else {
    kept.request_rest(arguments, rest);
    if (!in_phases) copy_activations<kRows>(arguments, 0, arguments.chunks, shared_address(activations));
    take_scales<kRows>(arguments, squares);
    if (!in_phases) {
      wait_for_copies(0);
      __syncthreads();
    }
  }
  const WarpSums<kRows> all_sums{.input = arguments.input, .parts = parts, .squares = squares};

  const ColumnPlan<kRows> plan(lane);
  int stage = 0;
  int first_kept = 0;  // the first tile whose sums are kept
  for (int number = 0; number < tiles; ++number) {
    const WeightFormat format = kFormat < 0 ? Tile<KernelArguments>(arguments, number).matrix->format : WeightFormat{};
    Sums<kRows> sums;
    int chunk = warp;
    int first = 0;
    do {
      int end = arguments.chunks;
      if (in_phases) {
        end = min(first + arguments.resident_chunks, arguments.chunks);
        __syncthreads();
        copy_activations<kRows>(arguments, first, end, shared_address(activations));
        wait_for_copies(0);
        __syncthreads();
      }
      for (; chunk < end; chunk += kWarps) {
        wait_for_stage(stages.count());
        __syncwarp();
        const std::byte* weights = ring + stage;
        const std::byte* rows = activations + (chunk - first) * split_chunk_bytes(kRows);
        stage = stages.after(stage);
        const auto consume = [&]<WeightFormat F>() { consume_chunk<F, kRows>(weights, rows, plan, lane, sums); };
        if constexpr (kFormat == kMixedFormats) {
          with_format(format, consume);
        } else if constexpr (kFormat == kQ4KAndQ6K) {
          if (format == WeightFormat::q4_k) {
            consume.template operator()<WeightFormat::q4_k>();
          } else {
            consume.template operator()<WeightFormat::q6_k>();
          }
        } else {
          consume.template operator()<static_cast<WeightFormat>(kFormat)>();
        }
        __syncwarp();
        filler.fill_next();
      }
      first = end;
    } while (kMayNeedPhases && first < arguments.chunks);
    float* place = parts + (number - first_kept) * tile_floats(kRows) + warp;
#pragma unroll
    for (int j = 0; j < ColumnPlan<kRows>::kRowSets; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float sum = sums.whole(j, h);
        const int input_row = 4 * j + lane % 4;
        if (input_row < kRows) place[((lane / 4 + 8 * h) * kRows + input_row) * kSumStride] = sum;
      }
    }
    if (number + 1 < tiles && number + 1 - first_kept < arguments.batch_tiles) continue;
    if (outputs > 0) wait_for_all_copies();
    __syncthreads();
    if (outputs > 0) {
      finish_kept<kRows>(arguments, outputs, kept, all_sums);
    } else {
      finish<kRows>(arguments, first_kept, number + 1 - first_kept, all_sums);
      __syncthreads();
    }
    first_kept = number + 1;
  }
  // By the way: nobody needs it in this step.
  if (blockIdx.x == 0 && static_cast<int>(threadIdx.x) < arguments.input.count) {
    if (!isfinite(all_sums.scale_of(threadIdx.x))) note_bad_row(arguments.input, threadIdx.x);
  }
}

template <int kRows, typename Action>
void with_kernel(int format, const Action& action) {
  if (format == kMixedFormats) return action(gemv_kernel<kRows, kMixedFormats>);
  if (format == kQ4KAndQ6K) return action(gemv_kernel<kRows, kQ4KAndQ6K>);
  with_format(static_cast<WeightFormat>(format),
              [&]<WeightFormat F>() { action(gemv_kernel<kRows, static_cast<int>(F)>); });
}

template <typename Action>
void with_kernel(int rows, int format, const Action& action) {
  switch (rows) {
    case 1: return with_kernel<1>(format, action);
    case 2: return with_kernel<2>(format, action);
    case 4: return with_kernel<4>(format, action);
    case 8: return with_kernel<8>(format, action);
    default: return with_kernel<16>(format, action);
  }
}

int kernel_format(const GemvOp& op) {
  bool uniform = true;
  bool usual = true;
  for (int i = 0; i < op.matrix_count; ++i) {
    const WeightFormat format = op.matrices[i].weight.format;
    uniform = uniform && format == op.matrices[0].weight.format;
    usual = usual && (format == WeightFormat::q4_k || format == WeightFormat::q6_k);
  }
  if (uniform) return static_cast<int>(op.matrices[0].weight.format);
  return usual ? kQ4KAndQ6K : kMixedFormats;
}

struct GemvLaunch {
  KernelArguments arguments;
  int grid = 0;
  int shared_bytes = 0;  // 0: the rows are too long for a block's
};

GemvLaunch launch_of(const LaunchContext& context, const GemvOp& op, int rows) {
  KernelArguments arguments{.input = op.input,
                            .split = op.split,
                            .matrices = {},
                            .units = 0,
                            .unit_tiles = 1,
                            .half_shift = half_shift_of(op, kTileRows),
                            .chunks = op.matrices[0].weight.chunks(),
                            .stages = 0,
                            .stage_bytes = 0,
                            .resident_chunks = 0,
                            .batch_tiles = 0,
                            .output = op.output,
                            .activation = op.activation,
                            .scale = op.scale,
                            .next_may_start = false,
                            .qkv = op.qkv};
  if (op.output == GemvOutput::glu || arguments.half_shift >= 0) arguments.unit_tiles = 2;
  for (int i = 0; i < op.matrix_count; ++i) {
    const GemvMatrix& matrix = op.matrices[i];
    arguments.matrices[i] = {.data = matrix.weight.data,
                             .bias = matrix.bias,
                             .out = matrix.out,
                             .stride = matrix.stride,
                             .rows = matrix.weight.rows,
                             .tiles = matrix.weight.tiles(),
                             .chunk_bytes = chunk_bytes(matrix.weight.format),
                             .format = matrix.weight.format};
    arguments.units += matrix.weight.tiles();
    arguments.stage_bytes = std::max(arguments.stage_bytes, chunk_bytes(matrix.weight.format));
  }
  arguments.units /= arguments.unit_tiles;
  const int grid = std::min(arguments.units, context.multiprocessors);
  const int tile_bytes = 4 * tile_floats(rows);
  const int block_tiles = (arguments.units + grid - 1) / grid * arguments.unit_tiles;
  const int fitting_tiles = std::max(kPartsBytes / tile_bytes, 1) / arguments.unit_tiles * arguments.unit_tiles;
  arguments.batch_tiles = std::clamp(fitting_tiles, arguments.unit_tiles, block_tiles);

  // As deep a ring as half of the shared memory allows; where that is not enough, more.
  const int fixed_bytes = arguments.batch_tiles * tile_bytes + 4 * kWarps + split_square_bytes(rows) + kept_bytes(rows);
  const int stage_bytes = kWarps * arguments.stage_bytes;
  const auto stages_within = [&](int limit) {
    return std::min(kMaxStages, (limit - fixed_bytes - arguments.chunks * split_chunk_bytes(rows)) / stage_bytes);
  };
  const int half = half_of_shared(context.shared_bytes);
  arguments.stages = stages_within(op.follows_small_kernel ? std::min(kLoneBytes, context.shared_bytes) : half);
  if (arguments.stages < 1) arguments.stages = std::max(1, stages_within(context.shared_bytes));
  arguments.resident_chunks =
      std::min(arguments.chunks,
               (context.shared_bytes - fixed_bytes - arguments.stages * stage_bytes) / split_chunk_bytes(rows));
  if (arguments.resident_chunks < arguments.chunks) {
    if (rows < kLeastPhasedRows || arguments.resident_chunks < 1) return {};
    if (arguments.resident_chunks > kWarps) arguments.resident_chunks = arguments.resident_chunks / kWarps * kWarps;
  }
  int shared_bytes = fixed_bytes + arguments.stages * stage_bytes + arguments.resident_chunks * split_chunk_bytes(rows);
  if (op.follows_small_kernel && context.shared_bytes > kLoneBytes) shared_bytes = std::max(shared_bytes, half + 16);
  arguments.next_may_start = rows <= 2 && (shared_bytes <= half || op.follows_small_kernel);
  return {.arguments = arguments, .grid = grid, .shared_bytes = shared_bytes};
}

}  // namespace

void prepare_gemv(const LaunchContext& context) {
  for (const int rows : {1, 2, 4, 8, 16}) {
    for (int format = kQ4KAndQ6K; format < kWeightFormats; ++format) {
      with_kernel(rows, format, [&](auto kernel) { allow_shared_bytes("gemv", kernel, context.shared_bytes); });
    }
  }
}

GemvOp part_of(const GemvOp& op, int first, int count) {
  GemvOp part = op;
  part.input.rows += static_cast<std::ptrdiff_t>(first) * op.input.stride;
  part.input.count = count;
  if (part.input.first_bad_layer != nullptr) part.input.first_bad_layer += first;
  for (GemvMatrix& matrix : part.matrices) {
    if (matrix.out != nullptr) matrix.out += static_cast<std::ptrdiff_t>(first) * matrix.stride;
  }
  if (op.output == GemvOutput::qkv) {
    part.qkv.rows = op.qkv.rows.from(first, count);
    if (op.qkv.angles != nullptr) part.qkv.angles += static_cast<std::ptrdiff_t>(first) * op.qkv.pairs * 2;
  }
  return part;
}

bool gemv_has_room(const LaunchContext& context, const GemvOp& op) {
  return launch_of(context, op, gemv_rows(context, op)).shared_bytes > 0;
}

int rows_of_a_launch(const LaunchContext& context, const GemvOp& op) {
  int rows = split_rows(op.input.count);
  while (rows > kLeastPhasedRows && launch_of(context, op, rows).shared_bytes == 0) rows /= 2;
  return rows;
}

void gemv_in_parts(const LaunchContext& context, const GemvOp& op, std::byte* split) {
  const int most = rows_of_a_launch(context, op);
  for (int first = 0; first < op.input.count; first += most) {
    GemvOp part = part_of(op, first, std::min(most, op.input.count - first));
    if (first > 0) part.follows_small_kernel = false;
    if (const int room = gemv_rows(context, part); room > kMaxFusedSplitRows) {
      split_activations(context, part.input, room, split);
      part.split = split;
      part.follows_small_kernel = true;
    }
    gemv(context, part);
  }
}

int gemv_rows(const LaunchContext& context, const GemvOp& op) {
  const int rows = split_rows(op.input.count);
  const bool fits = rows > kMaxFusedSplitRows || launch_of(context, op, rows).shared_bytes > 0;
  return fits ? rows : kLeastPhasedRows;
}

void gemv(const LaunchContext& context, const GemvOp& op) {
  const int rows = gemv_rows(context, op);
  if ((op.split == nullptr) != (rows <= kMaxFusedSplitRows)) fail_launch(op.name, "rows that nobody has split");
  const GemvLaunch plan = launch_of(context, op, rows);
  if (plan.shared_bytes == 0) fail_launch(op.name, "these rows are too long for the shared memory");
  with_kernel(rows, kernel_format(op), [&](auto kernel) {
    launch(op.name, context, kernel, dim3(static_cast<unsigned>(plan.grid)), dim3(kThreads), plan.shared_bytes,
           plan.arguments);
  });
}

}  // namespace quarrel::cuda

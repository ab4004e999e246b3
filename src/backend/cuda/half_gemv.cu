// A thread block walks over tiles of four rows; its sixteen warps (of a narrow matrix, groups of fewer) share a tile's
// columns. A lane has the same eight columns of every row, so that its activations stay in registers; rows of more
// columns are gone through in phases, all of a batch's tiles in each. Each lane has a ring of weights in shared memory
// that it fills itself by asynchronous copies and that nobody else reads: nothing waits between the first weight and
// the end of a batch.
#include <cuda_fp16.h>

#include <algorithm>

#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/gemv_end.cuh"
#include "backend/cuda/half_gemv.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = kSplitWarps;
constexpr int kThreads = kSplitThreads;
constexpr int kMaxRows = 4;         // of the input, in one launch
constexpr int kPieceColumns = 8;    // 16 bytes: what a lane has of a row
constexpr int kRowBytes = 32 * 16;  // what a warp has of it
constexpr int kMaxStages = 3;
// A batch has a multiple of so many tiles: then each of them has the same group of warps in every batch.
constexpr int kBatchTiles = kWarps;
// Fewer pieces are not worth a warp.
constexpr int kLeastPieces = 24;
// Kernels that stand beside each other have less than half of the shared memory, and one whose own blocks might pile
// up, since the kernel before has few, more: then two of its blocks do not fit, and one and one of the next do.
constexpr int kBelowHalf = 512;
constexpr int kAboveHalf = 128;

struct HalfMatrix {
  const std::uint16_t* data;
  const float* bias;
  float* out;
  int stride;
  int rows;
  int tiles;
};

struct HalfArguments {
  using Matrix = HalfMatrix;
  static constexpr int kTileRows = 4;
  SplitInput input;
  HalfMatrix matrices[kMaxGemvMatrices];
  int units;       // tiles to be shared out, or pairs of them
  int unit_tiles;  // 1, or 2: those whose sums are needed together
  int half_shift;
  int pieces;  // of a row
  int phases;
  int warp_pieces;  // of a warp in a phase
  int row_warps;    // that share a row
  int stages;
  int batch_tiles;  // the warps' sums of so many tiles are kept before they are added up
  GemvOutput output;
  ActivationKind activation;
  float scale;
  bool next_may_start;
  QkvOutput qkv;
};

constexpr int kStageBytes = HalfArguments::kTileRows * kRowBytes;

// Of the warps' sums of one tile; those of a row and the next begin in different banks.
constexpr int tile_floats(int rows, int row_warps) { return HalfArguments::kTileRows * rows * (row_warps + 1); }

// Where a lane's columns are.
struct Place {
  int group;  // of warps
  int groups;
  int warp;          // in the group
  int piece;         // in the first phase
  int phase_pieces;  // from a phase to the next
  bool has_pieces;

  __device__ explicit Place(const HalfArguments& arguments)
      : group(static_cast<int>(threadIdx.x) / 32 / arguments.row_warps),
        groups(kWarps / arguments.row_warps),
        warp(static_cast<int>(threadIdx.x) / 32 % arguments.row_warps),
        piece(warp * arguments.warp_pieces + static_cast<int>(threadIdx.x) % 32),
        phase_pieces(arguments.row_warps * arguments.warp_pieces),
        has_pieces(static_cast<int>(threadIdx.x) % 32 < arguments.warp_pieces) {}
  // The lane's piece in a phase; -1: it has none.
  __device__ int piece_of(const HalfArguments& arguments, int phase) const {
    const int number = piece + phase * phase_pieces;
    return has_pieces && number < arguments.pieces ? number : -1;
  }
};

// Row `row` of a tile; where the matrix has no such row, its last one.
__device__ const std::uint16_t* row_of(const HalfArguments& arguments, const Tile<HalfArguments>& tile, int row) {
  const int number = min(tile.tile * HalfArguments::kTileRows + row, tile.matrix->rows - 1);
  return tile.matrix->data + static_cast<std::size_t>(number) * static_cast<std::size_t>(arguments.input.columns);
}

// Fills a lane's ring, in the order in which the kernel takes it: batches, in these phases, in these tiles.
class RingFiller {
 public:
  __device__ RingFiller(const HalfArguments& arguments, const Place& place, int tiles, std::uint32_t ring)
      : arguments_(arguments),
        place_(place),
        tiles_(tiles),
        end_(min(arguments.batch_tiles, tiles)),
        number_(place.group),
        left_(arguments.phases * ((tiles - place.group + place.groups - 1) / place.groups)),
        ring_(ring) {}

  // Asks for the next stage; an empty group when there is none, so that groups can be counted.
  __device__ void fill_next() {
    if (left_ > 0) {
      --left_;
      const int piece = place_.piece_of(arguments_, phase_);
      if (piece >= 0) {
        const Tile<HalfArguments> tile(arguments_, number_);
#pragma unroll
        for (int row = 0; row < HalfArguments::kTileRows; ++row) {
          copy_async(ring_ + stage_ + row * kRowBytes, row_of(arguments_, tile, row) + piece * kPieceColumns, policy_);
        }
      }
      stage_ = stage_ + kStageBytes == arguments_.stages * kStageBytes ? 0 : stage_ + kStageBytes;
      number_ += place_.groups;
      if (number_ >= end_) {
        if (++phase_ == arguments_.phases) {
          phase_ = 0;
          first_ = end_;
          end_ = min(first_ + arguments_.batch_tiles, tiles_);
        }
        number_ = first_ + place_.group;
      }
    }
    commit_copies();
  }

 private:
  const HalfArguments& arguments_;
  const Place& place_;
  int tiles_;
  int end_;
  int number_;
  int left_;  // stages
  std::uint32_t ring_;
  std::uint64_t policy_ = evict_first_policy();
  int first_ = 0;
  int phase_ = 0;
  int stage_ = 0;
};

// A lane's eight columns of an input row, or of the norm's weights.
struct Eight {
  float4 v[2];

  __device__ static Eight load(const float* values) {
    const auto* fours = reinterpret_cast<const float4*>(values);
    return {{fours[0], fours[1]}};
  }
  __device__ static Eight of(float value) {
    const float4 four = {value, value, value, value};
    return {{four, four}};
  }
};

__device__ Eight norm_weights_of(const SplitInput& input, int piece) {
  if (input.norm_weight == nullptr || piece < 0) return Eight::of(1.0f);
  return Eight::load(input.norm_weight + piece * kPieceColumns);
}

__device__ Eight input_of(const SplitInput& input, int row, int piece) {
  if (piece < 0) return Eight::of(0.0f);
  return Eight::load(input.rows + static_cast<std::size_t>(row) * input.stride + piece * kPieceColumns);
}

// Adds up kCount values over the warp; a lane gets the sum of value lane / (32 / kCount). Each sum is made in the same
// order, whatever kCount is.
template <int kCount, int kMask = 16>
__device__ float scattered_sum(const float (&values)[kCount], int lane) {
  if constexpr (kCount > 1) {
    const bool upper = (lane & kMask) != 0;
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float sent = upper ? values[i] : values[i + kCount / 2];
      half[i] = (upper ? values[i + kCount / 2] : values[i]) + __shfl_xor_sync(~0u, sent, kMask);
    }
    return scattered_sum<kCount / 2, kMask / 2>(half, lane);
  } else {
    float sum = values[0];
#pragma unroll
    for (int mask = kMask; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    return sum;
  }
}

// What the end of the kernel reads: sums of the warps that share a row.
template <int kRows>
struct WarpSums {
  const float* parts;
  int row_warps;

  __device__ float quarter(int slot, int row, int input_row, int quarter) const {
    const float* of_warps = parts + ((slot * HalfArguments::kTileRows + row) * kRows + input_row) * (row_warps + 1);
    const int share = max(row_warps / 4, 1);
    float sum = 0.0f;
    for (int warp = quarter * share; warp < min((quarter + 1) * share, row_warps); ++warp) sum += of_warps[warp];
    return sum;
  }
  __device__ static float scale_of(int) { return 1.0f; }
  __device__ static float scale_of_quad(int) { return 1.0f; }
};

template <int kRows>
__global__ void __launch_bounds__(kThreads, kRows <= 2 ? 2 : 1)
    half_gemv_kernel(const __grid_constant__ HalfArguments arguments) {
  constexpr int kTileRows = HalfArguments::kTileRows;
  constexpr int kSums = kTileRows * kRows;
  extern __shared__ __align__(16) std::byte shared[];
  const int lane = threadIdx.x % 32;
  const Place place(arguments);
  const int ring_bytes = arguments.stages * kStageBytes;
  const std::byte* ring = shared + threadIdx.x / 32 * ring_bytes + lane * 16;
  auto* parts = reinterpret_cast<float*>(shared + kWarps * ring_bytes);
  float* scratch = parts + arguments.batch_tiles * tile_floats(kRows, arguments.row_warps);
  auto& kept = *reinterpret_cast<KeptForEnd<kRows>*>(scratch + kWarps);
  const int tiles = tiles_of_block(arguments);

  RingFiller filler(arguments, place, tiles, shared_address(ring));
#pragma unroll 1
  for (int i = 0; i < arguments.stages; ++i) filler.fill_next();
  const Eight first_weights = norm_weights_of(arguments.input, place.piece_of(arguments, 0));
  const int outputs = kept_outputs<kRows>(arguments, tiles);
  const float* rest = kept.keep_places(arguments, outputs);
  // At once: then the next kernel's blocks take the places that the one before leaves, one on every multiprocessor.
  if (arguments.next_may_start) allow_next_kernel();
  wait_for_previous_kernel();

  kept.request_rest(arguments, rest);
  RowNorm norms[kRows];
  if (arguments.input.norm != NormKind::none) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= arguments.input.count) break;
      norms[r] = row_norm(arguments.input, r, blockIdx.x == 0, scratch);
    }
  }

  int stage = 0;
  for (int first = 0; first < tiles; first += arguments.batch_tiles) {
    const int end = min(first + arguments.batch_tiles, tiles);
    for (int phase = 0; phase < arguments.phases; ++phase) {
      const int piece = place.piece_of(arguments, phase);
      Eight in[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) in[r] = input_of(arguments.input, min(r, arguments.input.count - 1), piece);
      if (arguments.input.norm != NormKind::none && piece >= 0) {
        const Eight w = phase == 0 ? first_weights : norm_weights_of(arguments.input, piece);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            in[r].v[half] =
                normed(arguments.input, norms[r], in[r].v[half], w.v[half], piece * kPieceColumns + half * 4);
          }
        }
      }
      for (int number = first + place.group; number < end; number += place.groups) {
        wait_for_copies(arguments.stages - 1);
        float sums[kSums] = {};
        if (piece >= 0) {
#pragma unroll
          for (int row = 0; row < kTileRows; ++row) {
            const auto words = *reinterpret_cast<const uint4*>(ring + stage + row * kRowBytes);
            const auto* pairs = reinterpret_cast<const __half2*>(&words);
            float2 w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) w[i] = __half22float2(pairs[i]);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              float& sum = sums[r * kTileRows + row];
#pragma unroll
              for (int half = 0; half < 2; ++half) {
                const float4& v = in[r].v[half];
                sum = fmaf(w[2 * half].x, v.x, sum);
                sum = fmaf(w[2 * half].y, v.y, sum);
                sum = fmaf(w[2 * half + 1].x, v.z, sum);
                sum = fmaf(w[2 * half + 1].y, v.w, sum);
              }
            }
          }
        }
        stage = stage + kStageBytes == ring_bytes ? 0 : stage + kStageBytes;
        filler.fill_next();
        const float sum = scattered_sum(sums, lane);
        constexpr int kLanes = 32 / kSums;  // of a sum
        if (lane % kLanes == 0) {
          const int r = lane / kLanes / kTileRows;
          const int row = lane / kLanes % kTileRows;
          float* target =
              parts + (((number - first) * kTileRows + row) * kRows + r) * (arguments.row_warps + 1) + place.warp;
          *target = phase == 0 ? sum : *target + sum;
        }
      }
    }
    if (outputs > 0) wait_for_all_copies();
    __syncthreads();
    const WarpSums<kRows> all_sums{.parts = parts, .row_warps = arguments.row_warps};
    if (outputs > 0) {
      finish_kept<kRows>(arguments, outputs, kept, all_sums);
    } else {
      finish<kRows>(arguments, first, end - first, all_sums);
      if (end < tiles) __syncthreads();
    }
  }
}

template <typename Action>
void with_kernel(int rows, const Action& action) {
  if (rows == 1) return action(half_gemv_kernel<1>);
  if (rows == 2) return action(half_gemv_kernel<2>);
  action(half_gemv_kernel<kMaxRows>);
}

// Which warps have which columns.
void share_columns(HalfArguments& arguments, int columns) {
  arguments.pieces = columns / kPieceColumns;
  arguments.row_warps = kWarps;
  while (arguments.row_warps > 1 && arguments.pieces < arguments.row_warps * kLeastPieces) arguments.row_warps /= 2;
  const auto shared_by = [&](int parts) { return (arguments.pieces + parts - 1) / parts; };
  arguments.phases = shared_by(arguments.row_warps * 32);
  // An even number, so that no two warps share 32 bytes.
  arguments.warp_pieces = (shared_by(arguments.phases * arguments.row_warps) + 1) / 2 * 2;
}

void run_half_gemv(const LaunchContext& context, const GemvOp& op) {
  const int rows = op.input.count <= 2 ? op.input.count : kMaxRows;
  HalfArguments arguments{.input = op.input,
                          .matrices = {},
                          .units = 0,
                          .unit_tiles = 1,
                          .half_shift = half_shift_of(op, HalfArguments::kTileRows),
                          .pieces = 0,
                          .phases = 0,
                          .warp_pieces = 0,
                          .row_warps = 0,
                          .stages = 0,
                          .batch_tiles = 0,
                          .output = op.output,
                          .activation = op.activation,
                          .scale = op.scale,
                          .next_may_start = false,
                          .qkv = op.qkv};
  if (op.output == GemvOutput::glu || arguments.half_shift >= 0) arguments.unit_tiles = 2;
  for (int i = 0; i < op.matrix_count; ++i) {
    const GemvMatrix& matrix = op.matrices[i];
    const int tiles = (matrix.halves.rows + HalfArguments::kTileRows - 1) / HalfArguments::kTileRows;
    arguments.matrices[i] = {.data = static_cast<const std::uint16_t*>(matrix.halves.data),
                             .bias = matrix.bias,
                             .out = matrix.out,
                             .stride = matrix.stride,
                             .rows = matrix.halves.rows,
                             .tiles = tiles};
    arguments.units += tiles;
  }
  arguments.units /= arguments.unit_tiles;
  share_columns(arguments, op.input.columns);
  const int grid = std::min(arguments.units, context.multiprocessors);
  const int block_tiles = (arguments.units + grid - 1) / grid * arguments.unit_tiles;

  // As deep a ring as half of the shared memory allows; where the next kernel cannot start or that is not enough, more.
  const int tile_bytes = 4 * tile_floats(rows, arguments.row_warps);
  const int fixed_bytes = 4 * kWarps + kept_bytes(rows);
  const int half = half_of_shared(context.shared_bytes);
  int limit = rows <= 2 ? half - kBelowHalf : context.shared_bytes;
  const auto stages_within = [&](int bytes) {
    return std::min(kMaxStages, (bytes - fixed_bytes - kBatchTiles * tile_bytes) / (kWarps * kStageBytes));
  };
  if (stages_within(limit) < 1) limit = context.shared_bytes;
  arguments.stages = std::max(1, stages_within(limit));
  const int room = limit - fixed_bytes - arguments.stages * kWarps * kStageBytes;
  arguments.batch_tiles = std::min(block_tiles, room / tile_bytes / kBatchTiles * kBatchTiles);
  int shared_bytes = fixed_bytes + arguments.stages * kWarps * kStageBytes + arguments.batch_tiles * tile_bytes;
  arguments.next_may_start = rows <= 2 && shared_bytes <= half;
  if (op.follows_small_kernel) shared_bytes = std::max(shared_bytes, std::min(half + kAboveHalf, context.shared_bytes));
  with_kernel(rows, [&](auto kernel) {
    launch(op.name, context, kernel, dim3(static_cast<unsigned>(grid)), dim3(kThreads), shared_bytes, arguments);
  });
}

}  // namespace

void prepare_half_gemv(const LaunchContext& context) {
  for (const int rows : {1, 2, kMaxRows}) {
    with_kernel(rows, [&](auto kernel) { allow_shared_bytes("gemv of F16", kernel, context.shared_bytes); });
  }
}

void half_gemv(const LaunchContext& context, const GemvOp& op) {
  for (int first = 0; first < op.input.count; first += kMaxRows) {
    run_half_gemv(context, part_of(op, first, std::min(kMaxRows, op.input.count - first)));
  }
}

}  // namespace quarrel::cuda

// Stages have 64 columns. Weights and activations arrive by the copy engine: packed weights in a ring of each warp,
// some chunks of 256 columns ahead, activations a piece a stage, so that the decoding warps have nothing of their own
// on its way when they show the tensor cores what they wrote: that fence waits for everything before it.
//
// Decoded weights have four places, so that a stage's is known when the kernel is compiled; activations have `ahead`
// more: when the stage four before its own is multiplied, a producer may overwrite its weights, and its activations
// with those of `ahead` stages later. Two stages are decoded between fences.
#include <algorithm>
#include <array>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/chunk_ring.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/mixed_decode.cuh"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/saturated_half.cuh"
#include "backend/cuda/wgmma.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kConsumers = 2 * kWarpgroup;
constexpr int kProducers = 2 * kWarpgroup;
constexpr int kProducerWarps = kProducers / 32;
constexpr int kThreads = kConsumers + kProducers;
constexpr int kWeightRows = 128;  // of a block, gate and gated together
constexpr int kMaxTokens = 160;   // more have no room beside four stages of weights
constexpr int kSlots = kStagesOfChunk;
constexpr int kLeastRowsOfExpert = 32;  // on average: with fewer it takes longer than grouped_gemm()
constexpr int kWeightSlotBytes = kWeightRows * kStageRowBytes;
constexpr int kTableBytes = kProducerWarps * kScaleTableBytes;
constexpr int kAlignment = 1024;
constexpr int kStaticBytes = 2048;

struct KernelMatrix {
  const std::byte* data;
  std::size_t expert_bytes;
  const float* bias;
  int rows;
  int tiles;
  int first_row;  // where its results begin
  WeightFormat format;
};

struct KernelArguments {
  Groups groups;
  const std::uint16_t* image;
  int columns;
  KernelMatrix matrices[kMaxPackedGemmMatrices];
  int chunks;
  int slab_chunks;
  int ahead;
  int ring;         // chunks of a warp
  int chunk_bytes;  // the largest
  ExpertEnd end;
  GateFunction function;
  float* out;  // of `store`
  std::size_t slab_stride;
  int stride;
  std::uint16_t* out_image;  // of the other ends
};

struct SharedLayout {
  int weights = 0;  // decoded
  int activations;  // behind them
  int tables;
  int ring;
  int bytes;

  __host__ __device__ SharedLayout(const KernelArguments& a) {
    activations = kSlots * kWeightSlotBytes;
    tables = activations + (kSlots + a.ahead) * a.groups.tokens * kStageRowBytes;
    ring = tables + kTableBytes;
    bytes = ring + kProducerWarps * a.ring * a.chunk_bytes;
  }
};

// ---- Images ----

constexpr int kImageThreads = 256;
constexpr int kImageRows = 16;  // of a thread block

struct ImageArguments {
  Groups groups;
  const std::uint16_t* in;
  int in_stride;
  int columns;
  const std::int32_t* order;  // null: a place's row is the place itself
  int pairs_a_row;
  std::uint16_t* image;
};

// Columns that fill up the last stage are zero.
__global__ void __launch_bounds__(kImageThreads) image_kernel(const __grid_constant__ ImageArguments arguments) {
  __shared__ BlockRows found;
  wait_for_previous_kernel();
  allow_next_kernel();
  if (threadIdx.x < 32) {
    const BlockRows own = find_rows(arguments.groups, blockIdx.x, threadIdx.x);
    if (threadIdx.x == 0) found = own;
  }
  __syncthreads();
  const BlockRows rows = found;
  const int from = rows.first + static_cast<int>(blockIdx.y) * kImageRows;
  const int count = min(kImageRows, rows.first + rows.count - from);
  if (rows.expert < 0 || count <= 0) return;
  const int pieces = (arguments.columns + kStageColumns - 1) / kStageColumns * (kStageColumns / 8);
#pragma unroll 4
  for (int i = threadIdx.x; i < count * pieces; i += kImageThreads) {
    const int place = from + i / pieces;
    const int column = i % pieces * 8;
    const int row = arguments.order == nullptr ? place : arguments.order[place] / arguments.pairs_a_row;
    uint4 eight = {};
    if (column < arguments.columns) {
      eight =
          *reinterpret_cast<const uint4*>(arguments.in + static_cast<std::size_t>(row) * arguments.in_stride + column);
    }
    *reinterpret_cast<uint4*>(arguments.image + image_place(arguments.groups.places, place, rows.first, column)) =
        eight;
  }
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

// The most that fit() asks for.
constexpr int kMaxRowSlots = 8;
constexpr int kMaxRing = 6;

// What all warps of a block have in common.
struct Block {
  const KernelArguments& arguments;
  BlockRows rows;
  int matrix;       // of a glu the gate
  int first_row;    // of the matrix
  int first_chunk;  // of the slab
  int stages;
  std::uint32_t weights;  // shared memory
  std::uint32_t activations;
  std::uint32_t full;       // barriers: decoded weights of kSlots stages are there
  std::uint32_t empty;      // they are multiplied
  std::uint32_t rows_full;  // activations of kSlots + `ahead` stages are there
  std::byte* shared;

  __device__ bool is_glu() const { return arguments.end == ExpertEnd::glu; }
};

// ---- Producers ----

// Fetches the activations of one stage after the other; one thread does.
class RowFetcher {
 public:
  __device__ explicit RowFetcher(const Block& block)
      : source_(block.arguments.image +
                (static_cast<std::size_t>(block.first_chunk) * kStagesOfChunk * block.arguments.groups.places +
                 block.rows.first) *
                    kStageColumns),
        stage_numbers_(static_cast<std::size_t>(block.arguments.groups.places) * kStageColumns),
        bytes_(block.rows.count * kStageRowBytes),
        to_(block.activations),
        slot_bytes_(block.arguments.groups.tokens * kStageRowBytes),
        slots_(kSlots + block.arguments.ahead),
        barriers_(block.rows_full),
        left_(block.stages) {}

  // Nothing when there is no stage left.
  __device__ void fetch_next() {
    if (left_-- <= 0) return;
    announce_bytes(barriers_ + slot_ * 8, bytes_);
    copy_bulk(to_ + slot_ * slot_bytes_, source_, bytes_, barriers_ + slot_ * 8);
    source_ += stage_numbers_;
    slot_ = slot_ + 1 == slots_ ? 0 : slot_ + 1;
  }

 private:
  const std::uint16_t* source_;
  std::size_t stage_numbers_;
  int bytes_;
  std::uint32_t to_;
  int slot_bytes_;
  int slots_;
  std::uint32_t barriers_;
  int left_;
  int slot_ = 0;
};

template <WeightFormat F>
__device__ void produce(const Block& block, const KernelMatrix& matrix, int tile, const SharedLayout& layout,
                        std::uint32_t ring_barriers) {
  const KernelArguments& arguments = block.arguments;
  const int thread = threadIdx.x - kConsumers;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int chunks = (block.stages + kStagesOfChunk - 1) / kStagesOfChunk;
  const std::byte* source = nullptr;
  if (tile < matrix.tiles) {
    source = matrix.data + static_cast<std::size_t>(block.rows.expert) * matrix.expert_bytes +
             (static_cast<std::size_t>(tile) * arguments.chunks + block.first_chunk) * chunk_bytes(F);
  }
  ChunkRing<F> ring(source, chunks, arguments.ring,
                    block.shared + layout.ring + warp * arguments.ring * arguments.chunk_bytes, ring_barriers);
  std::byte* table = block.shared + layout.tables + warp * kScaleTableBytes;
  std::byte* decoded = block.shared + layout.weights + warp * kTileRows * kStageRowBytes;
  const int own = decoding_lane(lane);
  const SwizzledLane swizzled(own);
  for (int i = 0; i + 1 < arguments.ring; ++i) ring.fetch_next();
  const std::uint32_t full = opaque(block.full);
  const std::uint32_t empty = opaque(block.empty);
  int stages = block.stages;
#pragma unroll 1
  for (int phase = 1; stages > 0; phase ^= 1) {
    ring.fetch_next();
    CodeReader<F> reader{.chunk = nullptr, .lane = own};
    if (source != nullptr) {
      reader.chunk = ring.take_next();
      fill_scale_table<F>(reader.chunk, lane, table);
      __syncwarp();
    }
#pragma unroll
    for (int part = 0; part < kStagesOfChunk; part += 2, stages -= 2) {
      if (stages <= 0) break;
      // A phase that has not begun counts as over, so the first round waits for nothing.
      wait_for_barrier(empty + part * 8, phase);
      wait_for_barrier(empty + part * 8 + 8, phase);
      if (source != nullptr) {
        decode_stage<F>(reader, part, own, swizzled, table, decoded + part * kWeightSlotBytes);
        decode_stage<F>(reader, part + 1, own, swizzled, table, decoded + (part + 1) * kWeightSlotBytes);
      }
      show_to_tensor_cores();
      __syncwarp();
      if (lane == 0) {
        arrive(full + part * 8);
        arrive(full + part * 8 + 8);
      }
    }
  }
  allow_next_kernel();
}

// ---- Consumers ----

constexpr int kBoxPitch = kWeightRows + 4;  // floats from a token to the next: a warp's sums fall into all banks
static_assert(kMaxTokens * kBoxPitch * 4 <= kSlots * kWeightSlotBytes + kSlots * kMaxTokens * kStageRowBytes);

// The sums of a block in shared memory, [token][weight row], where stages were before.
template <int kTokens>
__device__ float* box_of_sums(const Block& block, const float (&sums)[kTokens / 2]) {
  auto* box = reinterpret_cast<float*>(block.shared);
  const int lane = threadIdx.x % 32;
  sync_consumers<kConsumers>();  // nobody multiplies what lies there any more
  float* place = box + lane % 4 * 2 * kBoxPitch + threadIdx.x / 32 * kTileRows + lane / 4;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) place[(i / 4 * 8 + i % 2) * kBoxPitch + i % 4 / 2 * 8] = sums[i];
  sync_consumers<kConsumers>();
  return box;
}

__device__ float bias_of(const KernelMatrix& matrix, int expert, int row) {
  return matrix.bias == nullptr ? 0.0f : matrix.bias[static_cast<std::size_t>(expert) * matrix.rows + row];
}

// A thread has one row and every second token.
__device__ void store_sums(const Block& block, const float* box) {
  const KernelArguments& arguments = block.arguments;
  const KernelMatrix& matrix = arguments.matrices[block.matrix];
  const int row = block.first_row + static_cast<int>(threadIdx.x) % kWeightRows;
  if (row >= matrix.rows) return;
  const float bias = bias_of(matrix, block.rows.expert, row);
  float* out = arguments.out + blockIdx.z * arguments.slab_stride +
               static_cast<std::size_t>(block.rows.first) * arguments.stride +
               static_cast<std::size_t>(matrix.first_row + row);
  const float* sum = box + threadIdx.x % kWeightRows;
#pragma unroll 4
  for (int token = threadIdx.x / kWeightRows; token < block.rows.count; token += kConsumers / kWeightRows) {
    out[static_cast<std::size_t>(token) * arguments.stride] = sum[token * kBoxPitch] + bias;
  }
}

// Into an image, whose columns are our rows. Rows that do not exist fill up the last stage of the next GEMM.
__device__ void store_activated(const Block& block, const float* box) {
  const KernelArguments& arguments = block.arguments;
  const KernelMatrix& matrix = arguments.matrices[block.matrix];
  const bool glu = block.is_glu();
  const int block_rows = glu ? kWeightRows / 2 : kWeightRows;
  const int in_block = static_cast<int>(threadIdx.x) % block_rows;
  const int row = block.first_row + in_block;
  if (row >= (matrix.rows + kStageColumns - 1) / kStageColumns * kStageColumns) return;
  const bool exists = row < matrix.rows;
  const float bias = exists ? bias_of(matrix, block.rows.expert, row) : 0.0f;
  const float other_bias = exists && glu ? bias_of(arguments.matrices[1], block.rows.expert, row) : 0.0f;
  std::uint16_t* image = arguments.out_image +
                         image_place(arguments.groups.places, block.rows.first, block.rows.first, row - row % 64) +
                         row % 8;
  const int piece = row % kStageColumns / 8;
  const float* sum = box + in_block;
#pragma unroll 2
  for (int token = threadIdx.x / block_rows; token < block.rows.count; token += kConsumers / block_rows) {
    const float value = sum[token * kBoxPitch] + bias;
    const float result = glu ? gated(arguments.function, value, sum[token * kBoxPitch + kWeightRows / 2] + other_bias)
                             : activated(arguments.function.kind, value);
    unsigned saturated = 0;
    image[token * kStageColumns + (piece ^ token % 8) * 8] = exists ? saturated_half(result, saturated) : 0;
  }
}

template <int kTokens>
__device__ float* consume(const Block& block) {
  const KernelArguments& arguments = block.arguments;
  const int group = threadIdx.x / kWarpgroup;
  const int lane = threadIdx.x % 32;
  float sums[kTokens / 2] = {};
  const bool fetches = threadIdx.x == 0;
  if (arguments.groups.starts == nullptr) wait_for_previous_kernel();
  RowFetcher rows(block);
  if (fetches) {
    for (int i = 0; i < arguments.ahead; ++i) rows.fetch_next();
  }
  const std::uint32_t full = opaque(block.full);
  const std::uint32_t empty = opaque(block.empty);
  const std::uint32_t rows_full = opaque(block.rows_full);
  int row_slot = 0;
  int row_phase = 0;
#pragma unroll 1
  for (int stage = 0; stage < block.stages; ++stage) {
    const int slot = stage % kSlots;
    const int phase = stage / kSlots & 1;
    if (fetches) {
      wait_for_barrier(empty + slot * 8, phase ^ 1);
      rows.fetch_next();
    }
    __syncwarp();
    wait_for_barrier(rows_full + row_slot * 8, row_phase);
    wait_for_barrier(full + slot * 8, phase);
    const std::uint64_t a = matrix_at(block.weights + slot * kWeightSlotBytes + group * kWeightSlotBytes / 2);
    const std::uint64_t b = matrix_at(block.activations + row_slot * arguments.groups.tokens * kStageRowBytes);
    begin_wgmma();
#pragma unroll
    for (int k = 0; k < kStageColumns / 16; ++k) multiply_tiles<kTokens>(sums, a + 2 * k, b + 2 * k);
    commit_wgmma();
    wait_for_wgmma<1>();
    if (stage > 0 && lane == 0) arrive(empty + (stage + kSlots - 1) % kSlots * 8);
    if (++row_slot == kSlots + arguments.ahead) {
      row_slot = 0;
      row_phase ^= 1;
    }
  }
  wait_for_wgmma<0>();
  return box_of_sums<kTokens>(block, sums);
}

__device__ float* consume_rows(const Block& block) {
  const int count = block.rows.count;
  if (count <= 32) return consume<32>(block);
  if (count <= 64) return consume<64>(block);
  if (count <= 96) return consume<96>(block);
  if (count <= 128) return consume<128>(block);
  return consume<160>(block);
}

#endif

__global__ void __launch_bounds__(kThreads, 1) mixed_gemm_kernel(const __grid_constant__ KernelArguments arguments) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ std::byte unaligned[];
  __shared__ BlockRows found;
  __shared__ std::uint64_t barriers[2][kSlots];
  __shared__ std::uint64_t rows_barriers[kMaxRowSlots];
  __shared__ std::uint64_t ring_barriers[kProducerWarps][kMaxRing];
  const int warp = threadIdx.x / 32;
  if (arguments.groups.starts != nullptr) wait_for_previous_kernel();
  if (warp == 0) {
    const BlockRows own = find_rows(arguments.groups, blockIdx.x, threadIdx.x);
    if (threadIdx.x == 0) {
      found = own;
      for (int i = 0; i < kSlots; ++i) {
        init_barrier(shared_address(&barriers[0][i]), kProducerWarps);
        init_barrier(shared_address(&barriers[1][i]), kConsumers / 32);
      }
      for (int i = 0; i < kMaxRowSlots; ++i) init_barrier(shared_address(rows_barriers + i), 1);
      for (int i = 0; i < kProducerWarps * kMaxRing; ++i) init_barrier(shared_address(&ring_barriers[0][0] + i), 1);
      show_to_tensor_cores();  // and to the copy engine
    }
  }
  __syncthreads();
  if (found.expert < 0) return;
  const std::uint32_t base = shared_address(unaligned);
  const std::uint32_t aligned = (base + kAlignment - 1) / kAlignment * kAlignment;
  const SharedLayout layout(arguments);
  Block block{.arguments = arguments,
              .rows = found,
              .matrix = 0,
              .first_row = 0,
              .first_chunk = static_cast<int>(blockIdx.z) * arguments.slab_chunks,
              .stages = 0,
              .weights = aligned + layout.weights,
              .activations = aligned + layout.activations,
              .full = shared_address(barriers[0]),
              .empty = shared_address(barriers[1]),
              .rows_full = shared_address(rows_barriers),
              .shared = unaligned + (aligned - base)};
  const int columns = min(arguments.slab_chunks * kChunkColumns, arguments.columns - block.first_chunk * kChunkColumns);
  block.stages = (columns + kStageColumns - 1) / kStageColumns;
  const int block_tiles = (block.is_glu() ? kWeightRows / 2 : kWeightRows) / kTileRows;
  int row_block = blockIdx.y;
  for (; row_block * block_tiles >= arguments.matrices[block.matrix].tiles; ++block.matrix) {
    row_block -= (arguments.matrices[block.matrix].tiles + block_tiles - 1) / block_tiles;
  }
  block.first_row = row_block * block_tiles * kTileRows;
  if (threadIdx.x < kConsumers) {
    const float* box = consume_rows(block);
    if (arguments.end == ExpertEnd::store) {
      store_sums(block, box);
    } else {
      store_activated(block, box);
    }
  } else {
    const int producer = warp - kConsumers / 32;
    const bool gated = block.is_glu() && producer >= kProducerWarps / 2;
    const KernelMatrix& matrix = arguments.matrices[gated ? 1 : block.matrix];
    const int tile = row_block * block_tiles + (gated ? producer - kProducerWarps / 2 : producer);
    with_expert_format(matrix.format, [&]<WeightFormat F>() {
      produce<F>(block, matrix, tile, layout, shared_address(ring_barriers[producer]));
    });
  }
#endif
}

// ---- Launches ----

// As much on its way as the shared memory has room for; false where there is too little.
bool fit(const LaunchContext& context, KernelArguments& arguments) {
  const int room = context.shared_bytes - kStaticBytes - kAlignment;
  for (const auto& [ahead, ring] : {std::array{4, 6}, std::array{4, 4}, std::array{3, 4}, std::array{3, 3},
                                    std::array{2, 3}, std::array{2, 2}, std::array{1, 2}}) {
    arguments.ahead = ahead;
    arguments.ring = ring;
    if (SharedLayout(arguments).bytes <= room) return true;
  }
  return false;
}

// How many rows a block has where a group has at most `most`; the least that takes them all, where it fits.
int tokens_of(const LaunchContext& context, int chunk_bytes, int most) {
  for (const int tokens : {32, 64, 96, 128, kMaxTokens}) {
    if (tokens < kMaxTokens && tokens < most) continue;
    KernelArguments arguments{};
    arguments.groups.tokens = tokens;
    arguments.chunk_bytes = chunk_bytes;
    if (fit(context, arguments)) return tokens;
  }
  return 128;
}

void launch_kernel(const LaunchContext& context, const char* name, KernelArguments arguments, dim3 grid) {
  if (!fit(context, arguments)) fail_launch(name, "the shared memory of this device is too small");
  launch(name, context, mixed_gemm_kernel, grid, dim3(kThreads), SharedLayout(arguments).bytes + kAlignment, arguments);
}

void launch_image(const LaunchContext& context, const ImageArguments& arguments, unsigned blocks) {
  const int rows = std::min(arguments.groups.tokens, arguments.groups.places);
  const dim3 grid(blocks, static_cast<unsigned>((rows + kImageRows - 1) / kImageRows));
  launch("image of activations", context, image_kernel, grid, dim3(kImageThreads), 0, arguments);
}

int row_blocks(const PackedMatrix& matrix, int rows) { return (matrix.rows + rows - 1) / rows; }

void run_experts(const LaunchContext& context, const GroupedGemmOp& op, const Groups& groups,
                 const std::uint16_t* image, unsigned blocks) {
  const bool glu = op.end == ExpertEnd::glu;
  const PackedMatrix& matrix = op.matrices[0].packed;
  KernelArguments arguments{};
  arguments.groups = groups;
  arguments.image = image;
  arguments.columns = matrix.columns;
  arguments.chunks = matrix.chunks();
  arguments.slab_chunks = matrix.chunks();
  arguments.end = op.end;
  arguments.function = op.function;
  arguments.out = op.out;
  arguments.stride = op.stride;
  arguments.out_image = op.halves;
  for (int i = 0; i < (glu ? 2 : 1); ++i) {
    const ExpertMatrix& one = op.matrices[i];
    arguments.matrices[i] = {.data = one.packed.data,
                             .expert_bytes = one.expert_bytes,
                             .bias = one.bias,
                             .rows = one.packed.rows,
                             .tiles = one.packed.tiles(),
                             .first_row = 0,
                             .format = one.packed.format};
    arguments.chunk_bytes = std::max(arguments.chunk_bytes, chunk_bytes(one.packed.format));
  }
  const auto of_rows = static_cast<unsigned>(row_blocks(matrix, glu ? kWeightRows / 2 : kWeightRows));
  launch_kernel(context, op.name, arguments, dim3(blocks, of_rows));
}

}  // namespace

std::size_t image_numbers(int rows, int columns) {
  return static_cast<std::size_t>(rows) *
         static_cast<std::size_t>((columns + kStageColumns - 1) / kStageColumns * kStageColumns);
}

void prepare_mixed_gemm(const LaunchContext& context) {
  if (context.has_wgmma) allow_shared_bytes("mixed gemm", mixed_gemm_kernel, context.shared_bytes - kStaticBytes);
}

bool can_run_mixed_experts(const LaunchContext& context, const GroupedGemmOp& in) {
  return context.has_wgmma && in.pairs >= in.experts * kLeastRowsOfExpert;
}

void mixed_experts(const LaunchContext& context, const GroupedGemmOp& in, const GroupedGemmOp& down,
                   std::uint16_t* image) {
  Groups groups{.starts = in.starts, .experts = in.experts, .places = in.pairs, .tokens = kMaxTokens};
  for (const ExpertMatrix& matrix : {in.matrices[0], in.matrices[1], down.matrices[0]}) {
    if (matrix.packed.data == nullptr) continue;
    groups.tokens = std::min(groups.tokens, tokens_of(context, chunk_bytes(matrix.packed.format), kMaxTokens));
  }
  const auto blocks = static_cast<unsigned>(in.pairs / groups.tokens + std::min(in.experts, in.pairs));
  launch_image(context,
               {.groups = groups,
                .in = in.in,
                .in_stride = in.in_stride,
                .columns = in.matrices[0].packed.columns,
                .order = in.order,
                .pairs_a_row = in.pairs_a_row,
                .image = image},
               blocks);
  run_experts(context, in, groups, image, blocks);
  run_experts(context, down, groups, in.halves, blocks);
}

std::optional<MixedGemmPlan> plan_mixed_gemm(const LaunchContext& context, const PackedGemmOp& op,
                                             std::size_t part_floats) {
  if (!context.has_wgmma) return std::nullopt;
  const int chunks = op.matrices[0].chunks();
  int blocks = 0;
  for (int i = 0; i < op.matrix_count; ++i) blocks += row_blocks(op.matrices[i], kWeightRows);
  blocks *= (op.rows + kMaxTokens - 1) / kMaxTokens;
  const double part = static_cast<double>(op.rows) * op.width();
  std::optional<MixedGemmPlan> best;
  double least = 0.0;
  for (int slab_chunks = 1; slab_chunks <= chunks; ++slab_chunks) {
    const int slabs = (chunks + slab_chunks - 1) / slab_chunks;
    if (part * slabs > static_cast<double>(part_floats)) continue;
    const int rounds = (blocks * slabs + context.multiprocessors - 1) / context.multiprocessors;
    // In chunks' times: a block's beginning and end take about two, the parts' way through the cache what it takes.
    const double cost = rounds * (slab_chunks + 2.0) + part * slabs * 1.6e-6;
    if (best && cost >= least) continue;
    least = cost;
    best = {.slab_chunks = slab_chunks, .slabs = slabs};
  }
  return best;
}

void mixed_gemm(const LaunchContext& context, const PackedGemmOp& op, const MixedGemmPlan& plan, std::uint16_t* image) {
  KernelArguments arguments{};
  int first_row = 0;
  int blocks = 0;
  for (int i = 0; i < op.matrix_count; ++i) {
    const PackedMatrix& matrix = op.matrices[i];
    arguments.matrices[i] = {.data = matrix.data,
                             .expert_bytes = 0,
                             .bias = nullptr,
                             .rows = matrix.rows,
                             .tiles = matrix.tiles(),
                             .first_row = first_row,
                             .format = matrix.format};
    arguments.chunk_bytes = std::max(arguments.chunk_bytes, chunk_bytes(matrix.format));
    first_row += matrix.rows;
    blocks += row_blocks(matrix, kWeightRows);
  }
  const int tokens = tokens_of(context, arguments.chunk_bytes, op.rows);
  arguments.groups = {.starts = nullptr, .experts = 1, .places = op.rows, .tokens = tokens};
  arguments.image = image;
  arguments.columns = op.columns;
  arguments.chunks = op.matrices[0].chunks();
  arguments.slab_chunks = plan.slab_chunks;
  arguments.end = ExpertEnd::store;
  arguments.out = op.parts;
  arguments.slab_stride = static_cast<std::size_t>(op.rows) * static_cast<std::size_t>(op.width());
  arguments.stride = op.width();
  const auto token_blocks = static_cast<unsigned>((op.rows + tokens - 1) / tokens);
  launch_image(context,
               {.groups = arguments.groups,
                .in = op.in,
                .in_stride = op.columns,
                .columns = op.columns,
                .order = nullptr,
                .pairs_a_row = 1,
                .image = image},
               token_blocks);
  launch_kernel(context, "mixed gemm", arguments,
                dim3(token_blocks, static_cast<unsigned>(blocks), static_cast<unsigned>(plan.slabs)));
}

}  // namespace quarrel::cuda

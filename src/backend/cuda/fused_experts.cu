// Thread blocks of the first kernel have a run of units, 32 weight rows of one pair of a row and an expert each: as
// many hidden values as share a scale when they are split. Some blocks belong to the shared expert. A unit of the
// second kernel is a tile of 16 output rows with all that a row's experts add to it, so that sums stay in the block.
#include <algorithm>

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/activation_split.cuh"
#include "backend/cuda/expert_ring.cuh"
#include "backend/cuda/fused_experts.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/moe_choice.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kWarps = kSplitWarps;
constexpr int kThreads = kSplitThreads;
constexpr int kFewerWarps = 12;  // of the second kernel, where the rings of more do not fit
constexpr int kMaxStages = 4;
constexpr int kMaxItemChunks = 4;
constexpr int kUnitTiles = kStepColumns / kTileRows;
constexpr int kBatchBytes = 8192;  // of sums that are kept before they are written
constexpr int kReservedBytes = 1024;
constexpr int kLoneBytes = 126 * 1024;  // of a GEMV that follows a kernel with few blocks (gemv.cu)
constexpr int kMostRowsOfBlock = 2;

constexpr int row_bytes(int chunks) { return chunks * split_chunk_bytes(1); }
constexpr int divided_up(int value, int by) { return (value + by - 1) / by; }

struct KernelMatrix {
  const std::byte* data;
  const float* bias;
};

// A block's units: [first, end).
struct Run {
  int first;
  int end;

  __device__ Run(int units, int block, int blocks) {
    first = static_cast<int>(static_cast<long long>(units) * block / blocks);
    end = static_cast<int>(static_cast<long long>(units) * (block + 1) / blocks);
  }
};

// What the block's rows, one or two, go to.
struct BlockChoices {
  int experts[kMostRowsOfBlock][kMaxExpertsUsed];
  float weights[kMostRowsOfBlock][kMaxExpertsUsed];

  // By all threads; a barrier must follow. A row's choice is counted by the block that has its first unit.
  __device__ void choose(const RouteRowsOp& route, int first_row, int last_row, bool counts_first, bool counts_last) {
    const int warp = threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (warp > last_row - first_row) return;
    const Chosen chosen = choose_experts(route, first_row + warp, lane);
    experts[warp][lane] = chosen.expert;
    weights[warp][lane] = chosen.weight;
    const bool counts = warp == 0 ? counts_first : counts_last;
    if (counts && route.counts != nullptr && chosen.expert >= 0) atomicAdd(route.counts + chosen.expert, 1ull);
  }
};

// ---- Hidden rows ----

// The units of all experts that are chosen, or of the shared one.
struct Section {
  KernelMatrix matrices[2];
  std::size_t expert_bytes;
  int units;
  int row_units;
  int expert_units;
  int tiles;
  int rows;        // of one expert's matrix
  std::byte* out;  // split rows, one for each expert of a row
  int out_bytes;   // from one of them to the next
};

struct InArguments {
  SplitInput input;
  RouteRowsOp route;
  Section sections[2];
  int blocks[2];
  int chunks;
  int matrix_count;
  int item_chunks;
  int parts;  // items of a tile
  int unit_items;
  int batch_units;
  int stages;
  bool next_may_start;
  GateFunction function;
};

struct InJob {
  const InArguments& arguments;
  const Section& section;
  const BlockChoices& choices;
  const std::byte* activations;
  Run run;
  int first_row;
  bool is_shared;
  int items;

  struct Unit {
    int row;
    int place;  // of the row's experts
    int of_expert;
  };
  __device__ Unit unit(int number) const {
    const int row = number / section.row_units;
    const int of_row = number - row * section.row_units;
    const int place = of_row / section.expert_units;
    return {.row = row, .place = place, .of_expert = of_row - place * section.expert_units};
  }
  __device__ int expert(const Unit& unit) const {
    return is_shared ? 0 : choices.experts[unit.row - first_row][unit.place];
  }
  __device__ bool item(int number, ItemWork& work) const {
    const int of_run = number / arguments.unit_items;
    int rest = number - of_run * arguments.unit_items;
    const Unit place = unit(run.first + of_run);
    const int chosen = expert(place);
    const int matrix = rest / (kUnitTiles * arguments.parts);
    rest -= matrix * kUnitTiles * arguments.parts;
    const int tile = place.of_expert * kUnitTiles + rest / arguments.parts;
    if (chosen < 0 || tile >= section.tiles) return false;
    const int first_chunk = rest % arguments.parts * arguments.item_chunks;
    const std::size_t chunk = static_cast<std::size_t>(tile) * arguments.chunks + first_chunk;
    work = {.weights = section.matrices[matrix].data + static_cast<std::size_t>(chosen) * section.expert_bytes +
                       chunk * weight_chunk_bytes,
            .activations = activations + row_bytes(arguments.chunks) * (place.row - first_row) + row_bytes(first_chunk),
            .chunks = min(arguments.item_chunks, arguments.chunks - first_chunk)};
    return true;
  }
  int weight_chunk_bytes;
};

// The 32 values of a warp as step `step` of a split row: what split_chunk() makes of them.
__device__ void store_split_step(float value, std::byte* row, int step) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(value) & 0x7fffffffu);
  const float maximum = __uint_as_float(largest);
  const bool is_zero = maximum < kSmallestSplit;
  float scale = is_zero ? 0.0f : maximum * (1.0f / kSplitRange);
  const float inverse = is_zero ? 0.0f : __fdividef(kSplitRange, maximum);
  if (largest >= 0x7f800000u) scale = __int_as_float(0x7fc00000);
  const int q = min(max(__float2int_rn(value * inverse), -kSplitLargest), kSplitLargest);
  const int hi = (q + 64) >> 7;
  std::uint32_t high = (static_cast<std::uint32_t>(hi) & 255u) << (8 * (lane % 4));
  std::uint32_t low = (static_cast<std::uint32_t>(q - hi * 128) & 255u) << (8 * (lane % 4));
#pragma unroll
  for (int mask = 1; mask < 4; mask <<= 1) {
    high |= __shfl_xor_sync(~0u, high, mask);
    low |= __shfl_xor_sync(~0u, low, mask);
  }
  const int sum = __reduce_add_sync(~0u, q);
  std::byte* chunk = row + row_bytes(step / kChunkSteps);
  step %= kChunkSteps;
  auto* operands = reinterpret_cast<std::uint32_t*>(chunk) + step * 16;
  const int word = lane / 4;
  if (lane % 4 == 0) {
    operands[word % 4 * 2 + word / 4] = high;
    operands[word % 4 * 2 + word / 4 + 8] = low;
  }
  if (lane != 0) return;
  auto* scales = reinterpret_cast<float*>(chunk + split_operand_bytes(1));
  scales[step] = scale;
  float* sums = scales + kChunkSteps + step % 4 * 2 + step / 4;
  const float whole = scale * static_cast<float>(sum);
  const float coarse = __uint_as_float(__float_as_uint(whole) & 0xffffe000u);
  sums[0] = coarse;
  sums[8] = whole - coarse;
}

// Writes the units of items [first, end), a warp a unit.
__device__ void finish_in(const InJob& job, int first, int end, const float* sums) {
  const InArguments& arguments = job.arguments;
  const Section& section = job.section;
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < (end - first) / arguments.unit_items; i += kWarps) {
    const InJob::Unit unit = job.unit(job.run.first + first / arguments.unit_items + i);
    const int expert = job.expert(unit);
    if (expert < 0) continue;
    const int row = unit.of_expert * kStepColumns + lane;
    const float* place =
        sums + (i * arguments.unit_items + lane / kTileRows * arguments.parts) * kTileRows + lane % kTileRows;
    const auto value_of = [&](int matrix) {
      const float* bias = section.matrices[matrix].bias;
      const float sum = sum_of_parts(place + matrix * kUnitTiles * arguments.parts * kTileRows, arguments.parts);
      return bias == nullptr ? sum : sum + bias[static_cast<std::size_t>(expert) * section.rows + row];
    };
    float value = value_of(0);
    value = arguments.matrix_count == 2 ? gated(arguments.function, value, value_of(1))
                                        : activated(arguments.function.kind, value);
    const int number = job.is_shared ? unit.row : unit.row * arguments.route.used + unit.place;
    std::byte* out = section.out + static_cast<std::size_t>(number) * section.out_bytes;
    store_split_step(value, out, unit.of_expert);
    // What the last chunk lacks.
    if (unit.of_expert + 1 < section.expert_units) continue;
    for (int step = unit.of_expert + 1; step % kChunkSteps != 0; ++step) store_split_step(0.0f, out, step);
  }
}

template <WeightFormat F>
__global__ void __launch_bounds__(kThreads, 2) experts_in_kernel(const __grid_constant__ InArguments arguments) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ BlockChoices choices;
  __shared__ float scratch[kWarps];
  const RingPlace place{.ring = shared + threadIdx.x / 32 * arguments.stages * chunk_bytes(F),
                        .stages = arguments.stages,
                        .warp = static_cast<int>(threadIdx.x) / 32,
                        .warps = kWarps,
                        .lane = static_cast<int>(threadIdx.x) % 32};
  auto* sums = reinterpret_cast<float*>(shared + kWarps * arguments.stages * chunk_bytes(F));
  auto* activations = reinterpret_cast<std::byte*>(sums + arguments.batch_units * arguments.unit_items * kTileRows);
  const int block = blockIdx.x;
  const bool is_shared = block >= arguments.blocks[0];
  const Section& section = arguments.sections[is_shared ? 1 : 0];
  const Run run(section.units, is_shared ? block - arguments.blocks[0] : block, arguments.blocks[is_shared ? 1 : 0]);
  const int first_row = run.first / section.row_units;
  const int last_row = (run.end - 1) / section.row_units;
  const HeldWeights norm_weights(arguments.input);
  wait_for_previous_kernel();
  // Not before: the next kernel looks at the router's logits while it waits for this one.
  if (arguments.next_may_start) allow_next_kernel();
  if (!is_shared) {
    choices.choose(arguments.route, first_row, last_row, run.first == first_row * section.row_units, true);
  }
  __syncthreads();
  const InJob job{.arguments = arguments,
                  .section = section,
                  .choices = choices,
                  .activations = activations,
                  .run = run,
                  .first_row = first_row,
                  .is_shared = is_shared,
                  .items = (run.end - run.first) * arguments.unit_items,
                  .weight_chunk_bytes = chunk_bytes(F)};
  ItemRingFiller<F, InJob> filler(job, place);
#pragma unroll 1
  for (int i = 0; i < arguments.stages; ++i) filler.fill_next();
  for (int row = first_row; row <= last_row; ++row) {
    SplitInput one = arguments.input;
    one.rows += static_cast<std::size_t>(row) * one.stride;
    one.count = 1;
    if (one.first_bad_layer != nullptr) one.first_bad_layer += row;
    split_row(one, norm_weights, 0, true, scratch, activations + row_bytes(arguments.chunks) * (row - first_row));
  }
  __syncthreads();
  consume_items<F>(job, place, filler, arguments.batch_units * arguments.unit_items, sums,
                   [&](int first, int end) { finish_in(job, first, end, sums); });
}

// ---- What they give ----

struct DownArguments {
  RouteRowsOp route;
  KernelMatrix matrix;
  KernelMatrix shared;
  std::size_t expert_bytes;
  const std::byte* hidden;
  const std::byte* shared_hidden;
  int units;
  int tiles;
  int rows;
  int chunks;
  int shared_chunks;  // 0: there is no shared expert
  int item_chunks;
  int parts;
  int shared_parts;
  int unit_items;
  int batch_units;
  int stages;
  bool next_may_start;
  const float* shared_values;
  int shared_stride;
  RowSpan out;
  bool is_added;
  float scale;
};

struct DownJob {
  const DownArguments& arguments;
  const BlockChoices& choices;
  const std::byte* activations;
  Run run;
  int first_row;
  int items;
  int weight_chunk_bytes;

  // Activations of all experts of a row, then of the shared one.
  __device__ int row_chunks() const { return arguments.route.used * arguments.chunks + arguments.shared_chunks; }
  __device__ bool item(int number, ItemWork& work) const {
    const int of_run = number / arguments.unit_items;
    const int rest = number - of_run * arguments.unit_items;
    const int unit = run.first + of_run;
    const int row = unit / arguments.tiles - first_row;
    const int tile = unit % arguments.tiles;
    const bool is_shared = rest >= arguments.route.used * arguments.parts;
    const int place = is_shared ? arguments.route.used : rest / arguments.parts;
    const int chunks = is_shared ? arguments.shared_chunks : arguments.chunks;
    const int first_chunk = (rest - place * arguments.parts) * arguments.item_chunks;
    const int expert = is_shared ? 0 : choices.experts[row][place];
    if (expert < 0) return false;
    const KernelMatrix& matrix = is_shared ? arguments.shared : arguments.matrix;
    const std::size_t chunk = static_cast<std::size_t>(tile) * chunks + first_chunk;
    work = {
        .weights = matrix.data + static_cast<std::size_t>(expert) * arguments.expert_bytes + chunk * weight_chunk_bytes,
        .activations = activations + row_bytes(row * row_chunks() + place * arguments.chunks + first_chunk),
        .chunks = min(arguments.item_chunks, chunks - first_chunk)};
    return true;
  }
};

// Asks for the hidden rows of the block's rows.
__device__ void copy_hidden(const DownJob& job, int last_row, std::uint32_t to) {
  const DownArguments& arguments = job.arguments;
  const auto copy = [&](const std::byte* from, std::uint32_t target, int bytes) {
    for (int at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16) copy_async(target + at, from + at);
  };
  for (int row = job.first_row; row <= last_row; ++row) {
    const std::uint32_t target = to + row_bytes((row - job.first_row) * job.row_chunks());
    const int bytes = row_bytes(arguments.route.used * arguments.chunks);
    const int shared_bytes = row_bytes(arguments.shared_chunks);
    copy(arguments.hidden + static_cast<std::size_t>(row) * bytes, target, bytes);
    copy(arguments.shared_hidden + static_cast<std::size_t>(row) * shared_bytes, target + bytes, shared_bytes);
  }
  commit_copies();
}

// Writes the units of items [first, end). `early`: what a thread's only output is added to, if `has_early`.
__device__ void finish_down(const DownJob& job, int first, int end, const float* sums, float early, bool has_early) {
  const DownArguments& arguments = job.arguments;
  const int used = arguments.route.used;
  const int outputs = (end - first) / arguments.unit_items * kTileRows;
  for (int i = threadIdx.x; i < outputs; i += blockDim.x) {
    const int unit = job.run.first + first / arguments.unit_items + i / kTileRows;
    const int row = unit / arguments.tiles;
    const int out_row = unit % arguments.tiles * kTileRows + i % kTileRows;
    if (out_row >= arguments.rows) continue;
    const float* place = sums + i / kTileRows * arguments.unit_items * kTileRows + i % kTileRows;
    float sum = 0.0f;
    for (int k = 0; k < used; ++k) {
      const int expert = job.choices.experts[row - job.first_row][k];
      if (expert < 0) continue;
      float value = sum_of_parts(place + k * arguments.parts * kTileRows, arguments.parts);
      const float* bias = arguments.matrix.bias;
      if (bias != nullptr) value += bias[static_cast<std::size_t>(expert) * arguments.rows + out_row];
      sum = fmaf(job.choices.weights[row - job.first_row][k], value, sum);
    }
    if (arguments.shared_chunks > 0) {
      sum += sum_of_parts(place + used * arguments.parts * kTileRows, arguments.shared_parts);
    }
    if (arguments.shared_values != nullptr) {
      sum += arguments.shared_values[static_cast<std::size_t>(row) * arguments.shared_stride + out_row];
    }
    float& out = arguments.out.data[static_cast<std::size_t>(row) * arguments.out.stride + out_row];
    out = arguments.is_added ? (has_early ? early : out) + arguments.scale * sum : sum;
  }
}

template <WeightFormat F>
__global__ void __launch_bounds__(kThreads, 2) experts_down_kernel(const __grid_constant__ DownArguments arguments) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ BlockChoices choices;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const RingPlace place{.ring = shared + threadIdx.x / 32 * arguments.stages * chunk_bytes(F),
                        .stages = arguments.stages,
                        .warp = static_cast<int>(threadIdx.x) / 32,
                        .warps = warps,
                        .lane = static_cast<int>(threadIdx.x) % 32};
  auto* sums = reinterpret_cast<float*>(shared + warps * arguments.stages * chunk_bytes(F));
  auto* activations = reinterpret_cast<std::byte*>(sums + arguments.batch_units * arguments.unit_items * kTileRows);
  const Run run(arguments.units, blockIdx.x, gridDim.x);
  const int first_row = run.first / arguments.tiles;
  const int last_row = (run.end - 1) / arguments.tiles;
  // The router is done, and so is everything before it: the kernel before this one started us after its own wait.
  choices.choose(arguments.route, first_row, last_row, false, false);
  __syncthreads();
  const DownJob job{.arguments = arguments,
                    .choices = choices,
                    .activations = activations,
                    .run = run,
                    .first_row = first_row,
                    .items = (run.end - run.first) * arguments.unit_items,
                    .weight_chunk_bytes = chunk_bytes(F)};
  ItemRingFiller<F, DownJob> filler(job, place);
#pragma unroll 1
  for (int i = 0; i < arguments.stages; ++i) filler.fill_next();
  const bool has_early = (run.end - run.first) * kTileRows <= static_cast<int>(blockDim.x);
  float early = 0.0f;
  if (has_early && arguments.is_added && static_cast<int>(threadIdx.x) < (run.end - run.first) * kTileRows) {
    const int unit = run.first + static_cast<int>(threadIdx.x) / kTileRows;
    const int out_row = unit % arguments.tiles * kTileRows + static_cast<int>(threadIdx.x) % kTileRows;
    const std::size_t row = static_cast<std::size_t>(unit / arguments.tiles);
    if (out_row < arguments.rows) early = arguments.out.data[row * arguments.out.stride + out_row];
  }
  if (arguments.next_may_start) allow_next_kernel();
  wait_for_previous_kernel();
  copy_hidden(job, last_row, shared_address(activations));
  wait_for_copies(0);
  __syncthreads();
  consume_items<F>(job, place, filler, arguments.batch_units * arguments.unit_items, sums, [&](int first, int end) {
    finish_down(job, first, end, sums, early, has_early && arguments.batch_units * arguments.unit_items >= job.items);
  });
}

// ---- Shares ----

// Chunks of an item, so that warps have equal shares of a block's items for one row: a matter of shapes alone.
template <typename ItemsOfBlock>
int best_item_chunks(const ItemsOfBlock& items_of_block) {
  int best = 1;
  int least = 0;
  for (int chunks = 1; chunks <= kMaxItemChunks; ++chunks) {
    const int rounds = divided_up(items_of_block(chunks), kWarps) * chunks;
    if (chunks > 1 && rounds > least) continue;
    best = chunks;
    least = rounds;
  }
  return best;
}

struct InShares {
  int blocks[2] = {};
  int most = 0;  // units of a block
};

// Blocks for the chosen experts and for the shared one, so that none has more units than it must. A block has two rows
// at most.
InShares share_blocks(int multiprocessors, int units, int shared_units, int rows) {
  const int grid = std::min(multiprocessors, units + shared_units);
  if (shared_units == 0) return {.blocks = {grid, 0}, .most = divided_up(units, grid)};
  InShares best;
  for (int first = std::min(rows, units); first <= grid - std::min(rows, shared_units); ++first) {
    const int most = std::max(divided_up(units, first), divided_up(shared_units, grid - first));
    if (best.most == 0 || most < best.most) best = {.blocks = {first, grid - first}, .most = most};
  }
  return best;
}

struct InPlan {
  InArguments arguments;
  int shared_bytes = 0;  // 0: it cannot be done
};

int half_of_shared(const LaunchContext& context) {
  return (context.shared_bytes + kReservedBytes) / 2 - kReservedBytes;
}

// As much of a block's shared memory as the compiler gives to the choices and the like.
constexpr int kStaticBytes = sizeof(BlockChoices) + kWarps * 4;

Section section_of(const ExpertMatrix (&matrices)[2], int experts, int rows, std::byte* out) {
  const PackedMatrix& matrix = matrices[0].packed;
  const int units = divided_up(matrix.tiles(), kUnitTiles);
  Section section{.matrices = {},
                  .expert_bytes = matrices[0].expert_bytes,
                  .units = rows * experts * units,
                  .row_units = experts * units,
                  .expert_units = units,
                  .tiles = matrix.tiles(),
                  .rows = matrix.rows,
                  .out = out,
                  .out_bytes = row_bytes(divided_up(matrix.rows, kChunkColumns))};
  for (int i = 0; i < 2; ++i) section.matrices[i] = {.data = matrices[i].packed.data, .bias = matrices[i].bias};
  return section;
}

std::byte* shared_hidden_of(const FusedExpertsOp& op) {
  return op.hidden + static_cast<std::size_t>(op.input.count) * op.route.used * row_bytes(op.down.packed.chunks());
}

InPlan plan_in(const LaunchContext& context, const FusedExpertsOp& op) {
  const PackedMatrix& matrix = op.in[0].packed;
  const int rows = op.input.count;
  const bool has_shared = op.has_shared();
  InPlan plan{.arguments = {.input = op.input,
                            .route = op.route,
                            .sections = {section_of(op.in, op.route.used, rows, op.hidden),
                                         section_of(op.shared_in, 1, rows, shared_hidden_of(op))},
                            .blocks = {},
                            .chunks = matrix.chunks(),
                            .matrix_count = op.in_count,
                            .item_chunks = 0,
                            .parts = 0,
                            .unit_items = 0,
                            .batch_units = 0,
                            .stages = 0,
                            .next_may_start = false,
                            .function = op.function}};
  InArguments& a = plan.arguments;
  const auto shares = [&](int count) {
    return share_blocks(context.multiprocessors, count * a.sections[0].row_units,
                        has_shared ? count * a.sections[1].row_units : 0, count);
  };
  const int single = shares(1).most;
  const auto items_of = [&](int chunks) { return op.in_count * kUnitTiles * divided_up(a.chunks, chunks); };
  a.item_chunks = best_item_chunks([&](int chunks) { return single * items_of(chunks); });
  a.parts = divided_up(a.chunks, a.item_chunks);
  a.unit_items = items_of(a.item_chunks);
  const InShares shared = shares(rows);
  a.blocks[0] = shared.blocks[0];
  a.blocks[1] = shared.blocks[1];
  const int unit_bytes = a.unit_items * kTileRows * 4;
  a.batch_units = std::clamp(kBatchBytes / unit_bytes, 1, shared.most);
  const int fixed = a.batch_units * unit_bytes + std::min(rows, kMostRowsOfBlock) * row_bytes(a.chunks);
  const int stage_bytes = kWarps * chunk_bytes(matrix.format);
  const auto stages_within = [&](int limit) {
    return std::clamp((limit - kStaticBytes - fixed) / stage_bytes, 0, kMaxStages);
  };
  // More than half of the shared memory, so that no two blocks pile up on one multiprocessor, and little more, so that
  // the next kernel finds room beside this one; where that is too little, what there is.
  const int half = half_of_shared(context);
  a.stages = stages_within(half);
  a.next_may_start = a.stages >= 2;
  if (!a.next_may_start) a.stages = stages_within(context.shared_bytes);
  if (a.stages == 0) return plan;
  plan.shared_bytes =
      std::max(fixed + a.stages * stage_bytes, std::min(half + 16, context.shared_bytes) - kStaticBytes);
  return plan;
}

struct DownPlan {
  DownArguments arguments;
  int blocks = 0;
  int warps = kWarps;
  int shared_bytes = 0;  // 0: it cannot be done
};

DownPlan plan_down(const LaunchContext& context, const FusedExpertsOp& op) {
  const PackedMatrix& matrix = op.down.packed;
  const int rows = op.input.count;
  DownPlan plan{.arguments = {.route = op.route,
                              .matrix = {.data = matrix.data, .bias = op.down.bias},
                              .shared = {.data = op.shared_down.packed.data, .bias = nullptr},
                              .expert_bytes = op.down.expert_bytes,
                              .hidden = op.hidden,
                              .shared_hidden = shared_hidden_of(op),
                              .units = rows * matrix.tiles(),
                              .tiles = matrix.tiles(),
                              .rows = matrix.rows,
                              .chunks = matrix.chunks(),
                              .shared_chunks = op.has_shared() ? op.shared_down.packed.chunks() : 0,
                              .item_chunks = 0,
                              .parts = 0,
                              .shared_parts = 0,
                              .unit_items = 0,
                              .batch_units = 0,
                              .stages = 0,
                              .next_may_start = false,
                              .shared_values = op.shared_values,
                              .shared_stride = op.shared_stride,
                              .out = op.out,
                              .is_added = op.is_added,
                              .scale = op.scale}};
  DownArguments& a = plan.arguments;
  const auto items_of = [&](int chunks) {
    return op.route.used * divided_up(a.chunks, chunks) + divided_up(a.shared_chunks, chunks);
  };
  const int single = divided_up(a.tiles, std::min(a.tiles, context.multiprocessors));
  a.item_chunks = best_item_chunks([&](int chunks) { return single * items_of(chunks); });
  a.parts = divided_up(a.chunks, a.item_chunks);
  a.shared_parts = divided_up(a.shared_chunks, a.item_chunks);
  a.unit_items = items_of(a.item_chunks);
  plan.blocks = std::min(a.units, context.multiprocessors);
  const int unit_bytes = a.unit_items * kTileRows * 4;
  a.batch_units = std::clamp(kBatchBytes / unit_bytes, 1, divided_up(a.units, plan.blocks));
  const int row_chunks = op.route.used * a.chunks + a.shared_chunks;
  const int fixed = a.batch_units * unit_bytes + std::min(rows, kMostRowsOfBlock) * row_bytes(row_chunks);
  const auto stages_within = [&](int limit, int warps) {
    return std::clamp((limit - kStaticBytes - fixed) / (warps * chunk_bytes(matrix.format)), 0, kMaxStages);
  };
  // Beside the kernel before, and beside the one that follows: where there are fewer blocks than multiprocessors, that
  // one takes more than half of the memory.
  const bool is_even = plan.blocks == context.multiprocessors;
  const int limit = is_even ? half_of_shared(context) - 16 : context.shared_bytes - kLoneBytes - kReservedBytes;
  for (const int warps : {kWarps, kFewerWarps}) {
    plan.warps = warps;
    a.stages = stages_within(limit, warps);
    a.next_may_start = a.stages >= 2;
    if (a.next_may_start) break;
  }
  if (!a.next_may_start) {
    plan.warps = kWarps;
    a.stages = stages_within(context.shared_bytes, kWarps);
  }
  if (a.stages > 0) plan.shared_bytes = fixed + a.stages * plan.warps * chunk_bytes(matrix.format);
  return plan;
}

}  // namespace

std::size_t fused_hidden_bytes(int used, int widest_hidden) {
  return static_cast<std::size_t>(kMaxFusedExpertRows) * static_cast<std::size_t>(used + 1) *
         static_cast<std::size_t>(row_bytes(divided_up(widest_hidden, kChunkColumns)));
}

bool can_run_fused_experts(const LaunchContext& context, const FusedExpertsOp& op) {
  if (op.route.used > kMaxExpertsUsed || op.route.logits.width > kMaxExperts) return false;
  if (op.in[0].packed.rows % kStepColumns != 0) return false;
  if (op.in_count == 2 && op.in[0].packed.format != op.in[1].packed.format) return false;
  if (op.has_shared()) {
    for (int i = 0; i < op.in_count; ++i) {
      if (op.shared_in[i].packed.data == nullptr || op.shared_in[i].packed.format != op.in[0].packed.format)
        return false;
    }
    if (op.shared_in[0].packed.rows % kStepColumns != 0) return false;
    if (op.shared_down.packed.format != op.down.packed.format) return false;
  }
  // Whatever the number of rows: they all take the same kernels.
  FusedExpertsOp most = op;
  most.input.count = kMostRowsOfBlock;
  return plan_in(context, most).shared_bytes > 0 && plan_down(context, most).shared_bytes > 0;
}

void prepare_fused_experts(const LaunchContext& context) {
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    with_expert_format(static_cast<WeightFormat>(format), [&]<WeightFormat F>() {
      allow_shared_bytes("experts", experts_in_kernel<F>, context.shared_bytes - kStaticBytes);
      allow_shared_bytes("experts", experts_down_kernel<F>, context.shared_bytes - kStaticBytes);
    });
  }
}

void fused_experts_in(const LaunchContext& context, const FusedExpertsOp& op) {
  check_limits(op.route);
  if (op.input.count > kMaxFusedExpertRows) fail_launch("experts in", "too many rows");
  const InPlan plan = plan_in(context, op);
  if (plan.shared_bytes == 0) fail_launch("experts in", "these rows are too long for the shared memory");
  const dim3 grid(static_cast<unsigned>(plan.arguments.blocks[0] + plan.arguments.blocks[1]));
  with_expert_format(op.in[0].packed.format, [&]<WeightFormat F>() {
    launch("experts in", context, experts_in_kernel<F>, grid, dim3(kThreads), plan.shared_bytes, plan.arguments);
  });
}

bool fused_experts_down(const LaunchContext& context, const FusedExpertsOp& op) {
  const DownPlan plan = plan_down(context, op);
  if (plan.shared_bytes == 0) fail_launch("experts down", "these rows are too long for the shared memory");
  with_expert_format(op.down.packed.format, [&]<WeightFormat F>() {
    launch("experts down", context, experts_down_kernel<F>, dim3(static_cast<unsigned>(plan.blocks)),
           dim3(static_cast<unsigned>(plan.warps * 32)), plan.shared_bytes, plan.arguments);
  });
  return plan.arguments.next_may_start && plan.blocks == context.multiprocessors;
}

}  // namespace quarrel::cuda

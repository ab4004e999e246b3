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
constexpr int kMaxItemChunks = 8;
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

// A number to divide by, for products of dividend and divisor below 2^32: a multiplication.
struct Divisor {
  int value = 1;
  std::uint32_t inverse = 0;  // 2^32 / value, rounded up; 0: the value is 1

  Divisor() = default;
  explicit Divisor(int number)
      : value(number),
        inverse(number <= 1
                    ? 0u
                    : static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + static_cast<std::uint64_t>(number) - 1) /
                                                 static_cast<std::uint64_t>(number))) {}
  __device__ int quotient(int number) const {
    return inverse == 0 ? number : static_cast<int>(__umulhi(static_cast<std::uint32_t>(number), inverse));
  }
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
};

// A row's choice by the warp of that number. What the router has no part in is asked for before the wait.
struct Chooser {
  const RouteRowsOp& route;
  SelectionBiases<kUsualShare> biases;
  int warp;
  int lane;
  int row;
  bool chooses;
  bool exists;

  __device__ Chooser(const RouteRowsOp& op, int first_row, int last_row)
      : route(op), biases(op, threadIdx.x % 32), warp(threadIdx.x / 32), lane(threadIdx.x % 32) {
    row = first_row + warp;
    chooses = row <= last_row;
    exists = chooses && op.sequences[row] >= 0;
  }
  // A barrier must follow.
  template <bool kWeights>
  __device__ void choose(BlockChoices& choices, bool counts) const {
    if (!chooses) return;
    const Chosen chosen = exists ? choose_experts<kWeights>(route, biases, row, lane) : Chosen{};
    choices.experts[warp][lane] = chosen.expert;
    choices.weights[warp][lane] = chosen.weight;
    if (counts && route.counts != nullptr && chosen.expert >= 0) atomicAdd(route.counts + chosen.expert, 1ull);
  }
};

// ---- Hidden rows ----

// The units of all experts that are chosen, or of the shared one.
struct Section {
  KernelMatrix matrices[2];
  std::size_t expert_bytes;
  int units;
  Divisor row_units;
  Divisor expert_units;
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
  Divisor parts;  // items of a tile
  Divisor unit_items;
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
  int weight_chunk_bytes;

  struct Unit {
    int row;
    int place;  // of the row's experts
    int of_expert;
  };
  __device__ Unit unit(int number) const {
    const int row = section.row_units.quotient(number);
    const int of_row = number - row * section.row_units.value;
    const int place = section.expert_units.quotient(of_row);
    return {.row = row, .place = place, .of_expert = of_row - place * section.expert_units.value};
  }
  __device__ int expert(const Unit& unit) const {
    return is_shared ? 0 : choices.experts[unit.row - first_row][unit.place];
  }
  // An item is a part of a tile of the first matrix, then of the second.
  __device__ bool item(int number, ItemWork& work) const {
    const int of_run = arguments.unit_items.quotient(number);
    const Unit place = unit(run.first + of_run);
    const int chosen = expert(place);
    const int of_unit = number - of_run * arguments.unit_items.value;
    const int of_matrices = arguments.parts.quotient(of_unit);
    const int tile = place.of_expert * kUnitTiles + of_matrices % kUnitTiles;
    if (chosen < 0 || tile >= section.tiles) return false;
    const int first_chunk = (of_unit - of_matrices * arguments.parts.value) * arguments.item_chunks;
    const std::size_t chunk = static_cast<std::size_t>(tile) * arguments.chunks + first_chunk;
    work = {.weights = section.matrices[of_matrices / kUnitTiles].data +
                       static_cast<std::size_t>(chosen) * section.expert_bytes + chunk * weight_chunk_bytes,
            .activations = activations + row_bytes((place.row - first_row) * arguments.chunks + first_chunk),
            .chunks = min(arguments.item_chunks, arguments.chunks - first_chunk)};
    return true;
  }
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

// The biases of a lane's value in a unit.
struct UnitBiases {
  float v[2] = {0.0f, 0.0f};

  __device__ UnitBiases(const InJob& job, int number) {
    if (job.section.matrices[0].bias == nullptr) return;
    const InJob::Unit unit = job.unit(number);
    const int expert = job.expert(unit);
    if (expert < 0) return;
    const std::size_t row =
        static_cast<std::size_t>(expert) * job.section.rows + unit.of_expert * kStepColumns + threadIdx.x % 32;
    v[0] = job.section.matrices[0].bias[row];
    if (job.arguments.matrix_count == 2) v[1] = job.section.matrices[1].bias[row];
  }
};

// Writes the units of items [first, end), a warp a unit. `early`: the biases of the warp's first unit of the run.
__device__ void finish_in(const InJob& job, int first, int end, const float* sums, const UnitBiases& early) {
  const InArguments& arguments = job.arguments;
  const Section& section = job.section;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int parts = arguments.parts.value;
  const int first_unit = arguments.unit_items.quotient(first);
  const int units = arguments.unit_items.quotient(end - first);
  for (int i = warp; i < units; i += kWarps) {
    const InJob::Unit unit = job.unit(job.run.first + first_unit + i);
    if (job.expert(unit) < 0) continue;
    const UnitBiases biases = first_unit + i == warp ? early : UnitBiases(job, job.run.first + first_unit + i);
    const float* place =
        sums + (i * arguments.unit_items.value + lane / kTileRows * parts) * kTileRows + lane % kTileRows;
    float value = sum_of_parts(place, parts) + biases.v[0];
    if (arguments.matrix_count == 2) {
      value =
          gated(arguments.function, value, sum_of_parts(place + kUnitTiles * parts * kTileRows, parts) + biases.v[1]);
    } else {
      value = activated(arguments.function.kind, value);
    }
    const int number = job.is_shared ? unit.row : unit.row * arguments.route.used + unit.place;
    std::byte* out = section.out + static_cast<std::size_t>(number) * section.out_bytes;
    store_split_step(value, out, unit.of_expert);
    // What the last chunk lacks.
    if (unit.of_expert + 1 < section.expert_units.value) continue;
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
  auto* activations =
      reinterpret_cast<std::byte*>(sums + arguments.batch_units * arguments.unit_items.value * kTileRows);
  const int block = blockIdx.x;
  const bool is_shared = block >= arguments.blocks[0];
  const Section& section = arguments.sections[is_shared ? 1 : 0];
  const Run run(section.units, is_shared ? block - arguments.blocks[0] : block, arguments.blocks[is_shared ? 1 : 0]);
  const int first_row = section.row_units.quotient(run.first);
  const int last_row = section.row_units.quotient(run.end - 1);
  const HeldWeights norm_weights(arguments.input);
  const Chooser chooser(arguments.route, first_row, is_shared ? first_row - 1 : last_row);
  wait_for_previous_kernel();
  // Not before: the next kernel looks at the router's logits while it waits for this one.
  if (arguments.next_may_start) allow_next_kernel();
  // Before the weights are asked for, behind which it would have to queue.
  SplitInput one = arguments.input;
  one.rows += static_cast<std::size_t>(first_row) * one.stride;
  one.count = 1;
  if (one.first_bad_layer != nullptr) one.first_bad_layer += first_row;
  HeldValues values;
  values.load(one, 0, place.warp);
  // A row is counted by the block that has its first unit.
  chooser.choose<false>(choices, chooser.row > first_row || run.first == first_row * section.row_units.value);
  __syncthreads();
  const InJob job{.arguments = arguments,
                  .section = section,
                  .choices = choices,
                  .activations = activations,
                  .run = run,
                  .first_row = first_row,
                  .is_shared = is_shared,
                  .items = (run.end - run.first) * arguments.unit_items.value,
                  .weight_chunk_bytes = chunk_bytes(F)};
  const UnitBiases biases(job, min(run.first + place.warp, run.end - 1));
  ItemRingFiller<F, InJob> filler(job, place);
  // One of each warp's now, the others behind the barriers of the norm: a warp that asks for more than memory can give
  // is held up, and so would be all that wait for it.
  filler.fill_next();
  split_held(one, norm_weights, values, 0, true, scratch, activations);
  if (last_row > first_row) {
    one.rows += one.stride;
    if (one.first_bad_layer != nullptr) ++one.first_bad_layer;
    split_row(one, norm_weights, 0, true, scratch, activations + row_bytes(arguments.chunks));
  }
#pragma unroll 1
  for (int i = 1; i < arguments.stages; ++i) filler.fill_next();
  __syncthreads();
  consume_items<F>(
      job, place, filler, arguments.batch_units * arguments.unit_items.value,
      [&](int item, int row, float sum) { sums[item * kTileRows + row] = sum; },
      [&](int first, int end) { finish_in(job, first, end, sums, biases); });
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
  Divisor tiles;
  int rows;
  int chunks;
  int shared_chunks;  // 0: there is no shared expert
  int item_chunks;
  Divisor parts;
  int shared_parts;
  Divisor unit_items;
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
    const int of_run = arguments.unit_items.quotient(number);
    const int of_unit = number - of_run * arguments.unit_items.value;
    const int unit = run.first + of_run;
    const int row = arguments.tiles.quotient(unit);
    const int tile = unit - row * arguments.tiles.value;
    const int place = min(arguments.parts.quotient(of_unit), arguments.route.used);
    const bool is_shared = place == arguments.route.used;
    const int chunks = is_shared ? arguments.shared_chunks : arguments.chunks;
    const int first_chunk = (of_unit - place * arguments.parts.value) * arguments.item_chunks;
    const int expert = is_shared ? 0 : choices.experts[row - first_row][place];
    if (expert < 0) return false;
    const KernelMatrix& matrix = is_shared ? arguments.shared : arguments.matrix;
    const std::size_t chunk = static_cast<std::size_t>(tile) * chunks + first_chunk;
    work = {
        .weights = matrix.data + static_cast<std::size_t>(expert) * arguments.expert_bytes + chunk * weight_chunk_bytes,
        .activations =
            activations + row_bytes((row - first_row) * row_chunks() + place * arguments.chunks + first_chunk),
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

// One of the values that a unit's outputs are made of: what expert `place` of the row, or the shared one, gives.
struct DownValue {
  int unit;  // of the batch
  int place;
  int row;         // of the tile
  int out_row;     // of the matrix
  int row_of_run;  // of the step, from the run's first

  __device__ DownValue(const DownJob& job, int first_unit, int number) {
    const DownArguments& arguments = job.arguments;
    const int places = arguments.route.used + (arguments.shared_chunks > 0 ? 1 : 0);
    unit = number / (places * kTileRows);
    place = number / kTileRows - unit * places;
    row = number % kTileRows;
    const int of_all = job.run.first + first_unit + unit;
    const int of_step = arguments.tiles.quotient(of_all);
    row_of_run = of_step - job.first_row;
    out_row = (of_all - of_step * arguments.tiles.value) * kTileRows + row;
  }
  __device__ float bias(const DownJob& job) const {
    const DownArguments& arguments = job.arguments;
    if (arguments.matrix.bias == nullptr || place >= arguments.route.used || out_row >= arguments.rows) return 0.0f;
    const int expert = job.choices.experts[row_of_run][place];
    return expert < 0 ? 0.0f : arguments.matrix.bias[static_cast<std::size_t>(expert) * arguments.rows + out_row];
  }
};

// What is known before the kernel waits: of a thread's first value its bias, of its first output what it is added to.
struct EarlyDown {
  float bias = 0.0f;
  float residual = 0.0f;

  __device__ explicit EarlyDown(const DownJob& job) {
    const DownArguments& arguments = job.arguments;
    const int number = threadIdx.x;
    const int places = arguments.route.used + (arguments.shared_chunks > 0 ? 1 : 0);
    const int units = job.run.end - job.run.first;
    if (number < units * places * kTileRows) bias = DownValue(job, 0, number).bias(job);
    const int unit = job.run.first + number / kTileRows;
    const int row = arguments.tiles.quotient(unit);
    const int out_row = (unit - row * arguments.tiles.value) * kTileRows + number % kTileRows;
    if (arguments.is_added && number < units * kTileRows && out_row < arguments.rows) {
      residual = arguments.out.data[static_cast<std::size_t>(row) * arguments.out.stride + out_row];
    }
  }
};

// Writes the units of items [first, end).
__device__ void finish_down(const DownJob& job, int first, int end, float* sums, const EarlyDown& early) {
  const DownArguments& arguments = job.arguments;
  const int used = arguments.route.used;
  const int places = used + (arguments.shared_chunks > 0 ? 1 : 0);
  const int unit_items = arguments.unit_items.value;
  const int parts = arguments.parts.value;
  const int first_unit = arguments.unit_items.quotient(first);
  const int outputs = arguments.unit_items.quotient(end - first) * kTileRows;
  for (int i = threadIdx.x; i < outputs * places; i += blockDim.x) {
    const DownValue value(job, first_unit, i);
    float* place = sums + (value.unit * unit_items + value.place * parts) * kTileRows + value.row;
    const bool is_early = first == 0 && i == static_cast<int>(threadIdx.x);
    *place = sum_of_parts(place, value.place < used ? parts : arguments.shared_parts) +
             (is_early ? early.bias : value.bias(job));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < outputs; i += blockDim.x) {
    const int unit = job.run.first + first_unit + i / kTileRows;
    const int row = arguments.tiles.quotient(unit);
    const int out_row = (unit - row * arguments.tiles.value) * kTileRows + i % kTileRows;
    if (out_row >= arguments.rows) continue;
    const float* place = sums + i / kTileRows * unit_items * kTileRows + i % kTileRows;
    float sum = 0.0f;
    for (int k = 0; k < used; ++k) {
      if (job.choices.experts[row - job.first_row][k] < 0) continue;
      sum = fmaf(job.choices.weights[row - job.first_row][k], place[k * parts * kTileRows], sum);
    }
    if (arguments.shared_chunks > 0) sum += place[used * parts * kTileRows];
    if (arguments.shared_values != nullptr) {
      sum += arguments.shared_values[static_cast<std::size_t>(row) * arguments.shared_stride + out_row];
    }
    float& out = arguments.out.data[static_cast<std::size_t>(row) * arguments.out.stride + out_row];
    const bool is_early = first == 0 && i == static_cast<int>(threadIdx.x);
    out = arguments.is_added ? (is_early ? early.residual : out) + arguments.scale * sum : sum;
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
  auto* activations =
      reinterpret_cast<std::byte*>(sums + arguments.batch_units * arguments.unit_items.value * kTileRows);
  const Run run(arguments.units, blockIdx.x, gridDim.x);
  const int first_row = arguments.tiles.quotient(run.first);
  const int last_row = arguments.tiles.quotient(run.end - 1);
  // The router is done, and so is everything before it: the kernel before this one started us after its own wait.
  Chooser(arguments.route, first_row, last_row).choose<true>(choices, false);
  __syncthreads();
  const DownJob job{.arguments = arguments,
                    .choices = choices,
                    .activations = activations,
                    .run = run,
                    .first_row = first_row,
                    .items = (run.end - run.first) * arguments.unit_items.value,
                    .weight_chunk_bytes = chunk_bytes(F)};
  ItemRingFiller<F, DownJob> filler(job, place);
#pragma unroll 1
  for (int i = 0; i < arguments.stages; ++i) filler.fill_next();
  const EarlyDown early(job);
  if (arguments.next_may_start) allow_next_kernel();
  wait_for_previous_kernel();
  copy_hidden(job, last_row, shared_address(activations));
  wait_for_copies(0);
  __syncthreads();
  consume_items<F>(
      job, place, filler, arguments.batch_units * arguments.unit_items.value,
      [&](int item, int row, float sum) { sums[item * kTileRows + row] = sum; },
      [&](int first, int end) { finish_down(job, first, end, sums, early); });
}

// ---- Shares ----

// Chunks of an item, so that warps have equal shares of a block's items for one row: a matter of shapes alone. An item
// takes about as long as a chunk more.
template <typename ItemsOfBlock>
int best_item_chunks(const ItemsOfBlock& items_of_block) {
  int best = 1;
  int least = 0;
  for (int chunks = 1; chunks <= kMaxItemChunks; ++chunks) {
    const int time = divided_up(items_of_block(chunks), kWarps) * (chunks + 1);
    if (chunks > 1 && time > least) continue;
    best = chunks;
    least = time;
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
                  .row_units = Divisor(experts * units),
                  .expert_units = Divisor(units),
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
                            .parts = {},
                            .unit_items = {},
                            .batch_units = 0,
                            .stages = 0,
                            .next_may_start = false,
                            .function = op.function}};
  InArguments& a = plan.arguments;
  const auto shares = [&](int count) {
    return share_blocks(context.multiprocessors, count * a.sections[0].row_units.value,
                        has_shared ? count * a.sections[1].row_units.value : 0, count);
  };
  const int single = shares(1).most;
  const auto items_of = [&](int chunks) { return op.in_count * kUnitTiles * divided_up(a.chunks, chunks); };
  a.item_chunks = best_item_chunks([&](int chunks) { return single * items_of(chunks); });
  a.parts = Divisor(divided_up(a.chunks, a.item_chunks));
  a.unit_items = Divisor(items_of(a.item_chunks));
  const InShares shared = shares(rows);
  a.blocks[0] = shared.blocks[0];
  a.blocks[1] = shared.blocks[1];
  const int unit_bytes = a.unit_items.value * kTileRows * 4;
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
                              .tiles = Divisor(matrix.tiles()),
                              .rows = matrix.rows,
                              .chunks = matrix.chunks(),
                              .shared_chunks = op.has_shared() ? op.shared_down.packed.chunks() : 0,
                              .item_chunks = 0,
                              .parts = {},
                              .shared_parts = 0,
                              .unit_items = {},
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
  const int single = divided_up(matrix.tiles(), std::min(matrix.tiles(), context.multiprocessors));
  a.item_chunks = best_item_chunks([&](int chunks) { return single * items_of(chunks); });
  a.parts = Divisor(divided_up(a.chunks, a.item_chunks));
  a.shared_parts = divided_up(a.shared_chunks, a.item_chunks);
  a.unit_items = Divisor(items_of(a.item_chunks));
  plan.blocks = std::min(a.units, context.multiprocessors);
  const int unit_bytes = a.unit_items.value * kTileRows * 4;
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

// Thread blocks have a run of units, 32 weight rows of one pair of a row and an expert each: as many hidden values as
// share a scale when they are split. Some blocks belong to the shared expert.
#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/fused_experts.cuh"
#include "backend/cuda/launch.cuh"

namespace quarrel::cuda {

using namespace fused;

namespace {

constexpr int kUnitTiles = kStepColumns / kTileRows;

// The units of all experts that are chosen, or of the shared one.
struct Section {
  ExpertWeights matrices[2];
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
  const float* squares;  // [rows of the block][warps]
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
  __device__ float scale(const Unit& unit) const {
    return left_scale(arguments.input, squares + (unit.row - first_row) * kWarps);
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

// The biases of a lane's value in a unit.
struct UnitBiases {
  float v[2] = {0.0f, 0.0f};

  __device__ UnitBiases(const InJob& job, int number) {
    const float* first = job.section.matrices[0].bias;
    const float* second = job.section.matrices[1].bias;
    if (first == nullptr && second == nullptr) return;
    const InJob::Unit unit = job.unit(number);
    const int expert = job.expert(unit);
    if (expert < 0) return;
    const std::size_t row =
        static_cast<std::size_t>(expert) * job.section.rows + unit.of_expert * kStepColumns + threadIdx.x % 32;
    if (first != nullptr) v[0] = first[row];
    if (second != nullptr) v[1] = second[row];
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
    const float scale = job.scale(unit);
    float value = sum_of_parts(place, parts) * scale + biases.v[0];
    if (arguments.matrix_count == 2) {
      const float second = sum_of_parts(place + kUnitTiles * parts * kTileRows, parts) * scale + biases.v[1];
      value = gated(arguments.function, value, second);
    } else {
      value = activated(arguments.function.kind, value);
    }
    const int number = job.is_shared ? unit.row : unit.row * arguments.route.used + unit.place;
    std::byte* out = section.out + static_cast<std::size_t>(number) * section.out_bytes;
    split_step(value, out, unit.of_expert);
    if (unit.of_expert + 1 == section.expert_units.value) split_rest_of_chunk(out, unit.of_expert + 1);
  }
}

template <WeightFormat F>
__global__ void __launch_bounds__(kThreads, 2) experts_in_kernel(const __grid_constant__ InArguments arguments) {
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ BlockChoices choices;
  __shared__ float scratch[kWarps];
  __shared__ float squares[kMostRowsOfBlock][kWarps];
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
  FirstChunk first_chunk(arguments.input);
  const Chooser chooser(arguments.route, first_row, is_shared ? first_row - 1 : last_row);
  wait_for_previous_kernel();
  // Not before: the next kernel looks at the router's logits while it waits for this one.
  if (arguments.next_may_start) allow_next_kernel();
  // Before the weights are asked for, behind which it would have to queue.
  SplitInput one = arguments.input;
  one.rows += static_cast<std::size_t>(first_row) * one.stride;
  one.count = 1;
  if (one.first_bad_layer != nullptr) one.first_bad_layer += first_row;
  first_chunk.load_row(one, 0);
  // A row is counted by the block that has its first unit.
  chooser.choose<false>(choices, chooser.row > first_row || run.first == first_row * section.row_units.value);
  __syncthreads();
  const InJob job{.arguments = arguments,
                  .section = section,
                  .choices = choices,
                  .activations = activations,
                  .squares = squares[0],
                  .run = run,
                  .first_row = first_row,
                  .is_shared = is_shared,
                  .items = (run.end - run.first) * arguments.unit_items.value,
                  .weight_chunk_bytes = chunk_bytes(F)};
  const UnitBiases biases(job, min(run.first + place.warp, run.end - 1));
  ItemRingFiller<F, InJob> filler(job, place);
  // One of each warp's now, the others when the rows are split: a warp that asks for more than memory can give is held
  // up.
  filler.fill_next();
  split_row(one, first_chunk, 0, true, 0, 1, squares[0], scratch, activations);
  if (last_row > first_row) {
    first_chunk.load_row(one, 1);
    split_row(one, first_chunk, 1, true, 0, 1, squares[1], scratch, activations + row_bytes(arguments.chunks));
  }
#pragma unroll 1
  for (int i = 1; i < arguments.stages; ++i) filler.fill_next();
  __syncthreads();
  consume_items<F>(
      job, place, filler, arguments.batch_units * arguments.unit_items.value,
      [&](int item, int row, float sum) { sums[item * kTileRows + row] = sum; },
      [&](int first, int end) { finish_in(job, first, end, sums, biases); });
  const int row = static_cast<int>(threadIdx.x);
  if (row <= last_row - first_row && !isfinite(left_scale(arguments.input, squares[row]))) note_bad_row(one, row);
}

struct InShares {
  int blocks[2] = {};
  int most = 0;  // units of a block
};

// Blocks for the chosen experts and for the shared one, so that none has more units than it must, and each has one. A
// block has two rows at most.
InShares share_blocks(int multiprocessors, int units, int shared_units, int rows) {
  const int grid = std::min(multiprocessors, units + shared_units);
  if (shared_units == 0) return {.blocks = {grid, 0}, .most = divided_up(units, grid)};
  InShares best;
  for (int first = std::min(rows, units); first <= grid - std::min(rows, shared_units); ++first) {
    const int most = std::max(divided_up(units, first), divided_up(shared_units, grid - first));
    if (best.most == 0 || most < best.most) best = {.blocks = {first, grid - first}, .most = most};
  }
  best.blocks[0] = std::min(best.blocks[0], units);
  best.blocks[1] = std::min(best.blocks[1], shared_units);
  return best;
}

struct InPlan {
  InArguments arguments;
  int shared_bytes = 0;  // 0: it cannot be done
};

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
  const int stage_bytes = kWarps * chunk_bytes(matrix.format);
  const auto fixed_with = [&](int units) {
    return units * unit_bytes + std::min(rows, kMostRowsOfBlock) * row_bytes(a.chunks);
  };
  const auto stages_with = [&](int units, int limit) {
    return std::clamp((limit - kStaticBytes - fixed_with(units)) / stage_bytes, 0, kMaxStages);
  };
  a.batch_units = fitting_batch(std::clamp(kBatchBytes / unit_bytes, 1, shared.most),
                                [&](int units) { return stages_with(units, context.shared_bytes); });
  const auto stages_within = [&](int limit) { return stages_with(a.batch_units, limit); };
  // More than half of the shared memory, so that no two blocks pile up on one multiprocessor, and little more, so that
  // the next kernel finds room beside this one; where that is too little, what there is.
  const int half = half_of_shared(context.shared_bytes);
  a.stages = stages_within(half);
  a.next_may_start = a.stages >= 2;
  if (!a.next_may_start) a.stages = stages_within(context.shared_bytes);
  if (a.stages == 0) return plan;
  plan.shared_bytes = std::max(fixed_with(a.batch_units) + a.stages * stage_bytes,
                               std::min(half + 16, context.shared_bytes) - kStaticBytes);
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
  if (context.multiprocessors < 2 * kMostRowsOfBlock) return false;
  // Whatever the number of rows: they all take the same kernels, and need no more room.
  FusedExpertsOp most = op;
  most.input.count = kMostRowsOfBlock;
  return fused_experts_have_room(context, most);
}

int most_fused_expert_rows(const LaunchContext& context) {
  return std::min(kMaxFusedExpertRows, context.multiprocessors / 2);
}

bool fused_experts_have_room(const LaunchContext& context, const FusedExpertsOp& op) {
  return plan_in(context, op).shared_bytes > 0 && can_run_down(context, op);
}

void prepare_fused_experts(const LaunchContext& context) {
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    with_expert_format(static_cast<WeightFormat>(format), [&]<WeightFormat F>() {
      allow_shared_bytes("experts in", experts_in_kernel<F>, context.shared_bytes - kStaticBytes);
    });
  }
  prepare_down(context);
}

void fused_experts_in(const LaunchContext& context, const FusedExpertsOp& op) {
  check_limits(op.route);
  if (op.input.count > most_fused_expert_rows(context)) fail_launch("experts in", "too many rows");
  const InPlan plan = plan_in(context, op);
  if (plan.shared_bytes == 0) fail_launch("experts in", "these rows are too long for the shared memory");
  const dim3 grid(static_cast<unsigned>(plan.arguments.blocks[0] + plan.arguments.blocks[1]));
  with_expert_format(op.in[0].packed.format, [&]<WeightFormat F>() {
    launch("experts in", context, experts_in_kernel<F>, grid, dim3(kThreads), plan.shared_bytes, plan.arguments);
  });
}

}  // namespace quarrel::cuda

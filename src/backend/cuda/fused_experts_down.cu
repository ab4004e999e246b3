// A thread block's unit is a tile of 16 output rows with all that a row's experts add to it, so that sums stay in the
// block.
#include "backend/cuda/fused_experts.cuh"
#include "backend/cuda/launch.cuh"

namespace quarrel::cuda {

using namespace fused;

namespace {

constexpr int kFewerWarps = 12;  // where the rings of more do not fit

struct DownArguments {
  RouteRowsOp route;
  ExpertWeights matrix;
  ExpertWeights shared;
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
    const ExpertWeights& matrix = is_shared ? arguments.shared : arguments.matrix;
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
  const int row_chunks = op.route.used * a.chunks + a.shared_chunks;
  const auto fixed_with = [&](int units) {
    return units * unit_bytes + std::min(rows, kMostRowsOfBlock) * row_bytes(row_chunks);
  };
  const auto stages_with = [&](int units, int limit, int warps) {
    return std::clamp((limit - kStaticBytes - fixed_with(units)) / (warps * chunk_bytes(matrix.format)), 0, kMaxStages);
  };
  a.batch_units = fitting_batch(std::clamp(kBatchBytes / unit_bytes, 1, divided_up(a.units, plan.blocks)),
                                [&](int units) { return stages_with(units, context.shared_bytes, kWarps); });
  const auto stages_within = [&](int limit, int warps) { return stages_with(a.batch_units, limit, warps); };
  // Beside the kernel before, and beside the one that follows: where there are fewer blocks than multiprocessors, that
  // one takes more than half of the memory.
  const bool is_even = plan.blocks == context.multiprocessors;
  const int limit =
      is_even ? half_of_shared(context.shared_bytes) - 16 : context.shared_bytes - kLoneBytes - kReservedBytes;
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
  if (a.stages > 0) plan.shared_bytes = fixed_with(a.batch_units) + a.stages * plan.warps * chunk_bytes(matrix.format);
  return plan;
}

}  // namespace

bool fused::can_run_down(const LaunchContext& context, const FusedExpertsOp& op) {
  return plan_down(context, op).shared_bytes > 0;
}

void fused::prepare_down(const LaunchContext& context) {
  for (int format = 0; format <= static_cast<int>(WeightFormat::mxfp4); ++format) {
    with_expert_format(static_cast<WeightFormat>(format), [&]<WeightFormat F>() {
      allow_shared_bytes("experts down", experts_down_kernel<F>, context.shared_bytes - kStaticBytes);
    });
  }
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

// Mixture of experts: a router, the experts that it chooses for each row, and the weighted sum of what they give. All
// of it stays on the device. Few rows go to their experts one by one (fused_experts.h; expert_gemv.h where formats are
// mixed), more are sorted by expert and go there together (grouped_gemm.h).
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_error.h"
#include "backend/cuda/grouped_gemm.h"
#include "backend/cuda/mixed_gemm.h"
#include "backend/cuda/moe_routing.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {
namespace {

void check_op(const MoeOp& op) {
  if (op.used < 1 || op.used > op.router.rows || op.router.rows != op.up.experts || op.down.experts != op.up.experts ||
      op.router.columns != op.up.columns || !op.end.x.valid() ||
      (op.activation == ActivationKind::swiglu_clamped && (!op.gate.valid() || op.shared_up.valid()))) {
    fail(ErrorKind::internal, "the experts of layer {} are malformed", op.layer);
  }
}

constexpr std::chrono::milliseconds kCountEvery{50};

bool is_plain(const MoeOp& op) { return op.end.branch.kind == NormKind::none && op.end.after.kind == NormKind::none; }

GateFunction function_of(const MoeOp& op) { return {.kind = op.activation, .clamp = op.clamp, .alpha = op.alpha}; }

}  // namespace

ExpertMatrix CudaBackend::expert_matrix(const Weight& weight, const Weight& bias) const {
  const StoredWeight& stored = weights_[weight];
  return {.packed = stored.packed,
          .dense = stored.dense,
          .expert_bytes = stored.expert_bytes,
          .bias = weights_.vector_of(bias, weight.experts * weight.rows)};
}

unsigned long long* CudaBackend::expert_counts(const MoeOp& op) const {
  const std::vector<std::int32_t>& layers = weights_.expert_layers();
  const auto found = std::ranges::find(layers, op.layer);
  if (found == layers.end()) fail(ErrorKind::internal, "layer {} has no experts of its own", op.layer);
  return expert_counts_ + (found - layers.begin()) * weights_.most_experts();
}

// Now and then, behind a step's results: whoever asks for the counts while steps run gets those of the last copy.
bool CudaBackend::copy_expert_counts() {
  if (known_expert_counts_.empty()) return false;
  const Clock::time_point now = Clock::now();
  if (now - expert_counts_at_ < kCountEvery) return false;
  expert_counts_at_ = now;
  const PinnedBuffer& memory = result_memory_[as_size(which_)].expert_counts;
  check(cudaMemcpyAsync(memory.data(), expert_counts_, memory.size(), cudaMemcpyDeviceToHost, stream_.get()),
        "counts of experts");
  return true;
}

bool CudaBackend::are_all_finished() const noexcept {
  return std::ranges::all_of(records_, [](const Record& record) { return record.ticket == 0 || record.is_finished; });
}

std::vector<ExpertUse> CudaBackend::expert_use() const {
  std::vector<std::uint64_t> counts = known_expert_counts_;
  if (!counts.empty() && are_all_finished()) {
    // Nothing is running that this would wait for.
    device_.make_current();
    check(cudaMemcpyAsync(counts.data(), expert_counts_, counts.size() * sizeof(std::uint64_t), cudaMemcpyDeviceToHost,
                          stream_.get()),
          "counts of experts");
    stream_.synchronize();
  }
  std::vector<ExpertUse> uses;
  auto first = counts.begin();
  for (std::size_t i = 0; i < weights_.expert_layers().size() && first != counts.end(); ++i) {
    const int experts = weights_.experts_of_layer(i);
    uses.push_back({.layer = weights_.expert_layers()[i], .chosen = {first, first + experts}});
    first += weights_.most_experts();
  }
  return uses;
}

// Rows [first, first + count) of the segment, by the router's logits of all of its rows.
RouteRowsOp CudaBackend::route_of(const MoeOp& op, const Segment& rows, int first, int count) {
  const int stride = stride_of(op.router.rows);
  return {.logits = {.data = second_value_ + static_cast<std::ptrdiff_t>(first) * stride,
                     .stride = stride,
                     .width = op.router.rows,
                     .count = count},
          .selection_bias = weights_.vector_of(op.selection_bias, op.router.rows),
          .used = op.used,
          .gating = op.gating,
          .normalise = op.normalise,
          .weight_scale = op.weight_scale,
          .sequences = tables_.rows(0).sequences + rows.first + first,
          .chosen = routing_.chosen,
          .weights = routing_.weights,
          .counts = expert_counts(op)};
}

bool CudaBackend::has_router_kernel(const MoeOp& op, const Input& input) const {
  return input.rows.tier == Tier::gemv && weights_[op.router].form == StoredWeight::Form::dense &&
         input.in.width <= kMaxRouterWidth;
}

// The router's logits of a segment, into `second_value_`.
void CudaBackend::run_router(const MoeOp& op, Input& input) {
  const Segment& rows = input.rows;
  const RowSpan logits = route_of(op, rows, 0, rows.count).logits;
  after_small_kernel_ = true;
  if (has_router_kernel(op, input)) {
    return router_logits(context_, {.in = input.in,
                                    .norm = device_norm(op.before, input.in.width, input.set, rows.first, op.layer),
                                    .router = weights_[op.router].dense,
                                    .router_bias = weights_.vector_of(op.router_bias, op.router.rows),
                                    .out = logits});
  }
  multiply(input, {.weight = op.router,
                   .bias = op.router_bias,
                   .out = logits.data,
                   .out_first = rows.first,
                   .stride = logits.stride});
}

void CudaBackend::route(const MoeOp& op, Input& input) {
  const Timed timed(*this, "router");
  run_router(op, input);
  route_rows(context_, route_of(op, input.rows, 0, input.rows.count));
  after_small_kernel_ = true;
}

// Whether gate and up can be one launch.
bool CudaBackend::have_one_format(const MoeOp& op) const {
  return !op.gate.valid() ||
         (is_packed(op.gate) == is_packed(op.up) && weights_[op.gate].packed.format == weights_[op.up].packed.format);
}

// All pairs of the segment through one matrix or two, as many at a time as the kernel takes. `rows`: the pairs' input
// is the segment's rows, which go through their norm; otherwise what `op` says, a row a pair.
void CudaBackend::run_expert_matrices(ExpertGemvOp op, const Input* rows) {
  const bool packed = op.matrices[0].packed.data != nullptr;
  const int pairs = op.pairs;
  const int most = packed ? context_.multiprocessors / op.pairs_a_row * op.pairs_a_row : pairs;
  if (most == 0) fail_launch(op.name, "a row goes to more experts than the device has multiprocessors");
  const SplitInput whole = op.input;
  const std::int32_t* chosen = op.chosen;
  float* out = op.out;
  for (int first = 0; first < pairs; first += most) {
    op.pairs = std::min(most, pairs - first);
    op.chosen = chosen + first;
    op.out = out + static_cast<std::ptrdiff_t>(first) * op.stride;
    const int first_row = first / op.pairs_a_row;
    if (packed && rows != nullptr) {
      op.input = split_input(*rows, first_row, op.pairs / op.pairs_a_row);
    } else {
      op.input = whole;
      op.input.rows = whole.rows + static_cast<std::ptrdiff_t>(first_row) * whole.stride;
    }
    if (packed) {
      expert_gemv(context_, op);
    } else {
      dense_expert_gemv(context_, op);
    }
  }
  after_small_kernel_ = true;
}

void CudaBackend::run_experts_one_by_one(const MoeOp& op, Input& input) {
  const int hidden = stride_of(op.up.rows);
  const int pairs = input.rows.count * op.used;
  ExpertGemvOp in{.name = "experts in",
                  .pairs_a_row = op.used,
                  .chosen = routing_.chosen,
                  .pairs = pairs,
                  .function = function_of(op),
                  .out = expert_hidden_,
                  .stride = hidden};
  if (!is_packed(op.up) || (op.gate.valid() && !is_packed(op.gate))) {
    const RowSpan rows = floats_of(input);
    in.input = {.rows = rows.data, .stride = rows.stride, .columns = rows.width, .count = rows.count};
  }
  if (op.gate.valid() && have_one_format(op) && is_packed(op.up)) {
    in.end = ExpertEnd::glu;
    in.matrices[0] = expert_matrix(op.gate, op.gate_bias);
    in.matrices[1] = expert_matrix(op.up, op.up_bias);
    run_expert_matrices(in, &input);
  } else if (!op.gate.valid()) {
    in.end = ExpertEnd::activate;
    in.matrices[0] = expert_matrix(op.up, op.up_bias);
    run_expert_matrices(in, &input);
  } else {
    in.matrices[0] = expert_matrix(op.gate, op.gate_bias);
    run_expert_matrices(in, &input);
    in.matrices[0] = expert_matrix(op.up, op.up_bias);
    in.out = expert_value_;
    run_expert_matrices(in, &input);
    glu_rows(context_,
             {.gate = expert_hidden_,
              .up = {.data = expert_value_, .stride = hidden, .width = op.up.rows, .count = pairs},
              .function = function_of(op)},
             expert_hidden_, hidden, nullptr);
  }
  ExpertGemvOp down{.name = "experts down",
                    .input = {.rows = expert_hidden_, .stride = hidden, .columns = op.up.rows, .count = pairs},
                    .chosen = routing_.chosen,
                    .pairs = pairs,
                    .out = expert_value_,
                    .stride = stride_of(op.down.rows)};
  down.matrices[0] = expert_matrix(op.down, op.down_bias);
  run_expert_matrices(down, nullptr);
}

void CudaBackend::run_experts_grouped(const MoeOp& op, Input& input) {
  const int pairs = input.rows.count * op.used;
  const int experts = op.up.experts;
  group_pairs(context_, {.chosen = routing_.chosen,
                         .pairs = pairs,
                         .experts = experts,
                         .starts = routing_.starts,
                         .order = routing_.order,
                         .places = routing_.places});
  auto* hidden = reinterpret_cast<std::uint16_t*>(expert_hidden_);
  const int stride = stride_of(op.up.rows);
  GroupedGemmOp in{.name = "experts in",
                   .in = halves_of(input),
                   .in_stride = input.in.width,
                   .starts = routing_.starts,
                   .order = routing_.order,
                   .pairs_a_row = op.used,
                   .experts = experts,
                   .pairs = pairs,
                   .end = op.gate.valid() ? ExpertEnd::glu : ExpertEnd::activate,
                   .function = function_of(op),
                   .halves = hidden,
                   .stride = stride};
  if (op.gate.valid()) in.matrices[0] = expert_matrix(op.gate, op.gate_bias);
  in.matrices[op.gate.valid() ? 1 : 0] = expert_matrix(op.up, op.up_bias);
  GroupedGemmOp down{.name = "experts down",
                     .in = hidden,
                     .in_stride = stride,
                     .starts = routing_.starts,
                     .experts = experts,
                     .pairs = pairs,
                     .out = expert_value_,
                     .stride = stride_of(op.down.rows)};
  down.matrices[0] = expert_matrix(op.down, op.down_bias);
  if (can_run_mixed_experts(context_, in)) {
    // What the pairs take has its place where their results will be: twice as large.
    mixed_experts(context_, in, down, reinterpret_cast<std::uint16_t*>(expert_value_));
  } else {
    grouped_gemm(context_, in);
    grouped_gemm(context_, down);
  }
  after_small_kernel_ = true;
}

// True if the results lie in the order of experts.
bool CudaBackend::run_experts(const MoeOp& op, Input& input) {
  const Timed timed(*this, "experts");
  const auto fits = [&](const Weight& weight) {
    return is_packed(weight) && can_run_grouped_gemm(context_, weights_[weight].packed);
  };
  const auto fits_alone = [&](const Weight& weight) {
    return !is_packed(weight) || can_run_expert_gemv(context_, weights_[weight].packed);
  };
  const bool alone = fits_alone(op.up) && fits_alone(op.down);
  const bool grouped = (input.rows.tier != Tier::gemv || !alone) && have_one_format(op) && fits(op.up) && fits(op.down);
  if (grouped) {
    run_experts_grouped(op, input);
  } else {
    run_experts_one_by_one(op, input);
  }
  return grouped;
}

void CudaBackend::run_shared_expert(const MoeOp& op, Input& input) {
  const Timed timed(*this, "shared experts");
  const Segment& rows = input.rows;
  const int hidden = op.shared_up.rows;
  const RowSpan inner{.data = shared_hidden_, .stride = stride_of(hidden), .width = hidden, .count = rows.count};
  glu_segment({.layer = op.layer, .gate = op.shared_gate, .up = op.shared_up, .activation = op.activation}, input,
              inner);
  Input down = input_of(inner, rows);
  multiply(down, {.weight = op.shared_down,
                  .out = shared_value_,
                  .out_first = rows.first,
                  .stride = stride_of(op.shared_down.rows)});
  halved_ = {};
}

// Rows [first, first + count) of the segment as the fused kernels take them; `out` has all of its rows.
FusedExpertsOp CudaBackend::fused_experts_of(const MoeOp& op, const Input& input, int first, int count,
                                             const RowSpan& out) {
  const bool gated = op.gate.valid();
  FusedExpertsOp fused{.route = route_of(op, input.rows, first, count),
                       .input = split_input(input, first, count),
                       .in_count = gated ? 2 : 1,
                       .function = function_of(op),
                       .down = expert_matrix(op.down, op.down_bias),
                       .hidden = split_hidden_,
                       .out = out.from(first, count),
                       .is_added = is_plain(op),
                       .scale = op.end.scale};
  if (gated) fused.in[0] = expert_matrix(op.gate, op.gate_bias);
  fused.in[gated ? 1 : 0] = expert_matrix(op.up, op.up_bias);
  if (!op.shared_up.valid()) return fused;
  if (op.shared_gate.valid() == gated && is_packed(op.shared_up) && is_packed(op.shared_down) &&
      (!gated || is_packed(op.shared_gate))) {
    FusedExpertsOp with_shared = fused;
    if (gated) with_shared.shared_in[0] = expert_matrix(op.shared_gate, {});
    with_shared.shared_in[gated ? 1 : 0] = expert_matrix(op.shared_up, {});
    with_shared.shared_down = expert_matrix(op.shared_down, {});
    if (can_run_fused_experts(context_, with_shared)) return with_shared;
  }
  const int stride = stride_of(op.down.rows);
  fused.shared_values = shared_value_ + static_cast<std::ptrdiff_t>(first) * stride;
  fused.shared_stride = stride;
  return fused;
}

// Few rows with packed experts: router, experts and their sum in three kernels. False where that cannot be done.
bool CudaBackend::run_fused_experts(const MoeOp& op, Input& input, const RowSpan& out) {
  if (!has_router_kernel(op, input) || !is_packed(op.up) || !is_packed(op.down) ||
      (op.gate.valid() && !is_packed(op.gate))) {
    return false;
  }
  const Segment& rows = input.rows;
  const int most = most_fused_expert_rows(context_);
  const FusedExpertsOp first_rows = fused_experts_of(op, input, 0, std::min(rows.count, most), out);
  if (!can_run_fused_experts(context_, first_rows)) return false;
  // Before the router, whose logits lie where it would write.
  if (first_rows.shared_values != nullptr) run_shared_expert(op, input);
  {
    const Timed timed(*this, "router");
    run_router(op, input);
  }
  const Timed timed(*this, "experts");
  for (int first = 0; first < rows.count; first += most) {
    const FusedExpertsOp fused = fused_experts_of(op, input, first, std::min(rows.count - first, most), out);
    fused_experts_in(context_, fused);
    after_small_kernel_ = !fused_experts_down(context_, fused);
  }
  return true;
}

// The same by kernels that leave their results to each other in memory.
void CudaBackend::run_separate_experts(const MoeOp& op, Input& input, const RowSpan& out) {
  route(op, input);
  const bool grouped = run_experts(op, input);
  if (op.shared_up.valid()) run_shared_expert(op, input);
  const Timed timed(*this, "experts");
  combine_experts(context_, {.values = expert_value_,
                             .stride = stride_of(op.down.rows),
                             .chosen = routing_.chosen,
                             .places = grouped ? routing_.places : nullptr,
                             .weights = routing_.weights,
                             .used = op.used,
                             .shared = op.shared_up.valid() ? shared_value_ : nullptr,
                             .shared_stride = stride_of(op.down.rows),
                             .out = out,
                             .is_added = is_plain(op),
                             .scale = op.end.scale});
  after_small_kernel_ = true;
}

void CudaBackend::moe(const MoeOp& op) {
  check_op(op);
  for (const Segment& rows : segments(op.x.rows)) {
    Input input = input_of(op.x, op.up.columns, op.before, op.layer, rows);
    const RowSpan x = row_span(op.end.x).from(rows.first, rows.count);
    const RowSpan value{.data = first_value_, .stride = stride_of(x.width), .width = x.width, .count = rows.count};
    const RowSpan& out = is_plain(op) ? x : value;
    if (!run_fused_experts(op, input, out)) run_separate_experts(op, input, out);
    if (is_plain(op)) continue;
    finish_branch(context_, {.x = x,
                             .value = value,
                             .branch = device_norm(op.end.branch, x.width, op.end.x.rows, rows.first, op.layer),
                             .scale = op.end.scale,
                             .after = device_norm(op.end.after, x.width, op.end.x.rows, rows.first, op.layer)});
    after_small_kernel_ = true;
  }
  forget_halves(row_span(op.end.x));
}

}  // namespace quarrel::cuda

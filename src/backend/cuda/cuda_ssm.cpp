// Recurrent layers, as kernels on the backend's stream.
#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/ssm_shape.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel::cuda {

// Version 1: dt, B and C are projected from what the convolution gave.
void CudaBackend::project_scan_inputs(const SsmOp& op, ScanOp& scan, const RowSpan& mixed) {
  const int width = op.x_proj.rows;
  const RowSpan projected{.data = second_value_, .stride = stride_of(width), .width = width, .count = mixed.count};
  const RowSpan dt{.data = first_value_, .stride = stride_of(op.inner), .width = op.inner, .count = mixed.count};
  const auto norm_part = [&](const Norm& norm, int at, int size) {
    RowSpan part = projected;
    part.data += at;
    part.width = size;
    if (norm.kind == NormKind::none) return;
    norm_rows(context_, part, device_norm(norm, size, RowSet::all, 0, op.layer), part.data, part.stride);
  };
  for (const Segment& rows : segments(RowSet::all)) {
    Input input = input_of(mixed.from(rows.first, rows.count), rows);
    multiply(input, {.weight = op.x_proj, .out = projected.data, .stride = projected.stride});
  }
  norm_part(op.dt_norm, 0, op.dt_rank);
  norm_part(op.b_norm, op.dt_rank, op.state);
  norm_part(op.c_norm, op.dt_rank + op.state, op.state);
  for (const Segment& rows : segments(RowSet::all)) {
    RowSpan ranks = projected.from(rows.first, rows.count);
    ranks.width = op.dt_rank;
    Input input = input_of(ranks, rows);
    multiply(input, {.weight = op.dt_proj, .bias = op.dt_bias, .out = dt.data, .stride = dt.stride});
  }
  scan.b = projected.data + op.dt_rank;
  scan.c = scan.b + op.state;
  scan.bc_stride = projected.stride;
  scan.dt = dt.data;
  scan.dt_stride = dt.stride;
}

// Whether the output projection can do it: its rows go through the integer GEMV, which norms what it reads.
bool CudaBackend::can_defer_norm(const SsmOp& op) const {
  const auto by_gemv = [](const Segment& rows) { return rows.tier == Tier::gemv; };
  return op.norm.kind == NormKind::rms && op.out.width == op.inner && op.groups == 1 &&
         std::ranges::all_of(segments(op.out.rows), by_gemv);
}

void CudaBackend::ssm(const SsmOp& op) {
  const Timed timed(*this, "scan");
  const SsmShape shape = ssm_shape(op, cache_.state_layers);
  const auto narrow = [](std::size_t value) { return static_cast<int>(value); };
  const bool first_version = op.version == 1;
  const RowSpan in = row_span(op.in);
  const RowSpan out = row_span(op.out);
  const StepRuns runs = tables_.runs(runs_);
  const SsmState state = ssm_state(op.state_layer);
  const int channels = narrow(shape.channels);
  const int shared = narrow(shape.ssm_groups * shape.state);
  RowSpan convolved = in;
  convolved.data += shape.x_at;
  convolved.width = channels;
  const RowSpan mixed{.data = mixed_, .stride = stride_of(channels), .width = channels, .count = in.count};
  const float* weight = weights_.vector_of(op.conv, channels * op.conv_width);
  const float* a = weights_.vector_of(op.a, first_version ? op.inner * op.state : op.heads);
  if (weight == nullptr || a == nullptr) {
    fail(ErrorKind::internal, "the recurrent layer {} lacks its convolution or A", op.layer);
  }
  weights_.vector_of(op.norm.weight, op.inner);  // which must fit, whoever applies it
  ScanOp scan_op{.runs = runs,
                 .state = state,
                 .convolved = convolved,
                 .taps = op.conv_width,
                 .x = mixed.data,
                 .x_stride = mixed.stride,
                 .b = mixed.data + op.inner,
                 .c = mixed.data + op.inner + shared,
                 .bc_stride = mixed.stride,
                 .dt = in.data + shape.dt_at,
                 .dt_stride = in.stride,
                 .a = a,
                 .has_matrix_a = first_version,
                 .d = weights_.vector_of(op.d, narrow(shape.heads)),
                 .inner = op.inner,
                 .state_size = op.state,
                 .heads = narrow(shape.heads),
                 .groups = narrow(shape.ssm_groups),
                 .y = out.data,
                 .y_stride = out.stride};
  if (!first_version) scan_op.dt_bias = weights_.vector_of(op.dt_bias, op.heads);
  FewScanOp few_op{.scan = scan_op,
                   .weight = weight,
                   .bias = weights_.vector_of(op.conv_bias, channels),
                   .gate = in.data + shape.z_at,
                   .gate_stride = in.stride,
                   .arrivals = arrivals_};
  const ScanEnd end = run_scan(op, few_op, mixed);
  end_scan(op, few_op, end);
  forget_halves(out);
  after_small_kernel_ = true;
}

// From the convolution to y; what was done of the gate and the norm behind it.
CudaBackend::ScanEnd CudaBackend::run_scan(const SsmOp& op, FewScanOp& few, const RowSpan& mixed) {
  ScanOp& scan_op = few.scan;
  // A graph's runs may be more than there are rows.
  if (shape_.prompt_rows == 0 && can_scan_few(scan_op) && runs_ * scan_op.groups <= kMaxArrivals) {
    // The norm has other bits here than behind a scan of many rows.
    const bool norms = op.norm.kind == NormKind::rms && !op.norm.bias.valid() && !options_.deterministic &&
                       !can_defer_norm(op) && can_norm_few(context_, scan_op);
    if (norms) few.norm = device_norm(op.norm, op.inner, op.out.rows, 0, op.layer);
    scan_few(context_, few);
    return norms ? ScanEnd::normed : ScanEnd::gated;
  }
  convolve(context_, {.runs = scan_op.runs,
                      .state = scan_op.state,
                      .in = scan_op.convolved,
                      .taps = op.conv_width,
                      .weight = few.weight,
                      .bias = few.bias,
                      .out = mixed.data,
                      .out_stride = mixed.stride});
  if (op.version == 1) project_scan_inputs(op, scan_op, mixed);
  if (!options_.deterministic) scan_op.segments = scan_segments(runs_, mixed.count);
  settle_join();
  if (scan_segment_floats(scan_op) <= part_floats_) {
    scan_op.segment_states = parts_;
  } else {
    scan_op.segments = 1;
  }
  scan(context_, scan_op);
  return ScanEnd::none;
}

// The gate and the norm, as far as they are not done and the next op cannot do them.
void CudaBackend::end_scan(const SsmOp& op, const FewScanOp& few, ScanEnd end) {
  const bool has_norm = op.norm.kind != NormKind::none && end != ScanEnd::normed;
  const bool defers = has_norm && can_defer_norm(op);
  if (end == ScanEnd::none || (has_norm && !defers)) {
    RowSpan rows = row_span(op.out);
    rows.width = op.inner;
    gate_groups(context_, {.rows = rows,
                           .gate = end == ScanEnd::none ? few.gate : nullptr,
                           .gate_stride = few.gate_stride,
                           .groups = few.scan.groups,
                           .norm = device_norm(defers ? Norm{} : op.norm, op.inner, op.out.rows, 0, op.layer),
                           .sequences = tables_.rows(0).sequences});
  }
  if (defers) deferred_norm_ = {.rows = op.out, .norm = op.norm, .layer = op.layer};
}

}  // namespace quarrel::cuda

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
  const int shared = narrow(shape.groups * shape.state);
  RowSpan convolved = in;
  convolved.data += shape.x_at;
  convolved.width = channels;
  const RowSpan mixed{.data = mixed_, .stride = stride_of(channels), .width = channels, .count = in.count};
  const float* weight = weights_.vector_of(op.conv, channels * op.conv_width);
  const float* a = weights_.vector_of(op.a, first_version ? op.inner * op.state : op.heads);
  if (weight == nullptr || a == nullptr) {
    fail(ErrorKind::internal, "the recurrent layer {} lacks its convolution or A", op.layer);
  }
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
                 .groups = narrow(shape.groups),
                 .y = out.data,
                 .y_stride = out.stride};
  if (!first_version) scan_op.dt_bias = weights_.vector_of(op.dt_bias, op.heads);
  const float* bias = weights_.vector_of(op.conv_bias, channels);
  const float* gate = in.data + shape.z_at;
  // Those of a graph may be more than there are rows.
  const bool few = shape_.prompt_rows == 0 && can_scan_few(scan_op) && runs_ * scan_op.groups <= kMaxArrivals;
  if (few) {
    scan_few(context_, {.scan = scan_op,
                        .weight = weight,
                        .bias = bias,
                        .gate = gate,
                        .gate_stride = in.stride,
                        .arrivals = arrivals_});
  } else {
    convolve(context_, {.runs = runs,
                        .state = state,
                        .in = convolved,
                        .taps = op.conv_width,
                        .weight = weight,
                        .bias = bias,
                        .out = mixed.data,
                        .out_stride = mixed.stride});
    if (first_version) project_scan_inputs(op, scan_op, mixed);
    if (!options_.deterministic) scan_op.segments = scan_segments(runs_, in.count);
    if (scan_segment_floats(scan_op) <= part_floats_) {
      scan_op.segment_states = parts_;
    } else {
      scan_op.segments = 1;
    }
    scan(context_, scan_op);
  }
  RowSpan rows = out;
  rows.width = op.inner;
  const bool defers = can_defer_norm(op);
  if (!few || (op.norm.kind != NormKind::none && !defers)) {
    gate_groups(context_, {.rows = rows,
                           .gate = few ? nullptr : gate,
                           .gate_stride = in.stride,
                           .groups = narrow(shape.groups),
                           .norm = device_norm(defers ? Norm{} : op.norm, op.inner, op.out.rows, 0, op.layer),
                           .sequences = tables_.rows(0).sequences});
  }
  if (defers) {
    deferred_norm_ = {.rows = op.out, .norm = op.norm, .layer = op.layer};
  }
  forget_halves(out);
  after_small_kernel_ = true;
}

}  // namespace quarrel::cuda

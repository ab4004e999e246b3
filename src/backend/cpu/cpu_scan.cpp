#include "backend/cpu/cpu_scan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

std::size_t pieces(std::size_t count, std::size_t size) noexcept { return (count + size - 1) / size; }

}  // namespace

const CpuScan::StateRows& CpuScan::state_rows() {
  StateRows& found = state_rows_;
  if (found.step == step_) return found;
  found.step = step_;
  found.order.clear();
  for (std::int32_t r = 0; r < host_.shape().rows(); ++r) {
    if (!host_.is_padding(RowSet::all, r)) found.order.push_back(r);
  }
  // Snapshots in the order of their rows, each row given by its place among all, then by that in its sequence.
  found.snapshots.assign(host_.snapshots().begin(), host_.snapshots().end());
  for (StateSnapshot& snapshot : found.snapshots) {
    snapshot.row = static_cast<std::int32_t>(std::ranges::find(found.order, snapshot.row) - found.order.begin());
  }
  std::ranges::sort(found.snapshots, {}, [](const StateSnapshot& one) { return std::tuple(one.row, one.slot); });
  found.sequences.clear();
  const std::span<const std::int32_t> order = found.order;
  const std::span<StateSnapshot> all = found.snapshots;
  std::size_t taken = 0;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const auto same = [&](std::size_t place) {
      return host_.rows()[as_size(order[place])].sequence == host_.rows()[as_size(order[begin])].sequence;
    };
    while (end < order.size() && same(end)) ++end;
    const std::size_t first = taken;
    for (; taken < all.size() && as_size(all[taken].row) < end; ++taken) {
      all[taken].row -= static_cast<std::int32_t>(begin);
    }
    found.sequences.push_back(
        {.rows = order.subspan(begin, end - begin), .snapshots = all.subspan(first, taken - first)});
  }
  return found;
}

void CpuScan::ssm(const SsmOp& op) {
  const SsmShape shape = ssm_shape(op, host_.cache().state_layers);
  const std::size_t heads = shape.heads;
  const std::size_t taps = shape.history + 1;
  if (weights_.vector(op.conv, shape.channels * taps) == nullptr ||
      weights_.vector(op.a, op.version == 1 ? shape.inner * shape.state : heads) == nullptr) {
    fail(ErrorKind::internal, "the recurrent layer {} lacks its convolution or A", op.layer);
  }
  weights_.vector(op.conv_bias, shape.channels);
  weights_.vector(op.d, heads);
  weights_.vector(op.dt_bias, heads);
  weights_.vector(op.norm.weight, shape.inner);
  weights_.vector(op.norm.bias, shape.inner);
  // For the strip of a convolution: rarely more than a GEMM needs.
  linear_.grow_scratch(2 * taps * kSsmStrip * sizeof(float));
  Stage stage{.op = op, .shape = shape, .state_rows = state_rows()};
  stage.mixed = linear_.first_buffer();
  stage.dt = stage.mixed + host_.rows().size() * shape.channels;
  convolve(stage);
  project_scan_inputs(stage);
  scan(stage);
  if (op.norm.kind == NormKind::none) return;
  const HostBackend::Timer timer(host_, "norms and int8");
  const std::size_t normed = shape.inner / shape.ssm_groups;
  device_.for_rows(host_.row_count(op.out.rows), [&](std::int32_t r) {
    float* out = host_.row(op.out, r);
    for (std::size_t at = 0; at < shape.inner; at += normed) {
      if (!weights_.norm_row(op.norm, out + at, out + at, normed, at)) host_.flag_bad_row(op.out.rows, r, op.layer);
    }
  });
}

// One region: the convolution, and in version 2 dt, which needs nothing of it.
void CpuScan::convolve(const Stage& stage) {
  HostBackend::Timer timer(host_, "conv");
  timer.convolution(stage.op);
  const SsmShape& shape = stage.shape;
  const std::size_t strips = pieces(shape.channels, kSsmStrip);
  const std::size_t units = stage.state_rows.sequences.size() * strips;
  const std::size_t count = stage.op.version == 2 ? host_.rows().size() : 0;
  const float* dt_bias = weights_.vector(stage.op.dt_bias);
  device_.pool().run([&](int worker, int workers) {
    const auto first = static_cast<std::size_t>(worker);
    const auto stride = static_cast<std::size_t>(workers);
    for (std::size_t unit = first; unit < units; unit += stride) {
      convolve_strip(stage, stage.state_rows.sequences[unit / strips], unit % strips * kSsmStrip,
                     reinterpret_cast<float*>(linear_.scratch(first)));
    }
    for (std::size_t r = first; r < count; r += stride) {
      kernels_.softplus(host_.row(stage.op.in, static_cast<std::int32_t>(r)) + shape.dt_at, dt_bias,
                        stage.dt + r * shape.heads, shape.heads);
    }
  });
}

// Channels from `first` on, kSsmStrip at most. What the sequence remembers is copied before anything is written: slots
// may be read and written by one sequence in any combination.
void CpuScan::convolve_strip(const Stage& stage, const StateRows::Sequence& sequence, std::size_t first,
                             float* scratch) {
  const SsmShape& shape = stage.shape;
  const SsmOp& op = stage.op;
  const std::size_t taps = shape.history + 1;
  const std::size_t count = std::min(kSsmStrip, shape.channels - first);
  const StepSequence& slots = host_.sequence_of(sequence.rows.front());
  float* history = scratch;
  float* weights = history + shape.history * kSsmStrip;
  float* bias = weights + taps * kSsmStrip;
  std::fill_n(scratch, 2 * taps * kSsmStrip, 0.0f);
  if (slots.state_in >= 0) {
    const float* from = host_.conv_state(slots.state_in, op.state_layer) + first;
    for (std::size_t i = 0; i < shape.history; ++i) {
      std::copy_n(from + i * shape.channels, count, history + i * kSsmStrip);
    }
  }
  const float* by_channel = weights_.vector(op.conv) + first * taps;
  for (std::size_t channel = 0; channel < count; ++channel) {
    for (std::size_t tap = 0; tap < taps; ++tap) weights[tap * kSsmStrip + channel] = by_channel[channel * taps + tap];
  }
  if (op.conv_bias.valid()) std::copy_n(weights_.vector(op.conv_bias) + first, count, bias);
  const float* in = host_.data(op.in) + shape.x_at + first;
  const std::size_t in_stride = as_size(op.in.width);
  kernels_.convolve({.in = in,
                     .in_stride = in_stride,
                     .out = stage.mixed + first,
                     .out_stride = shape.channels,
                     .rows = sequence.rows.data(),
                     .count = sequence.rows.size(),
                     .channels = count,
                     .taps = taps,
                     .history = history,
                     .weights = weights,
                     .bias = bias});
  const auto keep = [&](std::size_t rows_done, std::int32_t slot) {
    float* to = host_.conv_state(slot, op.state_layer) + first;
    for (std::size_t i = 0; i < shape.history; ++i) {
      const std::size_t time = rows_done + i;
      const float* from = time < shape.history ? history + time * kSsmStrip
                                               : in + as_size(sequence.rows[time - shape.history]) * in_stride;
      std::copy_n(from, count, to + i * shape.channels);
    }
  };
  for (const StateSnapshot& snapshot : sequence.snapshots) keep(as_size(snapshot.row) + 1, snapshot.slot);
  if (slots.state_out >= 0) keep(sequence.rows.size(), slots.state_out);
}

// Version 2 finds B and C among the convolution's channels; version 1 projects them and dt from x.
void CpuScan::project_scan_inputs(Stage& stage) {
  const SsmOp& op = stage.op;
  const SsmShape& shape = stage.shape;
  if (op.version == 2) {
    stage.b = stage.mixed + shape.inner;
    stage.c = stage.b + shape.ssm_groups * shape.state;
    stage.shared_stride = shape.channels;
    return;
  }
  HostBackend::Timer timer(host_, "scan inputs");
  timer.gemm(host_.rows().size(), {op.x_proj, op.dt_proj});
  const std::size_t rank = as_size(op.dt_rank);
  const std::size_t width = as_size(op.x_proj.rows);
  float* projected = linear_.second_buffer();
  const std::size_t rows = host_.rows().size();
  const std::size_t generated = as_size(host_.generated_count(RowSet::all));
  const Projection inputs{op.x_proj, {projected, width}};
  linear_.gemm(linear_.prepare(stage.mixed, shape.channels, rows, generated, op.x_proj), {&inputs, 1});
  stage.b = projected + rank;
  stage.c = stage.b + shape.state;
  stage.shared_stride = width;
  const auto check = [&](const Norm& norm, std::size_t count) {
    weights_.vector(norm.weight, count);
    weights_.vector(norm.bias, count);
    return norm.kind != NormKind::none;
  };
  const bool dt_normed = check(op.dt_norm, rank);
  const bool b_normed = check(op.b_norm, shape.state);
  const bool c_normed = check(op.c_norm, shape.state);
  if (dt_normed || b_normed || c_normed) {
    device_.for_rows(host_.shape().rows(), [&](std::int32_t r) {
      float* values = projected + as_size(r) * width;
      const bool dt_finite = weights_.norm_row(op.dt_norm, values, values, rank);
      const bool b_finite = weights_.norm_row(op.b_norm, values + rank, values + rank, shape.state);
      const bool c_finite =
          weights_.norm_row(op.c_norm, values + rank + shape.state, values + rank + shape.state, shape.state);
      if (!dt_finite || !b_finite || !c_finite) host_.flag_bad_row(RowSet::all, r, op.layer);
    });
  }
  const Projection steps{op.dt_proj, {stage.dt, shape.inner}};
  linear_.gemm(linear_.prepare(projected, width, rows, generated, op.dt_proj), {&steps, 1});
}

void CpuScan::scan(const Stage& stage) {
  HostBackend::Timer timer(host_, "scan");
  timer.scan(stage.op);
  const SsmShape& shape = stage.shape;
  const std::size_t strip = stage.op.version == 1 ? kSsmStrip : shape.dim;
  const std::size_t strips = pieces(shape.inner, strip);
  const auto& sequences = stage.state_rows.sequences;
  // The state is worked on where it is left; a sequence that leaves none still needs a place.
  std::vector<std::vector<float>> unkept(sequences.size());
  std::vector<float*> states(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int32_t slot = host_.sequence_of(sequences[i].rows.front()).state_out;
    if (slot < 0) unkept[i].resize(shape.inner * shape.state);
    states[i] = slot < 0 ? unkept[i].data() : host_.scan_state(slot, stage.op.state_layer);
  }
  const std::size_t units = sequences.size() * strips;
  device_.pool().run([&](int worker, int workers) {
    for (auto unit = static_cast<std::size_t>(worker); unit < units; unit += static_cast<std::size_t>(workers)) {
      scan_unit(stage, sequences[unit / strips], unit % strips * strip, states[unit / strips]);
    }
  });
}

// Channels from `first` on: a head, or kSsmStrip at most in version 1. `values` is the whole state of the sequence.
void CpuScan::scan_unit(const Stage& stage, const StateRows::Sequence& sequence, std::size_t first, float* values) {
  const SsmOp& op = stage.op;
  const SsmShape& shape = stage.shape;
  const bool by_channel = op.version == 1;
  const std::size_t head = first / shape.dim;
  const std::size_t dim = by_channel ? std::min(kSsmStrip, shape.inner - first) : shape.dim;
  const std::size_t shared_at = head / (shape.heads / shape.ssm_groups) * shape.state;
  const std::size_t state_at = first * shape.state;
  const std::size_t state_count = dim * shape.state;
  const std::int32_t state_in = host_.sequence_of(sequence.rows.front()).state_in;
  float* state = values + state_at;
  if (state_in < 0) {
    std::fill_n(state, state_count, 0.0f);
  } else if (const float* from = host_.scan_state(state_in, op.state_layer) + state_at; from != state) {
    std::copy_n(from, state_count, state);
  }
  ScanTask task{.dim = dim,
                .state = shape.state,
                .x = stage.mixed + first,
                .x_stride = shape.channels,
                .b = stage.b + shared_at,
                .c = stage.c + shared_at,
                .shared_stride = stage.shared_stride,
                .dt = stage.dt + head,
                .dt_stride = shape.heads,
                .dt_bias = op.dt_bias.valid() ? weights_.vector(op.dt_bias) + head : nullptr,
                .z = host_.data(op.in) + shape.z_at + first,
                .z_stride = as_size(op.in.width),
                .out = host_.data(op.out) + first,
                .out_stride = as_size(op.out.width),
                .a = weights_.vector(op.a) + (by_channel ? state_at : head),
                .d = op.d.valid() ? weights_.vector(op.d) + head : nullptr,
                .values = state};
  std::size_t done = 0;
  const auto advance = [&](std::size_t end) {
    task.rows = sequence.rows.data() + done;
    task.count = end - done;
    if (by_channel) {
      kernels_.scan_channels(task);
    } else {
      kernels_.scan_head(task);
    }
    done = end;
  };
  for (const StateSnapshot& snapshot : sequence.snapshots) {
    advance(as_size(snapshot.row) + 1);
    float* to = host_.scan_state(snapshot.slot, op.state_layer) + state_at;
    if (to != state) std::copy_n(state, state_count, to);
  }
  advance(sequence.rows.size());
}

}  // namespace quarrel

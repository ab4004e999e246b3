// The stateful middle of a Mamba layer. State is kept in F32 and rounded after every row, so a text gives the same bits
// at once, in chunks and token by token.
#include <algorithm>
#include <cmath>

#include "backend/reference/reference_backend.h"
#include "backend/reference/reference_math.h"
#include "backend/ssm_shape.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
struct ReferenceBackend::SsmStep {
  SsmShape shape;
  std::vector<SequenceRows> sequences;
  std::vector<float> mixed;  // [rows][channels]: after convolution and SiLU
  std::vector<float> dt;     // [rows][heads]: after softplus
  std::vector<float> b, c;   // [rows][groups * state]
  std::vector<float> y;      // [rows][inner]
};

void ReferenceBackend::ssm(const SsmOp& op) {
  SsmStep step{};
  step.shape = ssm_shape(op, cache().state_layers);
  step.sequences = sequence_rows();
  convolve(op, step);
  Timer timer(*this, "scan");
  timer.scan(op);
  if (op.version == 1) timer.gemm(rows().size(), {op.x_proj, op.dt_proj});
  project_scan_inputs(op, step);
  step.y.resize(rows().size() * step.shape.inner);
  const auto heads = static_cast<std::int64_t>(step.shape.heads);
  device_.pool().for_range(static_cast<std::int64_t>(step.sequences.size()) * heads, 1,
                           [&](std::int64_t begin, std::int64_t end) {
                             for (std::int64_t task = begin; task < end; ++task) {
                               scan_head(op, step.sequences[static_cast<std::size_t>(task / heads)],
                                         static_cast<std::int32_t>(task % heads), step);
                             }
                           });
  gate_rows(op, step);
}

void ReferenceBackend::convolve(const SsmOp& op, SsmStep& step) {
  Timer timer(*this, "conv");
  timer.convolution(op);
  const SsmShape& shape = step.shape;
  const std::size_t taps = as_size(op.conv_width);
  const std::size_t history = shape.history * shape.channels;
  const float* weight = vector_of(op.conv, shape.channels * taps);
  const float* bias = vector_of(op.conv_bias, shape.channels);
  if (weight == nullptr) fail(ErrorKind::internal, "the recurrent layer {} lacks its convolution", op.layer);
  step.mixed.resize(rows().size() * shape.channels);
  for (const SequenceRows& sequence : step.sequences) {
    const StepSequence& slots = sequence_of(sequence.rows.front());
    // The last inputs of the steps before, oldest first, and then this step's: [time][channels].
    std::vector<float> inputs(history, 0.0f);
    if (slots.state_in >= 0) std::copy_n(conv_state(slots.state_in, op.state_layer), history, inputs.data());
    for (const std::int32_t r : sequence.rows) {
      const float* x = row(op.in, r) + shape.x_at;
      inputs.insert(inputs.end(), x, x + shape.channels);
    }
    for (std::size_t t = 0; t < sequence.rows.size(); ++t) {
      const std::size_t r = as_size(sequence.rows[t]);
      for (std::size_t channel = 0; channel < shape.channels; ++channel) {
        double sum = bias == nullptr ? 0.0 : static_cast<double>(bias[channel]);
        for (std::size_t tap = 0; tap < taps; ++tap) {
          sum += static_cast<double>(inputs[(t + tap) * shape.channels + channel]) *
                 static_cast<double>(weight[channel * taps + tap]);
        }
        step.mixed[r * shape.channels + channel] = static_cast<float>(reference::silu(sum));
      }
      const float* latest = inputs.data() + (t + 1) * shape.channels;
      for (const StateSnapshot& wanted : snapshots()) {
        if (as_size(wanted.row) == r) std::copy_n(latest, history, conv_state(wanted.slot, op.state_layer));
      }
      const bool last = t + 1 == sequence.rows.size();
      if (last && slots.state_out >= 0) std::copy_n(latest, history, conv_state(slots.state_out, op.state_layer));
    }
  }
}

// dt, B and C of every row: cut from the input (version 2) or projected from the convolution's result (version 1).
void ReferenceBackend::project_scan_inputs(const SsmOp& op, SsmStep& step) {
  const SsmShape& shape = step.shape;
  const std::size_t count = rows().size();
  const std::size_t shared = shape.ssm_groups * shape.state;
  const float* dt_bias = vector_of(op.dt_bias, shape.heads);
  step.b.resize(count * shared);
  step.c.resize(count * shared);
  if (op.version == 2) {
    step.dt.resize(count * shape.heads);
    for (std::size_t r = 0; r < count; ++r) {
      const float* mixed = step.mixed.data() + r * shape.channels + shape.inner;
      std::copy_n(mixed, shared, step.b.data() + r * shared);
      std::copy_n(mixed + shared, shared, step.c.data() + r * shared);
      const float* dt = row(op.in, static_cast<std::int32_t>(r)) + shape.dt_at;
      for (std::size_t head = 0; head < shape.heads; ++head) {
        const double added = dt_bias == nullptr ? 0.0 : static_cast<double>(dt_bias[head]);
        step.dt[r * shape.heads + head] = static_cast<float>(static_cast<double>(dt[head]) + added);
      }
    }
  } else {
    const std::size_t rank = as_size(op.dt_rank);
    const std::size_t width = rank + 2 * shape.state;
    std::vector<float> projected;
    multiply(op.x_proj, 0, std::vector<double>(step.mixed.begin(), step.mixed.end()), nullptr, projected);
    const auto norm_part = [&](const Norm& norm, std::size_t r, std::size_t at, std::size_t size, float* to) {
      vector_of(norm.weight, size);
      vector_of(norm.bias, size);
      if (!normalise(norm, {projected.data() + r * width + at, size}, to)) {
        flag_bad_row(RowSet::all, static_cast<std::int32_t>(r), op.layer);
      }
    };
    std::vector<double> ranks(count * rank);
    std::vector<float> normed(rank);
    for (std::size_t r = 0; r < count; ++r) {
      norm_part(op.dt_norm, r, 0, rank, normed.data());
      std::ranges::copy(normed, ranks.begin() + static_cast<std::ptrdiff_t>(r * rank));
      norm_part(op.b_norm, r, rank, shape.state, step.b.data() + r * shared);
      norm_part(op.c_norm, r, rank + shape.state, shape.state, step.c.data() + r * shared);
    }
    multiply(op.dt_proj, 0, ranks, dt_bias, step.dt);
  }
  for (float& dt : step.dt) dt = static_cast<float>(reference::softplus(static_cast<double>(dt)));
}

// state = state * exp(dt A) + dt x B;  y = state · C + D x
void ReferenceBackend::scan_head(const SsmOp& op, const SequenceRows& sequence, std::int32_t head, SsmStep& step) {
  const SsmShape& shape = step.shape;
  const bool first = op.version == 1;
  const std::size_t h = as_size(head);
  const std::size_t shared = shape.ssm_groups * shape.state;
  const std::size_t group_at = h / (shape.heads / shape.ssm_groups) * shape.state;
  const float* a = vector_of(op.a, first ? shape.inner * shape.state : shape.heads);
  const float* d = vector_of(op.d, shape.heads);
  if (a == nullptr) fail(ErrorKind::internal, "the recurrent layer {} lacks A", op.layer);
  const std::size_t values = shape.dim * shape.state;
  const StepSequence& slots = sequence_of(sequence.rows.front());
  std::vector<float> state(values, 0.0f);  // [dim][state]
  std::vector<double> decay(shape.state);
  if (slots.state_in >= 0) std::copy_n(scan_state(slots.state_in, op.state_layer) + h * values, values, state.data());
  for (const std::int32_t row_index : sequence.rows) {
    const std::size_t r = as_size(row_index);
    const auto dt = static_cast<double>(step.dt[r * shape.heads + h]);
    const float* b = step.b.data() + r * shared + group_at;
    const float* c = step.c.data() + r * shared + group_at;
    for (std::size_t s = 0; s < shape.state; ++s) {
      if (first || s == 0) decay[s] = std::exp(dt * static_cast<double>(first ? a[h * shape.state + s] : a[h]));
      if (!first) decay[s] = decay[0];  // version 2 has one A a head
    }
    for (std::size_t i = 0; i < shape.dim; ++i) {
      const auto x = static_cast<double>(step.mixed[r * shape.channels + h * shape.dim + i]);
      double y = d == nullptr ? 0.0 : static_cast<double>(d[h]) * x;
      for (std::size_t s = 0; s < shape.state; ++s) {
        float& value = state[i * shape.state + s];
        value = static_cast<float>(static_cast<double>(value) * decay[s] + dt * x * static_cast<double>(b[s]));
        y += static_cast<double>(value) * static_cast<double>(c[s]);
      }
      step.y[r * shape.inner + h * shape.dim + i] = static_cast<float>(y);
    }
    for (const StateSnapshot& wanted : snapshots()) {
      if (wanted.row == row_index) std::ranges::copy(state, scan_state(wanted.slot, op.state_layer) + h * values);
    }
  }
  if (slots.state_out >= 0) std::ranges::copy(state, scan_state(slots.state_out, op.state_layer) + h * values);
}

void ReferenceBackend::gate_rows(const SsmOp& op, SsmStep& step) {
  const SsmShape& shape = step.shape;
  const std::size_t group = shape.inner / shape.ssm_groups;
  vector_of(op.norm.weight, shape.inner);
  vector_of(op.norm.bias, shape.inner);
  for (std::int32_t r = 0; r < row_count(op.out.rows); ++r) {
    const float* z = row(op.in, r) + shape.z_at;
    float* out = row(op.out, r);
    for (std::size_t i = 0; i < shape.inner; ++i) {
      out[i] = static_cast<float>(static_cast<double>(step.y[as_size(r) * shape.inner + i]) *
                                  reference::silu(static_cast<double>(z[i])));
    }
    for (std::size_t at = 0; at < shape.inner; at += group) {
      if (!normalise(op.norm, {out + at, group}, out + at, at)) flag_bad_row(op.out.rows, r, op.layer);
    }
  }
}

}  // namespace quarrel

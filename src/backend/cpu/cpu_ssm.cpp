// State-space layers of the CPU backend, as a few regions of the pool: the convolution over blocks of channels, in
// version 1 the projections to dt, B and C, then scan and gate over heads or blocks of channels, and the norm over
// rows. All workspace is that of the projections: a row of the input holds as many values as the convolution and dt
// give.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "backend/cpu/cpu_backend.h"
#include "backend/ssm_shape.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

std::size_t pieces(std::size_t count, std::size_t size) noexcept { return (count + size - 1) / size; }

}  // namespace

struct CpuBackend::SsmStep {
  const SsmOp& op;
  const SsmShape& shape;
  const StateRows& state_rows;
  float* mixed = nullptr;    // [rows][channels]: after convolution and SiLU
  float* dt = nullptr;       // [rows][heads]: after softplus in version 2, before bias and softplus in version 1
  const float* b = nullptr;  // of row 0: [groups][state]
  const float* c = nullptr;
  std::size_t shared_stride = 0;  // of b and c
};

const float* CpuBackend::vector_of(const Weight& weight, std::size_t count) const {
  if (!weight.valid()) return nullptr;
  const std::size_t found = prepared(weight).decoded.size();
  if (found != count) {
    fail(ErrorKind::internal, "a recurrent layer needs a vector of {} values and was given one of {}", count, found);
  }
  return vector(weight);
}

// In place, with the norm's weights from `at` on.
bool CpuBackend::norm_part(const Norm& norm, float* values, std::size_t at, std::size_t count) const {
  if (norm.kind == NormKind::none) return true;
  const float* weight = norm.weight.valid() ? vector(norm.weight) + at : nullptr;
  const float* bias = norm.bias.valid() ? vector(norm.bias) + at : nullptr;
  return std::isfinite(norm.kind == NormKind::rms
                           ? kernels_.rms_norm(values, weight, values, count, norm.epsilon)
                           : kernels_.layer_norm(values, weight, bias, values, count, norm.epsilon));
}

const CpuBackend::StateRows& CpuBackend::state_rows() {
  StateRows& found = state_rows_;
  if (found.step == step_) return found;
  found.step = step_;
  found.order.clear();
  for (std::int32_t r = 0; r < shape().rows(); ++r) {
    if (!is_padding(RowSet::all, r)) found.order.push_back(r);
  }
  // Snapshots in the order of their rows, each row given by its place among all, then by that in its sequence.
  found.snapshots.assign(snapshots().begin(), snapshots().end());
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
      return rows()[as_size(order[place])].sequence == rows()[as_size(order[begin])].sequence;
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

void CpuBackend::ssm(const SsmOp& op) {
  give_way();
  const SsmShape shape = ssm_shape(op, cache().state_layers);
  const std::size_t heads = shape.heads;
  const std::size_t taps = shape.history + 1;
  if (vector_of(op.conv, shape.channels * taps) == nullptr ||
      vector_of(op.a, op.version == 1 ? shape.inner * shape.state : heads) == nullptr) {
    fail(ErrorKind::internal, "the recurrent layer {} lacks its convolution or A", op.layer);
  }
  vector_of(op.conv_bias, shape.channels);
  vector_of(op.d, heads);
  vector_of(op.dt_bias, heads);
  vector_of(op.norm.weight, shape.inner);
  vector_of(op.norm.bias, shape.inner);
  // For the block of a convolution: rarely more than products need.
  const std::size_t scratch_bytes = 2 * taps * kSsmBlock * sizeof(float);
  for (AlignedBuffer& scratch : scratch_) {
    if (scratch.size() < scratch_bytes) scratch = AlignedBuffer(scratch_bytes, "a worker's scratch");
  }
  SsmStep step{.op = op, .shape = shape, .state_rows = state_rows()};
  step.mixed = first_.floats();
  step.dt = step.mixed + rows().size() * shape.channels;
  convolve(step);
  project_scan_inputs(step);
  scan(step);
  if (op.norm.kind == NormKind::none) return;
  const Timer timer(*this, "norms and digits");
  const std::size_t group = shape.inner / shape.groups;
  for_rows(row_count(op.out.rows), [&](std::int32_t r) {
    float* out = row(op.out, r);
    for (std::size_t at = 0; at < shape.inner; at += group) {
      if (!norm_part(op.norm, out + at, at, group)) flag_bad_row(op.out.rows, r, op.layer);
    }
  });
}

// One region: the convolution, and in version 2 dt, which needs nothing of it.
void CpuBackend::convolve(const SsmStep& step) {
  Timer timer(*this, "conv");
  timer.convolution(step.op);
  const SsmShape& shape = step.shape;
  const std::size_t blocks = pieces(shape.channels, kSsmBlock);
  const std::size_t units = step.state_rows.sequences.size() * blocks;
  const std::size_t count = step.op.version == 2 ? rows().size() : 0;
  const float* dt_bias = vector(step.op.dt_bias);
  device_.pool().run([&](int worker, int workers) {
    const auto first = static_cast<std::size_t>(worker);
    const auto stride = static_cast<std::size_t>(workers);
    for (std::size_t unit = first; unit < units; unit += stride) {
      convolve_block(step, step.state_rows.sequences[unit / blocks], unit % blocks * kSsmBlock,
                     scratch_[first].floats());
    }
    for (std::size_t r = first; r < count; r += stride) {
      kernels_.softplus(row(step.op.in, static_cast<std::int32_t>(r)) + shape.dt_at, dt_bias, step.dt + r * shape.heads,
                        shape.heads);
    }
  });
}

// Channels from `first` on, kSsmBlock at most. What the sequence remembers is copied before anything is written: slots
// may be read and written by one sequence in any combination.
void CpuBackend::convolve_block(const SsmStep& step, const StateRows::Sequence& sequence, std::size_t first,
                                float* scratch) {
  const SsmShape& shape = step.shape;
  const SsmOp& op = step.op;
  const std::size_t taps = shape.history + 1;
  const std::size_t count = std::min(kSsmBlock, shape.channels - first);
  const StepSequence& slots = sequence_of(sequence.rows.front());
  float* history = scratch;
  float* weights = history + shape.history * kSsmBlock;
  float* bias = weights + taps * kSsmBlock;
  std::fill_n(scratch, 2 * taps * kSsmBlock, 0.0f);
  if (slots.state_in >= 0) {
    const float* from = conv_state(slots.state_in, op.state_layer) + first;
    for (std::size_t i = 0; i < shape.history; ++i) {
      std::copy_n(from + i * shape.channels, count, history + i * kSsmBlock);
    }
  }
  const float* by_channel = vector(op.conv) + first * taps;
  for (std::size_t channel = 0; channel < count; ++channel) {
    for (std::size_t tap = 0; tap < taps; ++tap) weights[tap * kSsmBlock + channel] = by_channel[channel * taps + tap];
  }
  if (op.conv_bias.valid()) std::copy_n(vector(op.conv_bias) + first, count, bias);
  const float* in = data(op.in) + shape.x_at + first;
  const std::size_t in_stride = as_size(op.in.width);
  kernels_.convolve({.in = in,
                     .in_stride = in_stride,
                     .out = step.mixed + first,
                     .out_stride = shape.channels,
                     .rows = sequence.rows.data(),
                     .count = sequence.rows.size(),
                     .channels = count,
                     .taps = taps,
                     .history = history,
                     .weights = weights,
                     .bias = bias});
  const auto keep = [&](std::size_t rows_done, std::int32_t slot) {
    float* to = conv_state(slot, op.state_layer) + first;
    for (std::size_t i = 0; i < shape.history; ++i) {
      const std::size_t time = rows_done + i;
      const float* from = time < shape.history ? history + time * kSsmBlock
                                               : in + as_size(sequence.rows[time - shape.history]) * in_stride;
      std::copy_n(from, count, to + i * shape.channels);
    }
  };
  for (const StateSnapshot& snapshot : sequence.snapshots) keep(as_size(snapshot.row) + 1, snapshot.slot);
  if (slots.state_out >= 0) keep(sequence.rows.size(), slots.state_out);
}

// Version 2 finds B and C among the convolution's channels; version 1 projects them and dt from x.
void CpuBackend::project_scan_inputs(SsmStep& step) {
  const SsmOp& op = step.op;
  const SsmShape& shape = step.shape;
  if (op.version == 2) {
    step.b = step.mixed + shape.inner;
    step.c = step.b + shape.groups * shape.state;
    step.shared_stride = shape.channels;
    return;
  }
  Timer timer(*this, "scan inputs");
  timer.products(rows().size(), {op.x_proj, op.dt_proj});
  const std::size_t rank = as_size(op.dt_rank);
  const std::size_t width = as_size(op.x_proj.rows);
  float* projected = second_.floats();
  const Product parts{.weight = op.x_proj, .out = projected, .stride = width};
  multiply(prepare_values(step.mixed, shape.channels, op.x_proj), {&parts, 1});
  step.b = projected + rank;
  step.c = step.b + shape.state;
  step.shared_stride = width;
  const auto check = [&](const Norm& norm, std::size_t count) {
    vector_of(norm.weight, count);
    vector_of(norm.bias, count);
    return norm.kind != NormKind::none;
  };
  const bool dt_normed = check(op.dt_norm, rank);
  const bool b_normed = check(op.b_norm, shape.state);
  const bool c_normed = check(op.c_norm, shape.state);
  if (dt_normed || b_normed || c_normed) {
    for_rows(this->shape().rows(), [&](std::int32_t r) {
      float* values = projected + as_size(r) * width;
      const bool dt_finite = norm_part(op.dt_norm, values, 0, rank);
      const bool b_finite = norm_part(op.b_norm, values + rank, 0, shape.state);
      const bool c_finite = norm_part(op.c_norm, values + rank + shape.state, 0, shape.state);
      if (!dt_finite || !b_finite || !c_finite) flag_bad_row(RowSet::all, r, op.layer);
    });
  }
  const Product steps{.weight = op.dt_proj, .out = step.dt, .stride = shape.inner};
  multiply(prepare_values(projected, width, op.dt_proj), {&steps, 1});
}

void CpuBackend::scan(const SsmStep& step) {
  Timer timer(*this, "scan");
  timer.scan(step.op);
  const SsmShape& shape = step.shape;
  const std::size_t block = step.op.version == 1 ? kSsmBlock : shape.dim;
  const std::size_t blocks = pieces(shape.inner, block);
  const auto& sequences = step.state_rows.sequences;
  // The state is worked on where it is left; a sequence that leaves none still needs a place.
  std::vector<std::vector<float>> unkept(sequences.size());
  std::vector<float*> states(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int32_t slot = sequence_of(sequences[i].rows.front()).state_out;
    if (slot < 0) unkept[i].resize(shape.inner * shape.state);
    states[i] = slot < 0 ? unkept[i].data() : scan_state(slot, step.op.state_layer);
  }
  const std::size_t units = sequences.size() * blocks;
  device_.pool().run([&](int worker, int workers) {
    for (auto unit = static_cast<std::size_t>(worker); unit < units; unit += static_cast<std::size_t>(workers)) {
      scan_unit(step, sequences[unit / blocks], unit % blocks * block, states[unit / blocks]);
    }
  });
}

// Channels from `first` on: a head, or kSsmBlock at most in version 1. `values` is the whole state of the sequence.
void CpuBackend::scan_unit(const SsmStep& step, const StateRows::Sequence& sequence, std::size_t first, float* values) {
  const SsmOp& op = step.op;
  const SsmShape& shape = step.shape;
  const bool by_channel = op.version == 1;
  const std::size_t head = first / shape.dim;
  const std::size_t dim = by_channel ? std::min(kSsmBlock, shape.inner - first) : shape.dim;
  const std::size_t shared_at = head / (shape.heads / shape.groups) * shape.state;
  const std::size_t state_at = first * shape.state;
  const std::size_t state_count = dim * shape.state;
  const std::int32_t state_in = sequence_of(sequence.rows.front()).state_in;
  float* state = values + state_at;
  if (state_in < 0) {
    std::fill_n(state, state_count, 0.0f);
  } else if (const float* from = scan_state(state_in, op.state_layer) + state_at; from != state) {
    std::copy_n(from, state_count, state);
  }
  ScanTask task{.dim = dim,
                .state = shape.state,
                .x = step.mixed + first,
                .x_stride = shape.channels,
                .b = step.b + shared_at,
                .c = step.c + shared_at,
                .shared_stride = step.shared_stride,
                .dt = step.dt + head,
                .dt_stride = shape.heads,
                .dt_bias = op.dt_bias.valid() ? vector(op.dt_bias) + head : nullptr,
                .z = data(op.in) + shape.z_at + first,
                .z_stride = as_size(op.in.width),
                .out = data(op.out) + first,
                .out_stride = as_size(op.out.width),
                .a = vector(op.a) + (by_channel ? state_at : head),
                .d = op.d.valid() ? vector(op.d) + head : nullptr,
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
    float* to = scan_state(snapshot.slot, op.state_layer) + state_at;
    if (to != state) std::copy_n(state, state_count, to);
  }
  advance(sequence.rows.size());
}

}  // namespace quarrel

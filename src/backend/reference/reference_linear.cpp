// GEMM in double: the projection and the feed-forward's gate.
#include <algorithm>

#include "backend/reference/reference_backend.h"
#include "backend/reference/reference_math.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
void ReferenceBackend::multiply(const Weight& weight, std::int32_t expert, std::span<const double> in,
                                const float* bias, std::vector<float>& out) {
  const std::size_t columns = as_size(weight.columns);
  const std::size_t out_rows = as_size(weight.rows);
  if (in.size() % columns != 0)
    fail(ErrorKind::internal, "a weight of {} columns cannot multiply rows of another width", columns);
  const std::size_t count = in.size() / columns;
  out.resize(count * out_rows);
  // Each weight row is dequantised once and multiplied with all rows of the step.
  device_.pool().for_range(weight.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> decoded(columns);
    std::vector<double> values(columns);
    for (std::int64_t o = begin; o < end; ++o) {
      decode(weight, expert, static_cast<std::int32_t>(o), decoded);
      std::ranges::copy(decoded, values.begin());
      const double added = bias == nullptr ? 0.0 : static_cast<double>(bias[o]);
      for (std::size_t r = 0; r < count; ++r) {
        const double sum = reference::dot(values.data(), in.data() + r * columns, columns);
        out[r * out_rows + static_cast<std::size_t>(o)] = static_cast<float>(sum + added);
      }
    }
  });
}

void ReferenceBackend::linear(const LinearOp& op) {
  Timer timer(*this, profile_name(op));
  timer.gemm(as_size(row_count(op.in.rows)), {op.weight});
  const std::vector<double> in = input_rows(op.in, op.before, op.weight.columns, op.layer);
  std::vector<float> values;
  multiply(op.weight, 0, in, vector_of(op.bias, as_size(op.weight.rows)), values);
  if (op.end.x.valid()) {
    finish(op.end, values, op.layer);
    return;
  }
  const std::size_t width = as_size(op.weight.rows);
  if (op.out_at < 0 || op.out_at + op.weight.rows > op.out.width) {
    fail(ErrorKind::internal, "a projection of layer {} is wider than its output", op.layer);
  }
  for (std::int32_t r = 0; r < row_count(op.out.rows); ++r) {
    std::copy_n(values.data() + as_size(r) * width, width, row(op.out, r) + op.out_at);
  }
}

std::vector<float> ReferenceBackend::glu_rows(const GluWeights& weights, std::int32_t expert,
                                              std::span<const double> in) {
  std::vector<float> up;
  multiply(weights.up, expert, in, weights.up_bias, up);
  if (!weights.gate.valid()) {
    for (float& value : up) {
      value = static_cast<float>(reference::activate(weights.activation, static_cast<double>(value)));
    }
    return up;
  }
  std::vector<float> gate;
  multiply(weights.gate, expert, in, weights.gate_bias, gate);
  if (gate.size() != up.size()) fail(ErrorKind::internal, "the gate has another width than what it gates");
  for (std::size_t i = 0; i < up.size(); ++i) {
    up[i] = static_cast<float>(reference::gated(weights.activation, static_cast<double>(gate[i]),
                                                static_cast<double>(up[i]), static_cast<double>(weights.clamp),
                                                static_cast<double>(weights.alpha)));
  }
  return up;
}

void ReferenceBackend::glu(const GluOp& op) {
  Timer timer(*this, "glu");
  timer.gemm(as_size(row_count(op.x.rows)), {op.gate, op.up});
  const std::size_t width = as_size(op.up.rows);
  if (op.activation == ActivationKind::swiglu_clamped || width > as_size(op.out.width)) {
    fail(ErrorKind::internal, "the feed-forward of layer {} is malformed", op.layer);
  }
  const std::vector<double> in = input_rows(op.x, op.before, op.up.columns, op.layer);
  const std::vector<float> values = glu_rows({.gate = op.gate,
                                              .up = op.up,
                                              .gate_bias = vector_of(op.gate_bias, as_size(op.gate.rows)),
                                              .up_bias = vector_of(op.up_bias, width),
                                              .activation = op.activation},
                                             0, in);
  for (std::int32_t r = 0; r < row_count(op.out.rows); ++r) {
    std::copy_n(values.data() + as_size(r) * width, width, row(op.out, r));
  }
}

}  // namespace quarrel

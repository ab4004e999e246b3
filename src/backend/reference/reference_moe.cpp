// Mixture of experts. Each expert's weights are decoded once for all rows that chose it; the results are added row by
// row in the order of their choice, so that a row's sum does not depend on who else was there.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "backend/reference/reference_backend.h"
#include "backend/reference/reference_math.h"
#include "base/as_size.h"
#include "base/error.h"

namespace quarrel {
namespace {

// The experts' scores from the router's logits.
std::vector<double> gate_scores(Gating gating, std::span<const float> logits) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (gating == Gating::sigmoid) {
    for (double& score : scores) score = reference::sigmoid(score);
    return scores;
  }
  const double best = *std::ranges::max_element(scores);
  for (double& score : scores) score = std::exp(score - best);
  const double total = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= total;
  return scores;
}

}  // namespace

// [rows][used], best choice first; padding goes to none, -1.
struct ReferenceBackend::Routing {
  std::vector<std::int32_t> experts;
  std::vector<double> weights;
};

ReferenceBackend::Routing ReferenceBackend::route(const MoeOp& op, std::span<const double> in) {
  Timer timer(*this, "router");
  timer.gemm(in.size() / as_size(op.router.columns), {op.router});
  const std::size_t experts = as_size(op.router.rows);
  const std::size_t used = as_size(op.used);
  std::vector<float> logits;
  multiply(op.router, 0, in, vector_of(op.router_bias, experts), logits);
  const float* bias = vector_of(op.selection_bias, experts);
  Routing routing;
  std::vector<std::int32_t> order(experts);
  std::vector<double> preference(experts);
  for (std::size_t first = 0; first < logits.size(); first += experts) {
    const std::vector<double> scores = gate_scores(op.gating, {logits.data() + first, experts});
    for (std::size_t e = 0; e < experts; ++e) {
      // Scores rise with the logits, and logits still differ where the scores have run into 0 or 1.
      preference[e] =
          bias == nullptr ? static_cast<double>(logits[first + e]) : scores[e] + static_cast<double>(bias[e]);
      if (std::isnan(preference[e]))
        preference[e] = -std::numeric_limits<double>::infinity();  // has no place in an order
    }
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + op.used, order.end(), [&](std::int32_t a, std::int32_t b) {
      return preference[as_size(a)] != preference[as_size(b)] ? preference[as_size(a)] > preference[as_size(b)] : a < b;
    });
    double total = 0.0;
    for (std::size_t i = 0; i < used; ++i) total += scores[as_size(order[i])];
    for (std::size_t i = 0; i < used; ++i) {
      const double share = op.normalise && total != 0.0 ? 1.0 / total : 1.0;
      const auto r = static_cast<std::int32_t>(first / experts);
      routing.experts.push_back(is_padding(op.x.rows, r) ? -1 : order[i]);
      routing.weights.push_back(scores[as_size(order[i])] * share * static_cast<double>(op.weight_scale));
    }
  }
  return routing;
}

// [rows][used][width of down]
std::vector<float> ReferenceBackend::expert_outputs(const MoeOp& op, const Routing& routing,
                                                    std::span<const double> in) {
  Timer timer(*this, "experts");
  std::set<std::int32_t> chosen(routing.experts.begin(), routing.experts.end());
  chosen.erase(-1);
  timer.gemm(routing.experts.size(), {op.gate, op.up, op.down}, chosen.size());
  const std::size_t columns = as_size(op.up.columns);
  const std::size_t hidden = as_size(op.up.rows);
  const std::size_t width = as_size(op.down.rows);
  const std::size_t experts = as_size(op.up.experts);
  const float* gate_bias = vector_of(op.gate_bias, experts * hidden);
  const float* up_bias = vector_of(op.up_bias, experts * hidden);
  const float* down_bias = vector_of(op.down_bias, experts * width);
  std::vector<float> outputs(routing.experts.size() * width);
  std::vector<double> gathered;
  std::vector<float> values;
  for (std::size_t expert = 0; expert < experts; ++expert) {
    std::vector<std::size_t> places;  // into [rows][used]
    gathered.clear();
    for (std::size_t place = 0; place < routing.experts.size(); ++place) {
      if (std::cmp_not_equal(routing.experts[place], expert)) continue;
      places.push_back(place);
      const double* from = in.data() + place / as_size(op.used) * columns;
      gathered.insert(gathered.end(), from, from + columns);
    }
    if (places.empty()) continue;
    const std::vector<float> inner =
        glu_rows({.gate = op.gate,
                  .up = op.up,
                  .gate_bias = gate_bias == nullptr ? nullptr : gate_bias + expert * hidden,
                  .up_bias = up_bias == nullptr ? nullptr : up_bias + expert * hidden,
                  .activation = op.activation,
                  .clamp = op.clamp,
                  .alpha = op.alpha},
                 static_cast<std::int32_t>(expert), gathered);
    const std::vector<double> wide(inner.begin(), inner.end());
    multiply(op.down, static_cast<std::int32_t>(expert), wide,
             down_bias == nullptr ? nullptr : down_bias + expert * width, values);
    for (std::size_t i = 0; i < places.size(); ++i) {
      std::copy_n(values.data() + i * width, width, outputs.data() + places[i] * width);
    }
  }
  return outputs;
}

void ReferenceBackend::moe(const MoeOp& op) {
  if (op.used < 1 || op.used > op.router.rows || op.router.rows != op.up.experts || op.down.experts != op.up.experts ||
      op.router.columns != op.up.columns || !op.end.x.valid() ||
      (op.activation == ActivationKind::swiglu_clamped && !op.gate.valid())) {
    fail(ErrorKind::internal, "the experts of layer {} are malformed", op.layer);
  }
  const std::vector<double> in = input_rows(op.x, op.before, op.up.columns, op.layer);
  const Routing routing = route(op, in);
  count_experts(op.layer, op.up.experts, routing.experts);
  const std::vector<float> outputs = expert_outputs(op, routing, in);
  std::vector<float> shared;
  if (op.shared_up.valid()) {
    Timer timer(*this, "shared experts");
    timer.gemm(in.size() / as_size(op.up.columns), {op.shared_gate, op.shared_up, op.shared_down});
    const std::vector<float> inner = glu_rows(
        {.gate = op.shared_gate, .up = op.shared_up, .activation = op.activation, .clamp = op.clamp, .alpha = op.alpha},
        0, in);
    const std::vector<double> wide(inner.begin(), inner.end());
    multiply(op.shared_down, 0, wide, nullptr, shared);
  }
  const std::size_t width = as_size(op.down.rows);
  const std::size_t used = as_size(op.used);
  std::vector<float> values(routing.experts.size() / used * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t r = i / width;
    double sum = 0.0;
    for (std::size_t place = r * used; place < (r + 1) * used; ++place) {
      sum += routing.weights[place] * static_cast<double>(outputs[place * width + i % width]);
    }
    if (!shared.empty()) sum += static_cast<double>(shared[i]);
    values[i] = static_cast<float>(sum);
  }
  finish(op.end, values, op.layer);
}

}  // namespace quarrel

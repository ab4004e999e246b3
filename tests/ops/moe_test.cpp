// `moe` against the plainest loop: every row, every expert it chose.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/harness.h"

namespace quarrel::test {
namespace {

constexpr std::int32_t kWidth = 32;
constexpr std::int32_t kHidden = 24;
constexpr std::int32_t kExperts = 6;
constexpr std::int32_t kRows = 13;

struct MoeCase {
  std::int32_t used = 2;
  Gating gating = Gating::softmax;
  bool selection_bias = false;
  bool normalise = true;
  double weight_scale = 1.0;
  bool gate = true;
  bool biases = false;
  bool shared = false;
  ActivationKind activation = ActivationKind::silu;
};

struct MoeData {
  Floats x = random_grid(kRows, kWidth, 50);
  Floats router = random_grid(kExperts, kWidth, 51);
  Floats gate = random_grid(kExperts * kHidden, kWidth, 52, 0.5);
  Floats up = random_grid(kExperts * kHidden, kWidth, 53, 0.5);
  Floats down = random_grid(kExperts * kWidth, kHidden, 54, 0.5);
  Floats shared_gate = random_grid(16, kWidth, 55, 0.5);
  Floats shared_up = random_grid(16, kWidth, 56, 0.5);
  Floats shared_down = random_grid(kWidth, 16, 57, 0.5);
  std::vector<float> before = random_grid(1, kWidth, 58, 0.5, 1.0).values;
  std::vector<float> router_bias = random_grid(1, kExperts, 59).values;
  std::vector<float> selection_bias = random_grid(1, kExperts, 60).values;
  std::vector<float> gate_bias = random_grid(1, kExperts* kHidden, 61).values;
  std::vector<float> up_bias = random_grid(1, kExperts* kHidden, 62).values;
  std::vector<float> down_bias = random_grid(1, kExperts* kWidth, 63).values;
};

constexpr double kClamp = 1.25;
constexpr double kAlpha = 1.702;

double gated_product(ActivationKind kind, double gate, double up) {
  if (kind == ActivationKind::swiglu_clamped) {
    const double g = gate > kClamp ? kClamp : gate;
    const double u = up > kClamp ? kClamp : up < -kClamp ? -kClamp : up;
    return g / (1.0 + std::exp(-kAlpha * g)) * (u + 1.0);
  }
  return gate / (1.0 + std::exp(-gate)) * up;
}

Row inner_of(const MoeCase& c, const Row& gate, const Row& up) {
  Row inner(up.size());
  for (std::size_t i = 0; i < up.size(); ++i) {
    if (c.gate) {
      inner[i] = gated_product(c.activation, gate[i], up[i]);
    } else {
      inner[i] = up[i] > 0.0 ? up[i] * up[i] : 0.0;
    }
  }
  return inner;
}

Row moe_of(const MoeCase& c, const MoeData& data, std::size_t r) {
  const Row x = widen(data.x.row(r));
  const Row h = rms_norm(x, data.before, 1e-5);
  const auto with = [&](const std::vector<float>& bias) { return c.biases ? bias : std::vector<float>{}; };
  Row scores = matvec(data.router, h, with(data.router_bias));
  double total = 0.0;
  for (double& score : scores) {
    score = c.gating == Gating::softmax ? std::exp(score) : 1.0 / (1.0 + std::exp(-score));
    total += score;
  }
  if (c.gating == Gating::softmax) {
    for (double& score : scores) score /= total;
  }
  Row preference = scores;
  for (std::size_t e = 0; c.selection_bias && e < preference.size(); ++e) {
    preference[e] += static_cast<double>(data.selection_bias[e]);
  }
  std::vector<std::size_t> order(kExperts);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return preference[a] > preference[b]; });
  double chosen = 0.0;
  for (std::int32_t i = 0; i < c.used; ++i) chosen += scores[order[as_size(i)]];
  Row sum = x;
  for (std::int32_t i = 0; i < c.used; ++i) {
    const std::size_t e = order[as_size(i)];
    const double weight = scores[e] / (c.normalise ? chosen : 1.0) * c.weight_scale;
    const Row gate = matvec(data.gate, h, with(data.gate_bias), e * kHidden, kHidden);
    const Row up = matvec(data.up, h, with(data.up_bias), e * kHidden, kHidden);
    const Row down = matvec(data.down, inner_of(c, gate, up), with(data.down_bias), e * kWidth, kWidth);
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += 0.5 * weight * down[d];
  }
  if (c.shared) {
    const Row inner = inner_of(c, matvec(data.shared_gate, h), matvec(data.shared_up, h));
    const Row down = matvec(data.shared_down, inner);
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += 0.5 * down[d];
  }
  return sum;
}

MoeOp make_op(OpBench& bench, const MoeCase& c, const MoeData& data) {
  MoeOp op{.layer = 2,
           .x = bench.input(data.x),
           .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = bench.vector(data.before)},
           .router = bench.matrix(data.router),
           .up = bench.experts(data.up, kExperts, WeightRole::expert_column),
           .down = bench.experts(data.down, kExperts, WeightRole::expert_row),
           .used = c.used,
           .gating = c.gating,
           .normalise = c.normalise,
           .weight_scale = static_cast<float>(c.weight_scale),
           .activation = c.gate ? c.activation : ActivationKind::relu_squared,
           .clamp = static_cast<float>(kClamp),
           .alpha = static_cast<float>(kAlpha)};
  op.end = {.x = op.x, .scale = 0.5f};
  if (c.gate) op.gate = bench.experts(data.gate, kExperts, WeightRole::expert_column);
  if (c.selection_bias) op.selection_bias = bench.vector(data.selection_bias);
  if (c.biases) {
    op.router_bias = bench.vector(data.router_bias);
    op.gate_bias = bench.vector(data.gate_bias);
    op.up_bias = bench.vector(data.up_bias);
    op.down_bias = bench.vector(data.down_bias);
  }
  if (c.shared) {
    if (c.gate) op.shared_gate = bench.matrix(data.shared_gate);
    op.shared_up = bench.matrix(data.shared_up);
    op.shared_down = bench.matrix(data.shared_down, WeightRole::row_parallel);
  }
  return op;
}

void run_case(const MoeCase& c) {
  const MoeData data;
  Doubles expected(kRows, kWidth);
  for (std::size_t r = 0; r < kRows; ++r) std::ranges::copy(moe_of(c, data, r), &expected.at(r, 0));
  for_each_complete_device([&](const DeviceUnderTest& device) {
    OpBench bench(device);
    const MoeOp op = make_op(bench, c, data);
    const auto ops = [&](Backend& b) { b.moe(op); };
    const double reach = 10.0 * largest_row(data.up);
    const Floats together = bench.run(StepPlan().add(0, kRows, {}), op.x, ops);
    expect_close(together, expected, bench.epsilon() * reach * reach * largest_row(data.down));
    // How many rows an expert serves does not change a row's bits.
    for (std::int32_t r = 0; r < kRows; r += 5) {
      EXPECT_EQ(bench.run(StepPlan().add(r, 1, {}), op.x, ops).row(0), together.row(as_size(r)));
    }
  });
}

TEST(Moe, SoftmaxTopTwo) { run_case({}); }
TEST(Moe, OneExpert) { run_case({.used = 1}); }
TEST(Moe, AllExperts) { run_case({.used = kExperts}); }
TEST(Moe, NotRenormalised) { run_case({.used = 3, .normalise = false}); }
TEST(Moe, Biases) { run_case({.biases = true}); }
TEST(Moe, ClampedSwigluWithBiases) { run_case({.biases = true, .activation = ActivationKind::swiglu_clamped}); }
TEST(Moe, SharedExpert) { run_case({.shared = true}); }
TEST(Moe, SigmoidWithSelectionBiasScaleAndSharedWithoutGates) {
  run_case({.used = 3,
            .gating = Gating::sigmoid,
            .selection_bias = true,
            .weight_scale = 2.5,
            .gate = false,
            .shared = true});
}
TEST(Moe, SoftmaxWithSelectionBias) { run_case({.selection_bias = true}); }

TEST(Moe, TiesGoToTheLowerExpert) {
  for_each_complete_device([](const DeviceUnderTest& device) {
    MoeData data;
    data.router = Floats(kExperts, kWidth);  // all scores are equal
    OpBench bench(device);
    const MoeOp op = make_op(bench, {}, data);
    Doubles expected(1, kWidth);
    std::ranges::copy(moe_of({}, data, 0), &expected.at(0, 0));  // experts 0 and 1, by a stable sort
    expect_close(bench.run(StepPlan().add(0, 1, {}), op.x, [&](Backend& b) { b.moe(op); }), expected,
                 bench.epsilon() * 100.0 * largest_row(data.up) * largest_row(data.up) * largest_row(data.down));
  });
}

TEST(Moe, NanRowHarmsNobodyElse) {
  for_each_complete_device([](const DeviceUnderTest& device) {
    MoeData data;
    OpBench clean(device);
    const MoeOp clean_op = make_op(clean, {}, data);
    const Floats before = clean.run(StepPlan().add(0, kRows, {}), clean_op.x, [&](Backend& b) { b.moe(clean_op); });
    data.x.at(4, 4) = std::numeric_limits<float>::quiet_NaN();
    OpBench bench(device);
    const MoeOp op = make_op(bench, {}, data);
    const Floats after = bench.run(StepPlan().add(0, kRows, {}), op.x, [&](Backend& b) { b.moe(op); });
    for (std::size_t r = 0; r < kRows; ++r) {
      if (r != 4) {
        EXPECT_EQ(after.row(r), before.row(r));
      }
      EXPECT_EQ(bench.results().first_bad_layer[r], r == 4 ? 2 : -1);
    }
    EXPECT_TRUE(std::isnan(after.at(4, 0)));
  });
}

}  // namespace
}  // namespace quarrel::test

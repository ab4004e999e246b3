// `moe` against the plainest loop: every row, every expert it chose.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/harness.h"

namespace quarrel::test {
namespace {

struct MoeCase {
  std::size_t width = 32;
  std::size_t hidden = 24;
  std::size_t experts = 6;
  std::size_t rows = 13;
  QuantType type = QuantType::f32;  // of the experts
  std::int32_t used = 2;
  Gating gating = Gating::softmax;
  bool selection_bias = false;
  bool normalise = true;
  double weight_scale = 1.0;
  bool gate = true;
  bool biases = false;
  bool shared = false;
  bool shared_gate = true;
  ActivationKind activation = ActivationKind::silu;
};

struct MoeData {
  explicit MoeData(const MoeCase& c)
      : x(random_matrix(c.rows, c.width, 50)),
        router(random_matrix(c.experts, c.width, 51)),
        gate(rounded(random_matrix(c.experts * c.hidden, c.width, 52, 0.5), c.type)),
        up(rounded(random_matrix(c.experts * c.hidden, c.width, 53, 0.5), c.type)),
        down(rounded(random_matrix(c.experts * c.width, c.hidden, 54, 0.5), c.type)),
        shared_gate(random_matrix(16, c.width, 55, 0.5)),
        shared_up(random_matrix(16, c.width, 56, 0.5)),
        shared_down(random_matrix(c.width, 16, 57, 0.5)),
        before(random_matrix(1, c.width, 58, 0.5, 1.0).values),
        router_bias(random_matrix(1, c.experts, 59).values),
        selection_bias(random_matrix(1, c.experts, 60).values),
        gate_bias(random_matrix(1, c.experts * c.hidden, 61).values),
        up_bias(random_matrix(1, c.experts * c.hidden, 62).values),
        down_bias(random_matrix(1, c.experts * c.width, 63).values) {}
  Floats x, router, gate, up, down, shared_gate, shared_up, shared_down;
  std::vector<float> before, router_bias, selection_bias, gate_bias, up_bias, down_bias;
};

constexpr double kClamp = 1.25;
constexpr double kAlpha = 1.702;

double gated_product(ActivationKind kind, double gate, double up) {
  if (kind == ActivationKind::swiglu_clamped) {
    const double g = gate > kClamp ? kClamp : gate;
    const double u = up > kClamp ? kClamp : up < -kClamp ? -kClamp : up;
    return g / (1.0 + std::exp(-kAlpha * g)) * (u + 1.0);
  }
  if (kind == ActivationKind::relu_squared) return gate > 0.0 ? gate * gate * up : 0.0;
  if (kind == ActivationKind::gelu_erf) return 0.5 * gate * std::erfc(-gate * 0.7071067811865476) * up;
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
  std::vector<std::size_t> order(c.experts);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return preference[a] > preference[b]; });
  double chosen = 0.0;
  for (std::int32_t i = 0; i < c.used; ++i) chosen += scores[order[as_size(i)]];
  Row sum = x;
  for (std::int32_t i = 0; i < c.used; ++i) {
    const std::size_t e = order[as_size(i)];
    const double weight = scores[e] / (c.normalise ? chosen : 1.0) * c.weight_scale;
    const Row gate = matvec(data.gate, h, with(data.gate_bias), e * c.hidden, c.hidden);
    const Row up = matvec(data.up, h, with(data.up_bias), e * c.hidden, c.hidden);
    const Row down = matvec(data.down, inner_of(c, gate, up), with(data.down_bias), e * c.width, c.width);
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += 0.5 * weight * down[d];
  }
  if (c.shared) {
    MoeCase shared = c;
    shared.gate = c.shared_gate;
    if (!c.gate) shared.activation = ActivationKind::relu_squared;
    const Row inner = inner_of(shared, matvec(data.shared_gate, h), matvec(data.shared_up, h));
    const Row down = matvec(data.shared_down, inner);
    for (std::size_t d = 0; d < sum.size(); ++d) sum[d] += 0.5 * down[d];
  }
  return sum;
}

MoeOp make_op(OpFixture& fixture, const MoeCase& c, const MoeData& data) {
  const auto experts = static_cast<std::int32_t>(c.experts);
  MoeOp op{.layer = 2,
           .x = fixture.input(data.x),
           .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(data.before)},
           .router = fixture.matrix(data.router),
           .up = fixture.experts(data.up, experts, WeightRole::expert_column, c.used, c.type, 2),
           .down = fixture.experts(data.down, experts, WeightRole::expert_row, c.used, c.type, 2),
           .used = c.used,
           .gating = c.gating,
           .normalise = c.normalise,
           .weight_scale = static_cast<float>(c.weight_scale),
           .activation = c.gate ? c.activation : ActivationKind::relu_squared,
           .clamp = static_cast<float>(kClamp),
           .alpha = static_cast<float>(kAlpha)};
  op.end = {.x = op.x, .scale = 0.5f};
  if (c.gate) op.gate = fixture.experts(data.gate, experts, WeightRole::expert_column, c.used, c.type, 2);
  if (c.selection_bias) op.selection_bias = fixture.vector(data.selection_bias);
  if (c.biases) {
    op.router_bias = fixture.vector(data.router_bias);
    op.gate_bias = fixture.vector(data.gate_bias);
    op.up_bias = fixture.vector(data.up_bias);
    op.down_bias = fixture.vector(data.down_bias);
  }
  if (c.shared) {
    if (c.shared_gate) op.shared_gate = fixture.matrix(data.shared_gate);
    op.shared_up = fixture.matrix(data.shared_up);
    op.shared_down = fixture.matrix(data.shared_down, WeightRole::row_parallel);
  }
  return op;
}

StepPlan rows_from(std::int32_t first, std::size_t count) {
  return StepPlan().add(first, static_cast<std::int32_t>(count), {});
}

void run_case(const MoeCase& c) {
  const MoeData data(c);
  Doubles expected(c.rows, c.width);
  for (std::size_t r = 0; r < c.rows; ++r) std::ranges::copy(moe_of(c, data, r), &expected.at(r, 0));
  for_each_device([&](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const MoeOp op = make_op(fixture, c, data);
    const auto ops = [&](Backend& b) { b.moe(op); };
    const double reach = 10.0 * largest_row(data.up);
    const Floats together = fixture.run(rows_from(0, c.rows), op.x, ops);
    expect_close(together, expected, fixture.epsilon() * reach * reach * largest_row(data.down));
    const std::vector<ExpertUse> use = fixture.backend().expert_use();
    ASSERT_EQ(use.size(), 1u);
    EXPECT_EQ(use[0].layer, 2);
    ASSERT_EQ(use[0].chosen.size(), c.experts);
    EXPECT_EQ(std::accumulate(use[0].chosen.begin(), use[0].chosen.end(), std::uint64_t{0}), as_size(c.used) * c.rows);
    // How many rows an expert serves does not change a row's bits.
    for (std::size_t r = 0; device.same_bits && r < c.rows; r += 5) {
      EXPECT_EQ(fixture.run(rows_from(static_cast<std::int32_t>(r), 1), op.x, ops).row(0), together.row(r));
    }
  });
}

TEST(Moe, SoftmaxTopTwo) { run_case({}); }
TEST(Moe, OneExpert) { run_case({.used = 1}); }
TEST(Moe, AllExperts) { run_case({.used = 6}); }
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
            .shared = true,
            .shared_gate = false});
}
TEST(Moe, SharedExpertGatedBesideExpertsWithout) { run_case({.gate = false, .shared = true}); }
TEST(Moe, Gelu) { run_case({.activation = ActivationKind::gelu_erf}); }
TEST(Moe, OddWidths) { run_case({.width = 37, .hidden = 45, .experts = 16, .used = 4, .biases = true}); }
TEST(Moe, OddWidthsInHalves) { run_case({.width = 37, .hidden = 45, .type = QuantType::f16, .shared = true}); }
TEST(Moe, OneRow) { run_case({.experts = 16, .rows = 1, .used = 4}); }
TEST(Moe, ManyRows) { run_case({.experts = 16, .rows = 70, .used = 4, .shared = true}); }
TEST(Moe, SoftmaxWithSelectionBias) { run_case({.selection_bias = true}); }

TEST(Moe, TiesGoToTheLowerExpert) {
  for_each_device([](const DeviceUnderTest& device) {
    const MoeCase c;
    MoeData data(c);
    data.router = Floats(c.experts, c.width);  // all scores are equal
    OpFixture fixture(device);
    const MoeOp op = make_op(fixture, c, data);
    Doubles expected(1, c.width);
    std::ranges::copy(moe_of(c, data, 0), &expected.at(0, 0));  // experts 0 and 1, by a stable sort
    expect_close(fixture.run(rows_from(0, 1), op.x, [&](Backend& b) { b.moe(op); }), expected,
                 fixture.epsilon() * 100.0 * largest_row(data.up) * largest_row(data.up) * largest_row(data.down));
  });
}

TEST(Moe, AProfileTellsItsParts) {
  for_each_device([](const DeviceUnderTest& device) {
    const MoeCase c{.shared = true};
    const MoeData data(c);
    OpFixture fixture(device);
    const MoeOp op = make_op(fixture, c, data);
    fixture.backend().set_profiling(true);
    fixture.run(rows_from(0, 3), [&](Backend& b) { b.moe(op); });
    for (const char* part : {"router", "experts", "shared experts"}) {
      EXPECT_TRUE(std::ranges::any_of(fixture.backend().profile(), [&](const OpTime& t) { return t.name == part; }))
          << part;
    }
  });
}

TEST(Moe, NanRowHarmsNobodyElse) {
  for_each_device([](const DeviceUnderTest& device) {
    const MoeCase c;
    MoeData data(c);
    OpFixture clean(device);
    const MoeOp clean_op = make_op(clean, c, data);
    const Floats before = clean.run(rows_from(0, c.rows), clean_op.x, [&](Backend& b) { b.moe(clean_op); });
    data.x.at(4, 4) = std::numeric_limits<float>::quiet_NaN();
    OpFixture fixture(device);
    const MoeOp op = make_op(fixture, c, data);
    const Floats after = fixture.run(rows_from(0, c.rows), op.x, [&](Backend& b) { b.moe(op); });
    for (std::size_t r = 0; r < c.rows; ++r) {
      if (r != 4 && device.same_bits) {
        EXPECT_EQ(after.row(r), before.row(r));
      }
      EXPECT_EQ(fixture.results().first_bad_layer[r], r == 4 ? 2 : -1);
    }
    EXPECT_TRUE(std::isnan(after.at(4, 0)));
  });
}

}  // namespace
}  // namespace quarrel::test

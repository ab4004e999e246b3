// `moe` against layers that numpy computed in double (tests/data/layers/make_moe_layer.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include "ops/harness.h"
#include "support/golden.h"

namespace quarrel::test {
namespace {

class MoeLayer {
 public:
  MoeLayer() : values_(load_f32(test_data("layers/moe_layer.f32"))) {
    std::ifstream(test_data("layers/moe_layer.json")) >> description;
  }
  std::size_t size(const char* name) const { return description["sizes"][name].get<std::size_t>(); }
  std::vector<float> values(const std::string& name) const {
    const auto& place = description["arrays"][name];
    const auto begin = values_.begin() + place[0].get<std::ptrdiff_t>();
    return {begin, begin + place[1].get<std::ptrdiff_t>()};
  }
  Floats matrix(const std::string& name, std::size_t columns) const {
    Floats matrix;
    matrix.values = values(name);
    matrix.columns = columns;
    matrix.rows = matrix.values.size() / columns;
    return matrix;
  }

  nlohmann::json description;

 private:
  std::vector<float> values_;
};

MoeOp make_layer(OpFixture& fixture, const MoeLayer& layer, const nlohmann::json& made) {
  static const std::map<std::string, ActivationKind> kActivations = {
      {"silu", ActivationKind::silu},
      {"gelu_tanh", ActivationKind::gelu_tanh},
      {"relu_squared", ActivationKind::relu_squared},
      {"swiglu_clamped", ActivationKind::swiglu_clamped},
  };
  const std::size_t width = layer.size("width");
  const std::size_t hidden = layer.size("hidden");
  const auto experts = static_cast<std::int32_t>(layer.size("experts"));
  const auto used = made["used"].get<std::int32_t>();
  const auto vector = [&](const char* name) { return fixture.vector(layer.values(name)); };
  const auto stacked = [&](const char* name, std::size_t columns, WeightRole role) {
    return fixture.experts(layer.matrix(name, columns), experts, role, used);
  };
  MoeOp op{.x = fixture.input(layer.matrix("x", width)),
           .before = {.kind = NormKind::rms,
                      .epsilon = layer.description["sizes"]["epsilon"].get<float>(),
                      .weight = vector("before")},
           .router = fixture.matrix(layer.matrix("router", width)),
           .up = stacked("up", width, WeightRole::expert_column),
           .down = stacked("down", hidden, WeightRole::expert_row),
           .used = used,
           .gating = made["gating"] == "softmax" ? Gating::softmax : Gating::sigmoid,
           .normalise = made["normalise"].get<bool>(),
           .weight_scale = made.value("weight_scale", 1.0f),
           .activation = kActivations.at(made["activation"].get<std::string>()),
           .clamp = made.value("clamp", 0.0f),
           .alpha = made.value("alpha", 0.0f)};
  op.end = {.x = op.x, .scale = made.value("end_scale", 1.0f)};
  const bool gated = made["gated"].get<bool>();
  if (gated) op.gate = stacked("gate", width, WeightRole::expert_column);
  if (made.value("selection_bias", false)) op.selection_bias = vector("selection_bias");
  if (made.value("biases", false)) {
    op.router_bias = vector("router_bias");
    op.gate_bias = vector("gate_bias");
    op.up_bias = vector("up_bias");
    op.down_bias = vector("down_bias");
  }
  if (made.value("shared", false)) {
    if (gated) op.shared_gate = fixture.matrix(layer.matrix("shared_gate", width));
    op.shared_up = fixture.matrix(layer.matrix("shared_up", width));
    op.shared_down = fixture.matrix(layer.matrix("shared_down", layer.size("shared")), WeightRole::row_parallel);
  }
  return op;
}

TEST(MoeLayer, AsNumpyComputesIt) {
  const MoeLayer layer;
  ASSERT_GE(layer.description["cases"].size(), 5u);
  for_each_device([&](const DeviceUnderTest& device) {
    for (std::size_t index = 0; index < layer.description["cases"].size(); ++index) {
      const nlohmann::json& made = layer.description["cases"][index];
      SCOPED_TRACE(made["name"].get<std::string>());
      OpFixture fixture(device);
      const MoeOp op = make_layer(fixture, layer, made);
      const StepPlan plan = StepPlan().add(0, static_cast<std::int32_t>(layer.size("rows")), {});
      const Floats result = fixture.run(plan, op.x, [&](Backend& b) { b.moe(op); });
      const std::vector<float> expected = layer.values("expected " + std::to_string(index));
      ASSERT_EQ(result.values.size(), expected.size());
      EXPECT_LE(nmse(result.values, expected), 1e-12);
    }
  });
}

}  // namespace
}  // namespace quarrel::test

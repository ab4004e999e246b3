// Whole recurrent layers on every device against outputs that numpy computed in float64 by the plain formulas
// (tests/data/layers/make_ssm_layers.py): a convolution alone, one Mamba-1 layer, one Mamba-2 layer.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "ops/harness.h"

namespace quarrel::test {
namespace {

static_assert(std::endian::native == std::endian::little, "the files hold little-endian numbers");

constexpr double kMaxNmse = 1e-10;

class Arrays {
 public:
  explicit Arrays(const std::string& file_name) {
    std::ifstream file(std::filesystem::path(QUARREL_TEST_DATA) / "layers" / file_name, std::ios::binary);
    std::string name;
    std::size_t rows = 0;
    std::size_t columns = 0;
    while (file >> name >> rows >> columns) {
      file.get();  // the end of the line
      Floats& array = arrays_[name] = Floats(rows, columns);
      file.read(reinterpret_cast<char*>(array.values.data()),
                static_cast<std::streamsize>(array.values.size() * sizeof(float)));
    }
  }
  const Floats& at(const std::string& name) const { return arrays_.at(name); }

 private:
  std::map<std::string, Floats> arrays_;
};

double nmse(const Floats& actual, const Floats& expected) {
  EXPECT_EQ(actual.values.size(), expected.values.size());
  double error = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    const double difference = static_cast<double>(actual.values.at(i)) - static_cast<double>(expected.values[i]);
    error += difference * difference;
    size += static_cast<double>(expected.values[i]) * static_cast<double>(expected.values[i]);
  }
  return error / size;
}

// A layer as a model runs it: norm and input projection, the op, output projection and residual.
Floats run_layer(const DeviceUnderTest& device, const Arrays& arrays, SsmOp op, bool part_norms) {
  OpFixture fixture(device);
  const auto matrix = [&](const char* name) { return fixture.matrix(arrays.at(name)); };
  const auto vector = [&](const char* name) { return fixture.matrix(arrays.at(name), WeightRole::vector); };
  const auto rms = [](Weight weight) { return Norm{.kind = NormKind::rms, .epsilon = 1e-5f, .weight = weight}; };
  const Activation x = fixture.input(arrays.at("u"));
  const Weight in_proj = matrix("in_proj");
  op.in = fixture.activation(in_proj.rows);
  op.out = fixture.activation(op.inner);
  op.conv = vector("conv");
  op.conv_bias = vector("conv_bias");
  op.a = vector("a");
  op.d = vector("d");
  op.dt_bias = vector("dt_bias");
  if (op.version == 1) {
    op.x_proj = matrix("x_proj");
    op.dt_proj = matrix("dt_proj");
    if (part_norms) {
      op.dt_norm = rms(vector("dt_norm"));
      op.b_norm = op.c_norm = rms({});
    }
  } else {
    op.norm = rms(vector("ssm_norm"));
  }
  const LinearOp first{
      .sublayer = SublayerKind::ssm, .in = x, .before = rms(vector("norm")), .weight = in_proj, .out = op.in};
  const LinearOp last{.sublayer = SublayerKind::ssm, .in = op.out, .weight = matrix("out_proj"), .end = {.x = x}};
  const auto channels = static_cast<std::int64_t>(arrays.at("conv").rows);
  fixture.cache({.groups = {},
                 .state_layers = {{.conv_values = (op.conv_width - 1) * channels,
                                   .scan_values = std::int64_t{op.inner} * op.state}},
                 .kv_type = KvType::f32,
                 .blocks = {},
                 .state_slots = 1});
  const auto rows = static_cast<std::int32_t>(arrays.at("u").rows);
  return fixture.run(StepPlan().add(0, rows, {.state_out = 0}), x, [&](Backend& backend) {
    backend.linear(first);
    backend.ssm(op);
    backend.linear(last);
  });
}

TEST(SsmLayers, Mamba1) {
  const Arrays arrays("mamba1.bin");
  const SsmOp op{.version = 1, .inner = 32, .state = 8, .heads = 32, .conv_width = 4, .dt_rank = 4};
  for_each_device([&](const DeviceUnderTest& device) {
    EXPECT_LE(nmse(run_layer(device, arrays, op, false), arrays.at("expected")), kMaxNmse);
    EXPECT_LE(nmse(run_layer(device, arrays, op, true), arrays.at("expected_normed")), kMaxNmse);
  });
}

TEST(SsmLayers, Mamba2) {
  const Arrays arrays("mamba2.bin");
  const SsmOp op{.version = 2, .inner = 32, .state = 8, .heads = 4, .groups = 2, .conv_width = 4};
  for_each_device([&](const DeviceUnderTest& device) {
    EXPECT_LE(nmse(run_layer(device, arrays, op, false), arrays.at("expected")), kMaxNmse);
  });
}

// The convolution alone: without B there is no state, D is 1, and the gate is the z whose SiLU is 1.
TEST(SsmLayers, Convolution) {
  const Arrays arrays("conv1d.bin");
  const Floats& x = arrays.at("x");
  const std::size_t inner = x.columns;
  const std::size_t taps = arrays.at("conv").columns;
  Floats in(x.rows, 2 * inner + 3);  // z, x, B, C, dt
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t i = 0; i < inner; ++i) {
      in.at(r, i) = 1.27846454f;
      in.at(r, inner + i) = x.at(r, i);
    }
  }
  Floats conv(inner + 2, taps);
  std::ranges::copy(arrays.at("conv").values, conv.values.begin());
  std::vector<float> bias = arrays.at("conv_bias").values;
  bias.resize(inner + 2, 0.0f);
  for_each_device([&](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const SsmOp op{.version = 2,
                   .in = fixture.input(in),
                   .out = fixture.activation(static_cast<std::int32_t>(inner)),
                   .conv = fixture.matrix(conv, WeightRole::vector),
                   .conv_bias = fixture.vector(bias),
                   .a = fixture.vector({-1.0f}),
                   .d = fixture.vector({1.0f}),
                   .inner = static_cast<std::int32_t>(inner),
                   .state = 1,
                   .heads = 1,
                   .groups = 1,
                   .conv_width = static_cast<std::int32_t>(taps)};
    fixture.cache({.groups = {},
                   .state_layers = {{.conv_values = static_cast<std::int64_t>((taps - 1) * (inner + 2)),
                                     .scan_values = static_cast<std::int64_t>(inner)}},
                   .kv_type = KvType::f32,
                   .blocks = {},
                   .state_slots = 1});
    const auto rows = static_cast<std::int32_t>(x.rows);
    const Floats out =
        fixture.run(StepPlan().add(0, rows, {.state_out = 0}), op.out, [&](Backend& backend) { backend.ssm(op); });
    EXPECT_LE(nmse(out, arrays.at("expected")), kMaxNmse);
  });
}

}  // namespace
}  // namespace quarrel::test

// Products with weights: `linear` with every end, `glu` with every activation, quantised weights.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/harness.h"
#include "quant/decode.h"
#include "quant/encode.h"

namespace quarrel::test {
namespace {

StepPlan some_rows(std::int32_t count) { return StepPlan().add(0, count, {}); }

TEST(Linear, ProductAndBias) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Floats x = random_matrix(5, 48, 1);
    const Floats weight = random_matrix(19, 48, 2);
    const std::vector<float> bias = random_matrix(1, 19, 3).values;
    const Activation in = fixture.input(x);
    const Activation out = fixture.activation(24);  // wider than needed: shared by layers of several widths
    const LinearOp op{.in = in, .weight = fixture.matrix(weight), .bias = fixture.vector(bias), .out = out};
    Doubles expected(5, 19);
    for (std::size_t r = 0; r < 5; ++r) {
      const Row y = matvec(weight, widen(x.row(r)), bias);
      std::ranges::copy(y, &expected.at(r, 0));
    }
    expect_close(fixture.run(some_rows(5), out, [&](Backend& b) { b.linear(op); }), expected,
                 fixture.epsilon() * largest_row(x) * largest_row(weight));
  });
}

TEST(Linear, InputMayBeWiderThanTheWeight) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Floats x = random_matrix(3, 40, 4);
    const Floats weight = random_matrix(8, 32, 5);
    const Activation in = fixture.input(x);
    const Activation out = fixture.activation(8);
    const LinearOp op{.in = in, .weight = fixture.matrix(weight), .out = out};
    Doubles expected(3, 8);
    for (std::size_t r = 0; r < 3; ++r) {
      Row first = widen(x.row(r));
      first.resize(32);
      std::ranges::copy(matvec(weight, first), &expected.at(r, 0));
    }
    expect_close(fixture.run(some_rows(3), out, [&](Backend& b) { b.linear(op); }), expected,
                 fixture.epsilon() * largest_row(x) * largest_row(weight));
  });
}

TEST(Linear, EveryPartOfTheEnd) {
  for_each_device([](const DeviceUnderTest& device) {
    // Each bit switches one part on.
    for (int parts = 0; parts < 8; ++parts) {
      SCOPED_TRACE(parts);
      OpFixture fixture(device);
      const Floats value = random_matrix(4, 32, 6);
      const Floats x = random_matrix(4, 24, 7, 2.0);
      const Floats weight = random_matrix(24, 32, 8);
      const std::vector<float> before = random_matrix(1, 32, 9, 0.5, 1.0).values;
      const std::vector<float> branch = random_matrix(1, 24, 10, 0.5, 1.0).values;
      const std::vector<float> after = random_matrix(1, 24, 11, 0.5, 1.0).values;
      const std::vector<float> after_bias = random_matrix(1, 24, 12).values;
      LinearOp op{.in = fixture.input(value), .weight = fixture.matrix(weight), .end = {.x = fixture.input(x)}};
      op.end.scale = 0.75f;
      if ((parts & 1) != 0) op.before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(before)};
      if ((parts & 2) != 0) op.end.branch = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(branch)};
      if ((parts & 4) != 0) {
        op.end.after = {.kind = NormKind::layer,
                        .epsilon = 1e-5f,
                        .weight = fixture.vector(after),
                        .bias = fixture.vector(after_bias)};
      }
      Doubles expected(4, 24);
      for (std::size_t r = 0; r < 4; ++r) {
        Row h = widen(value.row(r));
        if ((parts & 1) != 0) h = rms_norm(h, before, 1e-5);
        Row y = matvec(weight, h);
        if ((parts & 2) != 0) y = rms_norm(y, branch, 1e-5);
        Row sum = widen(x.row(r));
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += 0.75 * y[i];
        if ((parts & 4) != 0) sum = layer_norm(sum, after, after_bias, 1e-5);
        std::ranges::copy(sum, &expected.at(r, 0));
      }
      expect_close(fixture.run(some_rows(4), op.end.x, [&](Backend& b) { b.linear(op); }), expected,
                   fixture.epsilon() * 2.0 * (largest_row(value) * largest_row(weight) + largest_row(x)));
    }
  });
}

TEST(Linear, QuantisedWeights) {
  for_each_device([](const DeviceUnderTest& device) {
    for (const TypeInfo& info : all_types()) {
      if (!can_encode(info.type)) continue;
      SCOPED_TRACE(info.name);
      OpFixture fixture(device);
      const Floats x = random_matrix(3, 512, 13);
      const Floats weight = random_matrix(9, 512, 14);
      const Activation in = fixture.input(x);
      const Activation out = fixture.activation(9);
      const LinearOp op{.in = in, .weight = fixture.matrix(weight, WeightRole::column_parallel, info.type), .out = out};
      // The weights that the encoder left.
      Floats decoded(9, 512);
      std::vector<std::byte> bytes(row_bytes(info, 512));
      for (std::size_t r = 0; r < 9; ++r) {
        encode_row(info.type, weight.values.data() + r * 512, bytes.data(), 512);
        decode_row(info.type, bytes.data(), &decoded.at(r, 0), 512);
      }
      Doubles expected(3, 9);
      for (std::size_t r = 0; r < 3; ++r) std::ranges::copy(matvec(decoded, widen(x.row(r))), &expected.at(r, 0));
      expect_close(fixture.run(some_rows(3), out, [&](Backend& b) { b.linear(op); }), expected,
                   device.quantised_epsilon * largest_row(x) * largest_row(decoded));
    }
  });
}

TEST(Linear, RowsDoNotDependOnTheirNeighbours) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Floats x = random_matrix(70, 64, 15);
    const Activation in = fixture.input(x);
    const Activation out = fixture.activation(33);
    const LinearOp op{.in = in, .weight = fixture.matrix(random_matrix(33, 64, 16)), .out = out};
    const Floats together = fixture.run(some_rows(70), out, [&](Backend& b) { b.linear(op); });
    for (std::int32_t r = 0; r < 70; r += 23) {
      const Floats alone = fixture.run(StepPlan().add(r, 1, {}), out, [&](Backend& b) { b.linear(op); });
      if (device.same_bits) {
        EXPECT_EQ(alone.row(0), together.row(as_size(r)));
      }
    }
  });
}

double activation_of(ActivationKind kind, double z) {
  switch (kind) {
    case ActivationKind::silu: return z / (1.0 + std::exp(-z));
    case ActivationKind::gelu_tanh: return 0.5 * z * (1.0 + std::tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)));
    case ActivationKind::gelu_erf: return 0.5 * z * std::erfc(-z * 0.7071067811865476);
    case ActivationKind::relu_squared: return z < 0.0 ? 0.0 : z * z;
    default: return z;
  }
}

TEST(Glu, EveryActivationWithAndWithoutGate) {
  for_each_device([](const DeviceUnderTest& device) {
    for (const ActivationKind kind : {ActivationKind::none, ActivationKind::silu, ActivationKind::gelu_tanh,
                                      ActivationKind::gelu_erf, ActivationKind::relu_squared}) {
      for (const bool with_gate : {true, false}) {
        SCOPED_TRACE(testing::Message() << "activation " << static_cast<int>(kind) << (with_gate ? ", gated" : ""));
        OpFixture fixture(device);
        const Floats x = random_matrix(4, 32, 20);
        const Floats gate = random_matrix(40, 32, 21, 0.5);
        const Floats up = random_matrix(40, 32, 22, 0.5);
        const std::vector<float> gate_bias = random_matrix(1, 40, 23).values;
        const std::vector<float> up_bias = random_matrix(1, 40, 24).values;
        const std::vector<float> before = random_matrix(1, 32, 25, 0.5, 1.0).values;
        GluOp op{.x = fixture.input(x),
                 .before = {.kind = NormKind::rms, .epsilon = 1e-5f, .weight = fixture.vector(before)},
                 .up = fixture.matrix(up),
                 .up_bias = fixture.vector(up_bias),
                 .activation = kind,
                 .out = fixture.activation(40)};
        if (with_gate) {
          op.gate = fixture.matrix(gate);
          op.gate_bias = fixture.vector(gate_bias);
        }
        Doubles expected(4, 40);
        for (std::size_t r = 0; r < 4; ++r) {
          const Row h = rms_norm(widen(x.row(r)), before, 1e-5);
          const Row g = matvec(gate, h, gate_bias);
          const Row u = matvec(up, h, up_bias);
          for (std::size_t i = 0; i < 40; ++i) {
            expected.at(r, i) = with_gate ? activation_of(kind, g[i]) * u[i] : activation_of(kind, u[i]);
          }
        }
        const double reach = 8.0 * largest_row(gate);  // of one projection: a normed row is about sqrt(32) long
        expect_close(fixture.run(some_rows(4), op.out, [&](Backend& b) { b.glu(op); }), expected,
                     fixture.epsilon() * reach * reach);
      }
    }
  });
}

TEST(Glu, RefusesAnActivationItHasNoParametersFor) {
  for_each_device([](const DeviceUnderTest& device) {
    OpFixture fixture(device);
    const Activation x = fixture.input(random_matrix(1, 32, 26));
    const Weight up = fixture.matrix(random_matrix(32, 32, 27));
    const GluOp op{
        .x = x, .gate = up, .up = up, .activation = ActivationKind::swiglu_clamped, .out = fixture.activation(32)};
    EXPECT_THROW(fixture.run(some_rows(1), [&](Backend& b) { b.glu(op); }), Error);
  });
}

}  // namespace
}  // namespace quarrel::test

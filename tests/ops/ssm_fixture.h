// What the cases of `ssm` share: a shape, random numbers for it, a plain loop over time in double, and a backend that
// runs the op on them.
#pragma once

#include <string>
#include <vector>

#include "ops/harness.h"

namespace quarrel::test {

inline constexpr std::int32_t kTokens = 23;

struct SsmCase {
  std::int32_t version = 2;
  std::int32_t inner = 24;
  std::int32_t state = 5;
  std::int32_t taps = 4;
  std::int32_t heads = 6;   // version 2
  std::int32_t groups = 2;  // version 2
  std::int32_t rank = 3;    // version 1
  bool part_norms = false;  // version 1: dt normed with a weight, B and C without
  bool bare = false;        // neither D nor biases nor the norm after the gate
  QuantType projections = QuantType::f32;

  std::int32_t channels() const { return version == 1 ? inner : inner + 2 * groups * state; }
  std::int32_t in_width() const { return version == 1 ? 2 * inner : inner + channels() + heads; }
  std::string name() const;
};

struct SsmData {
  Floats in, conv, a, x_proj, dt_proj;
  std::vector<float> conv_bias, d, dt_bias, norm, dt_norm;  // empty where a bare layer has none
  explicit SsmData(const SsmCase& c);
};

double silu_of(double z);

// Rows [first, first + kTokens) of the input as one text from the beginning.
Doubles ssm_of(const SsmCase& c, const SsmData& data, std::size_t first);

struct SsmFixture {
  OpFixture fixture;
  SsmOp op;
  std::vector<StateLayer> layers;

  SsmFixture(const DeviceUnderTest& device, const SsmCase& c, const SsmData& data);

  Weight vector_of(const Floats& values) { return fixture.matrix(values, WeightRole::vector); }
  Weight vector_or_none(const std::vector<float>& values) { return values.empty() ? Weight{} : fixture.vector(values); }
  Floats run(const StepPlan& plan);
  std::vector<std::byte> slot(std::int32_t index);
};

}  // namespace quarrel::test

// What the cases of attention share: a shape, random numbers for it, and a backend that runs `qkv` and `attend` on
// them.
#pragma once

#include <string>
#include <vector>

#include "ops/harness.h"

namespace quarrel::test {

inline constexpr double kAttentionScale = 0.4;

struct AttentionCase {
  std::int32_t heads = 4;
  std::int32_t kv_heads = 2;
  std::int32_t key_dim = 8;
  std::int32_t value_dim = 6;
  bool head_norms = false;
  bool biases = false;
  bool rope = true;
  RopeKind kind = RopeKind::interleaved;
  double magnitude = 1.0;
  double soft_cap = 0.0;
  std::int32_t window = 0;
  bool causal = true;
  bool sinks = false;
  KvType kv_type = KvType::f32;
  double k_scale = 0.5;
  std::int32_t width = 32;
  std::int32_t positions = 40;
  std::vector<double> frequencies = {1.0, 0.3, 0.05};  // six of eight dimensions: the rest pass
};

struct AttentionData {
  Floats x, q, k, v;
  std::vector<float> before, q_bias, k_bias, v_bias, q_norm, k_norm, sinks;
  explicit AttentionData(const AttentionCase& c);
};

// A backend with a case's weights and a cache of two layers, of which the second is used.
struct AttentionBench {
  OpFixture fixture;
  QkvOp qkv;
  AttendOp attend;

  AttentionBench(const DeviceUnderTest& device, const AttentionCase& c, const AttentionData& data);

  Floats run(const StepPlan& plan);
  // The cache alone is filled.
  void store(const StepPlan& plan);
};

// Blocks of one sequence, out of order, with some that belong to nobody between them.
std::vector<std::int32_t> scattered_blocks(std::int32_t positions);

// How far a result may be from the exact one.
double attention_tolerance(const AttentionCase& c, const AttentionData& data, double epsilon);

}  // namespace quarrel::test

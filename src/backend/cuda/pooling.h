// One vector of a text: its rows are gathered in a lane's sum, step after step, and handed out when the text is over.
// Sums are of doubles and in the order of the text, so that it does not matter how it was cut into steps. All launches.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/row_ops.h"

namespace quarrel::cuda {

inline constexpr int kPoolBatch = 64;

// Rows [first, first + count) that a lane takes; it forgets what it had if `begins`.
struct PoolRun {
  std::int32_t first = 0;
  std::int32_t count = 0;
  std::int32_t lane = 0;
  std::int32_t begins = 0;
};

struct GatherLanesOp {
  RowSpan rows = {};
  double* sums = nullptr;  // [lanes][width]
  PoolRun runs[kPoolBatch] = {};
  int count = 0;
};
void gather_lanes(const LaunchContext& context, const GatherLanesOp& op);

struct PoolOutput {
  std::int32_t lane = 0;
  float divisor = 1.0f;
  std::int32_t is_ranked = 0;
};

// out[o] = sum / divisor; or, ranked, score tanh(dense sum + dense_bias) + score_bias and zeros behind it.
struct PoolLanesOp {
  const double* sums = nullptr;
  int width = 0;
  float* out = nullptr;          // [count][width]
  const float* dense = nullptr;  // [width][width]
  const float* dense_bias = nullptr;
  const float* score = nullptr;  // [scores][width]
  const float* score_bias = nullptr;
  int scores = 0;
  PoolOutput outputs[kPoolBatch] = {};
  int count = 0;
};
void pool_lanes(const LaunchContext& context, const PoolLanesOp& op);

}  // namespace quarrel::cuda

// Softmax over rows of scores in memory, as attention without a kernel of its own needs it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

struct SoftmaxOp {
  const float* scores = nullptr;            // [rows][context]
  std::byte* weights = nullptr;             // the same, F16 or F32; F32 ones may take the scores' place
  const std::int32_t* positions = nullptr;  // [rows]: a row sees positions up to its own, others weigh nothing
  int rows = 0;
  int context = 0;
  bool halves = true;
};
void softmax_rows(const LaunchContext& context, const SoftmaxOp& op);

}  // namespace quarrel::cuda

// What stands between the two halves of a feed-forward layer, as kernels take it.
#pragma once

#include "backend/ops.h"

namespace quarrel::cuda {

struct GateFunction {
  ActivationKind kind = ActivationKind::silu;
  float clamp = 0.0f;  // of swiglu_clamped
  float alpha = 0.0f;
};

}  // namespace quarrel::cuda

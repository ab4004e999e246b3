// The functions of feed-forward layers, in F32.
#pragma once

#include "backend/cuda/gate_function.h"

namespace quarrel::cuda {

__device__ inline float activated(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::silu: return x / (1.0f + expf(-x));
    case ActivationKind::gelu_tanh: {
      const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
      return 0.5f * x * (1.0f + tanhf(inner));
    }
    case ActivationKind::gelu_erf: return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
    case ActivationKind::relu_squared: return isnan(x) ? x : x > 0.0f ? x * x : 0.0f;
    default: return x;
  }
}

// A gate and what it gates. A NaN stays one.
__device__ inline float gated(const GateFunction& function, float gate, float up) {
  if (function.kind != ActivationKind::swiglu_clamped) return activated(function.kind, gate) * up;
  const float limited = gate > function.clamp ? function.clamp : gate;
  const float limited_up = up > function.clamp ? function.clamp : up < -function.clamp ? -function.clamp : up;
  return limited / (1.0f + expf(-function.alpha * limited)) * (limited_up + 1.0f);
}

}  // namespace quarrel::cuda

// The scalar functions and the dot product that the reference ops are made of. Pure functions, safe from any thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "backend/ops.h"

namespace quarrel::reference {

// Eight partial sums in a fixed order: fast enough for whole models, and the same bits on every machine.
inline double dot(const double* a, const double* b, std::size_t count) noexcept {
  double s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    s0 += a[i] * b[i];
    s1 += a[i + 1] * b[i + 1];
    s2 += a[i + 2] * b[i + 2];
    s3 += a[i + 3] * b[i + 3];
    s4 += a[i + 4] * b[i + 4];
    s5 += a[i + 5] * b[i + 5];
    s6 += a[i + 6] * b[i + 6];
    s7 += a[i + 7] * b[i + 7];
  }
  double sum = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

inline double sigmoid(double z) noexcept { return 1.0 / (1.0 + std::exp(-z)); }
inline double silu(double z) noexcept { return z * sigmoid(z); }
inline double softplus(double z) noexcept { return z > 20.0 ? z : std::log1p(std::exp(z)); }
inline double soft_cap(double value, double cap) noexcept { return cap > 0.0 ? cap * std::tanh(value / cap) : value; }

inline double activate(ActivationKind kind, double z) noexcept {
  switch (kind) {
    case ActivationKind::silu: return silu(z);
    case ActivationKind::gelu_tanh:
      return 0.5 * z * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (z + 0.044715 * z * z * z)));
    case ActivationKind::gelu_erf: return 0.5 * z * (1.0 + std::erf(z / std::sqrt(2.0)));
    case ActivationKind::relu_squared: return std::isnan(z) ? z : std::max(z, 0.0) * std::max(z, 0.0);
    case ActivationKind::none:
    case ActivationKind::swiglu_clamped: break;
  }
  return z;
}

// The gated product; `clamp` and `alpha` belong to swiglu_clamped.
inline double gated(ActivationKind kind, double gate, double up, double clamp, double alpha) noexcept {
  if (kind != ActivationKind::swiglu_clamped) return activate(kind, gate) * up;
  const double limited = std::min(gate, clamp);
  return limited * sigmoid(alpha * limited) * (std::clamp(up, -clamp, clamp) + 1.0);
}

}  // namespace quarrel::reference

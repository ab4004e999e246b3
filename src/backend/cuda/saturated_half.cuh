// F32 to the F16 of the cache: what is too large becomes the largest half, a NaN stays one.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace quarrel::cuda {

constexpr float kLargestHalf = 65504.0f;

// `saturated` counts the values that were too large.
__device__ inline std::uint16_t saturated_half(float value, unsigned& saturated) {
  saturated += fabsf(value) > kLargestHalf ? 1u : 0u;
  if (value > kLargestHalf) value = kLargestHalf;
  if (value < -kLargestHalf) value = -kLargestHalf;
  return __half_as_ushort(__float2half_rn(value));
}

}  // namespace quarrel::cuda

// What is done with a GEMM's sums, by the kernel that adds up its parts or by the GEMM itself.
#pragma once

#include "backend/cuda/activation_math.cuh"
#include "backend/cuda/packed_gemm.h"
#include "backend/cuda/register_image.cuh"

namespace quarrel::cuda {

// Of `store` and `add`.
__device__ inline void end_sum(const JoinPartsOp& op, int row, int column, float sum) {
  if (op.bias != nullptr) sum += op.bias[column];
  float* out = op.out + static_cast<std::size_t>(row) * op.out_stride + column;
  *out = op.end == PartsEnd::add ? *out + op.scale * sum : sum;
}

// What a gate leaves.
__device__ inline float end_glu(const JoinPartsOp& op, int row, int column, float gate, float up) {
  if (op.bias != nullptr) gate += op.bias[column];
  if (op.second_bias != nullptr) up += op.second_bias[column];
  const float value = activated(op.activation, gate) * up;
  op.out[static_cast<std::size_t>(row) * op.out_stride + column] = value;
  return value;
}

__device__ inline RegisterImage image_of(const JoinPartsOp& op) {
  return {.numbers = op.halves, .rows = op.image_rows};
}

}  // namespace quarrel::cuda

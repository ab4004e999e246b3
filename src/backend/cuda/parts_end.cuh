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

// What `store` and `add` leave of four neighbouring columns, whose parts it adds up; whoever calls it writes them.
__device__ inline float4 joined_four(const JoinPartsOp& op, int row, int column) {
  const float* place = op.parts + static_cast<std::size_t>(row) * op.width + column;
  const std::size_t stride = static_cast<std::size_t>(op.rows) * op.width;
  float4 sum = {};
#pragma unroll 8
  for (int slab = 0; slab < op.slabs; ++slab) {
    const float4 part = *reinterpret_cast<const float4*>(place + slab * stride);
    sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
  }
  if (op.bias != nullptr) {
    const float4 bias = *reinterpret_cast<const float4*>(op.bias + column);
    sum = {sum.x + bias.x, sum.y + bias.y, sum.z + bias.z, sum.w + bias.w};
  }
  if (op.end != PartsEnd::add) return sum;
  const float4 old = *reinterpret_cast<const float4*>(op.out + static_cast<std::size_t>(row) * op.out_stride + column);
  return {old.x + op.scale * sum.x, old.y + op.scale * sum.y, old.z + op.scale * sum.z, old.w + op.scale * sum.w};
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

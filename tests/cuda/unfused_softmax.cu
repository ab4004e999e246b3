// The softmax between the two GEMMs of UnfusedAttention: a thread block a row.
#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "unfused_softmax.h"

namespace quarrel::cuda {
namespace {

constexpr int kThreads = 256;

// What `combine` makes of all threads' values.
template <typename Combine>
__device__ float of_block(float value, const Combine& combine) {
  __shared__ float parts[kThreads / 32];
  for (int mask = 16; mask > 0; mask >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, mask));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = parts[0];
  for (int i = 1; i < kThreads / 32; ++i) value = combine(value, parts[i]);
  return value;
}

__device__ void store(float* place, float value) { *place = value; }
__device__ void store(__half* place, float value) { *place = __float2half_rn(value); }

template <typename Weight>
__global__ void __launch_bounds__(kThreads)
    softmax_kernel(const float* scores, Weight* weights, const std::int32_t* positions, int context) {
  const auto row = static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(context);
  const int seen = positions[blockIdx.x] + 1;
  float most = -INFINITY;
  for (int i = threadIdx.x; i < seen; i += kThreads) most = fmaxf(most, scores[row + i]);
  most = of_block(most, [](float a, float b) { return fmaxf(a, b); });
  float sum = 0.0f;
  for (int i = threadIdx.x; i < seen; i += kThreads) sum += expf(scores[row + i] - most);
  sum = of_block(sum, [](float a, float b) { return a + b; });
  for (int i = threadIdx.x; i < context; i += kThreads) {
    store(weights + row + i, i < seen ? expf(scores[row + i] - most) / sum : 0.0f);
  }
}

template <typename Weight>
void softmax(const LaunchContext& context, const SoftmaxOp& op) {
  launch("softmax", context, softmax_kernel<Weight>, dim3(static_cast<unsigned>(op.rows)), dim3(kThreads), 0, op.scores,
         reinterpret_cast<Weight*>(op.weights), op.positions, op.context);
}

}  // namespace

void softmax_rows(const LaunchContext& context, const SoftmaxOp& op) {
  LaunchContext plain = context;
  plain.dependent_launch = false;
  op.halves ? softmax<__half>(plain, op) : softmax<float>(plain, op);
}

}  // namespace quarrel::cuda

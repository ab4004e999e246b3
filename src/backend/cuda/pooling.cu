#include "backend/cuda/launch.cuh"
#include "backend/cuda/pooling.h"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kGatherThreads = 64;
constexpr int kPoolThreads = 256;
constexpr int kPoolWarps = kPoolThreads / 32;

__global__ void __launch_bounds__(kGatherThreads) gather_lanes_kernel(const __grid_constant__ GatherLanesOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const PoolRun& run = op.runs[blockIdx.y];
  const int i = blockIdx.x * kGatherThreads + threadIdx.x;
  if (i >= op.rows.width) return;
  double& kept = op.sums[static_cast<std::size_t>(run.lane) * op.rows.width + i];
  double sum = run.begins != 0 ? 0.0 : kept;
  const float* rows = op.rows.data + static_cast<std::size_t>(run.first) * op.rows.stride + i;
#pragma unroll 8
  for (int r = 0; r < run.count; ++r) sum += static_cast<double>(rows[static_cast<std::size_t>(r) * op.rows.stride]);
  kept = sum;
}

// out = tanh(weight in + bias), or the same without the tanh; a warp a value.
__device__ void small_matrix(const float* weight, const float* bias, int rows, int columns, const double* in,
                             bool is_bounded, double* out) {
  const int lane = threadIdx.x % 32;
  for (int row = threadIdx.x / 32; row < rows; row += kPoolWarps) {
    double sum = 0.0;
    for (int i = lane; i < columns; i += 32) {
      sum += static_cast<double>(weight[static_cast<std::size_t>(row) * columns + i]) * in[i];
    }
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
    if (bias != nullptr) sum += static_cast<double>(bias[row]);
    if (lane == 0) out[row] = is_bounded ? tanh(sum) : sum;
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kPoolThreads) pool_lanes_kernel(const __grid_constant__ PoolLanesOp op) {
  extern __shared__ double values[];
  wait_for_previous_kernel();
  allow_next_kernel();
  const PoolOutput& output = op.outputs[blockIdx.x];
  const double* sums = op.sums + static_cast<std::size_t>(output.lane) * op.width;
  float* out = op.out + static_cast<std::size_t>(blockIdx.x) * op.width;
  if (output.is_ranked == 0) {
    for (int i = threadIdx.x; i < op.width; i += kPoolThreads) {
      out[i] = static_cast<float>(sums[i] / static_cast<double>(output.divisor));
    }
    return;
  }
  const double* row = sums;
  double* dense = values;
  double* scores = values + op.width;
  if (op.dense != nullptr) {
    small_matrix(op.dense, op.dense_bias, op.width, op.width, sums, true, dense);
    row = dense;
  }
  small_matrix(op.score, op.score_bias, op.scores, op.width, row, false, scores);
  for (int i = threadIdx.x; i < op.width; i += kPoolThreads) {
    out[i] = i < op.scores ? static_cast<float>(scores[i]) : 0.0f;
  }
}

}  // namespace

void gather_lanes(const LaunchContext& context, const GatherLanesOp& op) {
  const dim3 grid(static_cast<unsigned>((op.rows.width + kGatherThreads - 1) / kGatherThreads),
                  static_cast<unsigned>(op.count));
  launch("pooling", context, gather_lanes_kernel, grid, dim3(kGatherThreads), 0, op);
}

void pool_lanes(const LaunchContext& context, const PoolLanesOp& op) {
  const bool ranks = op.score != nullptr;
  const int shared_bytes = ranks ? 2 * op.width * static_cast<int>(sizeof(double)) : 0;
  if (shared_bytes > 48 * 1024) allow_shared_bytes("pooling", pool_lanes_kernel, shared_bytes);
  launch("pooling", context, pool_lanes_kernel, dim3(static_cast<unsigned>(op.count)), dim3(kPoolThreads), shared_bytes,
         op);
}

}  // namespace quarrel::cuda

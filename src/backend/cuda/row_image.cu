#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/parts_end.cuh"
#include "backend/cuda/primitives.cuh"
#include "backend/cuda/register_image.cuh"
#include "backend/cuda/row_image.h"

namespace quarrel::cuda {
namespace {

constexpr int kOwnColumns = 4;  // of a thread
constexpr int kMostThreads = 512;
constexpr int kMaxCluster = 8;
static_assert(kMostThreads * kMaxCluster * kOwnColumns >= kMaxImageColumns);

// The sum over the threads of the cluster, the same in all of them. `of_warps` has room for all of its warps.
__device__ float sum_of_cluster(float value, int cluster, float* of_warps) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(~0u, value, mask);
  const int lane = threadIdx.x % 32;
  const int warps = blockDim.x / 32;
  if (lane < cluster) store_in_block(of_warps + cluster_rank() * warps + threadIdx.x / 32, lane, value);
  cluster_barrier();
  float total = 0.0f;
#pragma unroll 8
  for (int i = 0; i < warps * cluster; ++i) total += of_warps[i];
  return total;
}

__global__ void __launch_bounds__(kMostThreads) row_image_kernel(const __grid_constant__ RowImageOp op) {
  __shared__ float of_warps[2][kMaxCluster * kMostThreads / 32];
  const int cluster = gridDim.x;
  const int row = blockIdx.y;
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * kOwnColumns;
  const int width = op.rows.width;
  const bool exists = column < width;
  const DeviceNorm& norm = op.norm;
  const auto vector_at = [&](const float* vector, float otherwise) {
    if (!exists || vector == nullptr) return float4{otherwise, otherwise, otherwise, otherwise};
    return *reinterpret_cast<const float4*>(vector + column);
  };
  const float4 weight = vector_at(norm.weight, 1.0f);
  const float4 norm_bias = vector_at(norm.bias, 0.0f);
  allow_next_kernel();
  cluster_barrier();  // all of its blocks have begun: what they have in shared memory may be written
  wait_for_previous_kernel();
  float* place = op.rows.data + static_cast<std::size_t>(row) * op.rows.stride + column;
  float4 x = {};
  if (exists) {
    if (op.join.parts == nullptr) {
      x = *reinterpret_cast<const float4*>(place);
    } else {
      x = joined_four(op.join, row, column);
      *reinterpret_cast<float4*>(place) = x;
    }
  }
  float mean = 0.0f;
  const auto columns = static_cast<float>(width);
  if (norm.kind == NormKind::layer) mean = sum_of_cluster(x.x + x.y + (x.z + x.w), cluster, of_warps[0]) / columns;
  if (norm.kind != NormKind::none) {
    const float4 away = {x.x - mean, x.y - mean, x.z - mean, x.w - mean};
    const float own = away.x * away.x + away.y * away.y + (away.z * away.z + away.w * away.w);
    const float squares = sum_of_cluster(exists ? own : 0.0f, cluster, of_warps[1]);
    float scale = 1.0f / sqrtf(squares / columns + norm.epsilon);
    if (!isfinite(squares)) {
      scale = __int_as_float(0x7fc00000);
      const bool tells = column == 0 && norm.first_bad != nullptr;
      if (tells && norm.first_bad[row] < 0) norm.first_bad[row] = norm.layer;
    }
    x = {away.x * scale * weight.x + norm_bias.x, away.y * scale * weight.y + norm_bias.y,
         away.z * scale * weight.z + norm_bias.z, away.w * scale * weight.w + norm_bias.w};
  }
  if (exists) RegisterImage{.numbers = op.image, .rows = op.image_rows}.put_four(row, column, x);
}

}  // namespace

// As many thread blocks a row as a cluster may have, of whole warps.
void make_row_image(const LaunchContext& context, const RowImageOp& op) {
  const int threads = (op.rows.width + kOwnColumns - 1) / kOwnColumns;
  const int block = std::max(128, (threads + 32 * kMaxCluster - 1) / (32 * kMaxCluster) * 32);
  const int cluster = (threads + block - 1) / block;
  launch_clusters("row image", context, cluster, row_image_kernel,
                  dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(op.rows.count)),
                  dim3(static_cast<unsigned>(block)), 0, op);
}

}  // namespace quarrel::cuda

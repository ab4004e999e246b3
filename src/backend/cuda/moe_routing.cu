#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/moe_choice.cuh"
#include "backend/cuda/moe_routing.h"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kRouteWarps = 4;
constexpr int kRouterThreads = 256;
constexpr int kHeldValues = kMaxRouterWidth / kRouterThreads;  // of a thread
constexpr int kGroupThreads = 256;
constexpr int kCombineThreads = 256;

__global__ void __launch_bounds__(kRouteWarps * 32) route_rows_kernel(const __grid_constant__ RouteRowsOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x * kRouteWarps + threadIdx.x / 32;
  if (row >= op.logits.count) return;
  const int lane = threadIdx.x % 32;
  Chosen chosen;
  if (op.sequences[row] >= 0) {
    chosen = choose_experts<true>(op, SelectionBiases<kUsualShare>(op, lane), row, lane);
  }
  if (lane >= op.used) return;
  const std::size_t pair = static_cast<std::size_t>(row) * op.used + lane;
  op.chosen[pair] = chosen.expert;
  op.weights[pair] = chosen.weight;
  if (op.counts != nullptr && chosen.expert >= 0) atomicAdd(op.counts + chosen.expert, 1ull);
}

__device__ float number(const __half* place) { return __half2float(*place); }
__device__ float number(const float* place) { return *place; }

// Sums over the block, the same in every thread.
template <int kCount>
__device__ void sum_over_block(float (&values)[kCount], float (&parts)[kCount][kRouterThreads / 32]) {
#pragma unroll
  for (float& value : values) value = over_warp(value, [](float a, float b) { return a + b; });
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) parts[i][threadIdx.x / 32] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = 0.0f;
    for (int warp = 0; warp < kRouterThreads / 32; ++warp) values[i] += parts[i][warp];
  }
}

// A thread's values of a row, or its weights: every kRouterThreads-th. All of them are asked for at once.
struct HeldRow {
  float v[kHeldValues];

  template <typename Load>
  __device__ HeldRow(int width, const Load& load) {
#pragma unroll
    for (int k = 0; k < kHeldValues; ++k) {
      const int i = k * kRouterThreads + static_cast<int>(threadIdx.x);
      v[k] = i < width ? load(i) : 0.0f;
    }
  }
};

// A block has one expert and one row. The norm's scale is common to all values, so that it and the dot product are
// found by one sum over the block.
template <typename T>
__global__ void __launch_bounds__(kRouterThreads) router_logits_kernel(const __grid_constant__ RouterLogitsOp op) {
  __shared__ float parts[3][kRouterThreads / 32];
  __shared__ float mean_parts[1][kRouterThreads / 32];
  const int row = blockIdx.y;
  const int expert = blockIdx.x;
  const int width = op.in.width;
  const T* router = static_cast<const T*>(op.router.data) + static_cast<std::size_t>(expert) * width;
  // What has been there all along is asked for before the kernel waits.
  const HeldRow weights(
      width, [&](int i) { return number(router + i) * (op.norm.weight == nullptr ? 1.0f : op.norm.weight[i]); });
  float sums[3] = {};  // of products, of squares, of what the norm's bias adds
  if (op.norm.bias != nullptr) {
    for (int i = threadIdx.x; i < width; i += kRouterThreads)
      sums[2] = fmaf(number(router + i), op.norm.bias[i], sums[2]);
  }
  const float router_bias = op.router_bias == nullptr ? 0.0f : op.router_bias[expert];
  wait_for_previous_kernel();
  allow_next_kernel();
  const float* in = op.in.data + static_cast<std::size_t>(row) * op.in.stride;
  HeldRow values(width, [&](int i) { return in[i]; });
  if (op.norm.kind == NormKind::layer) {
    float mean[1] = {};
#pragma unroll
    for (const float value : values.v) mean[0] += value;
    sum_over_block(mean, mean_parts);
#pragma unroll
    for (int k = 0; k < kHeldValues; ++k) {
      if (k * kRouterThreads + static_cast<int>(threadIdx.x) < width)
        values.v[k] -= mean[0] / static_cast<float>(width);
    }
  }
#pragma unroll
  for (int k = 0; k < kHeldValues; ++k) {
    sums[0] = fmaf(weights.v[k], values.v[k], sums[0]);
    sums[1] = fmaf(values.v[k], values.v[k], sums[1]);
  }
  sum_over_block(sums, parts);
  if (threadIdx.x != 0) return;
  float scale = 1.0f;
  if (op.norm.kind != NormKind::none) {
    const bool finite = isfinite(sums[1]);
    scale = finite ? 1.0f / sqrtf(sums[1] / static_cast<float>(width) + op.norm.epsilon) : __int_as_float(0x7fc00000);
    if (!finite && expert == 0 && op.norm.first_bad != nullptr && op.norm.first_bad[row] < 0) {
      op.norm.first_bad[row] = op.norm.layer;
    }
  }
  op.out.data[static_cast<std::size_t>(row) * op.out.stride + expert] = fmaf(scale, sums[0], sums[2]) + router_bias;
}

// One thread block an expert: all pairs are looked through, in order.
__global__ void __launch_bounds__(kGroupThreads) group_pairs_kernel(const __grid_constant__ GroupPairsOp op) {
  __shared__ int found[kGroupThreads / 32];
  __shared__ int before;
  wait_for_previous_kernel();
  allow_next_kernel();
  const int expert = blockIdx.x;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int lower = 0;
  for (int pair = threadIdx.x; pair < op.pairs; pair += kGroupThreads) {
    const int other = op.chosen[pair];
    lower += other >= 0 && other < expert ? 1 : 0;
    if (expert == 0 && other < 0) op.places[pair] = -1;
  }
  if (threadIdx.x == 0) before = 0;
  __syncthreads();
  lower = __reduce_add_sync(~0u, lower);
  if (lane == 0) atomicAdd(&before, lower);
  __syncthreads();
  int place = before;
  if (threadIdx.x == 0) op.starts[expert] = place;
  for (int first = 0; first < op.pairs; first += kGroupThreads) {
    const int pair = first + static_cast<int>(threadIdx.x);
    const bool own = pair < op.pairs && op.chosen[pair] == expert;
    const unsigned lanes = __ballot_sync(~0u, own);
    if (lane == 0) found[warp] = __popc(lanes);
    __syncthreads();
    int ahead = place;
    int all = 0;
    for (int w = 0; w < kGroupThreads / 32; ++w) {
      if (w < warp) ahead += found[w];
      all += found[w];
    }
    ahead += __popc(lanes & ((1u << lane) - 1));
    if (own) {
      op.order[ahead] = pair;
      op.places[pair] = ahead;
    }
    place += all;
    __syncthreads();
  }
  if (expert + 1 == op.experts && threadIdx.x == 0) op.starts[op.experts] = place;
}

__global__ void __launch_bounds__(kCombineThreads) combine_experts_kernel(const __grid_constant__ CombineExpertsOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int i = blockIdx.x * kCombineThreads + threadIdx.x;
  if (i >= op.out.width) return;
  const std::size_t row = blockIdx.y;
  float sum = 0.0f;
  for (int slot = 0; slot < op.used; ++slot) {
    const std::size_t pair = row * op.used + slot;
    if (op.chosen[pair] < 0) continue;
    const std::size_t place = op.places == nullptr ? pair : static_cast<std::size_t>(op.places[pair]);
    sum = fmaf(op.weights[pair], op.values[place * op.stride + i], sum);
  }
  if (op.shared != nullptr) sum += op.shared[row * op.shared_stride + i];
  float& out = op.out.data[row * op.out.stride + i];
  out = op.is_added ? out + op.scale * sum : sum;
}

}  // namespace

void check_limits(const RouteRowsOp& op) {
  if (op.logits.width > kMaxExperts || op.used > kMaxExpertsUsed) {
    fail_launch("router", "there are more than 1024 experts, or a row goes to more than 32");
  }
}

void route_rows(const LaunchContext& context, const RouteRowsOp& op) {
  check_limits(op);
  const dim3 grid(static_cast<unsigned>((op.logits.count + kRouteWarps - 1) / kRouteWarps));
  launch("router", context, route_rows_kernel, grid, dim3(kRouteWarps * 32), 0, op);
}

void router_logits(const LaunchContext& context, const RouterLogitsOp& op) {
  if (op.in.width > kMaxRouterWidth) fail_launch("router", "rows of more than 8192 values");
  const dim3 grid(static_cast<unsigned>(op.out.width), static_cast<unsigned>(op.in.count));
  const auto kernel = op.router.is_f16 ? router_logits_kernel<__half> : router_logits_kernel<float>;
  launch("router", context, kernel, grid, dim3(kRouterThreads), 0, op);
}

void group_pairs(const LaunchContext& context, const GroupPairsOp& op) {
  launch("groups of experts", context, group_pairs_kernel, dim3(static_cast<unsigned>(op.experts)), dim3(kGroupThreads),
         0, op);
}

void combine_experts(const LaunchContext& context, const CombineExpertsOp& op) {
  const dim3 grid(static_cast<unsigned>((op.out.width + kCombineThreads - 1) / kCombineThreads),
                  static_cast<unsigned>(op.out.count));
  launch("sum of experts", context, combine_experts_kernel, grid, dim3(kCombineThreads), 0, op);
}

}  // namespace quarrel::cuda

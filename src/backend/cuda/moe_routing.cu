#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/moe_routing.h"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kRouteWarps = 4;
constexpr int kMaxShare = kMaxExperts / 32;  // experts of a lane: lane, lane + 32 …
constexpr int kFusedThreads = 256;
constexpr int kHeldValues = kMaxFusedWidth / kFusedThreads;  // of a thread
constexpr int kGroupThreads = 256;
constexpr int kCombineThreads = 256;

template <typename Combine>
__device__ float over_warp(float value, const Combine& combine) {
  for (int mask = 16; mask > 0; mask >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, mask));
  return value;
}

// The best of the warp's candidates: the largest preference, ties to the lower expert.
__device__ int best_expert(float preference, int expert) {
  for (int mask = 16; mask > 0; mask >>= 1) {
    const float other = __shfl_xor_sync(~0u, preference, mask);
    const int other_expert = __shfl_xor_sync(~0u, expert, mask);
    const bool better =
        other_expert >= 0 && (expert < 0 || other > preference || (other == preference && other_expert < expert));
    preference = better ? other : preference;
    expert = better ? other_expert : expert;
  }
  return expert;
}

// A row's logits and what they say, by one warp: a lane has experts lane, lane + 32 …
template <int kShare>
struct Choice {
  float logits[kShare];
  float scores[kShare];
  std::uint32_t there = 0;  // experts that exist and were not chosen yet

  __device__ Choice(const RouteRowsOp& op, const float* row, int lane) {
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      const bool exists = k * 32 + lane < op.logits.width;
      logits[k] = exists ? row[k * 32 + lane] : -INFINITY;
      there |= exists ? 1u << k : 0u;
    }
    if (op.gating == Gating::sigmoid) {
#pragma unroll
      for (int k = 0; k < kShare; ++k) scores[k] = 1.0f / (1.0f + expf(-logits[k]));
      return;
    }
    float best = -INFINITY;
#pragma unroll
    for (int k = 0; k < kShare; ++k) best = fmaxf(best, logits[k]);
    best = over_warp(best, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      scores[k] = (there >> k & 1u) != 0 ? expf(logits[k] - best) : 0.0f;
      sum += scores[k];
    }
    sum = over_warp(sum, [](float a, float b) { return a + b; });
#pragma unroll
    for (float& score : scores) score /= sum;
  }
  // The best that is left, which then is not; its score is the same in all lanes.
  __device__ int next(const RouteRowsOp& op, int lane, float& score) {
    float most = 0.0f;
    int expert = -1;
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      if ((there >> k & 1u) == 0) continue;
      // Logits still differ where scores have run into 0 or 1. A NaN has no place in an order.
      float preference = op.selection_bias == nullptr ? logits[k] : scores[k] + op.selection_bias[k * 32 + lane];
      if (isnan(preference)) preference = -INFINITY;
      if (expert < 0 || preference > most) {
        most = preference;
        expert = k * 32 + lane;
      }
    }
    expert = best_expert(most, expert);
    float own = 0.0f;
#pragma unroll
    for (int k = 0; k < kShare; ++k) own = expert / 32 == k ? scores[k] : own;
    score = __shfl_sync(~0u, own, expert % 32);
    if (expert % 32 == lane) there &= ~(1u << (expert / 32));
    return expert;
  }
};

// What a row goes to, by one warp; lane i has the i-th choice.
template <int kShare>
__device__ void choose_experts(const RouteRowsOp& op, int row, int lane) {
  int chosen = -1;
  float weight = 0.0f;
  if (op.sequences[row] >= 0) {
    Choice<kShare> choice(op, op.logits.data + static_cast<std::size_t>(row) * op.logits.stride, lane);
    float sum = 0.0f;
    for (int i = 0; i < op.used; ++i) {
      float score = 0.0f;
      const int expert = choice.next(op, lane, score);
      sum += score;
      if (lane == i) {
        chosen = expert;
        weight = score;
      }
    }
    weight *= (op.normalise && sum != 0.0f ? 1.0f / sum : 1.0f) * op.weight_scale;
  }
  if (lane >= op.used) return;
  const std::size_t pair = static_cast<std::size_t>(row) * op.used + lane;
  op.chosen[pair] = chosen;
  op.weights[pair] = weight;
  if (op.counts != nullptr && chosen >= 0) atomicAdd(op.counts + chosen, 1ull);
}

__device__ void choose_experts(const RouteRowsOp& op, int row, int lane) {
  if (op.logits.width <= 128) return choose_experts<4>(op, row, lane);
  choose_experts<kMaxShare>(op, row, lane);
}

__global__ void __launch_bounds__(kRouteWarps * 32) route_rows_kernel(const __grid_constant__ RouteRowsOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x * kRouteWarps + threadIdx.x / 32;
  if (row < op.logits.count) choose_experts(op, row, threadIdx.x % 32);
}

__device__ float number(const __half* place) { return __half2float(*place); }
__device__ float number(const float* place) { return *place; }

// The sum over the block, the same in every thread.
__device__ float sum_of_block(float value, float* parts) {
  value = over_warp(value, [](float a, float b) { return a + b; });
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.0f;
  for (int warp = 0; warp < kFusedThreads / 32; ++warp) total += parts[warp];
  return total;
}

// A thread's values of a row, or its weights: every kFusedThreads-th. All of them are asked for at once.
struct HeldRow {
  float v[kHeldValues];

  template <typename Load>
  __device__ HeldRow(int width, const Load& load) {
#pragma unroll
    for (int k = 0; k < kHeldValues; ++k) {
      const int i = k * kFusedThreads + static_cast<int>(threadIdx.x);
      v[k] = i < width ? load(i) : 0.0f;
    }
  }
};

// Norms a row in place, whose values behind its width are zero; false if its sum of squares is not finite.
__device__ bool norm_held(const DeviceNorm& norm, int width, HeldRow& row, float* parts) {
  if (norm.kind == NormKind::none) return true;
  const auto count = static_cast<float>(width);
  float mean = 0.0f;
  if (norm.kind == NormKind::layer) {
    float sum = 0.0f;
#pragma unroll
    for (const float value : row.v) sum += value;
    mean = sum_of_block(sum, parts) / count;
  }
  float squares = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeldValues; ++k) {
    if (k * kFusedThreads + static_cast<int>(threadIdx.x) < width) row.v[k] -= mean;
    squares = fmaf(row.v[k], row.v[k], squares);
  }
  squares = sum_of_block(squares, parts);
  const bool finite = isfinite(squares);
  const float scale = finite ? 1.0f / sqrtf(squares / count + norm.epsilon) : __int_as_float(0x7fc00000);
#pragma unroll
  for (float& value : row.v) value *= scale;
  return finite;
}

// A block has one expert and one row; the last block of a row to come chooses.
template <typename T>
__global__ void __launch_bounds__(kFusedThreads) route_fused_kernel(const __grid_constant__ RouteFusedOp op) {
  __shared__ float parts[kFusedThreads / 32];
  __shared__ bool is_last;
  const int row = blockIdx.y;
  const int expert = blockIdx.x;
  const int width = op.in.width;
  const T* router = static_cast<const T*>(op.router.data) + static_cast<std::size_t>(expert) * width;
  // What has been there all along is asked for before the kernel waits.
  const HeldRow weights(
      width, [&](int i) { return number(router + i) * (op.norm.weight == nullptr ? 1.0f : op.norm.weight[i]); });
  wait_for_previous_kernel();
  allow_next_kernel();
  const float* in = op.in.data + static_cast<std::size_t>(row) * op.in.stride;
  HeldRow values(width, [&](int i) { return in[i]; });
  const bool finite = norm_held(op.norm, width, values, parts);
  if (!finite && expert == 0 && threadIdx.x == 0 && op.norm.first_bad != nullptr && op.norm.first_bad[row] < 0) {
    op.norm.first_bad[row] = op.norm.layer;
  }
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < kHeldValues; ++k) sum = fmaf(weights.v[k], values.v[k], sum);
  if (op.norm.bias != nullptr) {
    for (int i = threadIdx.x; i < width; i += kFusedThreads) sum = fmaf(number(router + i), op.norm.bias[i], sum);
  }
  sum = sum_of_block(sum, parts);
  if (threadIdx.x == 0) {
    if (op.router_bias != nullptr) sum += op.router_bias[expert];
    op.route.logits.data[static_cast<std::size_t>(row) * op.route.logits.stride + expert] = sum;
    __threadfence();
    is_last = atomicAdd(op.arrivals + row, 1) + 1 == static_cast<int>(gridDim.x);
    if (is_last) op.arrivals[row] = 0;
  }
  __syncthreads();
  if (!is_last || threadIdx.x >= 32) return;
  __threadfence();
  choose_experts(op.route, row, threadIdx.x);
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

void check_limits(const RouteRowsOp& op) {
  if (op.logits.width > kMaxExperts || op.used > kMaxExpertsUsed) {
    fail_launch("router", "there are more than 1024 experts, or a row goes to more than 32");
  }
}

}  // namespace

void route_rows(const LaunchContext& context, const RouteRowsOp& op) {
  check_limits(op);
  const dim3 grid(static_cast<unsigned>((op.logits.count + kRouteWarps - 1) / kRouteWarps));
  launch("router", context, route_rows_kernel, grid, dim3(kRouteWarps * 32), 0, op);
}

void route_fused(const LaunchContext& context, const RouteFusedOp& op) {
  check_limits(op.route);
  if (op.in.width > kMaxFusedWidth) fail_launch("router", "rows of more than 8192 values");
  const dim3 grid(static_cast<unsigned>(op.route.logits.width), static_cast<unsigned>(op.in.count));
  const auto kernel = op.router.is_f16 ? route_fused_kernel<__half> : route_fused_kernel<float>;
  launch("router", context, kernel, grid, dim3(kFusedThreads), 0, op);
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

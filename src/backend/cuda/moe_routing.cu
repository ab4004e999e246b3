#include <cuda_fp16.h>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/moe_routing.h"
#include "backend/cuda/primitives.cuh"

namespace quarrel::cuda {
namespace {

constexpr int kRouteWarps = 4;
constexpr int kMaxShare = kMaxExperts / 32;  // experts of a lane: lane, lane + 32 …
constexpr int kFusedThreads = 128;
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
    const bool better = other_expert >= 0 && (expert < 0 || other > preference ||
                                              (other == preference && other_expert < expert));
    preference = better ? other : preference;
    expert = better ? other_expert : expert;
  }
  return expert;
}

// Scores from logits: a softmax over all experts, or each for itself.
struct Scores {
  Gating gating;
  float best;
  float total;

  __device__ Scores(const RouteRowsOp& op, const float* logits, int lane) : gating(op.gating), best(0.0f), total(1.0f) {
    if (gating != Gating::softmax) return;
    best = -INFINITY;
    for (int e = lane; e < op.logits.width; e += 32) best = fmaxf(best, logits[e]);
    best = over_warp(best, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int e = lane; e < op.logits.width; e += 32) sum += expf(logits[e] - best);
    total = over_warp(sum, [](float a, float b) { return a + b; });
  }
  __device__ float of(float logit) const {
    return gating == Gating::softmax ? expf(logit - best) / total : 1.0f / (1.0f + expf(-logit));
  }
};

// What a row goes to, by one warp.
__device__ void choose_experts(const RouteRowsOp& op, int row, int lane) {
  const float* logits = op.logits.data + static_cast<std::size_t>(row) * op.logits.stride;
  std::int32_t* chosen = op.chosen + static_cast<std::size_t>(row) * op.used;
  float* weights = op.weights + static_cast<std::size_t>(row) * op.used;
  if (op.sequences[row] < 0) {
    for (int i = lane; i < op.used; i += 32) {
      chosen[i] = -1;
      weights[i] = 0.0f;
    }
    return;
  }
  const Scores scores(op, logits, lane);
  std::uint32_t taken = 0;  // of the lane's own experts
  float sum = 0.0f;
  for (int i = 0; i < op.used; ++i) {
    float most = 0.0f;
    int expert = -1;
    for (int share = 0; share < kMaxShare; ++share) {
      const int e = share * 32 + lane;
      if (e >= op.logits.width) break;
      if ((taken >> share & 1u) != 0) continue;
      // Logits still differ where scores have run into 0 or 1. A NaN has no place in an order.
      float preference = op.selection_bias == nullptr ? logits[e] : scores.of(logits[e]) + op.selection_bias[e];
      if (isnan(preference)) preference = -INFINITY;
      if (expert < 0 || preference > most) {
        most = preference;
        expert = e;
      }
    }
    expert = best_expert(most, expert);
    if (expert % 32 == lane) taken |= 1u << (expert / 32);
    const float score = scores.of(logits[expert]);
    sum += score;
    if (lane == 0) {
      chosen[i] = expert;
      weights[i] = score;
      if (op.counts != nullptr) atomicAdd(op.counts + expert, 1ull);
    }
  }
  __syncwarp();
  const float share = op.normalise && sum != 0.0f ? 1.0f / sum : 1.0f;
  for (int i = lane; i < op.used; i += 32) weights[i] *= share * op.weight_scale;
}

__global__ void __launch_bounds__(kRouteWarps * 32) route_rows_kernel(const __grid_constant__ RouteRowsOp op) {
  wait_for_previous_kernel();
  allow_next_kernel();
  const int row = blockIdx.x * kRouteWarps + threadIdx.x / 32;
  if (row < op.logits.count) choose_experts(op, row, threadIdx.x % 32);
}

__device__ float number(const __half* place) { return __half2float(*place); }
__device__ float number(const float* place) { return *place; }

// The norm of a row, by the whole block: what its values are multiplied with after the mean is taken away.
struct RouterNorm {
  float mean = 0.0f;
  float scale = 1.0f;

  __device__ RouterNorm(const RouteFusedOp& op, const float* row, int number, float* parts) {
    const DeviceNorm& norm = op.norm;
    if (norm.kind == NormKind::none) return;
    const auto over_block = [&](const auto& term) {
      float sum = 0.0f;
      for (int i = threadIdx.x; i < op.in.width; i += kFusedThreads) sum += term(row[i]);
      sum = over_warp(sum, [](float a, float b) { return a + b; });
      __syncthreads();
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
      __syncthreads();
      float total = 0.0f;
      for (int warp = 0; warp < kFusedThreads / 32; ++warp) total += parts[warp];
      return total;
    };
    const auto width = static_cast<float>(op.in.width);
    if (norm.kind == NormKind::layer) mean = over_block([](float value) { return value; }) / width;
    const float squares = over_block([&](float value) { return (value - mean) * (value - mean); });
    scale = 1.0f / sqrtf(squares / width + norm.epsilon);
    if (isfinite(squares)) return;
    scale = __int_as_float(0x7fc00000);
    const bool reports = blockIdx.x == 0 && threadIdx.x == 0 && norm.first_bad != nullptr;
    if (reports && norm.first_bad[number] < 0) norm.first_bad[number] = norm.layer;
  }
};

// A block has one expert and one row; the last block of a row to come chooses.
template <typename T>
__global__ void __launch_bounds__(kFusedThreads) route_fused_kernel(const __grid_constant__ RouteFusedOp op) {
  __shared__ float parts[kFusedThreads / 32];
  __shared__ bool is_last;
  const int row = blockIdx.y;
  const int expert = blockIdx.x;
  wait_for_previous_kernel();
  allow_next_kernel();
  const float* values = op.in.data + static_cast<std::size_t>(row) * op.in.stride;
  const T* weights = static_cast<const T*>(op.router.data) + static_cast<std::size_t>(expert) * op.in.width;
  const RouterNorm norm(op, values, row, parts);
  float sum = 0.0f;
#pragma unroll 4
  for (int i = threadIdx.x; i < op.in.width; i += kFusedThreads) {
    float value = values[i];
    if (op.norm.kind != NormKind::none) value = (value - norm.mean) * norm.scale;
    if (op.norm.weight != nullptr) value *= op.norm.weight[i];
    if (op.norm.bias != nullptr) value += op.norm.bias[i];
    sum = fmaf(number(weights + i), value, sum);
  }
  sum = over_warp(sum, [](float a, float b) { return a + b; });
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float logit = op.router_bias == nullptr ? 0.0f : op.router_bias[expert];
    for (const float part : parts) logit += part;
    op.route.logits.data[static_cast<std::size_t>(row) * op.route.logits.stride + expert] = logit;
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

}  // namespace

void route_rows(const LaunchContext& context, const RouteRowsOp& op) {
  if (op.logits.width > kMaxExperts) fail_launch("router", "there are more than 1024 experts");
  const dim3 grid(static_cast<unsigned>((op.logits.count + kRouteWarps - 1) / kRouteWarps));
  launch("router", context, route_rows_kernel, grid, dim3(kRouteWarps * 32), 0, op);
}

void route_fused(const LaunchContext& context, const RouteFusedOp& op) {
  if (op.route.logits.width > kMaxExperts) fail_launch("router", "there are more than 1024 experts");
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

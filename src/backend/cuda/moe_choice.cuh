// Which experts a row goes to, by one warp: in a kernel of its own, or at the beginning of each block that needs to
// know. The same operations in the same order everywhere, so that all who ask get the same answer.
#pragma once

#include <cstdint>

#include "backend/cuda/moe_routing.h"

namespace quarrel::cuda {

inline constexpr int kMaxExpertShare = kMaxExperts / 32;  // experts of a lane: lane, lane + 32 …

template <typename Combine>
__device__ inline float over_warp(float value, const Combine& combine) {
  for (int mask = 16; mask > 0; mask >>= 1) value = combine(value, __shfl_xor_sync(~0u, value, mask));
  return value;
}

// Numbers in the order of floats, all of them above zero. A NaN has no place in an order: it is the smallest.
__device__ inline std::uint32_t ordered_bits(float value) {
  if (isnan(value)) value = -INFINITY;
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // one zero for both
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// A row's scores and what is left to choose from: a lane has experts lane, lane + 32 …
template <int kShare>
struct Choice {
  float scores[kShare];
  std::uint32_t preferences[kShare];  // 0: there is no such expert, or it was chosen

  __device__ Choice(const RouteRowsOp& op, const float* row, int lane) {
    float logits[kShare];
#pragma unroll
    for (int k = 0; k < kShare; ++k) logits[k] = k * 32 + lane < op.logits.width ? row[k * 32 + lane] : -INFINITY;
    score(op, logits, lane);
    // Logits still differ where scores have run into 0 or 1.
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      const int expert = k * 32 + lane;
      preferences[k] = 0;
      if (expert >= op.logits.width) continue;
      preferences[k] = ordered_bits(op.selection_bias == nullptr ? logits[k] : scores[k] + op.selection_bias[expert]);
    }
  }

  __device__ void score(const RouteRowsOp& op, const float (&logits)[kShare], int lane) {
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
      scores[k] = k * 32 + lane < op.logits.width ? expf(logits[k] - best) : 0.0f;
      sum += scores[k];
    }
    sum = over_warp(sum, [](float a, float b) { return a + b; });
#pragma unroll
    for (float& score : scores) score /= sum;
  }

  // The best that is left, which then is not, ties to the lower expert; its score is the same in all lanes.
  __device__ int next(int lane, float& score) {
    std::uint32_t most = 0;
    int own = 0;
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      if (preferences[k] <= most) continue;
      most = preferences[k];
      own = k * 32 + lane;
    }
    const std::uint32_t best = __reduce_max_sync(~0u, most);
    const int expert = __reduce_min_sync(~0u, most == best ? own : kMaxExperts);
    float value = 0.0f;
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      value = expert / 32 == k ? scores[k] : value;
      if (k * 32 + lane == expert) preferences[k] = 0;
    }
    score = __shfl_sync(~0u, value, expert % 32);
    return expert;
  }
};

// The lane's choice: that of lane i is the i-th best.
struct Chosen {
  int expert = -1;  // -1: none
  float weight = 0.0f;
};

template <int kShare>
__device__ Chosen choose_experts(const RouteRowsOp& op, int row, int lane) {
  Chosen chosen;
  if (op.sequences[row] < 0) return chosen;
  Choice<kShare> choice(op, op.logits.data + static_cast<std::size_t>(row) * op.logits.stride, lane);
  float sum = 0.0f;
  for (int i = 0; i < op.used; ++i) {
    float score = 0.0f;
    const int expert = choice.next(lane, score);
    sum += score;
    if (lane == i) chosen = {.expert = expert, .weight = score};
  }
  chosen.weight *= (op.normalise && sum != 0.0f ? 1.0f / sum : 1.0f) * op.weight_scale;
  return chosen;
}

// Apart, so that its many registers are nobody else's.
static __device__ __noinline__ Chosen choose_of_many(const RouteRowsOp& op, int row, int lane) {
  return choose_experts<kMaxExpertShare>(op, row, lane);
}

__device__ inline Chosen choose_experts(const RouteRowsOp& op, int row, int lane) {
  return op.logits.width <= 128 ? choose_experts<4>(op, row, lane) : choose_of_many(op, row, lane);
}

}  // namespace quarrel::cuda

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

// What is added to scores before they are compared: known before the router's logits are. A lane has those of experts
// lane, lane + 32 …
template <int kShare>
struct SelectionBiases {
  float v[kShare];

  __device__ SelectionBiases(const RouteRowsOp& op, int lane) {
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      const int expert = k * 32 + lane;
      v[k] = op.selection_bias != nullptr && expert < op.logits.width ? op.selection_bias[expert] : 0.0f;
    }
  }
};

// A row's logits, and what is left to choose from.
template <int kShare>
struct Choice {
  float logits[kShare];
  std::uint32_t preferences[kShare];  // 0: there is no such expert, or it was chosen

  __device__ Choice(const RouteRowsOp& op, const SelectionBiases<kShare>& biases, const float* row, int lane) {
#pragma unroll
    for (int k = 0; k < kShare; ++k) logits[k] = k * 32 + lane < op.logits.width ? row[k * 32 + lane] : -INFINITY;
    float scores[kShare];
    // Logits still differ where scores have run into 0 or 1.
    if (op.selection_bias != nullptr) score(op, lane, scores);
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      const float preference = op.selection_bias == nullptr ? logits[k] : scores[k] + biases.v[k];
      preferences[k] = k * 32 + lane < op.logits.width ? ordered_bits(preference) : 0;
    }
  }

  __device__ void score(const RouteRowsOp& op, int lane, float (&scores)[kShare]) const {
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

  // The best that is left, which then is not, ties to the lower expert.
  __device__ int next(int lane) {
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
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      if (k * 32 + lane == expert) preferences[k] = 0;
    }
    return expert;
  }

  // What the lane's expert counts for, lane i having the i-th choice.
  __device__ float weight(const RouteRowsOp& op, int expert, int lane) const {
    float scores[kShare];
    score(op, lane, scores);
    float own = 0.0f;
#pragma unroll
    for (int k = 0; k < kShare; ++k) {
      const float value = __shfl_sync(~0u, scores[k], expert % 32);
      own = expert / 32 == k ? value : own;
    }
    float sum = 0.0f;
    for (int i = 0; i < op.used; ++i) sum += __shfl_sync(~0u, own, i);
    return own * (op.normalise && sum != 0.0f ? 1.0f / sum : 1.0f) * op.weight_scale;
  }
};

// The lane's choice: that of lane i is the i-th best.
struct Chosen {
  int expert = -1;  // -1: none
  float weight = 0.0f;
};

// For rows that are no padding. Without kWeights the weight stays 0: it takes as long as the choice.
template <int kShare, bool kWeights>
__device__ Chosen choose_experts(const RouteRowsOp& op, const SelectionBiases<kShare>& biases, int row, int lane) {
  Choice<kShare> choice(op, biases, op.logits.data + static_cast<std::size_t>(row) * op.logits.stride, lane);
  Chosen chosen;
  for (int i = 0; i < op.used; ++i) {
    const int expert = choice.next(lane);
    if (lane == i) chosen.expert = expert;
  }
  if constexpr (kWeights) chosen.weight = choice.weight(op, max(chosen.expert, 0), lane);
  return chosen;
}

inline constexpr int kUsualShare = 4;  // of a lane, where there are at most 128 experts

// Apart, so that its many registers are nobody else's.
static __device__ __noinline__ Chosen choose_of_many(const RouteRowsOp& op, int row, int lane) {
  const SelectionBiases<kMaxExpertShare> biases(op, lane);
  return choose_experts<kMaxExpertShare, true>(op, biases, row, lane);
}

template <bool kWeights>
__device__ inline Chosen choose_experts(const RouteRowsOp& op, const SelectionBiases<kUsualShare>& biases, int row,
                                        int lane) {
  return op.logits.width <= 32 * kUsualShare ? choose_experts<kUsualShare, kWeights>(op, biases, row, lane)
                                             : choose_of_many(op, row, lane);
}

}  // namespace quarrel::cuda

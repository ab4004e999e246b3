// Which experts the rows of a step go to, and in which order a grouped GEMM finds them: all on the device, so that a
// step never waits for the host. All launches; one warp a row, so a row's choice does not depend on its neighbours.
#pragma once

#include <cstdint>

#include "backend/cuda/dense_gemv.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/row_ops.h"
#include "backend/ops.h"

namespace quarrel::cuda {

inline constexpr int kMaxExperts = 1024;
inline constexpr int kMaxExpertsUsed = 32;
inline constexpr int kMaxRouterWidth = 8192;  // of router_logits

// A pair is a row and one of its experts: pair r * used + i is the i-th best choice of row r.
struct RouteRowsOp {
  RowSpan logits = {};  // of the router, [rows][experts]
  const float* selection_bias = nullptr;
  int used = 0;
  Gating gating = Gating::softmax;
  bool normalise = true;
  float weight_scale = 1.0f;
  const std::int32_t* sequences = nullptr;  // [rows]; -1: padding, which goes to no expert
  std::int32_t* chosen = nullptr;           // [pairs]; -1: none
  float* weights = nullptr;                 // [pairs]
  unsigned long long* counts = nullptr;     // [experts]: how often each was chosen so far
};
void route_rows(const LaunchContext& context, const RouteRowsOp& op);

// Throws where there are more experts, or more of a row, than the kernels can tell apart.
void check_limits(const RouteRowsOp& op);

// The norm before and the router, a matrix of F16 or F32 numbers, in one kernel: the logits of few rows.
struct RouterLogitsOp {
  RowSpan in = {};
  DeviceNorm norm = {};
  DenseMatrix router = {};
  const float* router_bias = nullptr;
  RowSpan out = {};  // its width is the number of experts
};
void router_logits(const LaunchContext& context, const RouterLogitsOp& op);

// Sorts pairs by expert, those of one expert in their own order.
struct GroupPairsOp {
  const std::int32_t* chosen = nullptr;  // [pairs]
  int pairs = 0;
  int experts = 0;
  std::int32_t* starts = nullptr;  // [experts + 1]: where an expert's pairs begin in `order`
  std::int32_t* order = nullptr;   // [pairs]: a pair for each place
  std::int32_t* places = nullptr;  // [pairs]: the place of a pair; -1: it has none
};
void group_pairs(const LaunchContext& context, const GroupPairsOp& op);

// out[r] (+)= scale * (sum of weight * value over the row's pairs, best choice first, + shared[r])
struct CombineExpertsOp {
  const float* values = nullptr;  // [places][stride]
  int stride = 0;
  const std::int32_t* chosen = nullptr;
  const std::int32_t* places = nullptr;  // null: a pair is its own place
  const float* weights = nullptr;
  int used = 0;
  const float* shared = nullptr;  // [rows][shared_stride]; null: there is none
  int shared_stride = 0;
  RowSpan out = {};
  bool is_added = false;
  float scale = 1.0f;  // where it is added
};
void combine_experts(const LaunchContext& context, const CombineExpertsOp& op);

}  // namespace quarrel::cuda

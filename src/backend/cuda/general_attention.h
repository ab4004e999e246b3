// Attention of any shape over a paged cache: heads of any dimension up to 512, keys and values of different ones, F16
// or F32 cache, rows that see what comes after them. What the kernels for the usual shapes do not take comes here; a
// thread block a row and head, in an order of sums that depends on the row's position alone.
#pragma once

#include "backend/cuda/device_memory.h"
#include "backend/cuda/step_rows.h"

namespace quarrel::cuda {

inline constexpr int kMaxGeneralDim = 512;

struct GeneralAttentionOp {
  StepRows rows = {};
  PagedKv kv = {};
  const float* q = nullptr;  // [rows][q_stride]
  float* out = nullptr;      // [rows][out_stride]
  int q_stride = 0;
  int out_stride = 0;
  int heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;         // 0: none
  int window = 0;                // 0: none
  bool causal = true;            // false: rows see all `lengths` positions of their sequence
  const float* sinks = nullptr;  // [heads]
};

void general_attention(const LaunchContext& context, const GeneralAttentionOp& op);

}  // namespace quarrel::cuda

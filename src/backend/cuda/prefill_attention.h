// Attention of prompts and texts over a paged cache: runs of rows of one sequence, on the 16-bit tensor cores with F32
// sums. A thread block has up to 64 rows of one head and walks over the blocks of the cache that they see; a row's sums
// do not depend on which rows stand beside it.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/step_rows.h"

namespace quarrel::cuda {

inline constexpr int kPrefillTileRows = 64;

// Rows [first, first + count) of a step, all of one sequence, by ascending position.
struct PrefillTile {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

struct PrefillAttentionOp {
  StepRows rows = {};                  // of the whole step
  const PrefillTile* tiles = nullptr;  // in device memory
  int tile_count = 0;
  PagedKv kv = {};
  const float* q = nullptr;  // [rows][q_stride]
  float* out = nullptr;      // [rows][out_stride]
  int q_stride = 0;
  int out_stride = 0;
  int heads = 0;
  float scale = 1.0f;
  float soft_cap = 0.0f;         // 0: none
  int window = 0;                // 0: none
  bool causal = true;            // false: a row sees all of its sequence
  const float* sinks = nullptr;  // [heads]
};

// Heads of 32, 64 or 128 and an F16 cache.
bool can_prefill(int heads, int kv_heads, int dim);

// Once a process and device, before the first prefill_attention().
void prepare_prefill_attention();

void prefill_attention(const LaunchContext& context, const PrefillAttentionOp& op);

}  // namespace quarrel::cuda

// Attention of single rows over a paged cache: what generated rows need.
//
// The query heads that share a head of keys and values are the rows of one `mma`, in two F16 numbers each
// (value and residual), and so are the softmax's weights: 16-bit operands, nearly F32 results. A row's context is cut
// into at most kMaxAttentionSplits runs of whole blocks; where, depends on its own position alone. The thread block
// that ends last joins them in ascending order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/step_rows.h"

namespace quarrel::cuda {

inline constexpr int kMaxAttentionSplits = 32;  // a lane of a warp each

struct DecodeAttentionOp {
  StepRows rows = {};
  PagedKv kv = {};
  const float* q = nullptr;  // [rows][heads * dim]
  float* out = nullptr;      // the same shape
  int q_stride = 0;          // from a row to the next; 0: rows follow each other
  int out_stride = 0;
  std::uint16_t* image = nullptr;  // register_gemm()'s of the same, of `image_rows` rows from `image_first` on
  int image_rows = 0;
  int image_first = 0;
  int heads = 0;  // at most 16 for each head of the cache
  float scale = 1.0f;
  float soft_cap = 0.0f;         // 0: none
  int window = 0;                // 0: none
  int context = 0;               // no row sees more positions; 0: nobody knows
  const float* sinks = nullptr;  // [heads]
  std::byte* workspace = nullptr;
  int* arrivals = nullptr;  // [rows][kv heads], zero before the first call and after each
};

// Heads of 256 need more shared memory than devices with 99 KiB a block have.
bool can_attend(const LaunchContext& context, int heads, int kv_heads, int dim);
std::size_t decode_attention_workspace(int rows, int heads, int dim);

// Once a process and device, before the first decode_attention().
void prepare_decode_attention(const LaunchContext& context);

void decode_attention(const LaunchContext& context, const DecodeAttentionOp& op);

}  // namespace quarrel::cuda

// What others have published for the same work, as calls that can be captured and timed like ours: FlashInfer's
// attention and sampling, CUTLASS's GEMM on Hopper. Each is made for given data, plans what its library plans before a
// step, and keeps what it needs for as long as it is kept itself. All of it is for Hopper.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// Enqueues the work; throws Error if the library refuses.
using PeerCall = std::function<void(const LaunchContext&)>;

inline constexpr int kPeerHeadDim = 128;  // compiled for no other

// One prompt, causal, all numbers F16: queries and results [rows][heads][dim]; keys and values [rows][kv_heads][dim]
// or, for the paged kernel, pages [page][kv_heads][page_size][dim].
struct PeerPrompt {
  const std::uint16_t* q = nullptr;
  const std::uint16_t* keys = nullptr;
  const std::uint16_t* values = nullptr;
  std::uint16_t* out = nullptr;
  const std::int32_t* table = nullptr;  // the pages, in device memory
  int page_size = 0;
  int rows = 0;
  int heads = 0;
  int kv_heads = 0;
  float scale = 1.0f;
};

// FlashInfer's attention for Hopper: with a thread block for each tile of queries, and planned, where each
// multiprocessor has a list of tiles of about the same work, which is how servers call it.
PeerCall flashinfer_prompt(const PeerPrompt& prompt);
PeerCall flashinfer_planned_prompt(const PeerPrompt& prompt, const LaunchContext& context);
PeerCall flashinfer_paged_prompt(const PeerPrompt& prompt, const LaunchContext& context);

// One row for each text of a paged cache: pages of F16 [page][kv_heads][page_size][dim], queries and results
// [rows][heads][dim] in F16. Each text has `context` positions; its pages follow each other in `tables`.
struct PeerRows {
  const std::uint16_t* q = nullptr;
  const std::uint16_t* keys = nullptr;
  const std::uint16_t* values = nullptr;
  std::uint16_t* out = nullptr;
  const std::int32_t* tables = nullptr;  // [rows][pages of a text], in device memory
  int rows = 0;
  int context = 0;
  int page_size = 0;
  int heads = 0;  // four for each of kv_heads
  int kv_heads = 0;
  float scale = 1.0f;
};

// FlashInfer's paged attention of single rows, without tensor cores and with them: servers choose by heads a group.
PeerCall flashinfer_rows(const PeerRows& rows, const LaunchContext& context);
PeerCall flashinfer_rows_mma(const PeerRows& rows, const LaunchContext& context);

// out[tokens][rows] = in[tokens][columns] * weight[rows][columns]^T, all of F16, with sums in F32.
struct PeerGemm {
  const std::uint16_t* weight = nullptr;
  const std::uint16_t* in = nullptr;
  std::uint16_t* out = nullptr;
  int tokens = 0;
  int rows = 0;
  int columns = 0;
};

// CUTLASS's collectives for Hopper: tiles of 128x256 that two groups of warps compute together, tiles of 128x128 of
// which one group has each while the other one stores. Tiles are walked in strips `swizzle` wide: 1, 2, 4 or 8.
PeerCall cutlass_cooperative(const PeerGemm& gemm, int swizzle, const LaunchContext& context);
PeerCall cutlass_pingpong(const PeerGemm& gemm, int swizzle, const LaunchContext& context);

// A token of each row of logits [rows][tokens], drawn with the same bounds for all rows.
struct PeerDraw {
  const float* logits = nullptr;
  float* probabilities = nullptr;  // [rows][tokens]
  std::int32_t* chosen = nullptr;  // [rows]
  int rows = 0;
  int tokens = 0;
  int top_k = 0;
  float top_p = 1.0f;
  float temperature = 1.0f;
};

// FlashInfer's softmax and, on what it leaves, its draw without sorting: it draws again until a token is within both
// bounds. Each call takes other random numbers.
PeerCall flashinfer_softmax(const PeerDraw& draw);
PeerCall flashinfer_draw(const PeerDraw& draw);

}  // namespace quarrel::cuda

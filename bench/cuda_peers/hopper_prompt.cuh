// What FlashInfer's kernels for prompts on Hopper are given, however keys and values lie, and the plan of those that
// walk through a list.
#pragma once

#include <cuda_fp16.h>

#include <array>
#include <cstdint>
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <memory>

#include "backend/cuda/cuda_error.h"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {

using PromptHalf = cutlass::half_t;

inline PromptHalf* prompt_halves(const std::uint16_t* place) {
  return reinterpret_cast<PromptHalf*>(const_cast<std::uint16_t*>(place));
}

// With keys and values [rows][kv_heads][dim].
template <typename Params>
Params prompt_params(const PeerPrompt& prompt) {
  Params params = {};
  params.q_ptr = prompt_halves(prompt.q);
  params.k_ptr = prompt_halves(prompt.keys);
  params.v_ptr = prompt_halves(prompt.values);
  params.o_ptr = prompt_halves(prompt.out);
  params.additional_params.sm_scale = prompt.scale;
  params.q_stride_n = prompt.heads * kPeerHeadDim;
  params.k_stride_n = prompt.kv_heads * kPeerHeadDim;
  params.v_stride_n = params.k_stride_n;
  params.o_stride_n = params.q_stride_n;
  params.q_stride_h = params.k_stride_h = params.v_stride_h = params.o_stride_h = kPeerHeadDim;
  params.num_qo_heads = prompt.heads;
  params.num_kv_heads = prompt.kv_heads;
  params.group_size = prompt.heads / prompt.kv_heads;
  params.window_left = -1;
  params.causal = true;
  return params;
}

// Plans a prompt and tells `params` where the plan lies; returns the memory of the plan.
template <typename Params>
std::shared_ptr<DeviceBuffer> plan_prompt(const PeerPrompt& prompt, const LaunchContext& context, Params& params) {
  constexpr std::size_t kPlanBytes = std::size_t{8} << 20;
  auto plan = std::make_shared<DeviceBuffer>(kPlanBytes, "FlashInfer's plan");
  const PinnedBuffer staged(kPlanBytes, "FlashInfer's plan");
  std::array<std::int32_t, 2> rows{0, prompt.rows};
  std::array<std::int32_t, 2> first_key{0, prompt.rows};  // of one text it is 0, in positions and in pages
  std::int32_t length = prompt.rows;
  flashinfer::PrefillPlanSM90Info places;
  check(flashinfer::PrefillSM90Plan<std::int32_t>(nullptr, 0, plan->data(), staged.data(), kPlanBytes, places,
                                                  rows.data(), first_key.data(), &length, prompt.rows, 1, prompt.heads,
                                                  prompt.kv_heads, kPeerHeadDim, kPeerHeadDim, 1, true, false,
                                                  sizeof(PromptHalf), context.stream),
        "FlashInfer's plan of a prompt");
  check(cudaStreamSynchronize(context.stream), "FlashInfer's plan of a prompt");
  if (places.same_schedule_for_all_heads) fail_launch("FlashInfer's prompt", "planned for very many tiles");
  const auto at = [&](std::int64_t offset) { return reinterpret_cast<std::int32_t*>(plan->data() + offset); };
  params.qo_tile_indices = at(places.qo_tile_indices_offset);
  params.qo_indptr = at(places.qo_indptr_offset);
  params.kv_indptr = at(places.kv_indptr_offset);
  params.qo_lens = at(places.qo_len_offset);
  params.kv_lens = at(places.kv_len_offset);
  params.head_indices = at(places.head_indices_offset);
  params.work_indptr = at(places.work_indptr_offset);
  params.batch_indices = at(places.batch_indices_offset);
  params.nnz_qo = prompt.rows;
  return plan;
}

}  // namespace quarrel::cuda

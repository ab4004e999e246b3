// FlashInfer's attention of prompts for Hopper over a paged cache: threads bring keys and values, row by row.
#include "cuda_peers/hopper_prompt.cuh"

namespace quarrel::cuda {

PeerCall flashinfer_paged_prompt(const PeerPrompt& prompt, const LaunchContext& context) {
  auto params =
      prompt_params<flashinfer::BatchPrefillPagedParams<PromptHalf, PromptHalf, PromptHalf, std::int32_t>>(prompt);
  const auto plan = plan_prompt(prompt, context, params);
  params.k_stride_n = params.v_stride_n = kPeerHeadDim;
  params.k_stride_h = params.v_stride_h = prompt.page_size * kPeerHeadDim;
  params.k_page_stride = params.v_page_stride = prompt.kv_heads * params.k_stride_h;
  params.kv_indices = const_cast<std::int32_t*>(prompt.table);
  params.page_size = prompt.page_size;
  return [params, plan](const LaunchContext& launches) mutable {
    check(flashinfer::BatchPrefillWithPagedKVCacheDispatched<kPeerHeadDim, kPeerHeadDim, flashinfer::MaskMode::kCausal,
                                                             false, false, flashinfer::StandardAttention>(
              params, launches.dependent_launch, launches.stream),
          "FlashInfer's paged prompt");
  };
}

}  // namespace quarrel::cuda

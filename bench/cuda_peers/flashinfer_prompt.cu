// FlashInfer's attention of prompts for Hopper, on keys and values that follow each other: a TMA brings them.
#include "cuda_peers/hopper_prompt.cuh"

namespace quarrel::cuda {

PeerCall flashinfer_prompt(const PeerPrompt& prompt) {
  auto params = prompt_params<flashinfer::SinglePrefillParams<PromptHalf, PromptHalf, PromptHalf>>(prompt);
  params.qo_len = prompt.rows;
  params.kv_len = prompt.rows;
  return [params](const LaunchContext& context) mutable {
    check(flashinfer::SinglePrefillWithKVCacheDispatched<kPeerHeadDim, kPeerHeadDim, flashinfer::MaskMode::kCausal,
                                                         false, flashinfer::StandardAttention>(params, context.stream),
          "FlashInfer's prompt");
  };
}

PeerCall flashinfer_planned_prompt(const PeerPrompt& prompt, const LaunchContext& context) {
  auto params =
      prompt_params<flashinfer::BatchPrefillRaggedParams<PromptHalf, PromptHalf, PromptHalf, std::int32_t>>(prompt);
  const auto plan = plan_prompt(prompt, context, params);
  params.nnz_kv = prompt.rows;
  return [params, plan](const LaunchContext& launches) mutable {
    check(flashinfer::BatchPrefillWithRaggedKVCacheDispatched<kPeerHeadDim, kPeerHeadDim, flashinfer::MaskMode::kCausal,
                                                              false, false, flashinfer::StandardAttention>(
              params, launches.dependent_launch, launches.stream),
          "FlashInfer's planned prompt");
  };
}

}  // namespace quarrel::cuda

// FlashInfer's softmax of logits, and its draw from the likeliest tokens.
#include <flashinfer/sampling.cuh>
#include <memory>

#include "backend/cuda/cuda_error.h"
#include "cuda_peers/peers.h"

namespace quarrel::cuda {

PeerCall flashinfer_softmax(const PeerDraw& draw) {
  constexpr std::size_t kWorkspaceBytes = std::size_t{1} << 20;
  const auto workspace = std::make_shared<DeviceBuffer>(kWorkspaceBytes, "FlashInfer's softmax");
  return [draw, workspace](const LaunchContext& context) {
    check(flashinfer::sampling::OnlineSoftmax<float>(const_cast<float*>(draw.logits), draw.probabilities, draw.rows,
                                                     draw.tokens, nullptr, draw.temperature, workspace->data(),
                                                     workspace->size(), context.dependent_launch, context.stream),
          "FlashInfer's softmax");
  };
}

PeerCall flashinfer_draw(const PeerDraw& draw) {
  constexpr std::uint64_t kSeed = 11;
  constexpr std::uint64_t kDrawsEach = 32;  // random numbers that a call may take before it meets the next one's
  const auto valid = std::make_shared<DeviceBuffer>(draw.rows, "FlashInfer's draw");
  return [draw, valid, offset = std::uint64_t{0}](const LaunchContext& context) mutable {
    check(flashinfer::sampling::TopKTopPSamplingFromProb<float, std::int32_t>(
              draw.probabilities, nullptr, nullptr, draw.chosen, valid->as<bool>(), nullptr, draw.rows, draw.top_k,
              draw.top_p, draw.tokens, true, nullptr, kSeed, nullptr, offset, context.stream),
          "FlashInfer's draw");
    offset += kDrawsEach;
  };
}

}  // namespace quarrel::cuda

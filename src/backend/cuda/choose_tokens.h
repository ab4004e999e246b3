// From logits to tokens without the host: the largest one, or how likely a given one is.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// What is wanted of a row of logits, where that is no token to be scored.
inline constexpr std::int32_t kChooseLargest = -1;
inline constexpr std::int32_t kChooseNothing = -2;

struct ChooseTokensOp {
  const float* logits = nullptr;          // [rows][vocabulary]
  const std::int32_t* targets = nullptr;  // [rows]: a token to be scored, or one of the two above
  int rows = 0;
  int vocabulary = 0;
  std::int32_t* ids = nullptr;  // [rows]: the token; -1 where a logit is NaN or +infinity, or all are -infinity
  float* logprobs = nullptr;    // [rows]
};

// Ties go to the lower id.
void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op);

}  // namespace quarrel::cuda

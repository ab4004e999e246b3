// From logits to tokens without the host: the largest one, one that is drawn from all or from the likeliest, or how
// likely a given one is.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// What is wanted of a row of logits, where that is no token to be scored.
inline constexpr std::int32_t kChooseLargest = -1;
inline constexpr std::int32_t kChooseNothing = -2;
inline constexpr std::int32_t kChooseDrawn = -3;

// What a draw takes: a number in [0, 1), what logits are multiplied with, and which tokens are drawn from.
struct TokenDraw {
  double random = 0.0;
  double scale = 1.0;
  std::int32_t top_k = 0;  // at most kMaxTopK; 0: all tokens, and the next two do not count
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::int32_t padding = 0;
};
inline constexpr int kMaxTopK = 256;

struct ChooseTokensOp {
  const float* logits = nullptr;          // [rows][vocabulary]
  const std::int32_t* targets = nullptr;  // [rows]: a token to be scored, or one of the three above
  const TokenDraw* draws = nullptr;       // [rows], of those that are drawn
  int rows = 0;
  int vocabulary = 0;
  std::int32_t* ids = nullptr;  // [rows]: the token; -1 where a logit is NaN or +infinity, or all are -infinity
  float* logprobs = nullptr;    // [rows]
};

// Ties go to the lower id. Draws count through the tokens by ascending id, as `sample_row` does; where the number falls
// within a millionth of the boundary between two tokens it may be the other one.
void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op);

}  // namespace quarrel::cuda

// From logits to tokens without the host: what bias, mask and penalties make of them, then the largest one, one that is
// drawn from all or from the likeliest, or how likely a given one is.
#pragma once

#include <cstdint>

#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// What is wanted of a row of logits, where that is no token to be scored.
inline constexpr std::int32_t kChooseLargest = -1;
inline constexpr std::int32_t kChooseNothing = -2;
inline constexpr std::int32_t kChooseDrawn = -3;

// What a draw takes: a number in [0, 1), what logits are multiplied with, and what is drawn from.
inline constexpr std::int16_t kFromAll = 0;
inline constexpr std::int16_t kFromBest = 1;      // top-k keeps at most kMaxTopK
inline constexpr std::int16_t kFromFiltered = 2;  // any number of them, or a share
inline constexpr std::int16_t kFromTypical = 3;   // the same of what locally typical sampling leaves of top-k's
inline constexpr std::int16_t kFromSurprise = 4;  // what mirostat 2 leaves
struct TokenDraw {
  double random = 0.0;
  double scale = 1.0;
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  std::int16_t from = kFromAll;
  std::int16_t top = 0;  // of any row, drawn or not: how many of the likeliest tokens to report, at most kMaxTop
};
inline constexpr int kMaxTopK = 256;
inline constexpr int kMaxTop = 20;

// What is reported of a row beside its token, if it asks for it.
struct TopToken {
  std::int32_t id = -1;  // none
  float logprob = 0.0f;
};
struct RowReport {
  TopToken top[kMaxTop];     // as the model has them
  float mirostat_mu = 0.0f;  // after the draw
};

// What changes a row's logits before the choice, in this order (`adjust` in sampling.cpp is its meaning), and what
// rarer ways to sample ask for.
struct LogitBias {
  std::int32_t id = 0;
  float bias = 0.0f;
  float before = 0.0f;  // left by the kernel: what the model gave the token
};
struct CountedToken {
  std::int32_t id = 0;
  std::int32_t recent = 0;   // for the penalty that divides
  std::int32_t counted = 0;  // for the two that are subtracted
  float before = 0.0f;       // left by the kernel
};
struct LogitEdits {
  LogitBias* biases = nullptr;          // those of a token follow each other
  const std::uint64_t* mask = nullptr;  // a bit a token: 1 may come; null: all may
  CountedToken* counts = nullptr;       // each token once
  // A token that counts and that nobody has seen yet, chosen by the step before. The last of `counts` is left free for
  // it, should it not be among the others. Null: there is none.
  const std::int32_t* unseen = nullptr;
  std::int32_t bias_count = 0;
  std::int32_t token_count = 0;  // of `counts`
  std::int32_t unseen_recent = 0;
  std::int32_t unseen_counted = 0;
  float repeat = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
  float typical_p = 1.0f;
  float mirostat_tau = 0.0f;
  float mirostat_eta = 0.0f;
  float mirostat_mu = 0.0f;   // 0 begins at 2 tau
  float* lane_mu = nullptr;   // where the next row of the text finds it
  std::int32_t takes_mu = 0;  // from there: the token before was drawn by a step that nobody has seen
};

inline constexpr std::int32_t kBadLogits = -1;    // one is NaN or +infinity, or all are -infinity
inline constexpr std::int32_t kNoTokenLeft = -2;  // by bias, mask and penalties

struct ChooseTokensOp {
  float* logits = nullptr;                    // [rows][vocabulary]; of rows with edits only these are left
  const std::int32_t* targets = nullptr;      // [rows]: a token to be scored, or one of the three above
  const TokenDraw* draws = nullptr;           // [rows]
  const std::int32_t* edit_places = nullptr;  // [rows]: of the row's among the edits, -1 for none; null: there are none
  const LogitEdits* const* edits = nullptr;   // where they are, in device memory
  int rows = 0;
  int vocabulary = 0;
  std::int32_t* ids = nullptr;   // [rows]: the token, or one of the two above
  float* logprobs = nullptr;     // [rows]: of the token as the model has it, before any edit
  RowReport* reports = nullptr;  // [rows]
};

// Ties go to the lower id. Draws count through the tokens by ascending id, as `sample_row` does; where the number falls
// within a millionth of the boundary between two tokens it may be the other one.
void choose_tokens(const LaunchContext& context, const ChooseTokensOp& op);

}  // namespace quarrel::cuda

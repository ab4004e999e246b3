// Single rows with the experts they chose, on the integer tensor cores: what generated rows take. Each pair of a row
// and an expert stands alone: only weights of chosen experts are read, and a row's bits do not depend on its
// neighbours. Experts of F16 or F32 numbers have a kernel of their own, for any number of pairs.
#pragma once

#include "backend/cuda/activation_split.h"
#include "backend/cuda/expert_matrix.h"

namespace quarrel::cuda {

struct ExpertGemvOp {
  const char* name = "experts";
  SplitInput input = {};
  int pairs_a_row = 1;                   // pair p has input row p / pairs_a_row
  const std::int32_t* chosen = nullptr;  // [pairs]: the expert; -1: the pair is skipped
  int pairs = 0;                         // of packed experts: no more than there are multiprocessors
  ExpertMatrix matrices[2] = {};         // the second one is the gated one of a glu, of the same type and shape
  ExpertEnd end = ExpertEnd::store;
  GateFunction function = {};
  float* out = nullptr;  // [pairs][stride]
  int stride = 0;
};

// Whether a row of that many columns fits the shared memory.
bool can_run_expert_gemv(const LaunchContext& context, const PackedMatrix& matrix);

// Once a process and device, before the first expert_gemv().
void prepare_expert_gemv(const LaunchContext& context);

void expert_gemv(const LaunchContext& context, const ExpertGemvOp& op);

// The same for F16 or F32 numbers, without a glu; `input` has no norm then.
void dense_expert_gemv(const LaunchContext& context, const ExpertGemvOp& op);

}  // namespace quarrel::cuda

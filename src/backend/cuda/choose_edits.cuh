// Bias, mask and penalties.
#pragma once

#include <cfloat>

#include "backend/cuda/choose_share.cuh"
#include "backend/cuda/choose_tokens.h"

namespace quarrel::cuda {
namespace {

// In double without fused operations, as on the host.
__device__ float as_logit(double value) { return __double2float_rn(fmin(value, static_cast<double>(FLT_MAX))); }

__device__ void apply_biases(const Slice& slice, const LogitEdits& edits) {
  for (int i = threadIdx.x; i < edits.bias_count; i += kThreads) {
    const int id = edits.biases[i].id;
    if (!slice.has(id) || (i > 0 && edits.biases[i - 1].id == id)) continue;
    float logit = slice.logits[id];
    edits.biases[i].before = logit;
    for (int k = i; k < edits.bias_count && edits.biases[k].id == id; ++k) {
      logit = as_logit(__dadd_rn(static_cast<double>(logit), static_cast<double>(edits.biases[k].bias)));
    }
    slice.logits[id] = logit;
  }
}

__device__ void apply_mask(const Slice& slice, const std::uint64_t* mask) {
  for (int i = slice.first + static_cast<int>(threadIdx.x); i < slice.end; i += kThreads) {
    if ((mask[i / 64] >> (i % 64) & 1) == 0) slice.logits[i] = -INFINITY;
  }
}

__device__ void apply_penalties(const Slice& slice, const LogitEdits& edits, CountedToken& token, int recent,
                                int counted) {
  const float logit = slice.logits[token.id];
  token.before = logit;
  if (logit == -INFINITY) return;
  auto value = static_cast<double>(logit);
  const auto repeat = static_cast<double>(edits.repeat);
  if (recent > 0) value = value > 0.0 ? __ddiv_rn(value, repeat) : __dmul_rn(value, repeat);
  if (counted > 0) {
    value = __dsub_rn(value, static_cast<double>(edits.presence));
    value = __dsub_rn(value, __dmul_rn(static_cast<double>(edits.frequency), static_cast<double>(counted)));
  }
  slice.logits[token.id] = as_logit(value);
}

__device__ void apply_counts(const Slice& slice, const LogitEdits& edits) {
  __shared__ int unseen_is_listed;
  const int unseen = edits.unseen != nullptr ? *edits.unseen : -1;
  const int listed = edits.token_count - (edits.unseen != nullptr ? 1 : 0);
  if (threadIdx.x == 0) unseen_is_listed = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < listed; i += kThreads) {
    CountedToken& token = edits.counts[i];
    if (!slice.has(token.id)) continue;
    const bool again = token.id == unseen;
    if (again) unseen_is_listed = 1;
    apply_penalties(slice, edits, token, token.recent + (again ? edits.unseen_recent : 0),
                    token.counted + (again ? edits.unseen_counted : 0));
  }
  __syncthreads();
  if (threadIdx.x != 0 || !slice.has(unseen) || unseen_is_listed != 0) return;
  CountedToken& token = edits.counts[listed];
  token.id = unseen;
  apply_penalties(slice, edits, token, edits.unseen_recent, edits.unseen_counted);
}

__device__ void edit_logits(const Slice& slice, const LogitEdits& edits) {
  apply_biases(slice, edits);
  __syncthreads();
  if (edits.mask != nullptr) apply_mask(slice, edits.mask);
  __syncthreads();
  if (edits.token_count > 0) apply_counts(slice, edits);
  __syncthreads();
}

// What the model gave the token, in every thread.
__device__ float logit_before(const float* logits, const LogitEdits& edits, int id) {
  __shared__ float logit;
  __syncthreads();
  if (threadIdx.x == 0) logit = logits[id];
  __syncthreads();
  for (int i = threadIdx.x; i < edits.token_count; i += kThreads) {
    if (edits.counts[i].id == id) logit = edits.counts[i].before;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < edits.bias_count; i += kThreads) {
    if (edits.biases[i].id == id && (i == 0 || edits.biases[i - 1].id != id)) logit = edits.biases[i].before;
  }
  __syncthreads();
  return logit;
}

}  // namespace
}  // namespace quarrel::cuda

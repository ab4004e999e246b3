// Attention of a prompt as it is computed without a kernel of its own: scores by a GEMM, softmax over them, values by
// another GEMM, head after head, with all scores in memory between them. What the fused kernel is compared with.
#pragma once

#include <vector>

#include "backend/cuda/dense_gemm.h"
#include "cuda/fixture.h"
#include "cuda/prefill_data.h"

namespace quarrel::cuda {

class UnfusedAttention {
 public:
  // Of the data's one text. `halves`: keys, values and weights are F16, and GEMMs go to the tensor cores; else all is
  // F32.
  UnfusedAttention(const PrefillData& data, const PrefillCase& setting, bool halves);

  // Each for all heads, which share one place for scores: alone they tell times, together results too.
  void scores(const LaunchContext& context) const;
  void softmax(const LaunchContext& context) const;
  void values(const LaunchContext& context) const;
  void run(const LaunchContext& context) const;

  std::vector<float> results() const;
  // What scores and weights are written and read, of all heads.
  double score_bytes() const;

 private:
  void scores_of(const LaunchContext& context, int head) const;
  void softmax_of(const LaunchContext& context) const;
  void values_of(const LaunchContext& context, int head) const;

  PrefillCase setting_;
  bool halves_;
  int rows_;
  int context_;
  float scale_;
  mutable DenseGemm gemm_;
  DeviceBuffer queries_;    // [rows][heads][dim]
  DeviceBuffer keys_;       // [kv_heads][context][dim]
  DeviceBuffer values_;     // [kv_heads][dim][context]: transposed, as a cache for this has them
  DeviceBuffer positions_;  // [rows]
  DeviceBuffer scores_;     // [rows][context], F32
  DeviceBuffer weights_;    // the same, F16; F32 weights take the scores' place
  DeviceBuffer out_;        // [rows][heads][dim]
};

}  // namespace quarrel::cuda

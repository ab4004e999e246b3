// The loops over a whole vocabulary that choosing a token needs, as functions that a backend may replace by faster
// ones. Scalar ones are in sampling.cpp. Code compiled for newer processors includes this header too: no templates.
#pragma once

#include <cstddef>

namespace quarrel {

struct SamplingKernels {
  // Sets `best` to the largest logit, -infinity if there is none; false if one of them is a NaN or +infinity.
  bool (*largest)(const float* logits, std::size_t count, float* best) = nullptr;
  // The first index from `first` on with a logit above `limit`; `count` if there is none.
  std::size_t (*next_above)(const float* logits, std::size_t first, std::size_t count, float limit) = nullptr;
  // Σ e^((logit - best) * scale) in double, for logits up to `best`. A term below e^-60 counts as anything up to that.
  double (*sum_exponentials)(const float* logits, std::size_t count, double best, double scale) = nullptr;
};

const SamplingKernels& scalar_sampling_kernels() noexcept;

}  // namespace quarrel

// Numbers at the edges of F16, for attention.
#pragma once

#include <iterator>
#include <random>

namespace quarrel::cuda {

// The largest F16 and subnormals. Keys are the same in all dimensions and queries are ones, so that of what a row sees
// all positions of the largest key count alike.
struct ExtremeNumbers {
  float operator()(std::mt19937_64& random) const {
    constexpr float kNumbers[] = {65504.0f, -65504.0f, 5.96e-8f, -5.96e-8f, 0.0f, 1.0f};
    return kNumbers[random() % std::size(kNumbers)];
  }
};

}  // namespace quarrel::cuda

// From a rope's description to the frequency of each pair: linear and YaRN scaling and a file's own divisors all end up
// in these numbers, so that no backend knows of them.
#pragma once

#include <span>
#include <vector>

#include "model/spec.h"

namespace quarrel {

struct RopeFrequencies {
  std::vector<double> radians;  // a position, one a pair
  double magnitude = 1.0;
};

// `divisors` is empty or has one value a pair.
RopeFrequencies rope_frequencies(const RopeSpec& spec, std::span<const double> divisors);

}  // namespace quarrel

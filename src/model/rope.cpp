#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quarrel {
namespace {

// The pair whose wave turns `rotations` times over the original context.
double pair_of_rotations(const RopeSpec& spec, double rotations) {
  const double turns = static_cast<double>(spec.original_context) / (rotations * 2.0 * std::numbers::pi);
  return spec.dimensions * std::log(turns) / (2.0 * std::log(spec.base));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeSpec& spec, std::span<const double> divisors) {
  RopeFrequencies result;
  const std::int32_t pairs = spec.dimensions / 2;
  double ramp_begin = 0.0;
  double ramp_end = 0.0;
  result.magnitude = spec.attention_factor;
  if (spec.scaling == RopeScaling::yarn) {
    ramp_begin = std::max(0.0, std::floor(pair_of_rotations(spec, spec.beta_fast)));
    ramp_end = std::min(spec.dimensions - 1.0, std::ceil(pair_of_rotations(spec, spec.beta_slow)));
    result.magnitude *= 1.0 + 0.1 * std::log(spec.factor);
  }
  for (std::int32_t pair = 0; pair < pairs; ++pair) {
    double radians = std::pow(spec.base, -2.0 * pair / spec.dimensions);
    if (!divisors.empty()) radians /= divisors[static_cast<std::size_t>(pair)];
    if (spec.scaling == RopeScaling::linear) radians /= spec.factor;
    if (spec.scaling == RopeScaling::yarn) {
      // Fast waves keep their frequency, slow ones are stretched by the factor, those between are blended.
      const double share = std::clamp((pair - ramp_begin) / std::max(0.001, ramp_end - ramp_begin), 0.0, 1.0);
      radians = radians / spec.factor * share + radians * (1.0 - share);
    }
    result.radians.push_back(radians);
  }
  return result;
}

}  // namespace quarrel

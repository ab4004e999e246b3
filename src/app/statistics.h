// Means, deviations and errors of what the workbench measures, and the distance between two sets of logits. Sums run in
// double. Each object belongs to one thread.
#pragma once

#include <cstdint>
#include <span>

namespace quarrel {

// Mean and spread of values that come one by one (Welford's recurrence, so large means do not swallow small spreads).
class RunningMean {
 public:
  void add(double value) noexcept;

  std::int64_t count() const noexcept { return count_; }
  double mean() const noexcept { return mean_; }
  double deviation() const noexcept;       // of the sample; 0 for fewer than two values
  double standard_error() const noexcept;  // of the mean

 private:
  std::int64_t count_ = 0;
  double mean_ = 0.0;
  double squares_ = 0.0;  // of the distances from the mean
};

// The normalised mean squared error Σ(a−b)² / Σb², b the truth, over pieces that come one after the other.
class RunningNmse {
 public:
  // Both of the same length.
  void add(std::span<const float> values, std::span<const float> truth) noexcept;
  // Not a number if any value was not, or if the truth was nothing but zeros and the values were too; so a limit must
  // be checked as `value() <= limit`.
  double value() const noexcept { return error_ / truth_; }

 private:
  double error_ = 0.0;
  double truth_ = 0.0;
};

}  // namespace quarrel

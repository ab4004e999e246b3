#include "app/statistics.h"

#include <cmath>
#include <cstddef>

namespace quarrel {

void RunningMean::add(double value) noexcept {
  ++count_;
  const double distance = value - mean_;
  mean_ += distance / static_cast<double>(count_);
  squares_ += distance * (value - mean_);
}

double RunningMean::deviation() const noexcept {
  return count_ < 2 ? 0.0 : std::sqrt(squares_ / static_cast<double>(count_ - 1));
}

double RunningMean::standard_error() const noexcept {
  return count_ < 2 ? 0.0 : deviation() / std::sqrt(static_cast<double>(count_));
}

void RunningNmse::add(std::span<const float> values, std::span<const float> truth) noexcept {
  for (std::size_t i = 0; i < truth.size(); ++i) {
    const double expected = truth[i];
    const double difference = values[i] - expected;
    error_ += difference * difference;
    truth_ += expected * expected;
  }
}

}  // namespace quarrel

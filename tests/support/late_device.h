// A device that behaves as a GPU will, made of a backend on the host: it rounds the shapes of steps up to buckets, so
// that they have padding, computes each step on a thread of its own, and answers late. `submit` returns at once; tokens
// named by an output of the step before are known when the step runs; what a step fails with is thrown by its `wait`.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "backend/create.h"

namespace quarrel::test {

struct LateOptions {
  bool buckets = true;                   // 1, 2, 4 … 64 and multiples of 64; false: shapes as they are
  std::chrono::microseconds delay{100};  // before each step
  // Called on the thread of a step before it is computed. What it throws the step fails with.
  std::function<void(Ticket)> before_step = {};
  // Called when the use of experts is asked for, which whoever observes does.
  std::function<void()> when_observed = {};
};

// The smallest bucket that holds so many.
std::int32_t bucket_of(std::int32_t count) noexcept;
StepShape bucket_of(StepShape shape) noexcept;

// `inner` names "reference" or "cpu".
std::unique_ptr<Device> make_late_device(const DeviceOptions& inner, const LateOptions& options = {});

}  // namespace quarrel::test

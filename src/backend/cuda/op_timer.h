// How long the kernels of a step's ops took, by events between them: made for a step, read when it is over. While it is
// used, kernels do not overlap across ops. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device_memory.h"

namespace quarrel::cuda {

// What the op's time is called: projections of recurrent layers and others are one.
std::string_view timed_as(const LinearOp& op) noexcept;

class OpTimer {
 public:
  // Ops may lie within ops: each end is that of the one that began last.
  void begin(std::string_view name, const Stream& stream);
  void end(const Stream& stream) noexcept;
  // Adds what the step's ops took, which are over, and forgets them.
  void add_to(std::map<std::string_view, OpTime>& times);

 private:
  Event& next_event();

  std::vector<std::unique_ptr<Event>> events_;  // two an op, used again by the next step
  std::size_t used_ = 0;
  std::vector<std::size_t> open_;  // the end events of ops that have begun
  std::vector<std::string_view> names_;
};

}  // namespace quarrel::cuda

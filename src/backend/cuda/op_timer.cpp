#include "backend/cuda/op_timer.h"

#include "backend/op_work.h"

namespace quarrel::cuda {

std::string_view timed_as(const LinearOp& op) noexcept {
  const bool in_layer = op.sublayer == SublayerKind::attention || op.sublayer == SublayerKind::feed_forward;
  return in_layer ? profile_name(op) : "projections";
}

Event& OpTimer::next_event() {
  if (used_ == events_.size()) events_.push_back(std::make_unique<Event>(true));
  return *events_[used_++];
}

void OpTimer::begin(std::string_view name, const Stream& stream) {
  const Event& begin = next_event();
  next_event();  // the end's
  names_.push_back(name);
  open_.push_back(used_ - 1);
  begin.record(stream);
}

// An error here is seen by whoever launches or waits next.
void OpTimer::end(const Stream& stream) noexcept {
  if (open_.empty()) return;
  cudaEventRecord(events_[open_.back()]->get(), stream.get());
  open_.pop_back();
}

void OpTimer::add_to(std::map<std::string_view, OpTime>& times) {
  for (std::size_t i = 0; 2 * i + 1 < used_; ++i) {
    OpTime& time = times[names_[i]];
    time.name = names_[i];
    time.seconds += static_cast<double>(events_[2 * i]->until(*events_[2 * i + 1])) * 1e-3;
    ++time.calls;
  }
  used_ = 0;
  names_.clear();
  open_.clear();
}

}  // namespace quarrel::cuda

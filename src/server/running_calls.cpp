#include "server/running_calls.h"

#include <utility>

namespace quarrel {

void RunningCalls::add(std::weak_ptr<RunningCall> call, std::shared_ptr<const Caller> caller) {
  const std::scoped_lock lock(mutex_);
  entries_.push_back({.call = std::move(call), .caller = std::move(caller)});
}

void RunningCalls::look(const std::function<bool(const Caller&)>& accepts, Clock::time_point now) {
  std::vector<Entry> entries;
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(entries_, [](const Entry& entry) { return entry.call.expired(); });
    entries = entries_;
  }
  for (const Entry& entry : entries) {
    const auto call = entry.call.lock();
    if (call == nullptr) continue;
    if (!accepts(*entry.caller)) {
      call->end({401, "authentication_error", "invalid_api_key", "the key is not good any more"});
    }
    call->end_if_silent(now);
  }
}

std::size_t RunningCalls::size() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

}  // namespace quarrel

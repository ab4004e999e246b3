#include "flight/arrow/call_watch.h"

#include <utility>

namespace quarrel::flight {

CallWatch::Guard::Guard(CallWatch& watch, std::chrono::milliseconds limit, std::function<void()> cancel)
    : watch_(watch) {
  const Clock::time_point deadline = Clock::now() + limit;
  const std::lock_guard lock(watch_.mutex_);
  entry_ = watch_.entries_.emplace(deadline, Entry{.cancel = std::move(cancel)});
  if (deadline >= watch_.next_) return;
  watch_.earlier_ = true;
  watch_.changed_.notify_one();
}

CallWatch::Guard::~Guard() {
  const std::lock_guard lock(watch_.mutex_);
  watch_.entries_.erase(entry_);
}

bool CallWatch::Guard::expired() const {
  const std::lock_guard lock(watch_.mutex_);
  return entry_->second.expired;
}

void CallWatch::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const Clock::time_point now = Clock::now();
    next_ = Clock::time_point::max();
    for (auto& [deadline, entry] : entries_) {
      if (entry.expired) continue;
      if (deadline > now) {
        next_ = deadline;
        break;
      }
      entry.expired = true;
      entry.cancel();
    }
    earlier_ = false;
    const auto woken = [this] { return earlier_; };
    if (next_ == Clock::time_point::max()) {
      changed_.wait(lock, stop, woken);
    } else {
      changed_.wait_until(lock, stop, next_, woken);
    }
  }
}

}  // namespace quarrel::flight

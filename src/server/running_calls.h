// What is computed for whom: a key may be revoked or expire in the middle of it, or an engine hang in a step, and then
// it ends with a reason.
//
// Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "server/api_error.h"
#include "server/caller.h"

namespace quarrel {

class RunningCall {
 public:
  virtual ~RunningCall() = default;
  // It ends soon, and its client gets the reason. Waits for nobody.
  virtual void end(const ApiError& why) = 0;
  // Ends it if nothing has come of it for longer than its engine lets anybody wait: that one hangs, and hears of
  // nothing.
  virtual void end_if_silent(Clock::time_point /*now*/) {}
};

class RunningCalls {
 public:
  void add(std::weak_ptr<RunningCall> call, std::shared_ptr<const Caller> caller);
  // Forgets those that are over; ends those whose callers may not ask any more, and those that nothing comes of. Now
  // and then.
  void look(const std::function<bool(const Caller&)>& accepts, Clock::time_point now);
  std::size_t size() const;

 private:
  struct Entry {
    std::weak_ptr<RunningCall> call = {};
    std::shared_ptr<const Caller> caller = {};
  };
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;  // guarded
};

}  // namespace quarrel

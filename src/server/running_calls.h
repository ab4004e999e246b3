// What is computed for whom: a key may be revoked or expire in the middle of it, and then it ends with a reason.
//
// Threads: any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "server/api_error.h"
#include "server/caller.h"

namespace quarrel {

class RunningCall {
 public:
  virtual ~RunningCall() = default;
  // It ends soon, and its client gets the reason. Waits for nobody.
  virtual void end(const ApiError& why) = 0;
};

class RunningCalls {
 public:
  void add(std::weak_ptr<RunningCall> call, std::shared_ptr<const Caller> caller);
  // Forgets those that are over; ends those whose callers may not ask any more. Now and then.
  void look(const std::function<bool(const Caller&)>& accepts);
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

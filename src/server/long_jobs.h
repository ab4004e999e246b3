// Work of minutes that a request asked for, such as fetching a model: each on a thread of its own, few at once. The end
// of this object stops and awaits them. Any thread.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/log.h"

namespace quarrel {

class LongJobs {
 public:
  explicit LongJobs(Log& log) : log_(log) {}
  ~LongJobs();
  LongJobs(const LongJobs&) = delete;
  LongJobs& operator=(const LongJobs&) = delete;

  // False: too many run already. The token is stopped when this object ends.
  bool start(std::function<void(std::stop_token stop)> job);

 private:
  struct Running {
    std::atomic<bool> done = false;
    std::jthread thread = {};  // ends first
  };

  Log& log_;
  std::mutex mutex_;
  bool closing_ = false;        // guarded, like the next
  std::list<Running> running_;  // those that are done until the next one starts
};

}  // namespace quarrel

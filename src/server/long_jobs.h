// Work of minutes that a request asked for, such as fetching a model: each on a thread of its own, few at once. Any
// thread.
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
  ~LongJobs() { end(); }
  LongJobs(const LongJobs&) = delete;
  LongJobs& operator=(const LongJobs&) = delete;

  // False: too many run already, or these are the last. The token is stopped by `stop`.
  bool start(std::function<void(std::stop_token stop)> job);
  // Starts no more, and tells those that run to stop. Returns at once.
  void stop();
  // The same, and awaits them. Not from a job.
  void end();

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

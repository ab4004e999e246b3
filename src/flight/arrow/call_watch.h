// Ends calls that take too long: one thread for all calls of a client. Flight's own time limit is for a whole call, and
// a stream may go on for hours as long as it goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

#include "base/clock.h"

namespace quarrel::flight {

class CallWatch {
  struct Entry {
    std::function<void()> cancel;
    bool expired = false;
  };
  using Entries = std::multimap<Clock::time_point, Entry>;

 public:
  CallWatch() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  // While it lives, `cancel` is called once the limit has passed, on the watch's thread, and must not block. It is not
  // running any more when the guard is gone. The watch outlives its guards.
  class Guard {
   public:
    Guard(CallWatch& watch, std::chrono::milliseconds limit, std::function<void()> cancel);
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    bool expired() const;

   private:
    CallWatch& watch_;
    Entries::iterator entry_;
  };

 private:
  void run(const std::stop_token& stop);

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  Entries entries_;
  Clock::time_point next_ = Clock::time_point::max();  // what the thread waits for
  bool earlier_ = false;                               // something came that is due before that
  std::jthread thread_;                                // last: it ends before what it uses
};

}  // namespace quarrel::flight

// Ctrl-C as a stop token, for calls that block. While it lives a thread watches the flag that a signal sets.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include "app/terminal.h"

namespace quarrel {

class StopOnInterrupt {
 public:
  // `interrupts` outlives it.
  explicit StopOnInterrupt(const Interrupts& interrupts)
      : thread_([this, &interrupts](const std::stop_token& ended) {
          std::mutex mutex;
          std::condition_variable_any woken;
          std::unique_lock lock(mutex);
          while (!ended.stop_requested() && !interrupts.requested().load(std::memory_order_relaxed)) {
            woken.wait_for(lock, ended, std::chrono::milliseconds(20), [] { return false; });
          }
          if (!ended.stop_requested()) stop_.request_stop();
        }) {}

  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  std::jthread thread_;  // last: it uses the other
};

}  // namespace quarrel

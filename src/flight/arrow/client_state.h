// What the calls of one client share: its connections, its watch, its counts, and the pause that the store asked for.
// Any thread may call. Calls that outlive their client hold it.
#pragma once

#include <arrow/flight/client.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "flight/arrow/call_site.h"
#include "flight/arrow/call_watch.h"
#include "flight/arrow/connection_pool.h"

namespace quarrel::flight {

struct CallCounts {
  std::atomic<std::uint64_t> calls = 0;
  std::atomic<std::uint64_t> failures = 0;
  std::atomic<std::uint64_t> retries = 0;
  std::atomic<std::uint64_t> slow_downs = 0;
  std::atomic<std::uint64_t> rows_sent = 0;
  std::atomic<std::uint64_t> bytes_sent = 0;
  std::atomic<std::uint64_t> rows_received = 0;
  std::atomic<std::uint64_t> bytes_received = 0;
  std::atomic<std::uint64_t> microseconds = 0;
};

// Waits; false: a stop was requested meanwhile.
inline bool pause_for(std::chrono::milliseconds pause, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, pause, [] { return false; });
  return !stop.stop_requested();
}

// How long the next stream waits: twice as long with each one that met pressure, not at all after one that met none.
class StreamPause {
 public:
  explicit StreamPause(std::chrono::milliseconds first) : first_(std::max(first, std::chrono::milliseconds(1))) {}
  void note(bool slow_down) {
    const std::lock_guard lock(mutex_);
    constexpr std::chrono::milliseconds kLongest = std::chrono::seconds(5);
    pause_ = slow_down ? std::min(kLongest, pause_.count() == 0 ? first_ : 2 * pause_) : std::chrono::milliseconds(0);
  }
  std::chrono::milliseconds length() const {
    const std::lock_guard lock(mutex_);
    return pause_;
  }

 private:
  std::chrono::milliseconds first_;
  mutable std::mutex mutex_;
  std::chrono::milliseconds pause_ = {};
};

// In place of Flight's own time limit, which is for a whole call: streams are watched message by message.
inline constexpr std::chrono::duration<double> kWatched{-1};

struct ClientState {
  ClientState(const LongbowAddress& where, const LongbowOptions& how)
      : address(where),
        options(how),
        data(where, where.data_port, how),
        meta(where, where.meta_port, how),
        stream_pause(how.first_pause) {}

  // Flight's own options: who calls, and how long.
  arrow::flight::FlightCallOptions call_options(std::chrono::duration<double> timeout) const {
    arrow::flight::FlightCallOptions result;
    result.timeout = timeout;
    if (!options.token.empty()) result.headers.emplace_back("authorization", "Bearer " + options.token);
    return result;
  }

  LongbowAddress address;
  LongbowOptions options;
  CallWatch watch;
  ConnectionPool data;
  ConnectionPool meta;
  CallCounts counts;
  StreamPause stream_pause;
  std::atomic<int> left_calls = 0;  // that run though nobody waits for them any more
};

// Counts a call and its time.
class TimedCall {
 public:
  explicit TimedCall(CallCounts& counts) : counts_(counts) { ++counts_.calls; }
  ~TimedCall() { counts_.microseconds += static_cast<std::uint64_t>(1e6 * seconds_since(start_)); }
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

 private:
  CallCounts& counts_;
  Clock::time_point start_ = Clock::now();
};

// The same of one that is this client's to repeat: where it ends by an exception it has failed.
class CountedCall {
 public:
  explicit CountedCall(CallCounts& counts) : counts_(counts), timed_(counts) {}
  ~CountedCall() {
    if (!succeeded_) ++counts_.failures;
  }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;
  void succeeded() noexcept { succeeded_ = true; }

 private:
  CallCounts& counts_;
  TimedCall timed_;
  bool succeeded_ = false;
};

}  // namespace quarrel::flight

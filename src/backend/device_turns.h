// Who may use a device now: the steps of several backends run one at a time, in the order they asked. A mutex alone
// would let a busy model take the next turn again and again. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quarrel {

class DeviceTurns {
 public:
  // Returns when everybody who asked before has given the device back.
  void take() {
    std::unique_lock lock(mutex_);
    const std::uint64_t mine = next_++;
    changed_.wait(lock, [&] { return serving_ == mine; });
  }

  void give_back() {
    {
      const std::lock_guard lock(mutex_);
      ++serving_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0;  // guarded by mutex_, like the rest
  std::uint64_t serving_ = 0;
};

// The device, from the making to the end of this.
class DeviceTurn {
 public:
  explicit DeviceTurn(DeviceTurns& turns) : turns_(turns) { turns_.take(); }
  ~DeviceTurn() { turns_.give_back(); }
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;

 private:
  DeviceTurns& turns_;
};

}  // namespace quarrel

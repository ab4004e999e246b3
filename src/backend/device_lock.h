// The right to use a device: the steps of several backends run one at a time, in the order they asked. With a mutex
// alone, a busy model could take the device again and again. The lock also knows how long the steps of each user take,
// so that a user with much to do can divide it into steps that do not keep the others waiting (`pace`); a step that is
// long all the same lets shorter ones go first between two of its ops (`Hold::give_way`). Safe from any thread.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace quarrel {

class DeviceLock {
 public:
  using Now = std::function<Clock::time_point()>;
  explicit DeviceLock(Now now = Clock::now) : now_(std::move(now)) {}
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;

  // How many wait for it or have it.
  int waiting() const {
    const std::lock_guard guard(mutex_);
    return static_cast<int>(next_ - serving_);
  }

  // One backend that uses the device, for the lifetime of this object.
  class User {
   public:
    explicit User(DeviceLock& lock);
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    // The shortest typical step of another user that uses the device, waits for it or did so a moment ago, in
    // microseconds; 0: there is none.
    std::int64_t pace() const;

   private:
    friend class DeviceLock;
    DeviceLock& lock_;
    // Guarded by the lock's mutex, like all below.
    std::array<std::int64_t, 7> steps_ = {};  // microseconds of the last ones
    std::size_t taken_ = 0;                   // steps in all
    int waiting_ = 0;
    bool holding_ = false;
    Clock::time_point last_ = {};  // when it gave the device back
    std::int64_t typical() const noexcept;
  };

  // Holds the device for the lifetime of this object.
  class Hold {
   public:
    explicit Hold(User& user) : Hold(user.lock_, &user) {}    // for a step
    explicit Hold(DeviceLock& lock) : Hold(lock, nullptr) {}  // for loading, which is not a step
    ~Hold() { lock_.release(user_, held_before_, began_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // Microseconds for which it had the device, without the times when others did.
    std::int64_t micros() const { return held_before_ + lock_.micros_since(began_); }

    // True if a user waits whose typical step is no longer than the time for which this has now had the device without
    // a break: a long step gives way between two ops, a short one never to a long one.
    bool should_give_way() const { return lock_.contended() && lock_.shorter_waits(began_); }
    // Lets those who wait go first and returns when this holds the device again.
    void give_way();

   private:
    Hold(DeviceLock& lock, User* user) : lock_(lock), user_(user) { began_ = lock_.acquire(user_); }
    DeviceLock& lock_;
    User* user_;
    Clock::time_point began_;
    std::int64_t held_before_ = 0;
  };

 private:
  // Returns when everybody who asked before has given the device back.
  Clock::time_point acquire(User* user);
  // After a step that has had the device for `held_before` microseconds and since `began`.
  void release(User* user, std::int64_t held_before, Clock::time_point began) noexcept;
  // Passes the device to the next in line.
  void hand_on(User* user) noexcept;
  std::int64_t micros_since(Clock::time_point began) const;
  // More than one waits for it or has it. Without the mutex, since it is asked before every op.
  bool contended() const noexcept { return queue_.load(std::memory_order_relaxed) > 1; }
  bool shorter_waits(Clock::time_point began) const;

  Now now_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0;  // guarded by mutex_, like the rest
  std::uint64_t serving_ = 0;
  std::vector<User*> users_;
  std::atomic<int> queue_ = 0;  // next_ - serving_
};

}  // namespace quarrel

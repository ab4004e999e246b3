// Who may use a device now: the steps of several backends run one at a time, in the order they asked. A mutex alone
// would let a busy model take the device again and again. It also knows how long the steps of each user take, so that
// one who has much to do can cut it into pieces that do not keep the others waiting (`pace`), and a step that takes
// long all the same gives way between two of its ops to shorter ones (`Hold::give_way`). Safe from any thread.
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

  // One backend that uses the device, from the making to the end of this.
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

  // The device, from the making to the end of this.
  class Hold {
   public:
    explicit Hold(User& user) : Hold(user.lock_, &user) {}    // for a step
    explicit Hold(DeviceLock& lock) : Hold(lock, nullptr) {}  // for what is no step: loading
    ~Hold() { lock_.release(user_, held_before_, began_); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // Microseconds that it had the device for, without those when others had it.
    std::int64_t micros() const { return held_before_ + lock_.micros_since(began_); }

    // True if somebody waits whose typical step is no longer than what this has had the device for at a stretch: a
    // long step then gives way between two ops, a short one never to a long one.
    bool should_give_way() const { return lock_.contended() && lock_.shorter_waits(began_); }
    // Lets those who wait go first and returns when it is this one's turn again.
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
  // To whoever is next.
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

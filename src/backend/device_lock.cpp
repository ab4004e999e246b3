#include "backend/device_lock.h"

#include <algorithm>

namespace quarrel {
namespace {

// Who has not been seen for so long has no step that could be kept waiting.
constexpr std::chrono::milliseconds kRecent{200};

}  // namespace

DeviceLock::User::User(DeviceLock& lock) : lock_(lock) {
  const std::lock_guard guard(lock_.mutex_);
  lock_.users_.push_back(this);
}

DeviceLock::User::~User() {
  const std::lock_guard guard(lock_.mutex_);
  std::erase(lock_.users_, this);
}

// The median of the last steps: one prompt among many tokens, or one token among prompts, does not change it.
std::int64_t DeviceLock::User::typical() const noexcept {
  std::array<std::int64_t, std::tuple_size_v<decltype(steps_)>> sorted = steps_;
  const std::size_t count = std::min(taken_, sorted.size());
  if (count == 0) return 0;
  std::sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count));
  return sorted[count / 2];
}

std::int64_t DeviceLock::User::pace() const {
  const Clock::time_point now = lock_.now_();
  const std::lock_guard guard(lock_.mutex_);
  std::int64_t shortest = 0;
  for (const User* other : lock_.users_) {
    if (other == this || other->taken_ == 0) continue;
    if (other->waiting_ == 0 && !other->holding_ && now - other->last_ > kRecent) continue;
    const std::int64_t typical = std::max<std::int64_t>(1, other->typical());
    shortest = shortest == 0 ? typical : std::min(shortest, typical);
  }
  return shortest;
}

Clock::time_point DeviceLock::acquire(User* user) {
  {
    std::unique_lock guard(mutex_);
    const std::uint64_t mine = next_++;
    ++queue_;
    if (user != nullptr) ++user->waiting_;
    changed_.wait(guard, [&] { return serving_ == mine; });
    if (user != nullptr) {
      --user->waiting_;
      user->holding_ = true;
    }
  }
  return now_();
}

void DeviceLock::release(User* user, std::int64_t held_before, Clock::time_point began) noexcept {
  const Clock::time_point now = now_();
  {
    const std::lock_guard guard(mutex_);
    if (user != nullptr) {
      user->last_ = now;
      user->steps_[user->taken_++ % user->steps_.size()] =
          held_before + std::chrono::duration_cast<std::chrono::microseconds>(now - began).count();
    }
  }
  hand_on(user);
}

bool DeviceLock::shorter_waits(Clock::time_point began) const {
  const std::int64_t held = micros_since(began);
  const std::lock_guard guard(mutex_);
  return std::ranges::any_of(
      users_, [&](const User* user) { return user->waiting_ > 0 && user->taken_ > 0 && user->typical() <= held; });
}

void DeviceLock::Hold::give_way() {
  held_before_ += lock_.micros_since(began_);
  lock_.hand_on(user_);
  began_ = lock_.acquire(user_);
}

void DeviceLock::hand_on(User* user) noexcept {
  {
    const std::lock_guard guard(mutex_);
    ++serving_;
    --queue_;
    if (user != nullptr) user->holding_ = false;
  }
  changed_.notify_all();
}

std::int64_t DeviceLock::micros_since(Clock::time_point began) const {
  return std::chrono::duration_cast<std::chrono::microseconds>(now_() - began).count();
}

}  // namespace quarrel

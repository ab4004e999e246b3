// One bound on bytes that many hold at once: the bodies of all requests together. Each holds them on somebody's
// account, and an account may have half of them at most, so that nobody takes all. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace quarrel::http {

class ByteBudget {
 public:
  explicit ByteBudget(std::size_t most) : most_(most) {}

  // Of one account. What is larger by itself is not worth another try.
  std::size_t most_of_one() const noexcept { return most_ / 2; }

  // Whose bytes they are.
  struct Account {
    std::shared_ptr<ByteBudget> budget = {};
    std::uint64_t number = 0;
  };

  // What one request holds; given back with the object, which may outlive everybody else. One thread at a time.
  class Share {
   public:
    Share(std::shared_ptr<ByteBudget> budget, std::uint64_t account) : budget_(std::move(budget)), account_(account) {}
    ~Share() {
      if (budget_ != nullptr && held_ > 0) budget_->give_back(account_, held_);
    }
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)),
          account_(other.account_),
          held_(std::exchange(other.held_, 0)) {}
    Share& operator=(Share&&) = delete;

    // False: there is not so much left, and it holds what it held.
    bool grow_to(std::size_t bytes) {
      if (bytes <= held_) return true;
      if (!budget_->take(account_, bytes - held_)) return false;
      held_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<ByteBudget> budget_;
    const std::uint64_t account_;
    std::size_t held_ = 0;
  };

 private:
  bool take(std::uint64_t account, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto known = accounts_.find(account);
    const std::size_t own = known == accounts_.end() ? 0 : known->second;
    if (held_ + bytes > most_ || own + bytes > most_of_one()) return false;
    accounts_[account] += bytes;
    held_ += bytes;
    return true;
  }
  void give_back(std::uint64_t account, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    held_ -= bytes;
    const auto known = accounts_.find(account);
    known->second -= bytes;
    if (known->second == 0) accounts_.erase(known);
  }

  const std::size_t most_;
  std::mutex mutex_;
  std::size_t held_ = 0;                                     // guarded, like the next
  std::unordered_map<std::uint64_t, std::size_t> accounts_;  // those that hold something
};

}  // namespace quarrel::http

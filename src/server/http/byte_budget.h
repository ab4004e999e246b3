// One bound on bytes that many hold at once: the bodies of all requests together. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace quarrel::http {

class ByteBudget {
 public:
  explicit ByteBudget(std::size_t most) : most_(most) {}

  std::size_t held() const noexcept { return held_; }

  // What one of them holds; given back with the object, which may outlive everybody else. One thread at a time.
  class Share {
   public:
    explicit Share(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
    ~Share() {
      if (budget_ != nullptr) budget_->held_ -= held_;
    }
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), held_(std::exchange(other.held_, 0)) {}
    Share& operator=(Share&&) = delete;

    // False: there is not so much left, and it holds what it held.
    bool grow_to(std::size_t bytes) noexcept {
      if (bytes <= held_) return true;
      const std::size_t more = bytes - held_;
      if (budget_->held_.fetch_add(more) + more > budget_->most_) {
        budget_->held_ -= more;
        return false;
      }
      held_ = bytes;
      return true;
    }

   private:
    std::shared_ptr<ByteBudget> budget_;
    std::size_t held_ = 0;
  };

 private:
  const std::size_t most_;
  std::atomic<std::size_t> held_ = 0;
};

}  // namespace quarrel::http

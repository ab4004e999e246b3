// How many objects of some kind live, for somebody who has to outlast them all. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>

namespace quarrel::http {

class LiveCount {
 public:
  // The first member of each of the objects, so that it goes last.
  class Member {
   public:
    explicit Member(std::shared_ptr<LiveCount> count) : count_(std::move(count)) {
      const std::scoped_lock lock(count_->mutex_);
      ++count_->live_;
    }
    ~Member() {
      const std::scoped_lock lock(count_->mutex_);
      if (--count_->live_ == 0) count_->none_left_.notify_all();
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

   private:
    const std::shared_ptr<LiveCount> count_;
  };

  void wait_for_none() {
    std::unique_lock lock(mutex_);
    none_left_.wait(lock, [&] { return live_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_left_;
  std::size_t live_ = 0;  // guarded
};

}  // namespace quarrel::http

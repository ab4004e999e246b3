// A thread that runs one task at a time for whoever owns it.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace quarrel {

class TaskThread {
 public:
  TaskThread() : thread_([this] { loop(); }) {}
  ~TaskThread() { close(); }
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Returns at once. The previous task must be over or about to end, and this one must not throw.
  void run(std::function<void()> task) {
    const std::scoped_lock lock(mutex_);
    task_.swap(task);
    changed_.notify_one();
  }

  // Waits for the task that runs.
  void close() {
    {
      const std::scoped_lock lock(mutex_);
      closing_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

  bool is_this_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closing_ || task_; });
      if (!task_) return;
      const std::function<void()> task = std::exchange(task_, {});
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace quarrel

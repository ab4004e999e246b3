// A fixed team of threads that runs one task at a time, all of it together. The caller is worker 0 and returns when
// every worker is done. Between tasks the others spin for a short while, because the next piece of a step usually comes
// within microseconds, and then sleep. One thread at a time may call `run`.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace quarrel {

// How many threads this process may use: its affinity mask and its control group's quota, at least 1.
int usable_threads();

class ThreadPool {
 public:
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return workers_; }

  // Calls task(worker, workers) once on each worker. The first exception thrown is rethrown here.
  template <typename Task>
  void run(Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    run_task([](void* context, int worker, int workers) { (*static_cast<Plain*>(context))(worker, workers); },
             const_cast<void*>(static_cast<const void*>(&task)));
  }

  // Splits [0, count) into one contiguous, equal part a worker, in multiples of `grain`: task(begin, end).
  template <typename Task>
  void for_range(std::int64_t count, std::int64_t grain, Task&& task) {
    if (workers_ == 1 || count <= grain) {
      if (count > 0) task(std::int64_t{0}, count);
      return;
    }
    run([&](int worker, int workers) {
      const std::int64_t grains = (count + grain - 1) / grain;
      const std::int64_t begin = grains * worker / workers * grain;
      const std::int64_t end = std::min(count, grains * (worker + 1) / workers * grain);
      if (begin < end) task(begin, end);
    });
  }

 private:
  using Entry = void (*)(void* context, int worker, int workers);
  void run_task(Entry entry, void* context);
  void work(int worker);
  void call(int worker) noexcept;

  const int workers_;
  std::vector<std::thread> threads_;

  // Written by the caller before `generation_` is raised, read by the workers after.
  Entry entry_ = nullptr;
  void* context_ = nullptr;

  alignas(64) std::atomic<std::uint32_t> generation_{0};
  alignas(64) std::atomic<int> unfinished_{0};
  std::atomic<bool> stopping_{false};
  std::mutex failure_mutex_;
  std::exception_ptr failure_;  // guarded by failure_mutex_
};

}  // namespace quarrel

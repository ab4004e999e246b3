#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <string>

namespace quarrel {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(50);

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The quota of the process's control group in whole threads; 0 when there is none.
int cgroup_threads() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  try {
    return std::max(1, static_cast<int>(std::lround(std::stod(quota) / period)));
  } catch (const std::exception&) {
    return 0;  // not a number: as good as no quota
  }
}

}  // namespace

int usable_threads() {
  int count = 0;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) count = CPU_COUNT(&mask);
  if (count <= 0) count = static_cast<int>(std::thread::hardware_concurrency());
  const int quota = cgroup_threads();
  if (quota > 0) count = std::min(count, quota);
  return std::max(1, count);
}

ThreadPool::ThreadPool(int workers) : workers_(std::max(1, workers)) {
  for (int worker = 1; worker < workers_; ++worker) threads_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::call(int worker) noexcept {
  try {
    entry_(context_, worker, workers_);
  } catch (...) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::run_task(Entry entry, void* context) {
  entry_ = entry;
  context_ = context;
  unfinished_.store(workers_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  call(0);
  for (int turns = 0; unfinished_.load(std::memory_order_acquire) != 0; ++turns) {
    if (turns < 4096) {
      relax();
    } else {
      std::this_thread::yield();  // somebody else has the core a worker needs
    }
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(int worker) {
  std::uint32_t seen = 0;
  for (;;) {
    const auto give_up = std::chrono::steady_clock::now() + kSpinTime;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (std::chrono::steady_clock::now() < give_up) {
        for (int turn = 0; turn < 32; ++turn) relax();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    ++seen;
    if (stopping_.load(std::memory_order_acquire)) return;
    call(worker);
    unfinished_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace quarrel

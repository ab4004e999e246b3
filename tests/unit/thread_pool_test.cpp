#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace quarrel {
namespace {

TEST(ThreadPool, EveryWorkerRunsOnceATask) {
  ThreadPool pool(4);
  for (int round = 0; round < 2000; ++round) {
    std::array<std::atomic<int>, 4> calls{};
    pool.run([&](int worker, int workers) {
      EXPECT_EQ(workers, 4);
      calls[static_cast<std::size_t>(worker)].fetch_add(1);
    });
    for (const auto& count : calls) ASSERT_EQ(count.load(), 1);
  }
}

// What a worker wrote must be visible to the caller without further locks.
TEST(ThreadPool, ResultsAreVisibleAfterRun) {
  ThreadPool pool(3);
  std::vector<int> values(1000);
  for (int round = 1; round <= 200; ++round) {
    pool.for_range(1000, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] += static_cast<int>(i);
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), 0), round * 499500);
  }
}

TEST(ThreadPool, RangesCoverEverythingOnce) {
  ThreadPool pool(3);
  for (const std::int64_t count : {0, 1, 15, 16, 17, 48, 100, 1000}) {
    for (const std::int64_t grain : {1, 7, 16}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      pool.for_range(count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)].fetch_add(1);
      });
      for (const auto& cell : seen) ASSERT_EQ(cell.load(), 1);
    }
  }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(2);
  for (const int thrower : {0, 1}) {
    EXPECT_THROW(pool.run([&](int worker, int) {
      if (worker == thrower) throw std::runtime_error("from a worker");
    }),
                 std::runtime_error);
  }
  std::atomic<int> calls{0};
  pool.run([&](int, int) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 2);
}

// Between tasks the workers fall asleep; the next task must still find them.
TEST(ThreadPool, SleepersWake) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> calls{0};
    pool.run([&](int, int) { calls.fetch_add(1); });
    EXPECT_EQ(calls.load(), 3);
  }
}

TEST(ThreadPool, CanBeDestroyedAsleepOrUnused) {
  for (int round = 0; round < 50; ++round) ThreadPool pool(4);
  EXPECT_GE(usable_threads(), 1);
}

}  // namespace
}  // namespace quarrel

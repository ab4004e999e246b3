#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/sanitized.h"

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
}

// Many more workers than any test machine has processors: nobody may keep the others from theirs.
TEST(ThreadPool, MoreWorkersThanProcessors) {
  ThreadPool pool(40);
  std::array<int, 40> sums{};
  for (int round = 0; round < 100; ++round) {
    pool.run([&](int worker, int) {
      ++sums[static_cast<std::size_t>(worker)];
      pool.sync(worker);
      ++sums[static_cast<std::size_t>((worker + 1) % 40)];
    });
  }
  for (const int sum : sums) EXPECT_EQ(sum, 200);
}

// A caller that would spin for as long as a worker needs would not give its processor away of its own accord.
TEST(ThreadPool, TheCallerSleepsWhenAWorkerTakesLong) {
  ThreadPool pool(2);
  rusage before{};
  rusage after{};
  ASSERT_EQ(::getrusage(RUSAGE_THREAD, &before), 0);
  pool.run([](int worker, int) {
    if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  });
  ASSERT_EQ(::getrusage(RUSAGE_THREAD, &after), 0);
  EXPECT_GT(after.ru_nvcsw, before.ru_nvcsw);
}

// ---- sync ----

// A made-up machine of so many nodes with a core each; they share the processors that there are.
CpuTopology machine_of(int nodes) {
  CpuTopology topology;
  const std::vector<LogicalCpu> real = read_cpu_topology().cpus;
  for (int node = 0; node < nodes; ++node) {
    const LogicalCpu& cpu = real[static_cast<std::size_t>(node) % real.size()];
    topology.cpus.push_back({.id = cpu.id, .core = node, .node = node});
  }
  return topology;
}

// In each phase everybody reads what its neighbour wrote in the one before.
TEST(ThreadPoolSync, SeparatesPhases) {
  for (const auto& [workers, nodes] : {std::pair(1, 1), {2, 1}, {3, 1}, {5, 1}, {2, 2}, {5, 2}, {7, 3}}) {
    ThreadPool pool({.count = workers}, machine_of(nodes));
    for (int round = 0; round < 50; ++round) {
      std::vector<int> values(static_cast<std::size_t>(workers), 0);
      std::atomic<int> wrong{0};
      pool.run([&](int worker, int) {
        int& mine = values[static_cast<std::size_t>(worker)];
        const int& neighbour = values[static_cast<std::size_t>((worker + 1) % pool.size())];
        for (int phase = 1; phase <= 20; ++phase) {
          mine = phase;
          pool.sync(worker);
          wrong += neighbour == phase ? 0 : 1;
          pool.sync(worker);
        }
      });
      ASSERT_EQ(wrong.load(), 0);
    }
  }
}

class ThreadPoolNodes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Machines, ThreadPoolNodes, testing::Values(1, 2, 3));

TEST_P(ThreadPoolNodes, WhoHasLeftIsNotWaitedFor) {
  ThreadPool pool({.count = 4}, machine_of(GetParam()));
  for (int round = 0; round < 200; ++round) {
    std::array<int, 4> passed{};
    pool.run([&](int worker, int workers) {
      const int turns = (worker + round) % workers * 3;
      for (int turn = 0; turn < turns; ++turn) {
        pool.sync(worker);
        ++passed[static_cast<std::size_t>(worker)];
      }
    });
    for (int worker = 0; worker < 4; ++worker) {
      ASSERT_EQ(passed[static_cast<std::size_t>(worker)], (worker + round) % 4 * 3);
    }
  }
}

// One throws, before or after a few phases; the others would wait for it for ever.
TEST_P(ThreadPoolNodes, AnExceptionFreesTheOthers) {
  ThreadPool pool({.count = 4}, machine_of(GetParam()));
  for (int round = 0; round < 100; ++round) {
    const int thrower = round % 4;
    const int phases = round / 4 % 3;
    std::atomic<int> unwound{0};
    struct Counter {
      std::atomic<int>& count;
      ~Counter() { ++count; }
    };
    EXPECT_THROW(pool.run([&](int worker, int) {
      const Counter counter{unwound};
      for (int phase = 0;; ++phase) {
        if (worker == thrower && phase == phases) throw std::runtime_error("from a worker");
        pool.sync(worker);
      }
    }),
                 std::runtime_error);
    EXPECT_EQ(unwound.load(), 4);
    std::atomic<int> calls{0};
    pool.run([&](int worker, int) {
      pool.sync(worker);
      ++calls;
    });
    ASSERT_EQ(calls.load(), 4);
  }
}

TEST(ThreadPoolNodeWork, AreTheWorkersOfANode) {
  const ThreadPool pool({.count = 7}, machine_of(3));
  ASSERT_EQ(pool.nodes(), 3);
  EXPECT_EQ(pool.node(0).first, 0);
  EXPECT_EQ(pool.node(2).last, 7);
  for (int node = 0; node < 3; ++node) {
    if (node > 0) {
      EXPECT_EQ(pool.node(node).first, pool.node(node - 1).last);
    }
    EXPECT_LT(pool.node(node).first, pool.node(node).last);
    for (int worker = pool.node(node).first; worker < pool.node(node).last; ++worker) {
      EXPECT_EQ(pool.node_of(worker), node);
      EXPECT_EQ(pool.numa_id_of(worker), node);
    }
  }
  EXPECT_EQ(ThreadPool({.count = 3}, machine_of(1)).nodes(), 1);
}

// Every unit once; and whoever has begun to help another node has found nothing left of its own.
TEST_P(ThreadPoolNodes, ShareTheirOwnWorkFirst) {
  ThreadPool pool({.count = 6}, machine_of(GetParam()));
  const auto units = [](int node) { return std::size_t{40} + 13 * static_cast<std::size_t>(node); };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<std::atomic<int>>> seen;
    for (int node = 0; node < pool.nodes(); ++node) seen.emplace_back(units(node));
    std::vector<char> abroad(6, 0);
    std::atomic<int> came_back{0};
    pool.share(units, [&](int node, std::size_t unit, int worker) {
      seen[static_cast<std::size_t>(node)][unit].fetch_add(1);
      char& away = abroad[static_cast<std::size_t>(worker)];
      if (node != pool.node_of(worker)) {
        away = 1;
      } else if (away != 0) {
        ++came_back;
      }
    });
    for (const auto& node : seen) {
      for (const auto& count : node) ASSERT_EQ(count.load(), 1);
    }
    ASSERT_EQ(came_back.load(), 0);
  }
}

// One node sits in its first unit until all else is done: somebody else must do its other units.
TEST(ThreadPoolNodeWork, HelpWhoIsSlow) {
  ThreadPool pool({.count = 2}, machine_of(2));
  ASSERT_EQ(pool.nodes(), 2);
  for (const int slow : {0, 1}) {
    std::atomic<int> done{0};
    pool.share([](int) { return std::size_t{10}; },
               [&](int, std::size_t, int worker) {
                 if (worker == slow) {
                   while (done.load() < 19) std::this_thread::yield();
                 }
                 ++done;
               });
    EXPECT_EQ(done.load(), 20);
  }
}

// ---- Modes and places ----

thread_local std::uint32_t thread_mode = 1;

constexpr ThreadMode kTestMode = {
    .enter = []() noexcept { return std::exchange(thread_mode, std::uint32_t{7}); },
    .leave = [](std::uint32_t before) noexcept { thread_mode = before; },
};

TEST(ThreadPoolMode, HoldsOnEveryWorkerAndIsTakenBackFromTheCaller) {
  for (const int workers : {1, 3}) {
    ThreadPool pool({.count = workers, .mode = kTestMode});
    thread_mode = 5;
    std::atomic<int> wrong{0};
    const auto look = [&] { wrong += thread_mode == 7 ? 0 : 1; };
    pool.run([&](int, int) { look(); });
    EXPECT_EQ(thread_mode, 5u);
    pool.for_range(100, 1, [&](std::int64_t, std::int64_t) { look(); });
    EXPECT_EQ(thread_mode, 5u);
    pool.for_range(1, 16, [&](std::int64_t, std::int64_t) { look(); });  // by the caller alone
    EXPECT_EQ(thread_mode, 5u);
    EXPECT_THROW(pool.run([&](int, int) { throw std::runtime_error("from a worker"); }), std::runtime_error);
    EXPECT_EQ(thread_mode, 5u);
    EXPECT_EQ(wrong.load(), 0);
    {
      const ThreadPool::Caller caller(pool);
      EXPECT_EQ(thread_mode, 7u);
      pool.run([](int, int) {});
      EXPECT_EQ(thread_mode, 7u);  // until the outer one ends
    }
    EXPECT_EQ(thread_mode, 5u);
  }
}

std::vector<CpuMask> masks_in(ThreadPool& pool) {
  std::vector<CpuMask> masks(static_cast<std::size_t>(pool.size()));
  pool.run([&](int worker, int) { masks[static_cast<std::size_t>(worker)] = CpuMask::of_this_thread(); });
  return masks;
}

TEST(ThreadPoolPlaces, PinnedWorkersHaveAProcessorEach) {
  const CpuMask before = CpuMask::of_this_thread();
  if (before.count() == 0) GTEST_SKIP() << "the system does not tell the affinity mask";
  const CpuTopology topology = read_cpu_topology();
  const int workers = static_cast<int>(topology.cpus.size());
  ThreadPool pool({.count = workers, .pin = true});
  EXPECT_TRUE(pool.pinned());
  CpuMask all;
  const std::vector<CpuMask> masks = masks_in(pool);
  for (std::size_t i = 0; i < masks.size(); ++i) {
    EXPECT_EQ(masks[i].count(), 1);
    EXPECT_TRUE(masks[i].contains(topology.cpus[i].id));
    all.add(topology.cpus[i].id);
  }
  EXPECT_EQ(all.count(), workers);
  EXPECT_EQ(CpuMask::of_this_thread(), before);
  {
    const ThreadPool::Caller caller(pool);
    EXPECT_EQ(CpuMask::of_this_thread(), masks[0]);
  }
  EXPECT_EQ(CpuMask::of_this_thread(), before);
}

TEST(ThreadPoolPlaces, WithoutPinsOnOneNodeNobodyIsBound) {
  CpuTopology topology = read_cpu_topology();
  for (LogicalCpu& cpu : topology.cpus) cpu.node = 0;
  ThreadPool pool({.count = 3}, topology);
  for (const CpuMask& mask : masks_in(pool)) EXPECT_EQ(mask, CpuMask::of_this_thread());
}

// A made-up machine whose nodes are halves of this one's processors.
TEST(ThreadPoolPlaces, OnSeveralNodesEachWorkerStaysOnItsOwn) {
  const CpuMask before = CpuMask::of_this_thread();
  CpuTopology topology = read_cpu_topology();
  if (before.count() < 2 || topology.cpus.size() < 2) GTEST_SKIP() << "two nodes need two processors";
  const std::size_t half = topology.cpus.size() / 2;
  for (std::size_t i = 0; i < topology.cpus.size(); ++i) topology.cpus[i].node = i < half ? 0 : 3;
  ThreadPool pool({.count = 4}, topology);
  EXPECT_FALSE(pool.pinned());
  EXPECT_EQ(pool.numa_id_of(0), 0);
  EXPECT_EQ(pool.numa_id_of(3), 3);
  const std::vector<CpuMask> masks = masks_in(pool);
  for (int worker = 0; worker < 4; ++worker) {
    EXPECT_EQ(masks[static_cast<std::size_t>(worker)], topology.node_mask(pool.numa_id_of(worker)));
    if (worker > 0) {
      EXPECT_GE(pool.numa_id_of(worker), pool.numa_id_of(worker - 1));
    }
  }
  EXPECT_EQ(CpuMask::of_this_thread(), before);
}

// Who moves the caller's thread while it works for the pool means it.
TEST(ThreadPoolPlaces, ACallerThatWasMovedStaysThere) {
  const CpuMask before = CpuMask::of_this_thread();
  const CpuTopology topology = read_cpu_topology();
  if (before.count() < 2 || topology.cpus.size() < 2) GTEST_SKIP() << "there is only one place";
  CpuMask other;
  other.add(topology.cpus.back().id);
  ThreadPool pool({.count = 1, .pin = true});
  {
    const ThreadPool::Caller caller(pool);
    ASSERT_TRUE(other.bind_this_thread());
  }
  EXPECT_EQ(CpuMask::of_this_thread(), other);
  ASSERT_TRUE(before.bind_this_thread());
}

// A system that gives no more threads must not end the process. In a process of its own, because the limit would stay.
TEST(ThreadPool, TooManyThreadsAreAnError) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers take address space of their own";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const rlimit limit{.rlim_cur = rlim_t{1} << 30, .rlim_max = rlim_t{1} << 30};
    bool refused = false;
    if (::setrlimit(RLIMIT_AS, &limit) == 0) {
      try {
        ThreadPool pool(4096);
      } catch (const Error& error) {
        refused = error.kind() == ErrorKind::out_of_memory && std::string(error.what()).ends_with("unavailable");
      }
    }
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace quarrel

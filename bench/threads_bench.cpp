// What a region of the thread pool costs when its task does nothing, what a `sync` within one costs, and what it costs
// to wake workers that have gone to sleep. The first two are worth what they cost undisturbed, so beside the median of
// many short repetitions stands the best of them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace quarrel {
namespace {

ThreadOptions options_of(const benchmark::State& state) {
  return {.count = static_cast<int>(state.range(0)), .pin = state.range(1) != 0};
}

void empty_region(benchmark::State& state) {
  ThreadPool pool(options_of(state));
  const ThreadPool::Caller caller(pool);
  for (auto _ : state) pool.run([](int, int) {});
}

void sync_in_region(benchmark::State& state) {
  ThreadPool pool(options_of(state));
  const auto rounds = static_cast<std::int64_t>(state.max_iterations);
  while (state.KeepRunningBatch(rounds)) {
    pool.run([&](int worker, int) {
      for (std::int64_t round = 0; round < rounds; ++round) pool.sync(worker);
    });
  }
}

void sleeping_region(benchmark::State& state) {
  ThreadPool pool(options_of(state));
  const ThreadPool::Caller caller(pool);
  for (auto _ : state) {
    state.PauseTiming();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state.ResumeTiming();
    pool.run([](int, int) {});
  }
}

double best(const std::vector<double>& values) { return *std::ranges::min_element(values); }

void repeat(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"workers", "pin"})->UseRealTime()->Repetitions(60)->ReportAggregatesOnly();
  benchmark->ComputeStatistics("best", best);
  for (const int pin : {0, 1}) benchmark->Args({2, pin});
  const int all = usable_threads();
  if (all != 2) benchmark->Args({all, 0})->Args({all, 1});
}

BENCHMARK(empty_region)->Apply(repeat)->Iterations(2000);
BENCHMARK(sync_in_region)->Apply(repeat)->Iterations(2000);
BENCHMARK(sleeping_region)->Apply(repeat)->Iterations(20);

}  // namespace
}  // namespace quarrel

BENCHMARK_MAIN();

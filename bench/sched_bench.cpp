// What the scheduler itself costs a step: plan, commit and the events, for so many answers at once; what it costs to
// take in a prompt of which the cache has nearly all; and what a plan costs while a crowd waits with one prompt.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "sched/scheduler.h"

namespace quarrel {
namespace {

std::vector<TokenId> tokens_from(std::int64_t first, std::int64_t count) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>((first + i) % 100'000));
  return tokens;
}

struct Loop {
  explicit Loop(const SchedulerConfig& config) : scheduler(config) {}

  bool step() {
    if (scheduler.plan(now_us, plan) != PlanStatus::planned) return false;
    sampled.assign(plan.outputs.size(), 3);
    now_us += 10'000;
    scheduler.commit({.micros = 10'000, .sampled = sampled}, now_us);
    scheduler.take_events(events);
    return true;
  }

  Scheduler scheduler;
  StepPlan plan;
  std::vector<TokenId> sampled;
  std::vector<SchedEvent> events;
  std::int64_t now_us = 1;
};

SchedulerConfig config_of(std::int64_t sequences) {
  return {.groups = {{.blocks = 1 << 16}, {.blocks = 1 << 14, .window = 1024}},
          .context = 16384,
          .max_sequences = static_cast<std::int32_t>(sequences),
          .hash_seed = 42};
}

// A sequence whose answer ends is replaced, so that there are always as many.
void decode_step(benchmark::State& state) {
  Loop loop(config_of(state.range(0)));
  std::int64_t asked = 0;
  const auto top_up = [&] {
    for (; loop.scheduler.counters().accepted - loop.scheduler.counters().finished <
           static_cast<std::uint64_t>(state.range(0));
         ++asked) {
      loop.scheduler.submit({.prompt = tokens_from(asked * 777, 100), .max_tokens = 15'000}, loop.now_us);
    }
  };
  top_up();
  for (int i = 0; i < 200; ++i) loop.step();
  std::int64_t until_check = 1000;
  for (auto _ : state) {
    loop.step();
    if (--until_check > 0) continue;
    state.PauseTiming();
    until_check = 1000;
    top_up();
    state.ResumeTiming();
  }
  state.counters["ns_a_sequence"] = benchmark::Counter(static_cast<double>(state.iterations() * state.range(0)),
                                                       benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void cached_prompt(benchmark::State& state) {
  Loop loop(config_of(16));
  const std::vector<TokenId> prompt = tokens_from(0, state.range(0));
  for (auto _ : state) {
    loop.scheduler.submit({.prompt = prompt, .max_tokens = 1}, loop.now_us);
    while (loop.step()) {
    }
  }
}

// So many requests with the same prompt, or the same beginning and a tail of their own, come at once: the first plans,
// in which it is computed and the others start, and the dearest of them.
void equal_prompts(benchmark::State& state) {
  constexpr int kPlans = 16;
  const std::vector<TokenId> prompt = tokens_from(0, state.range(1));
  double dearest = 0;
  for (auto _ : state) {
    SchedulerConfig config = config_of(64);
    config.queue_token_limit = std::int64_t{1} << 30;
    Loop loop(config);
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      std::vector<TokenId> own = prompt;
      for (std::int64_t tail = 0; tail < state.range(2); ++tail) own.push_back(static_cast<TokenId>(i * 100 + tail));
      loop.scheduler.submit({.prompt = own, .max_tokens = 100}, loop.now_us);
    }
    double total = 0;
    for (int i = 0; i < kPlans; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      loop.scheduler.plan(loop.now_us, loop.plan);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      total += taken.count();
      dearest = std::max(dearest, taken.count());
      loop.sampled.assign(loop.plan.outputs.size(), 3);
      loop.now_us += 10'000;
      loop.scheduler.commit({.micros = 10'000, .sampled = loop.sampled}, loop.now_us);
      loop.scheduler.take_events(loop.events);
    }
    state.SetIterationTime(total / kPlans);
  }
  state.counters["dearest_us"] = dearest * 1e6;
}

BENCHMARK(decode_step)->ArgName("sequences")->Arg(1)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(cached_prompt)->ArgName("tokens")->Arg(512)->Arg(8192);
BENCHMARK(equal_prompts)
    ->ArgNames({"requests", "tokens", "tail"})
    ->Args({64, 16'000, 0})
    ->Args({1000, 16'000, 0})
    ->Args({1000, 512, 0})
    ->Args({1000, 512, 40})
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quarrel

BENCHMARK_MAIN();

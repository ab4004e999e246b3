// A scheduler, a clock and a model that always says the same token: for tests that look at single decisions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sched/scheduler.h"

namespace quarrel::sim {

inline std::vector<TokenId> tokens_from(TokenId first, std::int32_t count) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<std::size_t>(count));
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

class Driver {
 public:
  explicit Driver(const SchedulerConfig& config) : scheduler(config) {}

  // Microseconds of a step; by default all are alike.
  std::function<std::int64_t(const StepPlan&)> micros = [](const StepPlan&) { return std::int64_t{1000}; };
  TokenId says = 7;

  RequestId submit(SchedRequest request) {
    const SubmitResult result = scheduler.submit(std::move(request), now_us);
    EXPECT_EQ(result.status, SubmitStatus::accepted);
    return result.id;
  }

  bool make_plan() {
    const bool made = scheduler.plan(now_us, plan);
    collect();
    return made;
  }

  void finish_step(std::vector<std::uint8_t> bad = {}) {
    const std::int64_t taken = micros(plan);
    now_us += taken;
    const std::vector<TokenId> sampled(plan.outputs.size(), says);
    scheduler.commit({.micros = taken, .sampled = sampled, .bad = bad}, now_us);
    collect();
  }

  bool step() {
    if (!make_plan()) return false;
    finish_step();
    return true;
  }

  void run(int most = 100000) {
    while (most-- > 0 && step()) {
    }
  }

  std::int32_t rows_of(RequestId id) const {
    std::int32_t rows = 0;
    for (const PlanSequence& sequence : plan.sequences) rows += sequence.request == id ? sequence.rows : 0;
    return rows;
  }
  // The sequence of a request in the plan; null: it has none.
  const PlanSequence* sequence_of(RequestId id, std::int32_t branch = 0) const {
    for (const PlanSequence& sequence : plan.sequences) {
      if (sequence.request == id && sequence.branch == branch) return &sequence;
    }
    return nullptr;
  }
  std::vector<std::int32_t> table_of(RequestId id, std::int32_t branch = 0, std::size_t group = 0) const {
    const PlanSequence* sequence = sequence_of(id, branch);
    if (sequence == nullptr) return {};
    const auto& blocks = plan.tables_of(static_cast<std::size_t>(sequence - plan.sequences.data()))[group].blocks;
    return {blocks.begin(), blocks.end()};
  }
  // How a branch ended; its end must have been told exactly once.
  EndReason end_of(RequestId id, std::int32_t branch = 0) const {
    EndReason reason = EndReason::stop;
    int times = 0;
    for (const SchedEvent& event : events) {
      if (event.kind != SchedEvent::Kind::finished || event.request != id || event.branch != branch) continue;
      reason = event.reason;
      ++times;
    }
    EXPECT_EQ(times, 1) << "request " << id;
    return reason;
  }
  std::int32_t tokens_of(RequestId id, std::int32_t branch = 0) const {
    return static_cast<std::int32_t>(std::count_if(events.begin(), events.end(), [&](const SchedEvent& event) {
      return event.kind == SchedEvent::Kind::token && event.request == id && event.branch == branch;
    }));
  }
  void expect_all_free() {
    scheduler.clear_cache();
    const SchedulerCounters counters = scheduler.counters();
    EXPECT_EQ(counters.slots_used, 0);
    for (const GroupCounters& group : counters.groups) EXPECT_EQ(group.free, group.total);
    EXPECT_TRUE(scheduler.idle());
  }
  void collect() {
    std::vector<SchedEvent> fresh;
    scheduler.take_events(fresh);
    events.insert(events.end(), fresh.begin(), fresh.end());
    const auto wrong = scheduler.check();
    ASSERT_FALSE(wrong.has_value()) << wrong.value_or("");
  }

  Scheduler scheduler;
  StepPlan plan;
  std::vector<SchedEvent> events;
  std::int64_t now_us = 1;
};

}  // namespace quarrel::sim

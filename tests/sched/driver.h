// A scheduler, a clock and a model that always says the same token: for tests that look at single decisions. With two
// steps in flight `plan` is the one planned last, and `finish_step` is for the one planned first.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
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
  explicit Driver(const SchedulerConfig& config)
      : scheduler(config), steps_in_flight_(static_cast<std::size_t>(config.steps_in_flight)) {}

  // Microseconds of a step; by default all are alike.
  std::function<std::int64_t(const StepPlan&)> micros = [](const StepPlan&) { return std::int64_t{1000}; };
  TokenId says = 7;

  RequestId submit(SchedRequest request) {
    const SubmitResult result = scheduler.submit(std::move(request), now_us);
    EXPECT_EQ(result.status, SubmitStatus::accepted);
    return result.id;
  }

  bool make_plan() {
    status = scheduler.plan(now_us, plan, pace_us);
    note_planned();
    return status == PlanStatus::planned;
  }
  void note_planned() {
    if (status == PlanStatus::planned) in_flight_.push_back({.outputs = plan.outputs.size(), .micros = micros(plan)});
    collect();
  }

  void finish_step(std::vector<std::uint8_t> bad = {}) {
    ASSERT_FALSE(in_flight_.empty());
    finish_step(std::vector<TokenId>(in_flight_.front().outputs, says), std::move(bad));
  }
  void finish_step(const std::vector<TokenId>& sampled, std::vector<std::uint8_t> bad) {
    ASSERT_FALSE(in_flight_.empty());
    const std::int64_t taken = in_flight_.front().micros;
    in_flight_.pop_front();
    now_us += taken;
    scheduler.commit({.micros = taken, .sampled = sampled, .bad = bad}, now_us);
    collect();
  }
  void abort_step() {
    scheduler.abort_step();
    in_flight_.clear();
    collect();
  }

  // As many plans as there may be, and what comes of the oldest.
  bool step() {
    while (in_flight_.size() < steps_in_flight_ && make_plan()) {
    }
    if (in_flight_.empty()) return false;
    finish_step();
    return true;
  }
  std::size_t in_flight() const { return in_flight_.size(); }

  void run(int most = 100000) {
    while (most-- > 0 && step()) {
    }
  }

  std::int32_t rows_of(RequestId id) const {
    std::int32_t rows = 0;
    for (const PlanOwner& owner : plan.owners) rows += owner.request == id ? owner.rows : 0;
    return rows;
  }
  // The sequence of a request in the plan; null: it has none.
  const StepSequence* sequence_of(RequestId id, std::int32_t branch = 0) const {
    for (std::size_t i = 0; i < plan.owners.size(); ++i) {
      if (plan.owners[i].request == id && plan.owners[i].branch == branch) return &plan.sequences[i];
    }
    return nullptr;
  }
  std::vector<std::int32_t> table_of(RequestId id, std::int32_t branch = 0, std::size_t group = 0) const {
    const StepSequence* sequence = sequence_of(id, branch);
    if (sequence == nullptr) return {};
    const auto& blocks = sequence->tables[group].blocks;
    return {blocks.begin(), blocks.end()};
  }
  // How a branch ended; its end must have been reported exactly once.
  FinishReason end_of(RequestId id, std::int32_t branch = 0) const {
    FinishReason reason = FinishReason::stop;
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
  PlanStatus status = PlanStatus::nothing;  // of the last plan
  std::int64_t now_us = 1;
  std::int64_t pace_us = 0;

 private:
  struct InFlight {
    std::size_t outputs = 0;
    std::int64_t micros = 0;
  };
  std::size_t steps_in_flight_;
  std::deque<InFlight> in_flight_;
};

}  // namespace quarrel::sim

// A backend that computes nothing but remembers: each place of the cache holds the hash of the prefix that wrote it,
// each slot that of the text it has read. A step's rows must find their own prefix in all they can see.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sched/scheduler.h"
#include "sched/step_plan.h"
#include "sched/workload.h"

namespace quarrel::sim {

class EchoBackend {
 public:
  explicit EchoBackend(const SchedulerConfig& config);

  // What a request's branch should read at this moment; null: nobody by that name is alive.
  using Lookup = std::function<const Text*(RequestId, std::int32_t branch)>;

  // Carries the step out. What is wrong with it, or nothing.
  std::string run(const StepPlan& plan, const Lookup& lookup);
  // A step that fails: copies and writes are made or not, as chance has it, and what is written is rubbish.
  void run_badly(const StepPlan& plan, Random& random);
  // The rows of a sequence came out wrong.
  void spoil(const StepPlan& plan, std::size_t sequence);

 private:
  std::string check_shape(const StepPlan& plan) const;
  std::string check_rows(const StepPlan& plan, std::size_t sequence, const Text& text) const;
  std::string check_states(const StepPlan& plan);
  std::string check_sight(const StepPlan& plan, std::size_t sequence, const Text& text) const;
  std::string check_outputs(const StepPlan& plan, const Lookup& lookup) const;
  void copy(const StepPlan& plan);
  std::uint64_t& cell(std::size_t group, std::int32_t block, std::int32_t position);
  std::uint64_t cell(std::size_t group, std::int32_t block, std::int32_t position) const;

  SchedulerConfig config_;
  std::vector<std::vector<std::uint64_t>> cells_;  // [group][block * block_tokens + offset]
  std::vector<std::uint64_t> slots_;
  std::vector<const Text*> texts_;  // of the step's sequences
};

}  // namespace quarrel::sim

// A backend that computes nothing but remembers: each place of the cache holds the hash of the prefix that wrote it,
// each slot that of the text it has read, each lane the text it has sampled for. A step's rows must find their own
// prefix in all they can see, and whoever samples its own lane.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sched/scheduler.h"
#include "sched/step_plan.h"
#include "sched/workload.h"

namespace quarrel::sim {

// A step as a backend keeps it from when it is submitted until it runs: the scheduler's tables may change meanwhile.
struct SubmittedStep {
  StepPlan plan = {};
  std::vector<TokenId> sampled = {};      // one an output, when it has run
  bool second = false;                    // another was in flight when it was planned
  std::vector<std::uint8_t> of_all = {};  // [sequence]: its rows are a prompt's, and so those of every branch

  void take(const StepPlan& from, bool second_in_flight);

 private:
  std::vector<std::int32_t> blocks_;
};

class EchoBackend {
 public:
  explicit EchoBackend(const SchedulerConfig& config, std::int32_t vocabulary);

  // What a request's branch, or with `of_all` any of its branches, should read at this moment; null: it is no longer
  // alive.
  using Lookup = std::function<const Text*(RequestId, std::int32_t branch, bool of_all)>;

  // Carries the step out, after the one before it, and samples. What is wrong with it, or nothing. What belongs to
  // nobody alive is rubbish.
  std::string run(SubmittedStep& step, const SubmittedStep& before, const Lookup& lookup);
  // A step that fails: copies and writes are made or not, as chance has it, and what is written is rubbish.
  void run_badly(const StepPlan& plan, Random& random);
  // The rows of a sequence came out wrong.
  void spoil(const StepPlan& plan, std::size_t sequence);
  // What is wrong with a plan as it was handed out.
  std::string check_shape(const StepPlan& plan) const;

 private:
  struct Lane {
    RequestId request = 0;
    std::int32_t branch = 0;
    std::int32_t rows = 0;     // of a pooled text
    std::int32_t sampled = 0;  // tokens, since it was given
    std::uint64_t hash = 0;    // of the text with the last of them
    bool spoiled = true;
  };

  std::string resolve(SubmittedStep& step, const SubmittedStep& before) const;
  std::string check_rows(const StepPlan& plan, std::size_t sequence, const Text& text) const;
  std::string check_states(const StepPlan& plan);
  std::string check_sight(const StepPlan& plan, std::size_t sequence, const Text& text) const;
  std::string check_output(const StepPlan& plan, const PlanOutput& output, const Text& text) const;
  std::string pool(const StepPlan& plan, std::size_t sequence);
  std::string sample_outputs(SubmittedStep& step, const Lookup& lookup);
  std::string use_lane(const PlanOutput& output, const Text* text, std::int32_t position, TokenId token);
  void begin_lanes(const StepPlan& plan);
  void copy(const StepPlan& plan);
  std::uint64_t& cell(std::size_t group, std::int32_t block, std::int32_t position);
  std::uint64_t cell(std::size_t group, std::int32_t block, std::int32_t position) const;

  SchedulerConfig config_;
  std::int32_t vocabulary_;
  std::vector<std::vector<std::uint64_t>> cells_;  // [group][block * block_tokens + offset]
  std::vector<std::uint64_t> slots_;
  std::vector<Lane> lanes_;
  std::vector<const Text*> texts_;  // of the step's sequences; null: of nobody alive
  std::vector<int> written_;        // scratch, [slot]
};

}  // namespace quarrel::sim

// One step on its way: the scheduler's plan, and what the engine adds to make it a backend's Step (how outputs choose
// their tokens, what lanes begin with, masks). Buffers keep their size from step to step. Only the engine's thread uses
// it; `build` is called under the engine's lock, `fill_masks` without.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "engine/engine_job.h"
#include "sched/step_plan.h"

namespace quarrel {

using EngineJobs = std::unordered_map<RequestId, std::shared_ptr<EngineJob>>;

class StepBuilder {
 public:
  StepPlan plan;
  Ticket ticket = 0;
  bool submitted = false;            // and not awaited yet
  std::string failure;               // why it failed
  bool may_succeed_smaller = false;  // after that failure

  void fail(std::string_view why, bool may_succeed) noexcept {
    may_succeed_smaller = may_succeed;
    try {
      failure = why;
    } catch (const std::bad_alloc&) {
      failure.clear();  // there is no memory even to say so
    }
  }

  // Makes the step of `plan`. What it points to lives in the plan, in the jobs and here.
  void build(const EngineJobs& jobs, std::int32_t vocabulary);
  const Step& step() const noexcept { return step_; }
  // The step was submitted, and what it points to in jobs was copied: jobs that have ended since may be destroyed.
  void let_go() noexcept { held_.clear(); }

  // What the results mean for the scheduler. Throws std::bad_alloc before anything has changed.
  void read(const StepResults& results, const EngineJobs& jobs);
  StepOutcome outcome(std::int64_t micros) const noexcept {
    return {.micros = micros, .sampled = sampled_, .bad = bad_};
  }
  bool bad(const PlanOutput& output) const noexcept;
  // What is reported about each output besides its sample: logits, a vector. Empty for most.
  std::vector<float>& values(std::size_t output) noexcept { return values_[output]; }

 private:
  struct MaskedOutput {
    EngineBranch* branch = nullptr;
    std::span<const TokenId> answer = {};
    std::size_t output = 0;
  };

  void add_output(const PlanOutput& planned, EngineJob& job);
  static void begin_text(const EngineJob& job, EngineBranch& branch);
  static void make_text_room(EngineBranch& branch);
  void fill_masks();
  void note_bad(std::size_t sequence, const EngineJobs& jobs, const std::string& why);

  Step step_;
  std::vector<std::shared_ptr<EngineJob>> held_;  // whoever the step points to
  std::vector<StepOutput> outputs_;
  std::vector<LaneStart> lane_starts_;
  std::vector<MaskedOutput> masked_;
  std::vector<std::uint64_t> mask_words_;  // [masked output][words]
  std::size_t mask_size_ = 0;              // words of one
  std::vector<TokenId> sampled_;           // one an output
  std::vector<std::uint8_t> bad_;          // one a sequence
  std::vector<std::vector<float>> values_;
};

}  // namespace quarrel

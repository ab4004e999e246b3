// One step as the scheduler decided it: plain arrays, filled by Scheduler::plan and reused from step to step. A backend
// takes most of them as they are (base/step_rows.h); others say which requests the rows and outputs belong to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/step_rows.h"
#include "base/token.h"
#include "sched/request.h"

namespace quarrel {

// The branch that a sequence of the step belongs to.
struct PlanOwner {
  RequestId request = 0;
  std::int32_t branch = 0;
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
};

// A row whose result is wanted, ascending by row. The last row of a prompt has one per branch.
struct PlanOutput {
  enum class Kind : std::uint8_t {
    sample,  // the branch's next token
    score,   // the log-probability of `score`
    vector,  // the row itself
    pooled,  // one vector of the whole text
  };
  std::int32_t row = 0;
  Kind kind = Kind::sample;
  std::int32_t branch = 0;
  RequestId request = 0;
  TokenId score = -1;      // of kind score
  std::int32_t lane = -1;  // of kinds sample and pooled
};

// A lane that was assigned to a branch and has to start with its text so far.
struct PlanLane {
  std::int32_t lane = 0;
  RequestId request = 0;
  std::int32_t branch = 0;
};

struct StepPlan {
  std::vector<StepRow> rows = {};
  std::int32_t generated_rows = 0;           // how many of `rows` are of class generated
  std::vector<StepSequence> sequences = {};  // their tables point into `tables`
  std::vector<PlanOwner> owners = {};        // one a sequence
  // [sequence][group]. Their spans point into the scheduler and are good until it is called again: the step must have
  // been submitted by then.
  std::vector<BlockTable> tables = {};
  std::int32_t groups = 0;
  std::vector<PlanOutput> outputs = {};
  std::vector<StateSnapshot> snapshots = {};
  std::vector<BlockCopy> block_copies = {};
  std::vector<SlotCopy> slot_copies = {};
  std::vector<PlanLane> lane_starts = {};

  std::span<const BlockTable> tables_of(std::size_t sequence) const noexcept {
    const auto count = static_cast<std::size_t>(groups);
    return std::span(tables).subspan(sequence * count, count);
  }
  void clear() noexcept {
    rows.clear();
    generated_rows = 0;
    sequences.clear();
    owners.clear();
    tables.clear();
    outputs.clear();
    snapshots.clear();
    block_copies.clear();
    slot_copies.clear();
    lane_starts.clear();
  }
};

// The result of planning.
enum class PlanStatus : std::uint8_t {
  planned,  // there is a step
  nothing,  // there is nothing to compute
  wait,     // commit the step in flight first: a branch would have to be preempted, or everything that could run
            // depends on what is being sampled
};

// The results of a step.
struct StepOutcome {
  std::int64_t micros = 0;                 // of the device's own time
  std::span<const TokenId> sampled = {};   // one an output; any value where nothing is sampled; kNoToken: none may come
  std::span<const std::uint8_t> bad = {};  // one a sequence: whether its numbers were not finite; empty: none were
};
inline constexpr TokenId kNoToken = -1;

}  // namespace quarrel

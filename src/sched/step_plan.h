// One step as the scheduler decided it: plain arrays, filled by Scheduler::plan and reused from step to step. The
// engine turns it one to one into a backend's step: copies first, then the rows.
//
// Rows of class generated come first, then those of class prompt. Rows of one sequence are consecutive, ascend in
// position and are all of one class: a sequence has its rows in one section only, so that causal order holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token.h"
#include "sched/request.h"

namespace quarrel {

struct PlanRow {
  std::int32_t sequence = 0;  // index into StepPlan::sequences
  std::int32_t position = 0;
  TokenId token = 0;
};

// A sequence's blocks in one KV group; entry i holds positions [i * block_tokens, …). Entries before first_live may be
// -1. The span points into the scheduler and is good until commit or abort_step.
struct PlanTable {
  std::span<const std::int32_t> blocks = {};
  std::int32_t first_live = 0;
};

struct PlanSequence {
  RequestId request = 0;
  std::int32_t branch = 0;
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t length = 0;      // positions after this step
  std::int32_t state_in = -1;   // slot its recurrent state is read from; -1: zeros
  std::int32_t state_out = -1;  // slot it is left in
};

// A row whose result is wanted, ascending by row. The last row of a prompt has one a branch.
struct PlanOutput {
  std::int32_t row = 0;
  std::int32_t branch = 0;
  RequestId request = 0;
  TokenId score = -1;  // the token whose log-probability is wanted; -1: a token is to be sampled
};

struct PlanSnapshot {
  std::int32_t row = 0;
  std::int32_t slot = 0;  // that keeps the recurrent state after the row
};

struct BlockCopy {
  std::int32_t group = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
};

struct SlotCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

struct StepPlan {
  std::vector<PlanRow> rows = {};
  std::int32_t generated_rows = 0;  // how many of `rows` are of class generated
  std::vector<PlanSequence> sequences = {};
  std::vector<PlanTable> tables = {};  // [sequence][group]
  std::int32_t groups = 0;
  std::vector<PlanOutput> outputs = {};
  std::vector<PlanSnapshot> snapshots = {};
  std::vector<BlockCopy> block_copies = {};  // to be carried out before the rows
  std::vector<SlotCopy> slot_copies = {};

  std::span<const PlanTable> tables_of(std::size_t sequence) const noexcept {
    const auto count = static_cast<std::size_t>(groups);
    return std::span(tables).subspan(sequence * count, count);
  }
  void clear() noexcept {
    rows.clear();
    generated_rows = 0;
    sequences.clear();
    tables.clear();
    outputs.clear();
    snapshots.clear();
    block_copies.clear();
    slot_copies.clear();
  }
};

// What became of a step.
struct StepOutcome {
  std::int64_t micros = 0;
  std::span<const TokenId> sampled = {};   // one an output; any value where a score was asked for
  std::span<const std::uint8_t> bad = {};  // one a sequence: whether its numbers were not finite; empty: none were
};

}  // namespace quarrel

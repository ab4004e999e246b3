// A step with everything it points to, so that it can be computed after its maker has gone on.
#pragma once

#include <deque>
#include <vector>

#include "backend/step.h"

namespace quarrel::test {

class StepCopy {
 public:
  // Masks are copied later, when they have been filled.
  explicit StepCopy(const Step& step)
      : rows_(step.rows.begin(), step.rows.end()),
        sequences_(step.sequences.begin(), step.sequences.end()),
        outputs_(step.outputs.begin(), step.outputs.end()),
        snapshots_(step.snapshots.begin(), step.snapshots.end()),
        block_copies_(step.block_copies.begin(), step.block_copies.end()),
        slot_copies_(step.slot_copies.begin(), step.slot_copies.end()),
        lane_starts_(step.lane_starts.begin(), step.lane_starts.end()),
        generated_rows_(step.generated_rows) {
    for (StepSequence& sequence : sequences_) {
      std::vector<BlockTable>& tables = tables_.emplace_back(sequence.tables.begin(), sequence.tables.end());
      for (BlockTable& table : tables) {
        table.blocks = blocks_.emplace_back(table.blocks.begin(), table.blocks.end());
      }
      sequence.tables = tables;
    }
    for (LaneStart& start : lane_starts_) {
      if (start.sampling != nullptr) start.sampling = &sampling_.emplace_back(*start.sampling);
      start.text = texts_.emplace_back(start.text.begin(), start.text.end());
    }
  }
  StepCopy(const StepCopy&) = delete;
  StepCopy& operator=(const StepCopy&) = delete;

  void copy_masks(const Step& step) {
    for (std::size_t o = 0; o < outputs_.size(); ++o) {
      outputs_[o].mask = masks_.emplace_back(step.outputs[o].mask.begin(), step.outputs[o].mask.end());
    }
  }

  Step step() const {
    return {.rows = rows_,
            .generated_rows = generated_rows_,
            .sequences = sequences_,
            .outputs = outputs_,
            .snapshots = snapshots_,
            .block_copies = block_copies_,
            .slot_copies = slot_copies_,
            .lane_starts = lane_starts_};
  }

 private:
  std::vector<StepRow> rows_;
  std::vector<StepSequence> sequences_;
  std::vector<StepOutput> outputs_;
  std::vector<StateSnapshot> snapshots_;
  std::vector<BlockCopy> block_copies_;
  std::vector<SlotCopy> slot_copies_;
  std::vector<LaneStart> lane_starts_;
  std::int32_t generated_rows_;
  std::deque<std::vector<BlockTable>> tables_;
  std::deque<std::vector<std::int32_t>> blocks_;
  std::deque<std::vector<std::uint64_t>> masks_;
  std::deque<std::vector<TokenId>> texts_;
  std::deque<SamplingParams> sampling_;
};

}  // namespace quarrel::test

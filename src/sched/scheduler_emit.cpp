// What was chosen, as the arrays of a StepPlan.
#include <algorithm>

#include "base/as_size.h"
#include "sched/scheduler.h"

namespace quarrel {

void Scheduler::emit(StepPlan& plan) {
  for (const bool generated : {true, false}) {
    for (const Selection& pick : picks_) {
      if (pick.generated == generated) emit_sequence(plan, pick);
    }
    if (generated) plan.generated_rows = static_cast<std::int32_t>(plan.rows.size());
  }
  if (selections_.empty()) return;
  plan.block_copies.reserve(block_copies_.size());
  for (const PendingBlockCopy& pending : block_copies_) plan.block_copies.push_back(pending.copy);
  plan.slot_copies.reserve(slot_copies_.size());
  for (const PendingSlotCopy& pending : slot_copies_) plan.slot_copies.push_back(pending.copy);
}

void Scheduler::emit_sequence(StepPlan& plan, const Selection& selection) {
  const Branch& branch = *selection.branch;
  const auto first_row = static_cast<std::int32_t>(plan.rows.size());
  const auto sequence = static_cast<std::int32_t>(plan.sequences.size());
  selections_.push_back(selection);
  for (std::int32_t row = 0; row < selection.rows; ++row) {
    const std::int32_t position = branch.computed + row;
    plan.rows.push_back({.sequence = sequence, .position = position, .token = branch.tokens[as_size(position)]});
  }
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    plan.tables.push_back(
        {.blocks = branch.tables[group], .first_live = branch.first_entries[group] * config_.block_tokens});
  }
  const std::int32_t state_in = branch.source_slot >= 0 ? branch.source_slot : (branch.computed > 0 ? branch.slot : -1);
  plan.sequences.push_back({.request = branch.job->id,
                            .branch = branch.index,
                            .first_row = first_row,
                            .rows = selection.rows,
                            .length = branch.computed + selection.rows,
                            .state_in = config_.recurrent ? state_in : -1,
                            .state_out = branch.slot});
  emit_outputs(plan, selection, first_row);
  if (config_.recurrent && !selection.generated && branch.cache_open) emit_snapshots(plan, selection, first_row);
}

void Scheduler::emit_outputs(StepPlan& plan, const Selection& selection, std::int32_t first_row) {
  const Branch& branch = *selection.branch;
  Job& job = *branch.job;
  const std::int32_t end = branch.computed + selection.rows;
  if (job.score_prompt && !job.forked) {
    for (std::int32_t at = std::max(branch.computed, branch.scored); at < std::min(end, branch.prompt_end - 1); ++at) {
      plan.outputs.push_back({.row = first_row + at - branch.computed,
                              .branch = branch.index,
                              .request = job.id,
                              .score = branch.tokens[as_size(at) + 1]});
      output_branches_.push_back(nullptr);
    }
  }
  if (end != branch.length() || job.max_tokens == 0) return;
  const std::int32_t last_row = first_row + selection.rows - 1;
  for (Branch& each : job.branches) {
    if (job.forked ? &each != &branch : each.state == Branch::State::done) continue;
    plan.outputs.push_back({.row = last_row, .branch = each.index, .request = job.id});
    output_branches_.push_back(&each);
  }
}

// The last place within `most` tokens of its prompt where a branch leaves a snapshot; 0: there is none.
std::int32_t Scheduler::last_snapshot(const Branch& branch, std::int32_t most) const noexcept {
  const std::int32_t block = config_.block_tokens;
  // One long prompt does not take the place of everybody's snapshots: its own lie farther apart.
  const std::int32_t spread = branch.prompt_end / std::max(1, config_.max_snapshots / 4);
  std::int32_t interval = (config_.snapshot_interval + block - 1) / block * block;
  while (interval > 0 && interval < spread) interval *= 2;
  std::int32_t last = interval > 0 ? most / interval * interval : 0;
  // The end of the last full block that the same prompt, sent again, could use; of what should stay; and of what others
  // wait for.
  for (const std::int32_t end :
       {(branch.prompt_end - 1) / block * block, branch.job->pinned / block * block, branch.wished_snapshot}) {
    if (end <= most) last = std::max(last, end);
  }
  return last;
}

void Scheduler::emit_snapshots(StepPlan& plan, const Selection& selection, std::int32_t first_row) {
  Branch& branch = *selection.branch;
  const std::size_t before = plan.snapshots.size();
  // The last ones are worth most: if there are not enough slots, they have theirs.
  for (std::int32_t length = last_snapshot(branch, branch.computed + selection.rows); length > branch.computed;
       length = last_snapshot(branch, length - 1)) {
    if (snapshots_.size() >= as_size(config_.max_snapshots)) break;
    const std::int32_t slot = cache_.take_snapshot();
    if (slot < 0) break;
    snapshots_.push_back({.branch = &branch, .length = length, .slot = slot});
    plan.snapshots.push_back({.row = first_row + length - branch.computed - 1, .slot = slot});
  }
  std::reverse(plan.snapshots.begin() + static_cast<std::ptrdiff_t>(before), plan.snapshots.end());
}

}  // namespace quarrel

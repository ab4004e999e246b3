// What was chosen, as the arrays of a StepPlan.
#include <algorithm>

#include "base/as_size.h"
#include "sched/scheduler.h"

namespace quarrel {

void Scheduler::emit(StepPlan& plan) {
  plan.tables.reserve(picks_.size() * cache_.groups());  // so that they stay where sequences point to
  for (const bool generated : {true, false}) {
    for (const Selection& pick : picks_) {
      if (pick.generated == generated) emit_sequence(plan, pick);
    }
    if (generated) plan.generated_rows = static_cast<std::int32_t>(plan.rows.size());
  }
  if (picks_.empty()) return;
  plan.block_copies.reserve(block_copies_.size());
  for (const PendingBlockCopy& pending : block_copies_) plan.block_copies.push_back(pending.copy);
  plan.slot_copies.reserve(slot_copies_.size());
  for (const PendingSlotCopy& pending : slot_copies_) plan.slot_copies.push_back(pending.copy);
}

void Scheduler::emit_sequence(StepPlan& plan, const Selection& selection) {
  Branch& branch = *selection.branch;
  const std::int32_t next = branch.next();
  const auto first_row = static_cast<std::int32_t>(plan.rows.size());
  const auto sequence = static_cast<std::int32_t>(plan.sequences.size());
  planned_->selections.push_back(selection);
  for (std::int32_t position = next; position < next + selection.rows; ++position) {
    const TokenId token = position < branch.length() ? branch.tokens[as_size(position)] : ~branch.pending_output;
    plan.rows.push_back({.sequence = sequence, .position = position, .token = token});
  }
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    plan.tables.push_back(
        {.blocks = branch.tables[group], .first_live = branch.first_entries[group] * config_.block_tokens});
  }
  std::int32_t state_in = next > 0 ? branch.slot : -1;
  // Only the first step reads what another text has left: those after it read what that one writes.
  if (branch.source_slot >= 0 && branch.rows_in_flight == 0) state_in = branch.source_slot;
  if (branch.job->pooled && !branch.lane_begun) emit_lane(plan, branch);
  plan.sequences.push_back({.tables = plan.tables_of(plan.sequences.size()),
                            .length = next + selection.rows,
                            .state_in = config_.recurrent ? state_in : -1,
                            .state_out = branch.slot,
                            .lane = branch.job->pooled ? branch.lane : -1});
  plan.owners.push_back(
      {.request = branch.job->id, .branch = branch.index, .first_row = first_row, .rows = selection.rows});
  emit_outputs(plan, selection, first_row);
  if (config_.recurrent && !selection.generated && branch.cache_open) emit_snapshots(plan, selection, first_row);
}

// A lane is given with the first that needs one, and reported until a plan with it has been handed out.
void Scheduler::emit_lane(StepPlan& plan, Branch& branch) {
  plan.lane_starts.push_back({.request = branch.job->id, .branch = branch.index});
  if (branch.lane < 0) {
    branch.lane = free_lanes_.back();
    free_lanes_.pop_back();
  }
  plan.lane_starts.back().lane = branch.lane;
}

void Scheduler::emit_outputs(StepPlan& plan, const Selection& selection, std::int32_t first_row) {
  const Branch& branch = *selection.branch;
  Job& job = *branch.job;
  std::vector<Branch*>& owners = planned_->output_branches;
  const std::int32_t next = branch.next();
  const std::int32_t end = next + selection.rows;
  const bool scores = job.prompt_outputs == PromptOutputs::scores;
  for (std::int32_t at = std::max(next, branch.scored); at < std::min(end, output_rows(job)); ++at) {
    plan.outputs.push_back({.row = first_row + at - next,
                            .kind = scores ? PlanOutput::Kind::score : PlanOutput::Kind::vector,
                            .branch = branch.index,
                            .request = job.id,
                            .score = scores ? branch.tokens[as_size(at) + 1] : -1});
    owners.push_back(nullptr);
  }
  if (end != branch.end()) return;
  const std::int32_t last_row = end - next - 1 + first_row;
  if (job.pooled) {
    plan.outputs.push_back({.row = last_row,
                            .kind = PlanOutput::Kind::pooled,
                            .branch = branch.index,
                            .request = job.id,
                            .lane = branch.lane});
    owners.push_back(nullptr);
  }
  if (job.max_tokens == 0) return;
  for (Branch& each : job.branches) {
    if (job.forked ? &each != &branch : each.state >= Branch::State::leaving) continue;
    owners.push_back(&each);
    if (!each.lane_begun) emit_lane(plan, each);
    plan.outputs.push_back({.row = last_row, .branch = each.index, .request = job.id, .lane = each.lane});
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
  const std::int32_t next = branch.next();
  std::vector<ReservedSnapshot>& reserved = planned_->snapshots;
  const std::size_t before = plan.snapshots.size();
  // The last ones are worth most: if there are not enough slots, they have theirs.
  for (std::int32_t length = last_snapshot(branch, next + selection.rows); length > next;
       length = last_snapshot(branch, length - 1)) {
    if (steps_[0].snapshots.size() + steps_[1].snapshots.size() >= as_size(config_.max_snapshots)) break;
    const std::int32_t slot = cache_.take_snapshot();
    if (slot < 0) break;
    reserved.push_back({.branch = &branch, .length = length, .slot = slot});
    plan.snapshots.push_back({.row = first_row + length - next - 1, .slot = slot});
  }
  std::reverse(plan.snapshots.begin() + static_cast<std::ptrdiff_t>(before), plan.snapshots.end());
}

}  // namespace quarrel

// A higher priority does not wait behind lower ones that run. When the next in the queue cannot start for want of
// blocks, of a slot or of a place among those that run, branches of a lower priority are preempted for it, the worst
// first; but only as many as it takes, and none at all if that would not be enough. Age protects: who has risen to the
// priority of the one that waits stays, and so does the exempt one.
#include <algorithm>

#include "base/as_size.h"
#include "sched/scheduler.h"

namespace quarrel {
namespace {

// Its level is never worse than its own priority, so that is lower too.
bool preemptible(const Branch& branch, std::int32_t priority) noexcept {
  return branch.level > priority && branch.planned_rows == 0;
}

}  // namespace

// Before rows are chosen: whoever has a row in this step keeps what it has.
void Scheduler::preempt_for_priority(std::int64_t now_us) {
  const std::int32_t highest = queue_.highest(paused_);
  if (std::none_of(running_.begin(), running_.end(), [&](const Branch* each) { return preemptible(*each, highest); }))
    return;
  count_committed();
  bool changed = false;
  while (Branch* next = next_to_start(now_us)) {
    if (!preempt_for(*next)) break;
    changed = true;
  }
  if (changed) rank_running(now_us);
}

bool Scheduler::preempt_for(Branch& branch) {
  const auto priority = static_cast<std::int32_t>(branch.job->priority);
  victims_.clear();
  for (Branch* each : running_) {
    if (preemptible(*each, priority)) victims_.push_back(each);
  }
  if (victims_.empty() || (blocked_by_all_ && still_blocked(branch))) return false;
  std::sort(victims_.begin(), victims_.end(), [](const Branch* a, const Branch* b) { return outranks(*b, *a); });
  const Start start = start_of(branch);
  const std::size_t count = victims_needed(branch, start);
  if (count > victims_.size()) note_blocked(branch, true);
  if (count == 0 || count > victims_.size()) return false;
  if (in_flight_ > 0) {
    must_wait_ = true;
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) preempt(*victims_[i]);
  counts_.priority_preemptions += count;
  count_committed();
  blocked_job_ = 0;  // it may have been noted when the cache had less of its text
  if (try_start(branch)) {
    commit_blocks(branch);
    return true;
  }
  ++counts_.vain_preemptions;
  return false;
}

// How many of the victims must go, in their order; one more than there are: not even all of them would do.
std::size_t Scheduler::victims_needed(const Branch& branch, const Start& start) noexcept {
  measure_shortage(branch, start);
  // What the branch shares itself is no room for the rest of it, whoever else lets go of it.
  const auto mark_match = [&](std::int32_t mark) {
    for (std::size_t group = 0; group < marks_.size(); ++group) {
      for (std::int32_t entry = cache_.first_entry(group, start.match.tokens);
           entry < start.match.tokens / config_.block_tokens; ++entry) {
        marks_[group][as_size(cache_.matched_block(group, entry))] = mark;
      }
    }
  };
  mark_match(-1);
  std::size_t count = 0;
  while (!would_start(count) && count <= victims_.size()) {
    if (count < victims_.size()) count_freed(*victims_[count]);
    ++count;
  }
  for (std::size_t i = 0; i < std::min(count, victims_.size()); ++i) {
    const Branch& victim = *victims_[i];
    for (std::size_t group = 0; group < marks_.size(); ++group) {
      for (std::size_t entry = as_size(victim.first_entries[group]); entry < victim.tables[group].size(); ++entry) {
        marks_[group][as_size(victim.tables[group][entry])] = 0;
      }
    }
  }
  mark_match(0);
  return count;
}

// A block is free when the last who holds it has let go; what a prompt would still have wanted is free at once.
void Scheduler::count_freed(const Branch& victim) noexcept {
  for (std::size_t group = 0; group < marks_.size(); ++group) {
    for (std::size_t entry = as_size(victim.first_entries[group]); entry < victim.tables[group].size(); ++entry) {
      const std::int32_t block = victim.tables[group][entry];
      if (++marks_[group][as_size(block)] == cache_.blocks(group).references(block)) --shortage_[group];
    }
    if (!victim.decodes()) shortage_[group] -= blocks_wanted(victim, group, victim.length());
  }
}

// Whether the branch whose shortage was measured would start if so many fewer ran.
bool Scheduler::would_start(std::size_t fewer) const noexcept {
  if (fewer > running_.size()) return false;
  const std::size_t running = running_.size() - fewer;
  if (running >= as_size(config_.max_sequences)) return false;
  // The first to go is the youngest of its request: nobody still waits for a copy of its state.
  if (config_.recurrent && fewer == 0 && cache_.slots().available() < 1) return false;
  return running == 0 || !short_of_blocks(running);
}

}  // namespace quarrel

// What the next step holds. Decode rows first, best rank first; then prompts, as many rows as the budget allows, shared
// among those of equal priority; age brings a prompt into the company of the best, and no further. A branch that needs
// a block takes it from the worst that is not in the step yet, or sits the step out: nobody gives way to a lower rank,
// so the best one always advances.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "sched/scheduler.h"

namespace quarrel {
namespace {

bool holds_blocks(const Branch& branch) noexcept {
  return std::any_of(branch.tables.begin(), branch.tables.end(), [](const auto& table) { return !table.empty(); });
}

}  // namespace

bool Scheduler::plan(std::int64_t now_us, StepPlan& plan) {
  if (in_flight_) fail(ErrorKind::internal, "a step was planned while another is in flight");
  plan.clear();
  plan.groups = static_cast<std::int32_t>(cache_.groups());
  events_.reserve(events_.size() + kEventsABranch * live_branches_);
  expire(now_us);
  rank_running(now_us);
  make_way(now_us);
  const Branch* best = running_.empty() ? nullptr : running_[0];
  rows_left_ = std::min(config_.max_rows, row_cap_);
  outputs_left_ = config_.max_outputs;
  decode_rows_ = 0;
  try {
    secure_best();
    choose_decodes();
    const std::int32_t budget = budget_.prefill_rows(decode_rows_, rows_left_);
    if (budget > 0) {
      rows_left_ = budget;
      const std::size_t before = running_.size();
      admit(now_us);
      choose_prefills(before);
    }
    const bool measuring = budget == 0 && rows_left_ > 0;
    const bool sat_out = best != nullptr && best->state == Branch::State::running && best->planned_rows == 0;
    if (sat_out && !measuring) ++counts_.best_stalls;
    emit(plan);
  } catch (...) {
    abandon_plan();
    throw;
  }
  if (selections_.empty()) return false;
  in_flight_ = true;
  return true;
}

void Scheduler::abandon_plan() noexcept {
  for (const Selection& pick : picks_) pick.branch->planned_rows = 0;
  for (const ReservedSnapshot& reserved : snapshots_) cache_.slots().release(reserved.slot);
  picks_.clear();
  selections_.clear();
  output_branches_.clear();
  snapshots_.clear();
}

void Scheduler::expire(std::int64_t now_us) noexcept {
  if (earliest_deadline_ == 0 || now_us < earliest_deadline_) return;
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (auto& [id, job] : jobs_) {
    if (job->deadline_us == 0) continue;
    if (job->deadline_us <= now_us) {
      finish_all(*job, EndReason::deadline);
    } else {
      next = std::min(next, job->deadline_us);
    }
  }
  earliest_deadline_ = next == std::numeric_limits<std::int64_t>::max() ? 0 : next;
  sweep();
}

void Scheduler::rank_running(std::int64_t now_us) noexcept {
  for (Branch* branch : running_) branch->level = branch->exempt ? kExemptLevel : queue_.level(*branch->job, now_us);
  std::sort(running_.begin(), running_.end(), [](const Branch* a, const Branch* b) { return outranks(*a, *b); });
}

bool Scheduler::fits(const Branch& branch, std::int32_t end) const noexcept {
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    const std::int32_t missing = blocks_for(end) - static_cast<std::int32_t>(branch.tables[group].size());
    if (missing > cache_.blocks(group).available()) return false;
  }
  return true;
}

bool Scheduler::make_room(Branch& branch, std::int32_t end) noexcept {
  while (!fits(branch, end)) {
    Branch* victim = nullptr;
    for (Branch* other : running_) {
      if (other->planned_rows > 0 || !holds_blocks(*other) || !outranks(branch, *other)) continue;
      if (victim == nullptr || outranks(*victim, *other)) victim = other;
    }
    if (victim == nullptr) {
      ++counts_.stalls;
      return false;
    }
    preempt(*victim);
  }
  return true;
}

void Scheduler::grow_tables(Branch& branch, std::int32_t end) {
  const std::size_t entries = as_size(blocks_for(end));
  for (std::vector<std::int32_t>& table : branch.tables) {
    if (table.capacity() < entries) table.reserve(std::max(entries, 2 * table.capacity()));
  }
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    while (branch.tables[group].size() < entries) branch.tables[group].push_back(cache_.take_block(group));
  }
}

// Decode rows are chosen first, but if the best branch is still at its prompt they must not take its next block.
void Scheduler::secure_best() {
  if (running_.empty() || running_[0]->decodes()) return;
  Branch& best = *running_[0];
  if (make_room(best, best.computed + 1)) grow_tables(best, best.computed + 1);
}

void Scheduler::choose_decodes() {
  const std::int32_t kept = running_.empty() || running_[0]->decodes() ? 0 : 1;  // a row of its prompt
  // Others may be preempted meanwhile, but only such as stand behind the one at hand.
  for (std::size_t i = 0; i < running_.size() && rows_left_ > kept; ++i) {
    Branch& branch = *running_[i];
    if (!branch.decodes() || !make_room(branch, branch.computed + 1)) continue;
    grow_tables(branch, branch.computed + 1);
    select(branch, 1, true);
    ++decode_rows_;
  }
}

// Those from index `started` on have joined in this plan: if the cache had all but the last token of such a text, its
// decode row has not been chosen yet.
void Scheduler::choose_prefills(std::size_t started) {
  prefills_.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (i >= started || !running_[i]->decodes()) prefills_.push_back(running_[i]);
  }
  // Age earns an even share with the best who are here, not all of it: else a long prompt that has waited would keep
  // every fresh one from its first token.
  std::int32_t top = std::numeric_limits<std::int32_t>::max();
  for (const Branch* branch : prefills_) top = std::min(top, static_cast<std::int32_t>(branch->job->priority));
  const auto share = [top](const Branch* branch) {
    return branch->exempt ? kExemptLevel : std::max(branch->level, top);
  };
  // The short ones first, each within its even share: what they leave goes to the long ones.
  const auto rank = [&](const Branch* branch) {
    return std::tuple(share(branch), branch->pending(), branch->job->order, branch->index);
  };
  std::sort(prefills_.begin(), prefills_.end(), [&](const Branch* a, const Branch* b) { return rank(a) < rank(b); });
  // Until the best branch has its turn, a row and its outputs are kept for it.
  const Branch* best = running_.empty() ? nullptr : running_[0];
  const bool kept = std::find(prefills_.begin(), prefills_.end(), best) != prefills_.end();
  std::int32_t kept_rows = kept ? 1 : 0;
  std::int32_t kept_outputs = kept ? outputs_of(*best, 1) : 0;
  std::size_t level_end = 0;
  for (std::size_t i = 0; i < prefills_.size() && rows_left_ > 0; ++i) {
    Branch& branch = *prefills_[i];
    if (branch.state != Branch::State::running) continue;  // preempted meanwhile
    if (&branch == best) kept_rows = kept_outputs = 0;
    for (level_end = std::max(level_end, i); level_end < prefills_.size(); ++level_end) {
      if (share(prefills_[level_end]) != share(&branch)) break;
    }
    const std::int32_t most = rows_left_ - kept_rows;
    const auto equals = std::max(1, static_cast<std::int32_t>(level_end - i));  // itself among them
    if (most > 0) choose_chunk(branch, std::max(1, most / equals), outputs_left_ - kept_outputs);
  }
  for (Branch* branch : prefills_) branch->idle = branch->planned_rows == 0;
}

void Scheduler::choose_chunk(Branch& branch, std::int32_t most, std::int32_t most_outputs) {
  const bool generated = branch.computed >= branch.prompt_end;
  const std::int32_t end = generated ? branch.length() : branch.prompt_end;
  std::int32_t rows = std::min(most, end - branch.computed);
  while (rows > 0 && outputs_of(branch, rows) > most_outputs) --rows;
  if (rows == 0 || !make_room(branch, branch.computed + 1)) return;
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    const std::int64_t entries =
        static_cast<std::int64_t>(branch.tables[group].size()) + cache_.blocks(group).available();
    rows = static_cast<std::int32_t>(std::min<std::int64_t>(rows, entries * config_.block_tokens - branch.computed));
  }
  grow_tables(branch, branch.computed + rows);
  select(branch, rows, generated);
}

std::int32_t Scheduler::outputs_of(const Branch& branch, std::int32_t rows) const noexcept {
  const Job& job = *branch.job;
  const std::int32_t end = branch.computed + rows;
  std::int32_t count = 0;
  if (job.score_prompt && !job.forked) {
    count += std::max(0, std::min(end, branch.prompt_end - 1) - std::max(branch.computed, branch.scored));
  }
  if (end == branch.length() && job.max_tokens > 0) {
    count += job.forked ? 1 : job.unfinished;
  }
  return count;
}

void Scheduler::select(Branch& branch, std::int32_t rows, bool generated) {
  if (branch.computed + rows == branch.length()) reserve_for_commit(branch);
  const std::int32_t outputs = outputs_of(branch, rows);
  picks_.push_back({.branch = &branch, .rows = rows, .generated = generated});
  branch.planned_rows = rows;
  rows_left_ -= rows;
  outputs_left_ -= outputs;
}

// What commit will append to is made large enough here, where running out of memory does no harm.
void Scheduler::reserve_for_commit(Branch& branch) {
  Job& job = *branch.job;
  const std::size_t tokens = branch.tokens.size();
  const auto grow = [](std::vector<TokenId>& list, std::size_t size) {
    if (list.capacity() < size) list.reserve(size + std::min<std::size_t>(size, kTokenRoom * 16));
  };
  if (job.forked) {
    grow(branch.tokens, tokens + 1);
    return;
  }
  for (Branch& each : job.branches) {
    if (each.state == Branch::State::done) continue;
    grow(each.tokens, tokens + 1);
    for (std::vector<std::int32_t>& table : each.tables)
      table.reserve(as_size(blocks_for(branch.length() + kTokenRoom)));
  }
}

}  // namespace quarrel

// What the next step holds. Decode rows first, best rank first; then prompts, as many rows as the budget allows, shared
// among those of equal priority; age brings a prompt into the company of the best, and no further. A branch that needs
// a block takes it from the worst that is not in the step yet, or sits the step out: nobody is preempted for a lower
// rank, so the best one always advances.
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

PlanStatus Scheduler::plan(std::int64_t now_us, StepPlan& plan, std::int64_t pace_us) {
  if (in_flight_ >= as_size(config_.steps_in_flight)) fail(ErrorKind::internal, "too many steps are in flight");
  plan.clear();
  plan.groups = static_cast<std::int32_t>(cache_.groups());
  events_.reserve(events_.size() + kEventsABranch * live_branches_);
  now_us_ = now_us;
  expire(now_us);
  must_wait_ = false;
  planned_ = &steps_[(oldest_ + in_flight_) % steps_.size()];
  try {
    choose_rows(now_us, pace_us);
    if (!must_wait_) emit(plan);
  } catch (...) {
    abandon_plan();
    throw;
  }
  report_waiting(now_us);
  if (must_wait_ || picks_.empty()) {
    const bool later = must_wait_ || (in_flight_ > 0 && (!running_.empty() || queue_.size() > 0));
    abandon_plan();
    if (!later) return PlanStatus::nothing;
    ++counts_.waits;
    return PlanStatus::wait;
  }
  take_off();
  return PlanStatus::planned;
}

void Scheduler::choose_rows(std::int64_t now_us, std::int64_t pace_us) {
  rank_running(now_us);
  preempt_for_priority(now_us);
  if (must_wait_) return;
  const auto first =
      std::find_if(running_.begin(), running_.end(), [this](const Branch* each) { return ready(*each); });
  best_ = first != running_.end() ? *first : nullptr;
  rows_left_ = std::min(config_.max_rows, row_cap_);
  outputs_left_ = config_.max_outputs;
  lanes_left_ = static_cast<std::int32_t>(free_lanes_.size());
  std::int32_t& decode_rows = planned_->decode_rows;
  decode_rows = 0;
  if (config_.whole_texts) {
    if (pace_us > 0) rows_left_ = budget_.paced_rows(pace_us, 0, rows_left_);
    admit(now_us);
    choose_whole_texts();
    return;
  }
  secure_best();
  choose_decodes();
  if (must_wait_) return;
  std::int32_t budget = budget_.prefill_rows(decode_rows, rows_left_);
  if (pace_us > 0) budget = std::min(budget, budget_.paced_rows(pace_us, decode_rows, rows_left_));
  const bool measuring = budget == 0 && rows_left_ > 0;
  if (budget > 0) {
    rows_left_ = budget;
    const std::size_t before = running_.size();
    admit(now_us);
    choose_prefills(before);
  }
  const bool sat_out = best_ != nullptr && best_->state == Branch::State::running && best_->planned_rows == 0;
  if (!sat_out || measuring || must_wait_) return;
  if (in_flight_ > 0) {
    must_wait_ = true;
  } else {
    ++counts_.best_stalls;
  }
}

// The step is in flight from here on.
void Scheduler::take_off() noexcept {
  StepRecord& step = *planned_;
  for (const Selection& selection : step.selections) {
    Branch& branch = *selection.branch;
    branch.planned_rows = 0;
    branch.rows_in_flight += selection.rows;
    branch.pending_output = -1;
    branch.lane_begun = branch.lane_begun || branch.job->pooled;
    ++branch.places;
  }
  for (std::size_t i = 0; i < step.output_branches.size(); ++i) {
    Branch* branch = step.output_branches[i];
    if (branch == nullptr) continue;
    branch->pending_output = static_cast<std::int32_t>(i);
    branch->lane_begun = true;
    ++branch->places;
  }
  step.block_copies.swap(block_copies_);
  step.slot_copies.swap(slot_copies_);
  picks_.clear();
  ++in_flight_;
}

void Scheduler::abandon_plan() noexcept {
  StepRecord& step = *planned_;
  for (const Selection& pick : picks_) {
    pick.branch->planned_rows = 0;
    if (!pick.branch->lane_begun) release_lane(*pick.branch);
  }
  for (Branch* branch : step.output_branches) {
    if (branch != nullptr && !branch->lane_begun) release_lane(*branch);
  }
  picks_.clear();
  end_step(step);
}

// Whether a branch that runs can have a row in this plan: not if that depends on what the host must know first.
bool Scheduler::ready(const Branch& branch) const noexcept {
  if (branch.rows_in_flight == 0 || branch.next() < branch.length()) return true;
  const Job& job = *branch.job;
  if (branch.pending_output < 0 || job.stepwise || (!job.forked && job.unfinished > 1)) return false;
  // It goes on unless a stop token comes.
  return branch.generated + 1 < job.max_tokens && branch.length() + 1 < longest_;
}

void Scheduler::expire(std::int64_t now_us) noexcept {
  if (earliest_deadline_ == 0 || now_us < earliest_deadline_) return;
  std::int64_t next = std::numeric_limits<std::int64_t>::max();
  for (auto& [id, job] : jobs_) {
    const std::int64_t due = due_us(*job);
    if (due == 0) continue;
    if (due <= now_us) {
      finish_all(*job, FinishReason::timeout);
    } else {
      next = std::min(next, due);
    }
  }
  earliest_deadline_ = next == std::numeric_limits<std::int64_t>::max() ? 0 : next;
  sweep();
}

void Scheduler::rank_running(std::int64_t now_us) noexcept {
  for (Branch* branch : running_) branch->level = branch->exempt ? kExemptLevel : queue_.level(*branch->job, now_us);
  const auto before = [](const Branch* a, const Branch* b) { return outranks(*a, *b); };
  // From plan to plan the order seldom changes.
  if (!std::is_sorted(running_.begin(), running_.end(), before)) std::sort(running_.begin(), running_.end(), before);
}

// Whether the blocks it has reach so far.
bool Scheduler::covered(const Branch& branch, std::int32_t end) const noexcept {
  return std::all_of(branch.tables.begin(), branch.tables.end(), [&](const std::vector<std::int32_t>& table) {
    return static_cast<std::int64_t>(table.size()) * config_.block_tokens >= end;
  });
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
    if (in_flight_ > 0 && (victim != nullptr || &branch == best_)) {
      must_wait_ = true;
      return false;
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
  if (best_ == nullptr || best_->decodes()) return;
  Branch& best = *best_;
  if (make_room(best, best.next() + 1)) grow_tables(best, best.next() + 1);
}

void Scheduler::choose_decodes() {
  const std::int32_t kept = best_ == nullptr || best_->decodes() ? 0 : 1;  // a row of its prompt
  // Others may be preempted meanwhile, but only such as stand behind the one at hand.
  for (std::size_t i = 0; i < running_.size() && rows_left_ > kept && !must_wait_; ++i) {
    Branch& branch = *running_[i];
    if (!branch.decodes() || !ready(branch) || lanes_of(branch, 1) > lanes_left_) continue;
    if (!covered(branch, branch.next() + 1)) {
      if (!make_room(branch, branch.next() + 1)) continue;
      grow_tables(branch, branch.next() + 1);
    }
    select(branch, 1, true);
    ++planned_->decode_rows;
  }
}

// Those from index `started` on have joined in this plan: if the cache had all but the last token of such a text, its
// decode row has not been chosen yet.
void Scheduler::choose_prefills(std::size_t started) {
  prefills_.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if ((i >= started || !running_[i]->decodes()) && ready(*running_[i])) prefills_.push_back(running_[i]);
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
  // Until it is the best one's time, a row is kept for it, with its outputs and lanes.
  const Branch* best = best_ != nullptr || running_.empty() ? best_ : running_[0];
  const bool kept = std::find(prefills_.begin(), prefills_.end(), best) != prefills_.end();
  std::int32_t kept_rows = kept ? 1 : 0;
  std::int32_t kept_outputs = kept ? outputs_of(*best, 1) : 0;
  std::int32_t kept_lanes = kept ? lanes_of(*best, 1) : 0;
  std::size_t level_end = 0;
  for (std::size_t i = 0; i < prefills_.size() && rows_left_ > 0 && !must_wait_; ++i) {
    Branch& branch = *prefills_[i];
    if (branch.state != Branch::State::running) continue;  // preempted meanwhile
    if (&branch == best) kept_rows = kept_outputs = kept_lanes = 0;
    for (level_end = std::max(level_end, i); level_end < prefills_.size(); ++level_end) {
      if (share(prefills_[level_end]) != share(&branch)) break;
    }
    const std::int32_t most = rows_left_ - kept_rows;
    const auto equals = std::max(1, static_cast<std::int32_t>(level_end - i));  // itself among them
    if (most > 0)
      choose_chunk(branch, std::max(1, most / equals), outputs_left_ - kept_outputs, lanes_left_ - kept_lanes);
  }
  if (must_wait_) return;
  for (Branch* branch : prefills_) branch->idle = branch->planned_rows == 0;
}

// The best first, whatever the budget says, then whoever fits into what is left of it.
void Scheduler::choose_whole_texts() {
  prefills_.assign(running_.begin(), running_.end());  // those that started just now are not in their places
  std::sort(prefills_.begin(), prefills_.end(), [](const Branch* a, const Branch* b) { return outranks(*a, *b); });
  for (std::size_t i = 0; i < prefills_.size() && !must_wait_; ++i) {
    Branch& branch = *prefills_[i];
    if (branch.rows_in_flight > 0 || branch.state != Branch::State::running) continue;
    const bool first = picks_.empty();
    const std::int32_t rows = branch.length();
    const bool affordable = rows <= rows_left_ && outputs_of(branch, rows) <= outputs_left_;
    if (!(first || affordable) || lanes_of(branch, rows) > lanes_left_ || !make_room(branch, rows)) continue;
    grow_tables(branch, rows);
    select(branch, rows, branch.prompt_end == 0);
  }
}

void Scheduler::choose_chunk(Branch& branch, std::int32_t most, std::int32_t most_outputs, std::int32_t most_lanes) {
  const std::int32_t next = branch.next();
  const bool generated = next >= branch.prompt_end;
  std::int32_t rows = std::min(most, (generated ? branch.end() : branch.prompt_end) - next);
  while (rows > 0 && (outputs_of(branch, rows) > most_outputs || lanes_of(branch, rows) > most_lanes)) --rows;
  if (rows == 0 || !make_room(branch, next + 1)) return;
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    const std::int64_t entries =
        static_cast<std::int64_t>(branch.tables[group].size()) + cache_.blocks(group).available();
    rows = static_cast<std::int32_t>(std::min<std::int64_t>(rows, entries * config_.block_tokens - next));
  }
  grow_tables(branch, next + rows);
  select(branch, rows, generated);
}

std::int32_t Scheduler::outputs_of(const Branch& branch, std::int32_t rows) const noexcept {
  const Job& job = *branch.job;
  const std::int32_t end = branch.next() + rows;
  std::int32_t count = std::max(0, std::min(end, output_rows(job)) - std::max(branch.next(), branch.scored));
  if (end == branch.end() && (job.max_tokens > 0 || job.pooled)) count += job.forked ? 1 : job.unfinished;
  return count;
}

// How many lanes would have to be given for that.
std::int32_t Scheduler::lanes_of(const Branch& branch, std::int32_t rows) const noexcept {
  if (branch.lane >= 0) return 0;  // and so have those that are still to fork from it
  const Job& job = *branch.job;
  if (job.pooled) return 1;
  if (branch.next() + rows < branch.end() || job.max_tokens == 0) return 0;
  return job.forked ? 1 : job.unfinished;
}

void Scheduler::select(Branch& branch, std::int32_t rows, bool generated) {
  if (branch.next() + rows == branch.end()) reserve_for_commit(branch);
  outputs_left_ -= outputs_of(branch, rows);
  lanes_left_ -= lanes_of(branch, rows);
  picks_.push_back({.branch = &branch, .rows = rows, .generated = generated});
  branch.planned_rows = rows;
  rows_left_ -= rows;
}

// What commit will append to is made large enough here, where running out of memory does no harm.
void Scheduler::reserve_for_commit(Branch& branch) {
  Job& job = *branch.job;
  const std::size_t tokens = as_size(branch.end()) + 1;
  const auto grow = [](std::vector<TokenId>& list, std::size_t size) {
    if (list.capacity() < size) list.reserve(size + std::min<std::size_t>(size, kTokenRoom * 16));
  };
  if (job.forked) {
    grow(branch.tokens, tokens);
    return;
  }
  for (Branch& each : job.branches) {
    if (each.state >= Branch::State::leaving) continue;
    grow(each.tokens, tokens);
    for (std::vector<std::int32_t>& table : each.tables)
      table.reserve(as_size(blocks_for(branch.length() + kTokenRoom)));
  }
}

}  // namespace quarrel

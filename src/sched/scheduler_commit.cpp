// What a step leaves behind: texts grow, full blocks enter the cache, prompts fork into branches, answers end.
#include <algorithm>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "sched/scheduler.h"

namespace quarrel {

void Scheduler::commit(const StepOutcome& outcome, std::int64_t now_us) {
  if (in_flight_ == 0) fail(ErrorKind::internal, "a step was committed that nobody planned");
  StepRecord& step = oldest();
  if (outcome.sampled.size() != step.output_branches.size()) fail(ErrorKind::internal, "results of another step");
  if (!outcome.bad.empty() && outcome.bad.size() != step.selections.size())
    fail(ErrorKind::internal, "flags of another step");
  now_us_ = now_us;
  release_copies(step);
  let_go(step);
  std::int32_t rows = 0;
  for (std::size_t i = 0; i < step.selections.size(); ++i) {
    const Selection& selection = step.selections[i];
    rows += selection.rows;
    (selection.generated ? counts_.generated_rows : counts_.prompt_rows) += static_cast<std::uint64_t>(selection.rows);
    settle(selection, step, !outcome.bad.empty() && outcome.bad[i] != 0);
  }
  for (std::size_t i = 0; i < step.output_branches.size(); ++i) {
    Branch* branch = step.output_branches[i];
    if (branch == nullptr) continue;
    if (branch->state == Branch::State::leaving) {
      retire(*branch);
    } else if (branch->state == Branch::State::running || branch->state == Branch::State::waiting) {
      deliver(*branch, outcome.sampled[i], static_cast<std::int32_t>(i));
    }
  }
  budget_.note(step.decode_rows, rows - step.decode_rows, outcome.micros);
  row_cap_ = std::min(config_.max_rows, row_cap_ * 2);
  ++counts_.steps;
  note_ends(now_us);
  end_step(step);
  oldest_ = (oldest_ + 1) % steps_.size();
  --in_flight_;
  sweep();
}

// How long it takes until a request ends. Time in which there was none does not count.
void Scheduler::note_ends(std::int64_t now_us) noexcept {
  const auto ended = static_cast<std::int64_t>(ended_.size());
  if (ended == 0) return;
  const std::int64_t gap = std::max<std::int64_t>(0, now_us - std::max(last_end_us_, busy_since_us_)) / ended;
  if (last_end_us_ > 0) end_gap_us_ = std::max<std::int64_t>(1, end_gap_us_ > 0 ? (3 * end_gap_us_ + gap) / 4 : gap);
  last_end_us_ = now_us;
}

void Scheduler::abort_step() {
  if (in_flight_ == 0) fail(ErrorKind::internal, "a step was given up that nobody planned");
  counts_.aborted_steps += in_flight_;
  std::int32_t rows = 0;
  for (const Selection& selection : oldest().selections) rows += selection.rows;
  row_cap_ = std::max(1, rows / 2);
  // The copies are still to be made, in their order, before those that no step has yet.
  for (std::size_t i = in_flight_; i-- > 0;) {
    StepRecord& step = steps_[(oldest_ + i) % steps_.size()];
    block_copies_.insert(block_copies_.begin(), step.block_copies.begin(), step.block_copies.end());
    slot_copies_.insert(slot_copies_.begin(), step.slot_copies.begin(), step.slot_copies.end());
    step.block_copies.clear();
    step.slot_copies.clear();
    let_go(step);
  }
  for (; in_flight_ > 0; --in_flight_, oldest_ = (oldest_ + 1) % steps_.size()) {
    StepRecord& step = oldest();
    for (const Selection& selection : step.selections) give_up(*selection.branch);
    for (Branch* branch : step.output_branches) {
      if (branch != nullptr) give_up(*branch);
    }
    end_step(step);
  }
  // A copy may have been made or not, and what it came from may be gone.
  while (!slot_copies_.empty()) requeue(*slot_copies_.back().owner);
  sweep();
}

// It was in a step that failed.
void Scheduler::give_up(Branch& branch) noexcept {
  branch.rows_in_flight = 0;
  release_lane(branch);  // what it keeps of the text may have moved on
  if (branch.state == Branch::State::leaving) {
    retire(branch);
  } else if (branch.state == Branch::State::running && (config_.recurrent || branch.job->pooled)) {
    // Its state may be half of the old and half of the new; keys and values are simply written again.
    requeue(branch);
  }
}

void Scheduler::release_copies(StepRecord& step) noexcept {
  for (const PendingBlockCopy& pending : step.block_copies) {
    cache_.blocks(as_size(pending.copy.group)).release(pending.copy.from);
  }
  for (const PendingSlotCopy& pending : step.slot_copies) cache_.slots().release(pending.copy.from);
  step.block_copies.clear();
  step.slot_copies.clear();
}

void Scheduler::end_step(StepRecord& step) noexcept {
  for (const ReservedSnapshot& reserved : step.snapshots) cache_.slots().release(reserved.slot);
  step.selections.clear();
  step.output_branches.clear();
  step.snapshots.clear();
}

// The step is over: nobody has a place in it any more.
void Scheduler::let_go(StepRecord& step) noexcept {
  const auto leave = [](Branch& branch) {
    if (--branch.places == 0) branch.pending_output = -1;  // otherwise it is the later step's
  };
  for (const Selection& selection : step.selections) leave(*selection.branch);
  for (Branch* branch : step.output_branches) {
    if (branch != nullptr) leave(*branch);
  }
}

// A branch that has finished goes when no step holds it any more.
void Scheduler::retire(Branch& branch) noexcept {
  if (branch.places > 0) return;
  release_memory(branch);
  branch.state = Branch::State::done;
  --branch.job->leaving;
  end_if_done(*branch.job);
}

void Scheduler::settle(const Selection& selection, const StepRecord& step, bool bad) noexcept {
  Branch& branch = *selection.branch;
  Job& job = *branch.job;
  branch.rows_in_flight -= selection.rows;
  if (branch.state == Branch::State::leaving) {
    counts_.wasted_rows += static_cast<std::uint64_t>(selection.rows);
    retire(branch);
  } else if (bad && !job.forked) {
    finish_all(job, FinishReason::failed);  // its rows are those of every branch
  } else if (bad) {
    finish(branch, FinishReason::failed);
  } else {
    advance(branch, selection.rows, step);
  }
}

void Scheduler::advance(Branch& branch, std::int32_t rows, const StepRecord& step) noexcept {
  Job& job = *branch.job;
  branch.computed += rows;
  branch.scored = std::max(branch.scored, branch.computed);
  if (branch.source_slot >= 0) cache_.slots().release(std::exchange(branch.source_slot, -1));
  enter_cache(branch, step);
  if (branch.waiters > 0) release_waiters(branch);
  free_passed(branch);
  if (job.forked) return;
  if (branch.computed < branch.length()) {
    if (job.tell_reading) {
      events_.push_back(
          {.kind = SchedEvent::Kind::prompt_read, .branch = branch.index, .request = job.id, .read = branch.computed});
    }
    return;
  }
  if (job.max_tokens == 0) {
    finish_all(job, FinishReason::length);
  } else {
    fork(job);
  }
}

void Scheduler::enter_cache(Branch& branch, const StepRecord& step) noexcept {
  while (branch.cache_open) {
    const std::int32_t end = (branch.node_entries + 1) * config_.block_tokens;
    // Nobody can use what lies behind the last snapshot, and answers have none.
    if (end > branch.computed || (config_.recurrent && end > branch.prompt_end)) return;
    const std::int32_t node = cache_.extend(branch.node, text(branch), branch.node_entries);
    if (node < 0) {
      branch.cache_open = false;
      return;
    }
    cache_.hold(node);
    cache_.drop(std::exchange(branch.node, node));
    for (std::size_t group = 0; group < branch.tables.size(); ++group) {
      const std::int32_t block = branch.tables[group][as_size(branch.node_entries)];
      if (block >= 0) cache_.offer_block(node, group, block);
    }
    for (const ReservedSnapshot& reserved : step.snapshots) {
      if (reserved.branch == &branch && reserved.length == end) cache_.offer_snapshot(node, reserved.slot);
    }
    if (end <= branch.job->pinned) cache_.pin(node);
    ++branch.node_entries;
  }
}

// What the row at `computed` does not see, which is the first in flight or the next: later rows see no more.
void Scheduler::free_passed(Branch& branch) noexcept {
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    const std::int32_t seen = cache_.first_seen(group, branch.computed);
    std::int32_t& entry = branch.first_entries[group];
    for (; (entry + 1) * config_.block_tokens <= seen; ++entry) {
      cache_.blocks(group).release(std::exchange(branch.tables[group][as_size(entry)], -1));
    }
  }
}

bool Scheduler::can_copy_memory() const noexcept {
  if (running_.size() >= as_size(config_.max_sequences)) return false;
  if (config_.recurrent && cache_.slots().available() < 1) return false;
  for (std::size_t group = 0; group < cache_.groups(); ++group) {
    if (cache_.blocks(group).available() < 1) return false;
  }
  return true;
}

// Full blocks are shared; the last one, which both will write, is copied, and so is the state.
void Scheduler::copy_memory(const Branch& from, Branch& to) noexcept {
  const std::size_t full = as_size(from.computed / config_.block_tokens);
  for (std::size_t group = 0; group < from.tables.size(); ++group) {
    const std::vector<std::int32_t>& source = from.tables[group];
    std::vector<std::int32_t>& table = to.tables[group];
    table.assign(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(full));
    to.first_entries[group] = from.first_entries[group];
    for (std::size_t entry = as_size(to.first_entries[group]); entry < full; ++entry) {
      cache_.blocks(group).retain(table[entry]);
    }
    if (from.computed % config_.block_tokens == 0) continue;
    table.push_back(cache_.take_block(group));
    cache_.blocks(group).retain(source[full]);
    block_copies_.push_back(
        {.copy = {.group = static_cast<std::int32_t>(group), .from = source[full], .to = table[full]}, .owner = &to});
  }
  if (config_.recurrent) {
    to.slot = cache_.take_slot();
    cache_.slots().retain(from.slot);
    slot_copies_.push_back({.copy = {.from = from.slot, .to = to.slot}, .owner = &to});
  }
  cache_.hold(from.node);
  to.node = from.node;
  to.node_entries = from.node_entries;
  to.cache_open = from.cache_open;
  to.computed = from.computed;
}

void Scheduler::fork(Job& job) noexcept {
  job.forked = true;
  const Branch& first = job.branches[0];
  for (std::size_t i = 1; i < job.branches.size(); ++i) {
    Branch& branch = job.branches[i];
    if (branch.state != Branch::State::dormant) continue;
    branch.tokens.assign(first.tokens.begin(), first.tokens.end());  // their room was made by plan
    branch.prompt_end = first.prompt_end;
    branch.level = first.level;
    if (can_copy_memory()) {
      copy_memory(first, branch);
      branch.state = Branch::State::running;
      running_.push_back(&branch);
    } else {
      release_lane(branch);
      branch.state = Branch::State::waiting;
      branch.returning = true;
      queue_.push(branch);
    }
  }
}

void Scheduler::deliver(Branch& branch, TokenId token, std::int32_t output) noexcept {
  Job& job = *branch.job;
  if (token < 0) {
    finish(branch, FinishReason::no_token);
    return;
  }
  branch.tokens.push_back(token);  // its room was made by plan
  ++branch.generated;
  renew_patience(job, now_us_);
  FairQueue::charge(job, 1);
  events_.push_back(
      {.kind = SchedEvent::Kind::token, .branch = branch.index, .request = job.id, .token = token, .output = output});
  if (std::binary_search(job.stop_tokens.begin(), job.stop_tokens.end(), token)) {
    finish(branch, FinishReason::stop);
  } else if (branch.generated >= job.max_tokens) {
    finish(branch, job.open_ended ? FinishReason::context : FinishReason::length);
  } else if (branch.length() >= longest_) {
    overflow(branch);
  }
}

void Scheduler::overflow(Branch& branch) noexcept {
  Job& job = *branch.job;
  const std::int32_t dropped = (branch.length() - job.keep) / 2;
  if (job.overflow != Overflow::shift || dropped < 1) {
    finish(branch, FinishReason::context);
    return;
  }
  const auto begin = branch.tokens.begin() + job.keep;
  branch.tokens.erase(begin, begin + dropped);
  branch.prompt_end = std::min(branch.prompt_end, job.keep) + std::max(0, branch.prompt_end - job.keep - dropped);
  job.pinned = std::min(job.pinned, job.keep);
  ++counts_.shifts;
  events_.push_back({.kind = SchedEvent::Kind::shifted, .branch = branch.index, .request = job.id, .dropped = dropped});
  if (branch.state == Branch::State::running) requeue(branch);
}

}  // namespace quarrel

// What a step leaves behind: texts grow, full blocks enter the cache, prompts fork into branches, answers end.
#include <algorithm>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "sched/scheduler.h"

namespace quarrel {

void Scheduler::commit(const StepOutcome& outcome, std::int64_t now_us) {
  if (!in_flight_) fail(ErrorKind::internal, "a step was committed that nobody planned");
  if (outcome.sampled.size() != output_branches_.size()) fail(ErrorKind::internal, "results of another step");
  if (!outcome.bad.empty() && outcome.bad.size() != selections_.size())
    fail(ErrorKind::internal, "flags of another step");
  in_flight_ = false;
  release_copies();
  std::int32_t rows = 0;
  for (std::size_t i = 0; i < selections_.size(); ++i) {
    rows += selections_[i].rows;
    (selections_[i].generated ? counts_.generated_rows : counts_.prompt_rows) +=
        static_cast<std::uint64_t>(selections_[i].rows);
    settle(selections_[i], !outcome.bad.empty() && outcome.bad[i] != 0);
  }
  for (std::size_t i = 0; i < output_branches_.size(); ++i) {
    Branch* branch = output_branches_[i];
    if (branch == nullptr) continue;
    const bool alive = branch->state == Branch::State::running || branch->state == Branch::State::waiting;
    if (alive) deliver(*branch, outcome.sampled[i], static_cast<std::int32_t>(i));
  }
  budget_.note(decode_rows_, rows - decode_rows_, outcome.micros);
  row_cap_ = std::min(config_.max_rows, row_cap_ * 2);
  ++counts_.steps;
  if (const auto ended = static_cast<std::int64_t>(ended_.size()); ended > 0) {
    const std::int64_t gap = std::max<std::int64_t>(0, now_us - last_end_us_) / ended;
    if (last_end_us_ > 0) end_gap_us_ = std::max<std::int64_t>(1, end_gap_us_ > 0 ? (3 * end_gap_us_ + gap) / 4 : gap);
    last_end_us_ = now_us;
  }
  end_step();
}

void Scheduler::abort_step() {
  if (!in_flight_) fail(ErrorKind::internal, "a step was given up that nobody planned");
  in_flight_ = false;
  ++counts_.aborted_steps;
  std::int32_t rows = 0;
  for (const Selection& selection : selections_) {
    Branch& branch = *selection.branch;
    rows += selection.rows;
    branch.planned_rows = 0;
    if (branch.state == Branch::State::leaving) {
      settle(selection, false);
    } else if (config_.recurrent && branch.state == Branch::State::running) {
      // Its state may be half of the old and half of the new; keys and values are simply written again.
      step_aside(branch);
    }
  }
  // A copy may have been made or not, and what it came from may be gone.
  while (!slot_copies_.empty()) step_aside(*slot_copies_.back().owner);
  row_cap_ = std::max(1, rows / 2);
  end_step();
}

void Scheduler::release_copies() noexcept {
  for (const PendingBlockCopy& pending : block_copies_) {
    cache_.blocks(as_size(pending.copy.group)).release(pending.copy.from);
  }
  for (const PendingSlotCopy& pending : slot_copies_) cache_.slots().release(pending.copy.from);
  block_copies_.clear();
  slot_copies_.clear();
}

void Scheduler::end_step() noexcept {
  for (const ReservedSnapshot& reserved : snapshots_) cache_.slots().release(reserved.slot);
  picks_.clear();
  selections_.clear();
  output_branches_.clear();
  snapshots_.clear();
  sweep();
}

void Scheduler::settle(const Selection& selection, bool bad) noexcept {
  Branch& branch = *selection.branch;
  Job& job = *branch.job;
  branch.planned_rows = 0;
  if (branch.state == Branch::State::leaving) {
    release_memory(branch);
    branch.state = Branch::State::done;
    --job.leaving;
    end_if_done(job);
  } else if (bad && !job.forked) {
    finish_all(job, EndReason::failed);  // its rows are those of every branch
  } else if (bad) {
    finish(branch, EndReason::failed);
  } else {
    advance(branch, selection.rows);
  }
}

void Scheduler::advance(Branch& branch, std::int32_t rows) noexcept {
  Job& job = *branch.job;
  branch.computed += rows;
  branch.scored = std::max(branch.scored, branch.computed);
  if (branch.source_slot >= 0) cache_.slots().release(std::exchange(branch.source_slot, -1));
  enter_cache(branch);
  release_followers(branch);
  free_passed(branch);
  if (job.forked || branch.computed < branch.length()) return;
  if (job.max_tokens == 0) {
    finish_all(job, EndReason::length);
  } else {
    fork(job);
  }
}

void Scheduler::enter_cache(Branch& branch) noexcept {
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
    for (const ReservedSnapshot& reserved : snapshots_) {
      if (reserved.branch == &branch && reserved.length == end) cache_.offer_snapshot(node, reserved.slot);
    }
    if (end <= branch.job->pinned) cache_.pin(node);
    ++branch.node_entries;
  }
}

void Scheduler::free_passed(Branch& branch) noexcept {
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    const std::int32_t first = cache_.first_entry(group, branch.computed);
    for (std::int32_t& entry = branch.first_entries[group]; entry < first; ++entry) {
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
      branch.state = Branch::State::waiting;
      branch.returning = true;
      queue_.push(branch);
    }
  }
}

void Scheduler::deliver(Branch& branch, TokenId token, std::int32_t output) noexcept {
  Job& job = *branch.job;
  branch.tokens.push_back(token);  // its room was made by plan
  ++branch.generated;
  FairQueue::charge(job, 1);
  events_.push_back(
      {.kind = SchedEvent::Kind::token, .branch = branch.index, .request = job.id, .token = token, .output = output});
  if (std::binary_search(job.stop_tokens.begin(), job.stop_tokens.end(), token)) {
    finish(branch, EndReason::stop);
  } else if (branch.generated >= job.max_tokens) {
    finish(branch, EndReason::length);
  } else if (branch.length() >= longest_) {
    overflow(branch);
  }
}

void Scheduler::overflow(Branch& branch) noexcept {
  Job& job = *branch.job;
  const std::int32_t dropped = (branch.length() - job.keep) / 2;
  if (job.overflow != Overflow::shift || dropped < 1) {
    finish(branch, job.overflow == Overflow::shift ? EndReason::context : EndReason::length);
    return;
  }
  const auto begin = branch.tokens.begin() + job.keep;
  branch.tokens.erase(begin, begin + dropped);
  branch.prompt_end = std::min(branch.prompt_end, job.keep) + std::max(0, branch.prompt_end - job.keep - dropped);
  job.pinned = std::min(job.pinned, job.keep);
  ++counts_.shifts;
  events_.push_back({.kind = SchedEvent::Kind::shifted, .branch = branch.index, .request = job.id, .dropped = dropped});
  if (branch.state == Branch::State::running) step_aside(branch);
}

}  // namespace quarrel

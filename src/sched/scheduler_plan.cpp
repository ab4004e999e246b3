// What the next step holds. Decode rows first, best rank first; then prompts, as many rows as the budget allows, shared
// among those of equal priority. A branch that needs a block takes it from the worst that is not in the step yet, or
// sits the step out: nobody gives way to a lower rank, so the best one always advances.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "sched/scheduler.h"

namespace quarrel {
namespace {

// A branch that lost its blocks so often starts again only when all it may ever need is there.
constexpr std::int32_t kPatience = kMostPreemptions - 1;
constexpr std::int32_t kExemptLevel = std::numeric_limits<std::int32_t>::min();
// Room for that many more tokens whenever a text has none left.
constexpr std::int32_t kTokenRoom = 64;

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
      const bool sat_out = best != nullptr && best->state == Branch::State::running && best->planned_rows == 0;
      if (sat_out) ++counts_.best_stalls;
    }
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

std::int32_t Scheduler::blocks_wanted(const Branch& branch, std::size_t group, std::int32_t end) const noexcept {
  const std::int32_t whole = blocks_for(end);
  const std::int32_t window = config_.groups[group].window;
  // A window, where it ends within a block one more, and one that a chunk fills before the window has moved on.
  const std::int32_t live =
      window == 0 ? whole : std::min(whole, (window + config_.block_tokens - 2) / config_.block_tokens + 2);
  const auto held = static_cast<std::int32_t>(branch.tables[group].size()) - branch.first_entries[group];
  return std::max(0, live - held);
}

void Scheduler::admit(std::int64_t now_us) {
  if (queue_.size() == 0 || running_.size() >= as_size(config_.max_sequences)) return;
  std::fill(committed_.begin(), committed_.end(), 0);
  for (const Branch* branch : running_) {
    if (branch->decodes()) continue;
    for (std::size_t group = 0; group < committed_.size(); ++group) {
      committed_[group] += blocks_wanted(*branch, group, branch->length());
    }
  }
  while (running_.size() < as_size(config_.max_sequences)) {
    Branch* next = queue_.best(now_us, paused_, !exempt_runs_);
    if (next == nullptr || !try_start(*next)) return;
    for (std::size_t group = 0; group < committed_.size(); ++group) {
      committed_[group] += blocks_wanted(*next, group, next->length());
    }
  }
}

// Whether a branch that did not fit was asked again, and nothing has been freed since.
bool Scheduler::still_blocked(const Branch& branch) const noexcept {
  if (running_.empty() || blocked_job_ != branch.job->id || blocked_branch_ != branch.index) return false;
  if (running_.size() < blocked_running_) return false;
  for (std::size_t group = 0; group < committed_.size(); ++group) {
    if (cache_.blocks(group).available() - committed_[group] > blocked_room_[group]) return false;
  }
  return true;
}

void Scheduler::note_blocked(const Branch& branch) noexcept {
  blocked_job_ = branch.job->id;
  blocked_branch_ = branch.index;
  blocked_running_ = running_.size();
  for (std::size_t group = 0; group < committed_.size(); ++group) {
    blocked_room_[group] = cache_.blocks(group).available() - committed_[group];
  }
}

bool Scheduler::try_start(Branch& branch) {
  Job& job = *branch.job;
  if (config_.recurrent && cache_.slots().available() < 1) return false;
  if (still_blocked(branch)) return false;
  PrefixCache::Match match;
  if (job.use_cache) {
    // The last token is always computed: its logits are wanted. So is every row of a prompt whose scores are.
    const bool scoring = job.score_prompt && !job.forked;
    match = cache_.find(text(branch), scoring ? std::min(branch.scored, branch.length() - 1) : branch.length() - 1);
  }
  if (config_.recurrent) {
    const BlockPool& slots = cache_.slots();
    if (match.node >= 0 && slots.idle(cache_.snapshot_of(match.node)) && slots.available() < 2) match = {};
  }
  const bool patient = branch.preemptions >= kPatience;
  const std::int32_t rest = patient ? job.max_tokens - branch.generated : 1;
  const std::int32_t end = std::min(longest_, branch.length() + std::min(rest, longest_));
  // Alone it always fits: a text that does not is never accepted.
  for (std::size_t group = 0; group < committed_.size() && !running_.empty(); ++group) {
    const BlockPool& pool = cache_.blocks(group);
    const std::int32_t found = match.tokens / config_.block_tokens - cache_.first_entry(group, match.tokens);
    // One block for each that runs, so that the first to need another does not have to preempt at once.
    const std::int32_t reserve = std::min(static_cast<std::int32_t>(running_.size()), pool.size() / 4);
    const std::int32_t wanted = std::max(0, blocks_wanted(branch, group, end) - found);
    if (pool.available() - cache_.idle_blocks(match, group) - committed_[group] < wanted + reserve) {
      note_blocked(branch);
      return false;
    }
  }
  for (std::vector<std::int32_t>& table : branch.tables)
    table.reserve(as_size(blocks_for(branch.length() + kTokenRoom)));
  // From here on nothing throws.
  queue_.remove(branch);
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    cache_.share(match, group, branch.tables[group]);
    branch.first_entries[group] = cache_.first_entry(group, match.tokens);
  }
  if (job.pinned > 0) cache_.pin_path(match, job.pinned);
  cache_.hold(match.node);
  branch.node = match.node;
  branch.node_entries = match.tokens / config_.block_tokens;
  branch.computed = match.tokens;
  branch.cache_open = job.use_cache;
  if (config_.recurrent) {
    if (match.node >= 0) {
      branch.source_slot = cache_.snapshot_of(match.node);
      cache_.slots().retain(branch.source_slot);
    }
    branch.slot = cache_.take_slot();
  }
  if (!branch.returning) {
    counts_.cache_hit_tokens += static_cast<std::uint64_t>(match.tokens);
    counts_.cache_miss_tokens += static_cast<std::uint64_t>(branch.pending());
    queue_.note_start(branch);
    FairQueue::charge(job, branch.pending());
    leave_queue_limits(job);
    events_.push_back({.kind = SchedEvent::Kind::started, .request = job.id, .cached = match.tokens});
  }
  branch.state = Branch::State::running;
  if (branch.preemptions >= kMostPreemptions) {
    branch.exempt = exempt_runs_ = true;
    branch.level = kExemptLevel;
  }
  running_.push_back(&branch);
  return true;
}

// Those from index `started` on have joined in this plan: if the cache had all but the last token of such a text, its
// decode row has not been chosen yet.
void Scheduler::choose_prefills(std::size_t started) {
  prefills_.clear();
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (i >= started || !running_[i]->decodes()) prefills_.push_back(running_[i]);
  }
  // The short ones first, each within its even share: what they leave goes to the long ones.
  const auto rank = [](const Branch* branch) {
    return std::tuple(branch->level, branch->pending(), branch->job->order, branch->index);
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
      if (prefills_[level_end]->level != branch.level) break;
    }
    const std::int32_t most = rows_left_ - kept_rows;
    const auto equals = static_cast<std::int32_t>(level_end - i);
    if (most > 0) choose_chunk(branch, std::max(1, most / equals), outputs_left_ - kept_outputs);
  }
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
    count += job.forked ? 1 : static_cast<std::int32_t>(job.branches.size());
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
void Scheduler::reserve_for_commit(const Branch& branch) {
  Job& job = *branch.job;
  const std::size_t tokens = branch.tokens.size();
  const auto grow = [](std::vector<TokenId>& list, std::size_t size) {
    if (list.capacity() < size) list.reserve(size + std::min<std::size_t>(size, kTokenRoom * 16));
  };
  if (job.forked) {
    grow(job.branches[as_size(branch.index)].tokens, tokens + 1);
    return;
  }
  for (Branch& each : job.branches) {
    grow(each.tokens, tokens + 1);
    for (std::vector<std::int32_t>& table : each.tables)
      table.reserve(as_size(blocks_for(branch.length() + kTokenRoom)));
  }
}

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
    if (job.forked && &each != &branch) continue;
    plan.outputs.push_back({.row = last_row, .branch = each.index, .request = job.id});
    output_branches_.push_back(&each);
  }
}

bool Scheduler::wants_snapshot(const Branch& branch, std::int32_t length) const noexcept {
  const std::int32_t block = config_.block_tokens;
  // One long prompt does not take the place of everybody's snapshots: its own lie farther apart.
  const std::int32_t spread = branch.prompt_end / std::max(1, config_.max_snapshots / 4);
  std::int32_t interval = (config_.snapshot_interval + block - 1) / block * block;
  while (interval > 0 && interval < spread) interval *= 2;
  // The end of the last full block that the same prompt, sent again, could use; and of what should stay.
  return (interval > 0 && length % interval == 0) || length == (branch.prompt_end - 1) / block * block ||
         length == branch.job->pinned / block * block;
}

void Scheduler::emit_snapshots(StepPlan& plan, const Selection& selection, std::int32_t first_row) {
  Branch& branch = *selection.branch;
  const std::int32_t block = config_.block_tokens;
  const std::size_t before = plan.snapshots.size();
  // The last ones are worth most: if there are not enough slots, they have theirs.
  for (std::int32_t length = (branch.computed + selection.rows) / block * block; length > branch.computed;
       length -= block) {
    if (!wants_snapshot(branch, length)) continue;
    if (snapshots_.size() >= as_size(config_.max_snapshots)) break;
    const std::int32_t slot = cache_.take_snapshot();
    if (slot < 0) break;
    snapshots_.push_back({.branch = &branch, .length = length, .slot = slot});
    plan.snapshots.push_back({.row = first_row + length - branch.computed - 1, .slot = slot});
  }
  std::reverse(plan.snapshots.begin() + static_cast<std::ptrdiff_t>(before), plan.snapshots.end());
}

}  // namespace quarrel

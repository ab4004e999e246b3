// Who starts: the next in the queue, when there are blocks and a slot for all of its text, less what the cache has of
// it.
#include <algorithm>
#include <utility>

#include "base/as_size.h"
#include "sched/scheduler.h"

namespace quarrel {
namespace {

// A branch that lost its blocks so often starts again only when all it may ever need is there.
constexpr std::int32_t kPatience = kMostPreemptions - 1;

// A long queue moves often, and each move concerns all of it.
constexpr std::int64_t kWaitingEvery = 500'000;

}  // namespace

std::int32_t Scheduler::blocks_wanted(const Branch& branch, std::size_t group, std::int32_t end) const noexcept {
  const std::int32_t whole = blocks_for(end);
  const std::int32_t window = config_.groups[group].window;
  // A window, where it ends within a block one more, and one that a chunk fills before the window has moved on.
  const std::int32_t live = window == 0 || config_.whole_texts
                                ? whole
                                : std::min(whole, (window + config_.block_tokens - 2) / config_.block_tokens + 2);
  const auto held = static_cast<std::int32_t>(branch.tables[group].size()) - branch.first_entries[group];
  return std::max(0, live - held);
}

void Scheduler::commit_blocks(const Branch& branch) noexcept {
  for (std::size_t group = 0; group < committed_.size(); ++group) {
    committed_[group] += blocks_wanted(branch, group, branch.length());
  }
}

void Scheduler::count_committed() noexcept {
  std::fill(committed_.begin(), committed_.end(), 0);
  for (const Branch* branch : running_) {
    if (!branch->decodes()) commit_blocks(*branch);
  }
}

void Scheduler::admit(std::int64_t now_us) {
  if (queue_.size() == 0 || running_.size() >= as_size(config_.max_sequences)) return;
  count_committed();
  while (running_.size() < as_size(config_.max_sequences)) {
    Branch* next = next_to_start(now_us);
    if (next == nullptr || !try_start(*next)) return;
    commit_blocks(*next);
  }
}

void Scheduler::report_waiting(std::int64_t now_us) noexcept {
  if (queue_.fresh() == 0 || now_us < next_waiting_us_) return;
  next_waiting_us_ = now_us + kWaitingEvery;
  std::int32_t ahead = 0;
  for (const Branch* branch : queue_.fresh_in_order(now_us)) {
    Job& job = *branch->job;
    if (!job.queued) continue;
    if (job.tell_reading && std::exchange(job.told_ahead, ahead) != ahead) {
      events_.push_back(
          {.kind = SchedEvent::Kind::waiting, .branch = branch->index, .request = job.id, .ahead = ahead});
    }
    ++ahead;
  }
}

// Whether a branch that did not fit was asked again, and nothing has been freed since.
bool Scheduler::still_blocked(const Branch& branch) const noexcept {
  if (blocked_job_ != branch.job->id || blocked_branch_ != branch.index) return false;
  if (running_.empty() || running_.size() < blocked_running_) return false;
  for (std::size_t group = 0; group < committed_.size(); ++group) {
    if (cache_.blocks(group).available() - committed_[group] > blocked_room_[group]) return false;
  }
  return true;
}

void Scheduler::note_blocked(const Branch& branch, bool by_all) noexcept {
  blocked_by_all_ = by_all;
  blocked_job_ = branch.job->id;
  blocked_branch_ = branch.index;
  blocked_running_ = running_.size();
  for (std::size_t group = 0; group < committed_.size(); ++group) {
    blocked_room_[group] = cache_.blocks(group).available() - committed_[group];
  }
}

Scheduler::Start Scheduler::start_of(const Branch& branch) {
  const Job& job = *branch.job;
  Start start;
  if (job.use_cache) {
    // The last token is always computed: its logits are wanted. So is every row of a prompt whose scores are.
    const bool scoring = job.prompt_outputs == PromptOutputs::scores && !job.forked;
    start.match =
        cache_.find(text(branch), scoring ? std::min(branch.scored, branch.length() - 1) : branch.length() - 1);
  }
  ++counts_.searches;
  if (config_.recurrent && start.match.node >= 0) {
    const BlockPool& slots = cache_.slots();
    if (slots.idle(cache_.snapshot_of(start.match.node)) && slots.available() < 2) start.match = {};
  }
  // Who was preempted often waits for room for its whole answer. Where only the context bounds that, the room of the
  // whole cache would be waited for: as much as it has written already has to do.
  const bool patient = branch.preemptions >= kPatience;
  const std::int32_t likely = job.open_ended ? std::max(kTokenRoom, branch.generated) : longest_;
  const std::int32_t rest = patient ? std::min(job.max_tokens - branch.generated, likely) : 1;
  start.end = std::min(longest_, branch.length() + std::min(rest, longest_));
  return start;
}

void Scheduler::measure_shortage(const Branch& branch, const Start& start) noexcept {
  for (std::size_t group = 0; group < shortage_.size(); ++group) {
    const std::int32_t found =
        start.match.tokens / config_.block_tokens - cache_.first_entry(group, start.match.tokens);
    const std::int32_t wanted = std::max(0, blocks_wanted(branch, group, start.end) - found);
    const std::int32_t room =
        cache_.blocks(group).available() - cache_.idle_blocks(start.match, group) - committed_[group];
    shortage_[group] = wanted - room;
  }
}

// One block for each that runs is kept, so that the first to need another does not have to preempt at once.
bool Scheduler::short_of_blocks(std::size_t running) const noexcept {
  for (std::size_t group = 0; group < shortage_.size(); ++group) {
    const std::int32_t reserve = std::min(static_cast<std::int32_t>(running), cache_.blocks(group).size() / 4);
    if (shortage_[group] + reserve > 0) return true;
  }
  return false;
}

bool Scheduler::try_start(Branch& branch) {
  Job& job = *branch.job;
  if (config_.recurrent && cache_.slots().available() < 1) return false;
  if (still_blocked(branch)) return false;
  const Start start = start_of(branch);
  const PrefixCache::Match& match = start.match;
  measure_shortage(branch, start);
  // Alone it always fits, with nothing in flight: a text that does not is never accepted.
  if ((!running_.empty() || in_flight_ > 0) && short_of_blocks(running_.size())) {
    note_blocked(branch, false);
    return false;
  }
  for (std::vector<std::int32_t>& table : branch.tables)
    table.reserve(as_size(blocks_for(branch.length() + kTokenRoom)));
  // From here on nothing throws.
  dequeue(branch);
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
    renew_patience(job, now_us_);
    events_.push_back(
        {.kind = SchedEvent::Kind::started, .branch = branch.index, .request = job.id, .cached = match.tokens});
  }
  branch.state = Branch::State::running;
  if (branch.preemptions >= kMostPreemptions) {
    branch.exempt = exempt_runs_ = true;
    branch.level = kExemptLevel;
  }
  branch.idle = false;
  running_.push_back(&branch);
  return true;
}

}  // namespace quarrel

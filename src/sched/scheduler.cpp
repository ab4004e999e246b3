// The life of a request: in, through the queue, out.
#include "sched/scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/as_size.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostStopTokens = 1024;
constexpr std::int64_t kUnknownGapUs = 1'000'000;
constexpr std::int64_t kShortestRetryUs = 1'000;
constexpr std::int64_t kLongestRetryUs = 60'000'000;

template <typename T>
void reserve_more(std::vector<T>& list, std::size_t size) {
  if (list.capacity() < size) list.reserve(std::max(size, 2 * list.capacity()));
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_(resolved(config)),
      longest_(longest_text(config_)),
      cache_(cache_config(config_)),
      queue_(config_.ageing_us, idle_accounts(config_)),
      budget_(config_.gap_factor, config_.unnoticed_us),
      lane_count_(lanes(config_)),
      committed_(config_.groups.size()),
      shortage_(config_.groups.size()),
      row_cap_(config_.max_rows),
      blocked_room_(config_.groups.size()) {
  const std::size_t sequences = as_size(config_.max_sequences);
  running_.reserve(sequences);
  picks_.reserve(sequences);
  prefills_.reserve(sequences);
  victims_.reserve(sequences);
  marks_.reserve(config_.groups.size());
  for (const KvGroupConfig& group : config_.groups) marks_.emplace_back(as_size(group.blocks), 0);
  const std::size_t copies = sequences * config_.groups.size();  // a running branch has at most one a group
  for (StepRecord& step : steps_) {
    step.selections.reserve(sequences);
    step.output_branches.reserve(as_size(config_.max_outputs));
    step.snapshots.reserve(as_size(config_.max_snapshots));
    step.block_copies.reserve(copies);
    step.slot_copies.reserve(sequences);
  }
  // Those of the steps in flight come back to them when a step is given up.
  block_copies_.reserve(2 * copies);
  slot_copies_.reserve(2 * sequences);
  for (std::int32_t lane = lane_count_; lane > 0; --lane) free_lanes_.push_back(lane - 1);
}

Scheduler::~Scheduler() = default;

SubmitResult Scheduler::refusal(SubmitStatus status) noexcept {
  ++counts_.refused;
  return {.status = status};
}

// A place in the queue falls free when a request ends. Who is refused is sent to the next such moment that no other
// was sent to.
std::int64_t Scheduler::retry_after(std::int64_t now_us) noexcept {
  const std::int64_t gap = end_gap_us_ > 0 ? end_gap_us_ : kUnknownGapUs;
  next_retry_us_ = std::min(std::max(next_retry_us_, now_us) + gap, now_us + kLongestRetryUs);
  return std::clamp(next_retry_us_ - now_us, kShortestRetryUs, kLongestRetryUs);
}

bool Scheduler::malformed(const SchedRequest& request) const noexcept {
  const bool alone = request.max_tokens == 0 && request.branches == 1;  // nothing follows the text
  if (request.branches < 1 || request.branches > config_.max_branches || request.max_tokens < -1 || request.keep < 0 ||
      request.pinned < 0 || request.stop_tokens.size() > kMostStopTokens || request.priority > Priority::batch ||
      request.overflow > Overflow::shift || request.prompt_outputs > PromptOutputs::vectors) {
    return true;
  }
  if (request.pooled && request.prompt_outputs != PromptOutputs::none) return true;
  if ((request.pooled || request.prompt_outputs == PromptOutputs::vectors) && !alone) return true;
  return config_.whole_texts && (!alone || request.prompt_outputs == PromptOutputs::scores);
}

// Whoever has nothing else waiting may always wait, however long his prompt.
bool Scheduler::queue_full(std::uint64_t key, std::int64_t prompt_tokens) const noexcept {
  const auto full = [&](std::int64_t jobs, std::int64_t tokens, std::int64_t limit, std::int64_t token_limit) {
    if (limit > 0 && jobs >= limit) return true;
    return token_limit > 0 && tokens > 0 && tokens + prompt_tokens > token_limit;
  };
  if (full(static_cast<std::int64_t>(waiting_jobs_), waiting_tokens_, config_.queue_limit, config_.queue_token_limit))
    return true;
  const KeyAccount* account = queue_.account(key);
  return account != nullptr &&
         full(account->waiting, account->waiting_tokens, config_.key_queue_limit, config_.key_queue_token_limit);
}

std::optional<SubmitResult> Scheduler::judge_queue(std::uint64_t key, std::int64_t prompt_tokens,
                                                   std::int64_t now_us) noexcept {
  if (draining_) return refusal(SubmitStatus::draining);
  if (!queue_full(key, prompt_tokens)) return std::nullopt;
  SubmitResult result = refusal(SubmitStatus::queue_full);
  result.retry_after_us = retry_after(now_us);
  return result;
}

SubmitResult Scheduler::admits(std::uint64_t key, std::int64_t now_us) noexcept {
  return judge_queue(key, 1, now_us).value_or(SubmitResult{});
}

std::optional<SubmitResult> Scheduler::judge(const SchedRequest& request, std::int64_t now_us) {
  if (request.prompt.empty()) return refusal(SubmitStatus::empty);
  const auto tokens = static_cast<std::int64_t>(request.prompt.size());
  if (malformed(request)) return refusal(SubmitStatus::malformed);
  const bool whole = request.overflow == Overflow::refuse && request.max_tokens > 0;
  const std::int64_t answer = whole ? request.max_tokens : (request.max_tokens == 0 ? 0 : 1);
  std::int32_t limit = longest_;
  if (config_.whole_texts && request.prompt_outputs != PromptOutputs::none)
    limit = std::min(limit, config_.max_outputs);
  if (tokens + answer > limit) {
    SubmitResult result = refusal(SubmitStatus::too_long);
    result.tokens = tokens + answer;
    result.limit = limit;
    return result;
  }
  const bool negative = std::any_of(request.prompt.begin(), request.prompt.end(), [](TokenId id) { return id < 0; });
  if (negative) return refusal(SubmitStatus::malformed);
  if (request.continues && !draining_) return std::nullopt;
  return judge_queue(request.key, tokens, now_us);
}

std::unique_ptr<Job> Scheduler::make_job(SchedRequest&& request, std::int64_t now_us) const {
  auto job = std::make_unique<Job>();
  job->id = next_id_;
  job->order = next_id_;
  job->arrived_us = now_us;
  job->prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  job->open_ended = request.max_tokens < 0;
  const bool endless = request.overflow == Overflow::shift;
  const std::int32_t room = endless ? std::numeric_limits<std::int32_t>::max() : longest_ - job->prompt_tokens;
  job->max_tokens = job->open_ended ? room : request.max_tokens;
  job->stop_tokens = std::move(request.stop_tokens);
  std::sort(job->stop_tokens.begin(), job->stop_tokens.end());
  job->priority = request.priority;
  job->overflow = request.overflow;
  job->key = request.key;
  job->salt = request.salt;
  job->deadline_us = std::max<std::int64_t>(0, request.deadline_us);
  job->patience_us = request.patience_us;
  renew_patience(*job, now_us);
  job->pinned = std::min(request.pinned, job->prompt_tokens);
  // A shift that left nearly everything would come again after a few tokens.
  job->keep = std::min({request.keep, job->prompt_tokens, longest_ / 2});
  job->prompt_outputs = request.prompt_outputs;
  job->pooled = request.pooled;
  job->stepwise = request.stepwise;
  job->tell_reading = request.tell_reading;
  // Of a text whose rows make vectors each one is computed, and so are those of a text that sees all of itself.
  const bool every_row = request.pooled || request.prompt_outputs == PromptOutputs::vectors || config_.whole_texts;
  job->use_cache = request.use_cache && config_.prefix_cache && !every_row;
  job->unfinished = request.branches;
  job->branches.resize(as_size(request.branches));
  for (Branch& branch : job->branches) {
    branch.job = job.get();
    branch.index = static_cast<std::int32_t>(&branch - job->branches.data());
    branch.tables.resize(config_.groups.size());
    branch.first_entries.resize(config_.groups.size());
  }
  Branch& first = job->branches[0];
  job->prefixes = prefix_hashes(*job, request.prompt);
  first.tokens = std::move(request.prompt);
  first.prompt_end = request.generated ? 0 : job->prompt_tokens;
  first.state = Branch::State::waiting;
  return job;
}

SubmitResult Scheduler::submit(SchedRequest request, std::int64_t now_us) {
  if (const auto refused = judge(request, now_us)) return *refused;
  std::unique_ptr<Job> made = make_job(std::move(request), now_us);
  Job& job = *made;
  const std::size_t branches = live_branches_ + job.branches.size();
  queue_.reserve(branches);
  reserve_more(ended_, jobs_.size() + 1);
  reserve_more(events_, events_.size() + kEventsABranch * branches);
  const auto [place, fresh] = jobs_.emplace(job.id, std::move(made));
  try {
    job.account = &queue_.open(job.key);
  } catch (...) {
    jobs_.erase(place);
    throw;
  }
  if (live_branches_ == 0) busy_since_us_ = now_us;
  live_branches_ = branches;
  queue_.push(job.branches[0]);
  ++waiting_jobs_;
  waiting_tokens_ += job.prompt_tokens;
  ++job.account->waiting;
  job.account->waiting_tokens += job.prompt_tokens;
  if (const std::int64_t due = due_us(job); due > 0 && (earliest_deadline_ == 0 || due < earliest_deadline_)) {
    earliest_deadline_ = due;
  }
  ++counts_.accepted;
  ++next_id_;
  return {.status = SubmitStatus::accepted, .id = job.id};
}

bool Scheduler::cancel(RequestId id, FinishReason reason) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->unfinished == 0) return false;
  finish_all(*found->second, reason);
  sweep();
  return true;
}

bool Scheduler::cancel_branch(RequestId id, std::int32_t branch, FinishReason reason) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return false;
  std::vector<Branch>& branches = found->second->branches;
  const auto named =
      std::find_if(branches.begin(), branches.end(), [&](const Branch& each) { return each.index == branch; });
  if (named == branches.end() || named->state >= Branch::State::leaving) return false;
  finish(hand_on_prompt(*named), reason);
  sweep();
  return true;
}

// Until the fork one branch computes the prompt for all. If it is to end, it exchanges numbers with the next, whose
// record ends in its stead: text, blocks, place and waiters of the prompt stay what they are. What steps in flight
// sample, and the lane they do it in, is for the numbers they were planned with.
Branch& Scheduler::hand_on_prompt(Branch& branch) noexcept {
  Job& job = *branch.job;
  if (job.forked || branch.state == Branch::State::dormant) return branch;
  const auto heir = std::find_if(job.branches.begin(), job.branches.end(),
                                 [](const Branch& each) { return each.state == Branch::State::dormant; });
  if (heir == job.branches.end()) return branch;
  std::swap(branch.index, heir->index);
  std::swap(branch.lane, heir->lane);
  std::swap(branch.lane_begun, heir->lane_begun);
  std::swap(branch.pending_output, heir->pending_output);
  for (StepRecord& step : steps_) {
    for (Branch*& owner : step.output_branches) {
      if (owner == &branch || owner == &*heir) owner = owner == &branch ? &*heir : &branch;
    }
  }
  return *heir;
}

void Scheduler::leave_queue_limits(Job& job) noexcept {
  if (!std::exchange(job.queued, false)) return;
  --waiting_jobs_;
  waiting_tokens_ -= job.prompt_tokens;
  --job.account->waiting;
  job.account->waiting_tokens -= job.prompt_tokens;
}

void Scheduler::release_lane(Branch& branch) noexcept {
  if (branch.lane >= 0) free_lanes_.push_back(std::exchange(branch.lane, -1));  // there was room for all of them
  branch.lane_begun = false;
}

void Scheduler::leave_running(Branch& branch) noexcept {
  running_.erase(std::find(running_.begin(), running_.end(), &branch));
  if (std::exchange(branch.exempt, false)) exempt_runs_ = false;
  abandon_waiters(branch);
}

void Scheduler::release_memory(Branch& branch) noexcept {
  const auto forget_copies = [&](std::vector<PendingBlockCopy>& blocks, std::vector<PendingSlotCopy>& slots) {
    std::erase_if(blocks, [&](const PendingBlockCopy& pending) {
      if (pending.owner != &branch) return false;
      cache_.blocks(as_size(pending.copy.group)).release(pending.copy.from);
      return true;
    });
    std::erase_if(slots, [&](const PendingSlotCopy& pending) {
      if (pending.owner != &branch) return false;
      cache_.slots().release(pending.copy.from);
      return true;
    });
  };
  forget_copies(block_copies_, slot_copies_);
  for (StepRecord& step : steps_) forget_copies(step.block_copies, step.slot_copies);
  // The end of the text first: what comes later in a text is the first to go from the cache.
  for (std::size_t group = 0; group < branch.tables.size(); ++group) {
    std::vector<std::int32_t>& table = branch.tables[group];
    for (std::size_t entry = table.size(); entry > as_size(branch.first_entries[group]); --entry) {
      cache_.blocks(group).release(table[entry - 1]);
    }
    table.clear();
    branch.first_entries[group] = 0;
  }
  if (branch.slot >= 0) cache_.slots().release(std::exchange(branch.slot, -1));
  if (branch.source_slot >= 0) cache_.slots().release(std::exchange(branch.source_slot, -1));
  cache_.drop(std::exchange(branch.node, -1));
  branch.node_entries = 0;
  branch.computed = 0;
  release_lane(branch);
}

void Scheduler::requeue(Branch& branch) noexcept {
  leave_running(branch);
  release_memory(branch);
  branch.state = Branch::State::waiting;
  branch.returning = true;
  queue_.push(branch);
}

void Scheduler::preempt(Branch& branch) noexcept {
  counts_.most_preemptions = std::max(counts_.most_preemptions, ++branch.preemptions);
  ++counts_.preemptions;
  requeue(branch);
}

void Scheduler::end_if_done(Job& job) noexcept {
  if (job.unfinished > 0 || job.leaving > 0 || job.ended) return;
  job.ended = true;
  ended_.push_back(job.id);
}

void Scheduler::finish(Branch& branch, FinishReason reason) noexcept {
  Job& job = *branch.job;
  switch (branch.state) {
    case Branch::State::leaving:
    case Branch::State::done: return;
    case Branch::State::dormant: break;
    case Branch::State::waiting: dequeue(branch); break;
    case Branch::State::running: leave_running(branch); break;
  }
  if (branch.places > 0) {
    branch.state = Branch::State::leaving;
    ++job.leaving;
  } else {
    release_memory(branch);
    branch.state = Branch::State::done;
  }
  events_.push_back({.kind = SchedEvent::Kind::finished, .reason = reason, .branch = branch.index, .request = job.id});
  --job.unfinished;
  --live_branches_;
  if (job.unfinished == 0) leave_queue_limits(job);
  end_if_done(job);
}

void Scheduler::finish_all(Job& job, FinishReason reason) noexcept {
  for (Branch& branch : job.branches) finish(branch, reason);
}

void Scheduler::sweep() noexcept {
  for (const RequestId id : ended_) {
    const auto found = jobs_.find(id);
    queue_.close(found->second->key);
    jobs_.erase(found);
    ++counts_.finished;
  }
  ended_.clear();
}

void Scheduler::take_events(std::vector<SchedEvent>& events) {
  events.assign(events_.begin(), events_.end());
  events_.clear();
}

void Scheduler::pause(bool refuse) noexcept {
  paused_ = true;
  draining_ = draining_ || refuse;
}

void Scheduler::resume() noexcept { paused_ = draining_ = false; }

SchedulerCounters Scheduler::counters() const {
  SchedulerCounters result = counts_;
  result.running = static_cast<std::int32_t>(running_.size());
  result.waiting = static_cast<std::int32_t>(waiting_jobs_);
  result.returning = static_cast<std::int32_t>(queue_.returning());
  result.waiting_tokens = waiting_tokens_;
  result.snapshots = cache_.snapshot_count();
  result.slots_used = cache_.slots().used_count();
  result.lanes_used = lane_count_ - static_cast<std::int32_t>(free_lanes_.size());
  result.groups.reserve(cache_.groups());
  for (std::size_t group = 0; group < cache_.groups(); ++group) {
    const BlockPool& pool = cache_.blocks(group);
    result.groups.push_back(
        {.total = pool.size(), .used = pool.used_count(), .cached = pool.idle_count(), .free = pool.free_count()});
  }
  return result;
}

}  // namespace quarrel

// Prefixes in flight. Blocks enter the cache when their step is committed, so requests that come while another still
// computes the same beginning would all compute it again. Instead they wait for that one until it has
// passed what they have in common, and find it in the cache. Others go past them in the queue.
//
// Nobody waits for a lower priority, nor for one that gets no rows while its own prompt would, nor for more than a
// few in all. Who may wait for whom is found by hashes made when a request comes: two that are equal by chance cost a
// wait, never a wrong block, since the cache compares tokens.
#include <algorithm>
#include <limits>

#include "base/as_size.h"
#include "sched/scheduler.h"

namespace quarrel {
namespace {

constexpr std::int32_t kMostWaits = 4;

std::uint64_t mix_prompt(std::uint64_t hash, std::uint64_t value) noexcept {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29U);
}

// Whether the prompt is still the one that was hashed: a shift may have taken a part of it.
bool whole_prompt(const Branch& branch) noexcept { return branch.prompt_end == branch.job->prompt_tokens; }

bool can_wait(const Branch& branch) noexcept {
  const Job& job = *branch.job;
  const bool scoring = output_rows(job) > 0;  // every row of it is wanted
  return job.use_cache && !scoring && branch.prefix_waits < kMostWaits && whole_prompt(branch);
}

}  // namespace

std::vector<std::uint64_t> Scheduler::prefix_hashes(const Job& job, const std::vector<TokenId>& prompt) const {
  std::vector<std::uint64_t> hashes;
  if (!job.use_cache) return hashes;
  const std::size_t block = as_size(config_.block_tokens);
  hashes.reserve(prompt.size() / block);
  std::uint64_t hash = mix_prompt(config_.hash_seed, job.salt);
  for (std::size_t end = block; end <= prompt.size(); end += block) {
    std::size_t i = end - block;
    for (; i + 1 < end; i += 2) {
      hash = mix_prompt(hash, (std::uint64_t{static_cast<std::uint32_t>(prompt[i])} << 32U) |
                                  static_cast<std::uint32_t>(prompt[i + 1]));
    }
    if (i < end) hash = mix_prompt(hash, static_cast<std::uint32_t>(prompt[i]));
    hashes.push_back(hash);
  }
  return hashes;
}

// The next of the queue that need not wait for a prefix. When one must, so do all that begin like it: they are found in
// one go, so that a crowd costs no more than one look at each.
Branch* Scheduler::next_to_start(std::int64_t now_us) noexcept {
  while (Branch* next = queue_.best(now_us, paused_, !exempt_runs_)) {
    if (next->waits_for == nullptr) find_prefix_in_flight(*next);
    if (!held(*next)) return next;
    gather_waiters(*next->waits_for);
  }
  return nullptr;
}

void Scheduler::dequeue(Branch& branch) noexcept {
  queue_.remove(branch);
  stop_waiting(branch);
}

// It computes a block of its prompt that the cache does not have, and will let it in. A recurrent one has begun
// at the last snapshot there was, unless all its rows are wanted.
bool Scheduler::can_be_waited_for(const Branch& branch) const noexcept {
  const Job& job = *branch.job;
  if (!job.use_cache || !branch.cache_open || branch.computed >= branch.prompt_end || !whole_prompt(branch))
    return false;
  if (as_size(branch.node_entries) >= job.prefixes.size()) return false;
  if (config_.recurrent)
    return config_.max_snapshots > 0 && cache_.slots().available() > 0 && job.prompt_outputs == PromptOutputs::none;
  return !cache_.knows(branch.node, text(branch), branch.node_entries);
}

// How many tokens of its prompt a branch that waits has in common with one that runs, in full blocks; the last token is
// its own to compute.
std::int32_t Scheduler::common_tokens(const Branch& branch, const Branch& runner) const noexcept {
  const std::vector<std::uint64_t>& own = branch.job->prefixes;
  const std::vector<std::uint64_t>& other = runner.job->prefixes;
  // Only what that one has not entered into the cache yet is of use.
  const std::size_t next = as_size(runner.node_entries);
  if (own.size() <= next || other.size() <= next || own[next] != other[next] || branch.job->salt != runner.job->salt)
    return 0;
  const std::size_t most = std::min({own.size(), other.size(), as_size((branch.length() - 1) / config_.block_tokens)});
  // Most often all is the same: then one look is enough.
  std::size_t same = most > 0 && own[most - 1] == other[most - 1] ? most : 0;
  for (std::size_t differ = most; same + 1 < differ;) {
    const std::size_t middle = (same + differ) / 2;
    (own[middle - 1] == other[middle - 1] ? same : differ) = middle;
  }
  return static_cast<std::int32_t>(same) * config_.block_tokens;
}

// A recurrent model goes on from a snapshot only: the one that runs leaves one where the common part ends, or, if it
// does so for others already, the one before that counts.
std::int32_t Scheduler::useful_end(const Branch& runner, std::int32_t common) const noexcept {
  const std::int32_t done = config_.recurrent ? runner.next() : runner.computed;  // rows in flight have their snapshots
  const bool free_to_wish = runner.wished_snapshot <= done;
  const std::int32_t end = config_.recurrent && !free_to_wish ? last_snapshot(runner, common) : common;
  return end > done ? end : 0;
}

void Scheduler::wait_for(Branch& branch, Branch& runner, std::int32_t end) noexcept {
  branch.waits_for = &runner;
  branch.wait_end = end;
  branch.waiting_since = counts_.steps;
  ++branch.prefix_waits;
  ++counts_.prefix_waits;
  runner.first_release = runner.waiters++ == 0 ? end : std::min(runner.first_release, end);
  if (config_.recurrent && last_snapshot(runner, end) != end) runner.wished_snapshot = end;
}

void Scheduler::stop_waiting(Branch& branch) noexcept {
  if (branch.waits_for == nullptr) return;
  counts_.longest_prefix_wait = std::max(counts_.longest_prefix_wait, counts_.steps - branch.waiting_since);
  --branch.waits_for->waiters;
  branch.waits_for = nullptr;
  if (blocked_job_ == branch.job->id) blocked_job_ = 0;  // the cache has more of its text now
}

// Of those that run, whoever has most in common with a branch that waits.
void Scheduler::find_prefix_in_flight(Branch& branch) noexcept {
  if (!can_wait(branch)) return;
  Branch* best = nullptr;
  std::int32_t best_end = 0;
  for (Branch* runner : running_) {
    if (runner->level > branch.level) continue;
    const std::int32_t common = common_tokens(branch, *runner);
    const std::int32_t end = common > runner->computed ? useful_end(*runner, common) : 0;
    if (end <= best_end || !can_be_waited_for(*runner)) continue;
    best = runner;
    best_end = end;
  }
  if (best != nullptr) wait_for(branch, *best, best_end);
}

// Whoever waits and begins like one that runs waits for it.
void Scheduler::gather_waiters(Branch& runner) noexcept {
  queue_.each([&](Branch& branch) {
    if (branch.waits_for != nullptr || !can_wait(branch)) return;
    const std::int32_t common = common_tokens(branch, runner);
    const std::int32_t end = common > runner.computed ? useful_end(runner, common) : 0;
    if (end > 0) wait_for(branch, runner, end);
  });
}

// Those that waited for what has been computed by now. It, or another, may have more for them when they are next.
void Scheduler::release_waiters(Branch& runner) noexcept {
  if (runner.cache_open && runner.computed < runner.first_release) return;
  runner.first_release = std::numeric_limits<std::int32_t>::max();
  queue_.each([&](Branch& branch) {
    if (branch.waits_for != &runner) return;
    if (!runner.cache_open || branch.wait_end <= runner.computed) {
      stop_waiting(branch);
    } else {
      runner.first_release = std::min(runner.first_release, branch.wait_end);
    }
  });
}

// It runs no more: the first of those that waited may take its place.
void Scheduler::abandon_waiters(Branch& runner) noexcept {
  runner.wished_snapshot = 0;
  if (runner.waiters == 0) return;
  queue_.each([&](Branch& branch) {
    if (branch.waits_for == &runner) stop_waiting(branch);
  });
}

}  // namespace quarrel

// The scheduler's own record of a request and its branches. A branch is one text: the prompt and one answer, with the
// blocks and the slot that hold what has been computed of it. Only the scheduler and its queue touch these.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/token.h"
#include "sched/request.h"

namespace quarrel {

// How much one key has been served; keys with less go first.
struct KeyAccount {
  std::uint64_t served = 0;         // rows, on the queue's virtual clock
  std::int32_t live = 0;            // requests
  std::int64_t waiting = 0;         // of those: that count against the limits of the queue
  std::int64_t waiting_tokens = 0;  // of their prompts
};

struct Job;

// No branch is preempted more often. After that it runs only as the exempt one, of which there is one at a time.
inline constexpr std::int32_t kMostPreemptions = 3;
inline constexpr std::int32_t kExemptLevel = std::numeric_limits<std::int32_t>::min();

// What can be reported of a branch between two plans: that it waits, that it started, a token or a part of the prompt
// of each of two steps, that it was shifted, that it finished.
inline constexpr std::size_t kEventsABranch = 6;

// A text that has outgrown its memory is given room for that many more tokens.
inline constexpr std::int32_t kTokenRoom = 64;

struct Branch {
  enum class State : std::uint8_t {
    dormant,  // the prompt is not computed yet: the first of Job::branches does it for all
    waiting,
    running,  // has blocks
    leaving,  // finished while steps in flight hold it: they may still write its blocks and use its lane
    done,
  };
  Job* job = nullptr;
  std::int32_t index = 0;  // its number; its place in Job::branches, unless a prompt was handed on
  State state = State::dormant;
  bool returning = false;  // it ran before and lost its blocks
  bool exempt = false;     // it runs before all others: it has been preempted often enough
  bool cache_open = true;  // its blocks enter the prefix cache
  std::int32_t level = 0;  // its priority at this plan, with age
  std::int32_t queue_index = -1;
  std::int32_t planned_rows = 0;  // in the plan being made
  std::int32_t preemptions = 0;

  // What steps in flight have of it.
  std::int32_t rows_in_flight = 0;   // not committed yet; they begin at `computed`
  std::int32_t places = 0;           // its rows in one step are one, each output of its own is another
  std::int32_t pending_output = -1;  // of the last step in flight: what samples its next token; -1: nothing does
  std::int32_t lane = -1;            // where the backend keeps its state for this text; -1: nowhere
  bool lane_begun = false;           // a plan has said so

  std::vector<TokenId> tokens = {};
  std::int32_t prompt_end = 0;  // tokens before it are of class prompt, the others generated
  std::int32_t generated = 0;   // tokens sampled so far, dropped ones included
  std::int32_t computed = 0;    // tokens whose keys, values and state are there
  std::int32_t scored = 0;      // of a prompt whose scores are wanted: rows that were output

  std::vector<std::vector<std::int32_t>> tables = {};  // [KV group][entry]; -1: the window has passed it
  std::vector<std::int32_t> first_entries = {};        // [KV group]: the first that is held
  std::int32_t slot = -1;                              // recurrent state after `computed` tokens
  std::int32_t source_slot = -1;                       // the snapshot that state is still to be read from; -1: `slot`
  std::int32_t node = -1;                              // of the prefix cache, held
  std::int32_t node_entries = 0;                       // blocks of the text up to that node

  // In-flight prefix sharing: a branch may wait for a running one that computes their common beginning.
  Branch* waits_for = nullptr;       // it is computing the beginning of this branch's prompt
  std::int32_t wait_end = 0;         // how many tokens of it are waited for
  std::int32_t prefix_waits = 0;     // that it has had
  std::uint64_t waiting_since = 0;   // number of steps at that time
  std::int32_t waiters = 0;          // branches that wait for this one
  std::int32_t first_release = 0;    // the least that one of them waits for
  std::int32_t wished_snapshot = 0;  // of recurrent state, where waiters want to go on; 0: none
  bool idle = false;                 // the last plan with prompt rows had none for this one

  std::int32_t length() const noexcept { return static_cast<std::int32_t>(tokens.size()); }
  // Where its next row would stand, and where the text will end when what is in flight has been sampled.
  std::int32_t next() const noexcept { return computed + rows_in_flight; }
  std::int32_t end() const noexcept { return length() + (pending_output >= 0 ? 1 : 0); }
  std::int32_t pending() const noexcept { return end() - next(); }
  inline bool decodes() const noexcept;
};

struct Job {
  RequestId id = 0;
  std::uint64_t order = 0;  // of arrival
  std::int64_t arrived_us = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t max_tokens = 0;
  bool open_ended = false;                   // nobody named a number of tokens: the context did
  std::vector<TokenId> stop_tokens = {};     // ascending
  std::vector<std::uint64_t> prefixes = {};  // [full block]: a hash of the prompt up to its end; none without the cache
  Priority priority = Priority::normal;
  Overflow overflow = Overflow::stop;
  std::uint64_t key = 0;
  std::uint64_t salt = 0;
  std::int64_t deadline_us = 0;
  std::int64_t patience_us = 0;
  std::int64_t patient_until_us = 0;  // 0: without patience's end
  std::int32_t pinned = 0;
  std::int32_t keep = 0;
  PromptOutputs prompt_outputs = PromptOutputs::none;
  bool pooled = false;
  bool stepwise = false;
  bool tell_reading = false;
  std::int32_t told_ahead = -1;  // of `waiting`, as it was last reported
  bool use_cache = true;
  bool forked = false;
  bool queued = true;  // counts against the limits of the queue
  bool ended = false;  // all branches have finished; erased at the end of the call
  KeyAccount* account = nullptr;
  std::int32_t unfinished = 0;  // branches without a `finished`
  std::int32_t leaving = 0;     // branches in state leaving
  std::vector<Branch> branches = {};
};

// When it must end if it makes no progress before; 0: never.
inline std::int64_t due_us(const Job& job) noexcept {
  if (job.deadline_us == 0 || job.patient_until_us == 0) return std::max(job.deadline_us, job.patient_until_us);
  return std::min(job.deadline_us, job.patient_until_us);
}

// It made progress: its patience starts again.
inline void renew_patience(Job& job, std::int64_t now_us) noexcept {
  const bool endless = job.patience_us <= 0 || job.patience_us > std::numeric_limits<std::int64_t>::max() - now_us;
  job.patient_until_us = endless ? 0 : now_us + job.patience_us;
}

// Whether its next row is one that continues an answer: the last of its text, and not of the prompt.
inline bool Branch::decodes() const noexcept {
  return pending() == 1 && next() >= (job->forked ? prompt_end : job->prompt_tokens);
}

// How many rows of a prompt are outputs themselves.
inline std::int32_t output_rows(const Job& job) noexcept {
  if (job.forked || job.prompt_outputs == PromptOutputs::none) return 0;
  return job.prompt_outputs == PromptOutputs::vectors ? job.prompt_tokens : job.prompt_tokens - 1;
}

// Whether a waiting branch sits this plan out because a running one is computing what it needs.
inline bool held(const Branch& branch) noexcept {
  const Branch* runner = branch.waits_for;
  if (runner == nullptr || runner->level > branch.level) return false;
  // Short prompts get their rows first. Nobody who would have some waits for one that has none.
  return !runner->idle || runner->length() <= branch.length();
}

// Whether `a` goes before `b` where both want the same blocks. Never equal for two branches.
inline bool outranks(const Branch& a, const Branch& b) noexcept {
  if (a.level != b.level) return a.level < b.level;
  if (a.job->order != b.job->order) return a.job->order < b.job->order;
  return a.index < b.index;
}

}  // namespace quarrel

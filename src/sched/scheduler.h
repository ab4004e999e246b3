// Which rows run next, and who owns which block: all of it, as arithmetic on integers. The engine submits requests,
// asks for a plan, runs it, and commits the results; the scheduler answers with events. Two steps may be in flight
// (SchedulerConfig::steps_in_flight): the second is planned while the first runs, and refers to the tokens that it
// needs by the outputs that will sample them.
//
//   submit → waiting → running: its prompt in chunks, then a row a step → finished
//               ↑         ↓
//              preempted: its blocks are given up; what the cache loses of its text is computed again
//
// Promises: an answer does not depend on other requests; the oldest branch of the highest priority advances in every
// step; a higher priority does not wait behind lower ones that run, unless age has raised them; every branch ends
// exactly once; memory is bounded by the configuration. No call takes time in proportion to the size of the pools. One
// thread at a time (the engine's); no clock: the caller says what time it is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sched/branch.h"
#include "sched/fair_queue.h"
#include "sched/prefix_cache.h"
#include "sched/request.h"
#include "sched/row_budget.h"
#include "sched/scheduler_config.h"
#include "sched/step_plan.h"

namespace quarrel {

struct GroupCounters {
  std::int32_t total = 0;
  std::int32_t used = 0;    // held by running sequences
  std::int32_t cached = 0;  // held by nobody, but known to the prefix cache
  std::int32_t free = 0;
};

struct SchedulerCounters {
  std::int32_t running = 0;
  std::int32_t waiting = 0;    // requests that never ran
  std::int32_t returning = 0;  // branches that lost their blocks
  std::int64_t waiting_tokens = 0;
  std::uint64_t accepted = 0;
  std::uint64_t finished = 0;  // requests
  std::uint64_t refused = 0;
  std::uint64_t preemptions = 0;
  std::int32_t most_preemptions = 0;       // of one branch
  std::uint64_t priority_preemptions = 0;  // of the preemptions: for a higher priority that waited
  std::uint64_t vain_preemptions = 0;      // after which it did not start: always 0
  std::uint64_t best_stalls = 0;           // plans in which the best branch could have had a row and had none: always 0
  std::uint64_t stalls = 0;                // a branch that had to sit out a step for want of blocks
  std::uint64_t shifts = 0;
  std::uint64_t cache_hit_tokens = 0;
  std::uint64_t cache_miss_tokens = 0;
  std::uint64_t searches = 0;             // of the cache for the text of a branch that might start
  std::uint64_t prefix_waits = 0;         // waits for a branch that computed the same beginning
  std::uint64_t longest_prefix_wait = 0;  // such a wait, in steps
  std::uint64_t steps = 0;
  std::uint64_t aborted_steps = 0;
  std::uint64_t generated_rows = 0;
  std::uint64_t prompt_rows = 0;
  std::uint64_t wasted_rows = 0;  // of those: of branches that had ended, which was not known when the step was planned
  std::uint64_t waits = 0;        // plans that had to wait for the step in flight
  std::int32_t snapshots = 0;
  std::int32_t slots_used = 0;
  std::int32_t lanes_used = 0;
  std::vector<GroupCounters> groups = {};
};

class Scheduler {
 public:
  // Throws Error(usage) for a configuration that could not run anything.
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Strong guarantee: if memory runs out (std::bad_alloc), nothing has happened.
  SubmitResult submit(SchedRequest request, std::int64_t now_us);
  // What `submit` would say to even the shortest request of this key: a refusal counts as one. Under overload nobody
  // tokenises a prompt only to refuse it.
  SubmitResult admits(std::uint64_t key, std::int64_t now_us) noexcept;
  // Every branch that has not finished does so now, for `reason`. False: there is no such request.
  bool cancel(RequestId id, FinishReason reason = FinishReason::cancelled);
  // Ends only that branch; the others are not affected. False: there is no such branch, or it has finished.
  bool cancel_branch(RequestId id, std::int32_t branch, FinishReason reason = FinishReason::cancelled);

  // Decides the next step, while fewer than `steps_in_flight` are in flight. Once `planned` is returned, the step is in
  // flight until it is committed or aborted. `pace_us` above 0: other models on the device wait for this step, and
  // their own take that long (RowBudget::paced_rows). Throws std::bad_alloc and stays consistent.
  PlanStatus plan(std::int64_t now_us, StepPlan& plan, std::int64_t pace_us = 0);
  // Takes the results of the oldest step in flight.
  void commit(const StepOutcome& outcome, std::int64_t now_us);
  // The oldest step in flight failed as a whole, and with it the one after it, whose tokens it would have sampled: none
  // of their rows were computed, copies may have been. Recurrent states, and texts that were being pooled, are lost and
  // computed again. The next steps are smaller, in case it was too large.
  void abort_step();

  // What has happened since the last call, in order, into `events`. To be called after each of the above.
  void take_events(std::vector<SchedEvent>& events);
  // The same without a copy, for callers that must not allocate; valid until the next call that is not const.
  std::span<const SchedEvent> events() const noexcept { return events_; }
  void clear_events() noexcept { events_.clear(); }

  // Waiting requests are not started; those that ran continue. With `refuse` no new ones are accepted either.
  void pause(bool refuse = false) noexcept;
  void resume() noexcept;
  // Nothing runs, is in flight or waits to run again: what a drain waits for.
  bool idle() const noexcept { return running_.empty() && queue_.returning() == 0 && in_flight_ == 0; }
  std::int32_t in_flight() const noexcept { return static_cast<std::int32_t>(in_flight_); }
  void clear_cache() noexcept { cache_.clear(); }

  // The longest text that can be computed here: the context, or what the blocks hold.
  std::int32_t longest() const noexcept { return longest_; }
  // How many lanes there are: PlanOutput::lane and StepSequence::lane are below that.
  std::int32_t lane_count() const noexcept { return lane_count_; }
  SchedulerCounters counters() const;
  // For tests: checks every invariant and returns what is wrong; none: nothing is.
  std::optional<std::string> check() const;

 private:
  struct Selection {
    Branch* branch = nullptr;
    std::int32_t rows = 0;
    bool generated = false;
  };
  struct ReservedSnapshot {
    Branch* branch = nullptr;
    std::int32_t length = 0;
    std::int32_t slot = -1;
  };
  // What a branch that waits would start with, and how far its blocks should reach.
  struct Start {
    PrefixCache::Match match = {};
    std::int32_t end = 0;
  };
  struct PendingBlockCopy {
    BlockCopy copy = {};
    Branch* owner = nullptr;  // of `to`; `from` is held until the copy is made
  };
  struct PendingSlotCopy {
    SlotCopy copy = {};
    Branch* owner = nullptr;
  };
  // A step that is being planned or in flight.
  struct StepRecord {
    std::vector<Selection> selections = {};     // one a sequence of the plan
    std::vector<Branch*> output_branches = {};  // one an output; null where no token is sampled
    std::vector<ReservedSnapshot> snapshots = {};
    std::vector<PendingBlockCopy> block_copies = {};
    std::vector<PendingSlotCopy> slot_copies = {};
    std::int32_t decode_rows = 0;
  };

  // scheduler.cpp: the life of a request
  SubmitResult refusal(SubmitStatus status) noexcept;
  std::optional<SubmitResult> judge(const SchedRequest& request, std::int64_t now_us);
  bool malformed(const SchedRequest& request) const noexcept;
  std::optional<SubmitResult> judge_queue(std::uint64_t key, std::int64_t prompt_tokens, std::int64_t now_us) noexcept;
  bool queue_full(std::uint64_t key, std::int64_t prompt_tokens) const noexcept;
  std::int64_t retry_after(std::int64_t now_us) noexcept;
  std::unique_ptr<Job> make_job(SchedRequest&& request, std::int64_t now_us) const;
  void finish(Branch& branch, FinishReason reason) noexcept;
  void finish_all(Job& job, FinishReason reason) noexcept;
  Branch& hand_on_prompt(Branch& branch) noexcept;
  void sweep() noexcept;
  void release_memory(Branch& branch) noexcept;
  void requeue(Branch& branch) noexcept;
  void preempt(Branch& branch) noexcept;
  void leave_running(Branch& branch) noexcept;
  void end_if_done(Job& job) noexcept;
  void leave_queue_limits(Job& job) noexcept;
  void release_lane(Branch& branch) noexcept;

  // scheduler_plan.cpp
  void expire(std::int64_t now_us) noexcept;
  void rank_running(std::int64_t now_us) noexcept;
  bool covered(const Branch& branch, std::int32_t end) const noexcept;
  bool fits(const Branch& branch, std::int32_t end) const noexcept;
  bool ready(const Branch& branch) const noexcept;
  bool make_room(Branch& branch, std::int32_t end) noexcept;
  void grow_tables(Branch& branch, std::int32_t end);
  void secure_best();
  void choose_decodes();
  void choose_rows(std::int64_t now_us, std::int64_t pace_us);
  void choose_prefills(std::size_t started);
  void choose_whole_texts();
  void choose_chunk(Branch& branch, std::int32_t most, std::int32_t most_outputs, std::int32_t most_lanes);
  std::int32_t outputs_of(const Branch& branch, std::int32_t rows) const noexcept;
  std::int32_t lanes_of(const Branch& branch, std::int32_t rows) const noexcept;
  void select(Branch& branch, std::int32_t rows, bool generated);
  void reserve_for_commit(Branch& branch);
  void abandon_plan() noexcept;
  void take_off() noexcept;

  // scheduler_admit.cpp
  void admit(std::int64_t now_us);
  void report_waiting(std::int64_t now_us) noexcept;
  bool still_blocked(const Branch& branch) const noexcept;
  void note_blocked(const Branch& branch, bool by_all) noexcept;
  bool try_start(Branch& branch);
  Start start_of(const Branch& branch);
  void measure_shortage(const Branch& branch, const Start& start) noexcept;
  bool short_of_blocks(std::size_t running) const noexcept;
  void count_committed() noexcept;
  void commit_blocks(const Branch& branch) noexcept;
  std::int32_t blocks_wanted(const Branch& branch, std::size_t group, std::int32_t end) const noexcept;

  // scheduler_preempt.cpp
  void preempt_for_priority(std::int64_t now_us);
  bool preempt_for(Branch& branch);
  std::size_t victims_needed(const Branch& branch, const Start& start) noexcept;
  void count_freed(const Branch& victim) noexcept;
  bool would_start(std::size_t fewer) const noexcept;

  // scheduler_emit.cpp
  void emit(StepPlan& plan);
  void emit_sequence(StepPlan& plan, const Selection& selection);
  void emit_outputs(StepPlan& plan, const Selection& selection, std::int32_t first_row);
  void emit_snapshots(StepPlan& plan, const Selection& selection, std::int32_t first_row);
  void emit_lane(StepPlan& plan, Branch& branch);
  std::int32_t last_snapshot(const Branch& branch, std::int32_t most) const noexcept;

  // scheduler_sharing.cpp
  std::vector<std::uint64_t> prefix_hashes(const Job& job, const std::vector<TokenId>& prompt) const;
  Branch* next_to_start(std::int64_t now_us) noexcept;
  void dequeue(Branch& branch) noexcept;
  bool can_be_waited_for(const Branch& branch) const noexcept;
  std::int32_t common_tokens(const Branch& branch, const Branch& runner) const noexcept;
  std::int32_t useful_end(const Branch& runner, std::int32_t common) const noexcept;
  void wait_for(Branch& branch, Branch& runner, std::int32_t end) noexcept;
  void stop_waiting(Branch& branch) noexcept;
  void find_prefix_in_flight(Branch& branch) noexcept;
  void gather_waiters(Branch& runner) noexcept;
  void release_waiters(Branch& runner) noexcept;
  void abandon_waiters(Branch& runner) noexcept;

  // scheduler_check.cpp
  std::optional<std::string> check_places(const Branch& branch) const;
  std::optional<std::string> check_lanes() const;

  // scheduler_commit.cpp
  void release_copies(StepRecord& step) noexcept;
  void let_go(StepRecord& step) noexcept;
  void settle(const Selection& selection, const StepRecord& step, bool bad) noexcept;
  void retire(Branch& branch) noexcept;
  void give_up(Branch& branch) noexcept;
  void advance(Branch& branch, std::int32_t rows, const StepRecord& step) noexcept;
  void enter_cache(Branch& branch, const StepRecord& step) noexcept;
  void free_passed(Branch& branch) noexcept;
  void fork(Job& job) noexcept;
  void copy_memory(const Branch& from, Branch& to) noexcept;
  bool can_copy_memory() const noexcept;
  void deliver(Branch& branch, TokenId token, std::int32_t output) noexcept;
  void overflow(Branch& branch) noexcept;
  void note_ends(std::int64_t now_us) noexcept;
  void end_step(StepRecord& step) noexcept;

  std::int32_t blocks_for(std::int32_t tokens) const noexcept {
    return (tokens + config_.block_tokens - 1) / config_.block_tokens;
  }
  StepRecord& oldest() noexcept { return steps_[oldest_]; }  // of those in flight
  PrefixCache::Text text(const Branch& branch) const noexcept {
    return {.tokens = branch.tokens, .prompt_end = branch.prompt_end, .salt = branch.job->salt};
  }

  SchedulerConfig config_;
  std::int32_t longest_ = 0;
  PrefixCache cache_;
  FairQueue queue_;
  RowBudget budget_;
  std::unordered_map<RequestId, std::unique_ptr<Job>> jobs_;
  std::size_t live_branches_ = 0;
  std::vector<Branch*> running_;  // best first, as of the last plan
  std::vector<RequestId> ended_;  // to be erased at the end of the call
  std::vector<SchedEvent> events_;
  RequestId next_id_ = 1;

  // the steps in flight, and the one being planned
  std::array<StepRecord, 2> steps_;
  std::size_t oldest_ = 0;
  std::size_t in_flight_ = 0;
  StepRecord* planned_ = nullptr;               // that the plan being made fills
  std::vector<Selection> picks_;                // of the plan being made, as they were chosen
  Branch* best_ = nullptr;                      // of that plan: the best that could have a row
  bool must_wait_ = false;                      // it cannot be made while a step is in flight
  std::vector<PendingBlockCopy> block_copies_;  // of forks, for the next plan
  std::vector<PendingSlotCopy> slot_copies_;
  std::int32_t lane_count_ = 0;
  std::vector<std::int32_t> free_lanes_;
  std::vector<Branch*> prefills_;        // scratch
  std::vector<Branch*> victims_;         // scratch
  std::vector<std::int32_t> committed_;  // scratch, [group]: blocks that started prompts will still want
  std::vector<std::int32_t> shortage_;   // scratch, [group]: blocks that a branch would want beyond what is there
  std::vector<std::vector<std::int32_t>> marks_;  // scratch, [group][block]: zeros between calls
  std::int32_t rows_left_ = 0;
  std::int32_t outputs_left_ = 0;
  std::int32_t lanes_left_ = 0;
  std::int32_t row_cap_ = 0;  // below max_rows after a step that failed

  // the branch that last did not fit, and what there was
  RequestId blocked_job_ = 0;
  std::int32_t blocked_branch_ = 0;
  std::size_t blocked_running_ = 0;
  std::vector<std::int32_t> blocked_room_;  // [group]
  bool blocked_by_all_ = false;             // nor would it have fitted without those of lower priority

  bool exempt_runs_ = false;
  bool paused_ = false;
  bool draining_ = false;
  std::int64_t waiting_tokens_ = 0;
  std::size_t waiting_jobs_ = 0;
  std::int64_t earliest_deadline_ = 0;  // of deadlines and patience, or something before it; 0: none
  std::int64_t now_us_ = 0;             // of the call that runs
  std::int64_t last_end_us_ = 0;
  std::int64_t busy_since_us_ = 0;  // there is a request since then
  std::int64_t end_gap_us_ = 0;     // between requests that end, smoothed
  std::int64_t next_retry_us_ = 0;
  std::int64_t next_waiting_us_ = 0;  // when those that wait are told again how many are ahead
  SchedulerCounters counts_;
};

}  // namespace quarrel

// The serving engine: many requests to one model, both to continue texts and to turn them into vectors. Its thread asks
// the scheduler for a step, has the executor compute it (two may be in flight), and reports the results. Answers do not
// depend on other requests: they have the same bits alone, among others, with a cached prefix, after a preemption
// (docs/numerics.md).
//
// Threads: every member may be called from any thread, from sinks too unless it says otherwise. Sinks are called from
// the engine's thread and must not block.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "engine/event_outbox.h"
#include "engine/executor.h"
#include "engine/request.h"
#include "engine/step_builder.h"
#include "engine/token_stream.h"
#include "sched/scheduler.h"

namespace quarrel {

struct EngineOptions {
  std::int32_t queue_limit = 1024;                         // requests that wait; more are refused
  std::int64_t queue_token_limit = std::int64_t{1} << 22;  // tokens of theirs
  std::int32_t key_queue_limit = 0;                        // requests of one key that wait; 0: no limit of its own
  std::int64_t key_queue_token_limit = 0;                  // the same in tokens
  bool prefix_cache = true;
  std::int32_t chunk = 0;                // most rows of a step; 0: the executor's batch
  std::int32_t snapshot_interval = 256;  // tokens between kept recurrent states; 0: only at the end
  std::int32_t gap_factor = 4;           // how much longer a step with prompt rows may take
  std::int32_t pin_percent = 25;         // of the cache that pinned prefixes may hold
  std::chrono::microseconds ageing = std::chrono::seconds(10);               // waiting that counts for one priority
  std::int32_t steps_in_flight = 0;                                          // 1 or 2; 0: the backend's choice
  std::chrono::microseconds deadline_check = std::chrono::milliseconds(20);  // how often, while no step runs
};

struct EngineCounters {
  SchedulerCounters scheduler = {};
  std::uint64_t failed_steps = 0;
  std::uint64_t tokens = 0;  // sampled and reported
};

struct DrainOptions {
  // When what still runs or waits is cancelled; none: never.
  std::optional<std::chrono::microseconds> within = {};
  std::string reason = {};             // the `error` of what is cancelled then
  std::function<void()> on_done = {};  // called once, by the engine's thread, after the last event was taken
};

class Engine {
 public:
  // `executor` was made for as many sequences as may run at once.
  explicit Engine(std::unique_ptr<Executor> executor, const EngineOptions& options = {});
  // Ends what runs or waits, with FinishReason::cancelled. Not from a sink.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error(bad_input) for invalid parameters, Error(unsupported) for what the model cannot do; what is expected
  // (a full queue, a text that is too long) is a status. Events of an accepted request go to the sink, perhaps before
  // this returns. Several requests may share a sink.
  SubmitResult submit(EngineRequest request, std::shared_ptr<EventSink> sink);
  // Whether any request of this key would be accepted now; a refusal counts as one. Throws where `submit` would.
  SubmitResult admits(std::uint64_t key);

  // `submit` as a stream; its `result` tells whether there is one.
  struct Submission {
    SubmitResult result = {};
    std::shared_ptr<TokenStream> stream = {};
  };
  Submission submit(EngineRequest request);

  // Ends every branch of the request, for `reason`; its blocks are free after the steps in flight. False: there is
  // none.
  bool cancel(RequestId id, FinishReason reason = FinishReason::cancelled);
  // Ends one branch, because its text has reached a stop string or nobody reads it: it has no row in any later step.
  // The others are not affected. False: there is no such branch, or it has ended.
  bool cancel_branch(RequestId id, std::int32_t branch, FinishReason reason = FinishReason::cancelled);
  // Ends everything that runs or waits; `why` is reported as each one's error.
  void cancel_all(FinishReason reason, const std::string& why);

  void pause();  // waiting requests are not started; running ones continue
  void resume();
  // Accepts no more requests, finishes those it has, and reports when the last event was taken. Returns at once; of
  // several calls the earliest deadline counts.
  void drain(DrainOptions options = {});
  // Drains and waits until it is done. Not from a sink: Error(internal).
  void drain_and_wait(DrainOptions options = {});

  // How long it has had something to do without getting on with it: no layer begun, no event taken. Zero while it has
  // nothing to do. Waits for nobody.
  Clock::duration silent_for() const noexcept;
  // No request can be served any more: its file was cut short, or its device is lost. Waits for nobody.
  bool broken() const noexcept { return is_broken_; }
  EngineCounters counters() const;
  Observations observe() const;  // as of the last steps
  void watch_times(bool on);     // of ops, in `observe`; starts them at zero
  const Executor& executor() const noexcept { return *executor_; }
  std::int32_t longest_text() const noexcept;                                   // tokens, prompt and answer together
  std::int32_t most_branches() const noexcept { return config_.max_branches; }  // of one request
  bool on_engine_thread() const noexcept { return std::this_thread::get_id() == thread_.get_id(); }
  void clear_cache();

 private:
  // engine.cpp
  void signal();
  void cancel_everything(FinishReason reason, const std::string& why);
  std::int64_t now() const;
  std::int64_t after(std::chrono::microseconds time) const;

  // engine_loop.cpp: what the engine's thread does
  void run();
  bool advance(std::unique_lock<std::mutex>& lock);
  bool begin_step(std::unique_lock<std::mutex>& lock);
  void finish_step(std::unique_lock<std::mutex>& lock);
  void commit(StepBuilder& step, StepResults& results, std::unique_lock<std::mutex>& lock);
  void give_up(StepBuilder& failed, std::unique_lock<std::mutex>& lock);
  void abandon_steps(std::unique_lock<std::mutex>& lock);
  void report_output(StepBuilder& step, std::size_t index, SampleResult& sample, std::unique_lock<std::mutex>& lock);
  void collect(std::span<SampleResult> samples, std::unique_lock<std::mutex>& lock, StepBuilder* step = nullptr);
  void send(const std::shared_ptr<EngineJob>& job, TokenEvent event, std::unique_lock<std::mutex>& lock);
  void deliver(std::unique_lock<std::mutex>& lock);
  void end_drain(std::unique_lock<std::mutex>& lock);
  void refresh_observations(bool at_once);
  void end_for_good(ErrorKind kind, std::string_view why) noexcept;

  std::unique_ptr<Executor> executor_;
  const SchedulerConfig config_;
  const std::chrono::microseconds deadline_check_;
  std::atomic<Clock::rep> alive_at_ = 0;  // when its thread last got on; 0: it has nothing to do
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t signals_ = 0;  // raised by whatever could give the engine something to do
  Scheduler scheduler_;
  EngineJobs jobs_;
  std::uint64_t failed_steps_ = 0;
  std::uint64_t tokens_ = 0;
  std::optional<Error> broken_;  // why no request can be served any more
  std::atomic<bool> is_broken_ = false;
  bool stopping_ = false;
  bool draining_ = false;
  std::int64_t drain_until_us_ = 0;  // 0: without end
  std::string drain_reason_;
  std::vector<std::function<void()>> on_drained_;
  std::optional<bool> times_wanted_;  // a change that the engine's thread has to make
  Observations observed_;

  // Only the engine's thread touches these.
  std::array<StepBuilder, 2> steps_;
  std::size_t oldest_ = 0;     // of the steps in flight
  std::size_t in_flight_ = 0;  // how many are
  std::int32_t failures_in_a_row_ = 0;
  EventOutbox outbox_;
  Clock::time_point observed_at_ = {};

  std::thread thread_;
};

}  // namespace quarrel

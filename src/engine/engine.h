// The serving engine: many requests, one model. Its thread asks the scheduler for a step, runs it on the executor, and
// tells everybody what came of it. Answers do not depend on who else is there: the same bits alone, in a crowd, with a
// cached prefix, after a preemption (docs/numerics.md).
//
// Threads: every member may be called from any thread. Sinks are called from the engine's thread and must not block;
// they may call the engine. A sink that throws ends its request. The executor belongs to the engine while it lives.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/executor.h"
#include "engine/request.h"
#include "engine/token_stream.h"
#include "sched/scheduler.h"

namespace quarrel {

struct EngineOptions {
  std::int32_t queue_limit = 1024;
  bool prefix_cache = true;
  std::int32_t chunk = 0;                // rows a step at most; 0: the executor's batch
  std::int32_t snapshot_interval = 256;  // tokens of a prompt between kept recurrent states; 0: only at its end
  std::int32_t gap_factor = 4;           // how much longer a step with prompt rows may take than one without
};

struct EngineCounters {
  SchedulerCounters scheduler = {};
  std::uint64_t failed_steps = 0;
  std::uint64_t tokens = 0;  // sampled and told
};

class Engine {
 public:
  using Sink = std::function<void(const TokenEvent&)>;

  // `executor` was made for as many sequences as may run at once.
  explicit Engine(Executor& executor, const EngineOptions& options = {});
  // Ends what runs or waits, with EndReason::cancelled.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error(bad_input) for parameters that mean nothing; what is expected (a full queue, a text that is too long)
  // is a status. Events of an accepted request go to the sink, perhaps before this returns.
  SubmitResult submit(GenerateRequest request, Sink sink);

  // The same as a stream; its `result` tells whether there is one.
  struct Submission {
    SubmitResult result = {};
    std::shared_ptr<TokenStream> stream = {};
  };
  Submission submit(GenerateRequest request);

  // Ends every branch of the request, for `reason`; its blocks are free after the step that runs. False: there is none.
  bool cancel(RequestId id, EndReason reason = EndReason::cancelled);
  // Ends one branch, where its text has met a stop string or nobody reads on: it has no row in any later step. The
  // others go on as they would have. False: there is none by that number, or it has ended.
  bool cancel_branch(RequestId id, std::int32_t branch, EndReason reason = EndReason::cancelled);

  void pause();  // what waits is not started; what runs goes on
  void resume();
  void drain();  // takes no more requests and returns when the last has ended

  EngineCounters counters() const;
  Executor& executor() noexcept { return executor_; }
  std::int32_t longest_text() const;                                      // tokens, prompt and answer together
  std::int32_t most_branches() const noexcept { return most_branches_; }  // of one request
  void clear_cache();

 private:
  // One branch's way of choosing tokens.
  struct BranchState {
    SampleRequest sample = {};
    std::vector<TokenId> text = {};  // prompt and answer, where penalties ask for it
    std::vector<TokenCount> seen = {};
  };
  struct Running {
    Sink sink = {};
    std::int32_t unfinished = 0;  // branches
    bool penalties = false;
    std::vector<BranchState> branches = {};
    std::string error = {};
  };
  // An event and whom it is for.
  struct Letter {
    std::shared_ptr<Running> to = {};
    TokenEvent event = {};
  };

  void run();
  bool run_step(std::unique_lock<std::mutex>& lock);
  void load_step();
  StepResults compute();
  void commit(StepResults&& results, std::int64_t micros, std::unique_lock<std::mutex>& lock);
  void give_up(std::string why, bool again, std::unique_lock<std::mutex>& lock);
  void collect(std::span<SampleResult> samples, std::unique_lock<std::mutex>& lock);
  void send(Letter letter, std::unique_lock<std::mutex>& lock);
  void deliver(std::unique_lock<std::mutex>& lock);
  std::int64_t now() const;

  Executor& executor_;
  const EngineOptions options_;
  const std::int32_t most_branches_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // something was submitted, cancelled, ended, or the engine should stop
  Scheduler scheduler_;
  std::unordered_map<RequestId, std::shared_ptr<Running>> requests_;
  std::uint64_t failed_steps_ = 0;
  std::uint64_t tokens_ = 0;
  std::int32_t failures_in_a_row_ = 0;
  bool stopping_ = false;
  bool draining_ = false;

  // The step in flight; only the engine's thread touches these.
  StepPlan plan_;
  std::vector<StepRow> rows_;
  std::vector<BlockTable> tables_;
  std::vector<StepSequence> sequences_;
  std::vector<StepOutput> outputs_;
  std::vector<SampleRequest> samples_;
  std::vector<StateSnapshot> snapshots_;
  std::vector<Letter> letters_;     // never grows: when it is full, it is delivered
  std::vector<Letter> delivering_;  // the same

  std::thread thread_;
};

}  // namespace quarrel

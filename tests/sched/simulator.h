// The real scheduler against a backend that remembers (echo_backend.h), with a virtual clock and a day full of trouble:
// arrivals, cancels of requests and of single branches, deadlines, failing steps, bad numbers, texts that may not go
// on, pauses, memory that runs out. Everything follows from the seed. A step runs when it is committed, so that with
// two in flight all that can happen has happened to the second by then. After each step the books are audited, and
// every answer must be the one that was known beforehand, reported once.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "sched/echo_backend.h"
#include "sched/scheduler.h"
#include "sched/workload.h"

namespace quarrel::sim {

struct SimulatorConfig {
  SchedulerConfig scheduler = {};
  WorkloadConfig workload = {};
  std::uint64_t seed = 1;
  std::int64_t steps = 1000;
  std::int32_t arrival_per_mille = 300;  // a step
  std::int32_t cancel_per_mille = 15;
  std::int32_t branch_cancel_per_mille = 30;
  std::int32_t abort_per_mille = 5;
  std::int32_t bad_per_mille = 3;
  std::int32_t pause_per_mille = 2;
  std::int32_t no_token_per_mille = 3;
  std::int32_t no_memory_per_mille = 20;  // a plan, and a request that comes
  std::int32_t pace_per_mille = 100;
  std::int32_t clear_per_mille = 1;
  std::int32_t crowd_per_mille = 10;        // requests that come at once and begin alike
  std::int64_t longest_stay = 5000;         // steps from a request's arrival to its end
  std::uint64_t longest_prefix_wait = 400;  // steps that one waits for another's prefix
};

struct SimulatorReport {
  std::int64_t steps = 0;
  std::int64_t answered = 0;  // branches that ended by themselves
  std::int64_t cut_short = 0;
  std::int64_t branches_cancelled = 0;  // alone
  std::int64_t no_memory = 0;           // times that it ran out
  std::int64_t vectors = 0;             // texts that became some
  std::int64_t prompts_handed_on = 0;   // of those: the branch computed a prompt, or waited to, that others wanted
  std::int64_t longest_stay = 0;
  std::size_t largest_queue = 0;
  SchedulerCounters counters = {};
};

class Simulator {
 public:
  explicit Simulator(const SimulatorConfig& config);
  // What went wrong first; empty: nothing.
  std::string run();
  const SimulatorReport& report() const noexcept { return report_; }

 private:
  struct LiveBranch {
    Text text = {};
    Answer expected = {};
    std::size_t reported = 0;  // tokens
    std::size_t shifts = 0;
    bool finished = false;
    bool spoiled = false;    // its numbers were bad
    bool no_token = false;   // it was given none
    bool cancelled = false;  // alone
  };
  struct LiveRequest {
    SchedRequest request = {};
    std::vector<LiveBranch> branches = {};
    std::int64_t arrived_step = 0;
    std::int32_t outputs = 0;  // of the prompt's own rows
    std::int32_t pooled = 0;
    std::int32_t open = 0;
    bool started = false;
    bool cancelled = false;
  };

  std::string step(bool with_arrivals);
  void arrivals();
  void arrive();
  std::string cancel_some();
  std::string cancel_branch();
  PlanStatus make_plan();
  void submit_step();
  std::string run_step();
  std::string fail_step();
  void trouble(SubmittedStep& step);
  std::string handle_events();
  std::string on_token(LiveRequest& live, const SchedEvent& event);
  std::string on_finished(LiveRequest& live, const SchedEvent& event);
  std::string after_drain();
  const Text* text_of(RequestId id, std::int32_t branch, bool of_all) const;

  SimulatorConfig config_;
  Random random_;
  Workload workload_;
  Scheduler scheduler_;
  EchoBackend backend_;
  std::unordered_map<RequestId, LiveRequest> live_;
  std::vector<RequestId> ids_;  // of live_, for choosing one
  StepPlan plan_;
  std::array<SubmittedStep, 3> submitted_;  // the one committed last, and those in flight after it
  std::size_t last_ = 0;                    // of those: committed last
  std::size_t in_flight_ = 0;
  std::vector<std::uint8_t> bad_;
  std::vector<SchedEvent> events_;
  std::int64_t now_us_ = 1;
  bool paused_ = false;
  SimulatorReport report_;
};

}  // namespace quarrel::sim

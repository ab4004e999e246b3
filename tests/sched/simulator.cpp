#include "sched/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/as_size.h"
#include "support/failing_allocation.h"

namespace quarrel::sim {

Simulator::Simulator(const SimulatorConfig& config)
    : config_(config),
      random_(config.seed),
      workload_(config.workload, config.seed + 1),
      scheduler_(config.scheduler),
      backend_(config.scheduler, config.workload.vocabulary) {}

const Text* Simulator::text_of(RequestId id, std::int32_t branch, bool of_all) const {
  const auto found = live_.find(id);
  if (found == live_.end()) return nullptr;
  const std::vector<LiveBranch>& branches = found->second.branches;
  const LiveBranch& named = branches[as_size(branch)];
  if (!named.finished) return &named.text;
  if (!of_all) return nullptr;
  const auto other =
      std::find_if(branches.begin(), branches.end(), [](const LiveBranch& each) { return !each.finished; });
  return other != branches.end() ? &other->text : nullptr;
}

void Simulator::arrive() {
  SchedRequest request = workload_.next(now_us_, scheduler_.longest());
  SchedRequest copy = request;
  SubmitResult result{.status = SubmitStatus::queue_full};
  if (random_.chance(config_.no_memory_per_mille)) test::fail_allocation(random_.below(12));
  try {
    result = scheduler_.submit(std::move(copy), now_us_);
    test::fail_no_allocation();
  } catch (const std::bad_alloc&) {
    test::fail_no_allocation();
    ++report_.no_memory;
  }
  if (result.status != SubmitStatus::accepted) return;
  LiveRequest live{.arrived_step = report_.steps, .open = request.branches};
  for (std::int32_t branch = 0; branch < request.branches; ++branch) {
    live.branches.push_back(
        {.text = make_text(request),
         .expected = expected_answer(request, branch, scheduler_.longest(), config_.workload.vocabulary)});
  }
  live.request = std::move(request);
  live_.emplace(result.id, std::move(live));
  ids_.push_back(result.id);
  report_.largest_queue = std::max(report_.largest_queue, live_.size());
}

std::string Simulator::cancel_some() {
  if (!ids_.empty() && random_.chance(config_.cancel_per_mille)) {
    const RequestId id = ids_[as_size(random_.below(static_cast<std::int32_t>(ids_.size())))];
    live_.at(id).cancelled = true;
    scheduler_.cancel(id);
  }
  return !ids_.empty() && random_.chance(config_.branch_cancel_per_mille) ? cancel_branch() : "";
}

// Of a request with several, if there is one. What has ended is asked for too.
std::string Simulator::cancel_branch() {
  std::size_t at = as_size(random_.below(static_cast<std::int32_t>(ids_.size())));
  for (std::size_t tries = ids_.size(); tries > 0 && live_.at(ids_[at]).branches.size() == 1; --tries) {
    at = (at + 1) % ids_.size();
  }
  LiveRequest& live = live_.at(ids_[at]);
  const auto index = random_.below(static_cast<std::int32_t>(live.branches.size()));
  const auto ends = [&live](const LiveBranch& each) { return !each.finished && !each.cancelled && !live.cancelled; };
  LiveBranch& branch = live.branches[as_size(index)];
  const bool open = ends(branch);
  const bool first = std::find_if(live.branches.begin(), live.branches.end(), ends) - live.branches.begin() == index;
  const bool forked =
      std::any_of(live.branches.begin(), live.branches.end(), [](const auto& each) { return each.reported > 0; });
  branch.cancelled = branch.cancelled || open;
  if (scheduler_.cancel_branch(ids_[at], index) != open) return "a cancelled branch was not what it should be";
  if (!open) return "";
  ++report_.branches_cancelled;
  if (first && !forked && std::any_of(live.branches.begin(), live.branches.end(), ends)) ++report_.prompts_handed_on;
  return "";
}

std::string Simulator::on_token(LiveRequest& live, const SchedEvent& event) {
  LiveBranch& branch = live.branches[as_size(event.branch)];
  if (!live.started) return "a token before its start";
  if (branch.reported >= branch.expected.tokens.size()) return "a token after the answer's end";
  if (branch.expected.tokens[branch.reported] != event.token) return "a wrong token";
  const StepPlan& plan = submitted_[last_].plan;
  if (as_size(event.output) >= plan.outputs.size()) return "a token of no output";
  const PlanOutput& output = plan.outputs[as_size(event.output)];
  if (output.request != event.request || output.branch != event.branch) return "a token of another output";
  const auto scores = static_cast<std::int32_t>(live.request.prompt.size()) - 1;
  if (live.request.prompt_outputs == PromptOutputs::scores && live.outputs != scores) return "scores are missing";
  ++branch.reported;
  branch.text.append(event.token);
  return "";
}

std::string Simulator::on_finished(LiveRequest& live, const SchedEvent& event) {
  LiveBranch& branch = live.branches[as_size(event.branch)];
  branch.finished = true;
  --live.open;
  report_.longest_stay = std::max(report_.longest_stay, report_.steps - live.arrived_step);
  switch (event.reason) {
    case FinishReason::cancelled:
      ++report_.cut_short;
      return live.cancelled || branch.cancelled ? "" : "ended by nobody's wish";
    case FinishReason::timeout:
      ++report_.cut_short;
      return live.request.deadline_us > 0 && live.request.deadline_us <= now_us_ ? "" : "ended before its deadline";
    case FinishReason::no_token: ++report_.cut_short; return branch.no_token ? "" : "no token without a reason";
    case FinishReason::failed: ++report_.cut_short; return branch.spoiled ? "" : "failed without a reason";
    default: break;
  }
  ++report_.answered;
  if (branch.spoiled) return "bad numbers went unnoticed";
  if (event.reason != branch.expected.reason) return "ended for the wrong reason";
  if (branch.reported != branch.expected.tokens.size()) return "the answer is too short";
  if (branch.shifts != branch.expected.shifts.size()) return "a shift is missing";
  if (branch.no_token) return "it went on without a token";
  if (live.pooled != (live.request.pooled ? 1 : 0)) return "it was not pooled once";
  const auto tokens = static_cast<std::int32_t>(live.request.prompt.size());
  if (live.request.prompt_outputs == PromptOutputs::vectors && live.outputs != tokens) return "vectors are missing";
  const bool vectors = live.request.pooled || live.request.prompt_outputs == PromptOutputs::vectors;
  report_.vectors += vectors ? 1 : 0;
  if (event.branch == 0 && branch.shifts == 0) workload_.remember(live.request.prompt, branch.expected.tokens);
  return "";
}

std::string Simulator::handle_events() {
  scheduler_.take_events(events_);
  for (const SchedEvent& event : events_) {
    const auto found = live_.find(event.request);
    if (found == live_.end()) return fmt::format("request {} is reported after its end", event.request);
    LiveRequest& live = found->second;
    LiveBranch& branch = live.branches[as_size(event.branch)];
    std::string wrong = branch.finished ? "it had finished" : "";
    if (wrong.empty() && event.kind == SchedEvent::Kind::started) {
      if (std::exchange(live.started, true)) wrong = "it had started";
      if (event.cached >= static_cast<std::int32_t>(live.request.prompt.size())) wrong = "all of it was cached";
    }
    if (wrong.empty() && event.kind == SchedEvent::Kind::waiting) {
      if (live.started) wrong = "it waits after its start";
      if (!live.request.tell_reading || event.ahead < 0 || as_size(event.ahead) >= live_.size())
        wrong = "a wrong place";
    }
    if (wrong.empty() && event.kind == SchedEvent::Kind::token) wrong = on_token(live, event);
    if (wrong.empty() && event.kind == SchedEvent::Kind::finished) wrong = on_finished(live, event);
    if (wrong.empty() && event.kind == SchedEvent::Kind::shifted) {
      const bool known = branch.shifts < branch.expected.shifts.size();
      if (!known || branch.expected.shifts[branch.shifts] != event.dropped) wrong = "a wrong shift";
      ++branch.shifts;
      const auto prompt = static_cast<std::int32_t>(live.request.prompt.size());
      branch.text.drop(std::min({live.request.keep, prompt, scheduler_.longest() / 2}), event.dropped);
    }
    if (!wrong.empty()) return fmt::format("request {}, branch {}: {}", event.request, event.branch, wrong);
    if (live.open == 0) {
      ids_.erase(std::find(ids_.begin(), ids_.end(), event.request));
      live_.erase(found);
    }
  }
  return "";
}

PlanStatus Simulator::make_plan() {
  const std::int64_t pace = random_.chance(config_.pace_per_mille) ? random_.between(1, 2000) : 0;
  const bool short_of_memory = random_.chance(config_.no_memory_per_mille);
  if (short_of_memory) test::fail_allocation(random_.below(4));
  PlanStatus status = PlanStatus::wait;
  try {
    status = scheduler_.plan(now_us_, plan_, pace);
    test::fail_no_allocation();
  } catch (const std::bad_alloc&) {
    test::fail_no_allocation();
    ++report_.no_memory;
  }
  return status;
}

void Simulator::submit_step() {
  ++in_flight_;
  SubmittedStep& step = submitted_[(last_ + in_flight_) % submitted_.size()];
  step.take(plan_, in_flight_ > 1);
  step.of_all.clear();
  for (const PlanOwner& owner : plan_.owners) {
    const std::vector<LiveBranch>& branches = live_.at(owner.request).branches;
    const bool forked =
        std::any_of(branches.begin(), branches.end(), [](const LiveBranch& each) { return each.reported > 0; });
    step.of_all.push_back(forked ? 0 : 1);
  }
}

std::string Simulator::fail_step() {
  for (std::size_t i = 1; i <= in_flight_; ++i) {
    backend_.run_badly(submitted_[(last_ + i) % submitted_.size()].plan, random_);
  }
  std::string wrong = cancel_some();
  now_us_ += 1000;
  in_flight_ = 0;
  scheduler_.abort_step();
  return wrong;
}

// Numbers that are not finite, and branches that may not go on.
void Simulator::trouble(SubmittedStep& step) {
  const StepPlan& plan = step.plan;
  bad_.assign(plan.sequences.size(), 0);
  if (random_.chance(config_.bad_per_mille)) {
    const std::size_t index = as_size(random_.below(static_cast<std::int32_t>(bad_.size())));
    const PlanOwner& owner = plan.owners[index];
    bad_[index] = 1;
    backend_.spoil(plan, index);
    if (const auto found = live_.find(owner.request); found != live_.end()) {
      for (std::size_t i = 0; i < found->second.branches.size(); ++i) {
        if (step.of_all[index] != 0 || i == as_size(owner.branch)) found->second.branches[i].spoiled = true;
      }
    }
  }
  if (!plan.outputs.empty() && random_.chance(config_.no_token_per_mille)) {
    const std::size_t index = as_size(random_.below(static_cast<std::int32_t>(plan.outputs.size())));
    const PlanOutput& output = plan.outputs[index];
    const auto found = live_.find(output.request);
    if (output.kind != PlanOutput::Kind::sample || found == live_.end()) return;
    step.sampled[index] = kNoToken;
    found->second.branches[as_size(output.branch)].no_token = true;
  }
}

// What comes of the oldest step in flight.
std::string Simulator::run_step() {
  if (random_.chance(config_.abort_per_mille)) return fail_step();
  const SubmittedStep& before = submitted_[last_];
  last_ = (last_ + 1) % submitted_.size();
  SubmittedStep& step = submitted_[last_];
  const StepPlan& plan = step.plan;
  std::int32_t decode_rows = 0;
  for (const PlanOwner& owner : plan.owners) decode_rows += owner.rows == 1 ? 1 : 0;
  const auto rows = static_cast<std::int32_t>(plan.rows.size());
  const std::int64_t micros = 800 + 20 * decode_rows + 60 * (rows - decode_rows) + random_.below(100);
  std::string wrong = backend_.run(
      step, before, [this](RequestId id, std::int32_t branch, bool of_all) { return text_of(id, branch, of_all); });
  if (!wrong.empty()) return wrong;
  trouble(step);
  for (const PlanOutput& output : plan.outputs) {
    const StepRow& row = plan.rows[as_size(output.row)];
    const auto found = live_.find(output.request);
    if (found == live_.end() || bad_[as_size(row.sequence)] != 0) continue;
    found->second.pooled += output.kind == PlanOutput::Kind::pooled ? 1 : 0;
    const bool own = output.kind == PlanOutput::Kind::score || output.kind == PlanOutput::Kind::vector;
    if (own && row.position != found->second.outputs++) return "a row of a prompt is missing or comes twice";
  }
  wrong = cancel_some();
  now_us_ += micros;
  --in_flight_;
  scheduler_.commit({.micros = micros, .sampled = step.sampled, .bad = bad_}, now_us_);
  return wrong;
}

void Simulator::arrivals() {
  // Now and then a crowd comes at once.
  const std::int32_t crowd = random_.chance(5) ? random_.below(30) : 1;
  for (std::int32_t i = 0; i < crowd; ++i) {
    if (random_.chance(config_.arrival_per_mille)) arrive();
  }
  if (random_.chance(config_.crowd_per_mille)) {
    workload_.gather();
    for (std::int32_t i = random_.between(2, 12); i > 0; --i) arrive();
    workload_.disperse();
  }
  if (!paused_ && random_.chance(config_.pause_per_mille)) {
    paused_ = true;
    scheduler_.pause(random_.chance(300));
  } else if (paused_ && random_.chance(50)) {
    paused_ = false;
    scheduler_.resume();
  }
  if (random_.chance(config_.clear_per_mille)) scheduler_.clear_cache();
}

std::string Simulator::step(bool with_arrivals) {
  ++report_.steps;
  if (with_arrivals) arrivals();
  if (std::string wrong = cancel_some(); !wrong.empty()) return wrong;
  const std::int64_t failures = report_.no_memory;
  const PlanStatus status = make_plan();
  if (std::string wrong = handle_events(); !wrong.empty()) return wrong;
  if (const auto wrong = scheduler_.check()) return "after plan: " + *wrong;
  if (status == PlanStatus::planned) {
    if (std::string wrong = backend_.check_shape(plan_); !wrong.empty()) return wrong;
    submit_step();
  } else if (in_flight_ == 0) {
    now_us_ += 500;
    if (report_.no_memory > failures) return "";
    if (status == PlanStatus::wait) return "there is nothing to wait for";
    if (!paused_ && !live_.empty()) return "nothing is planned though requests wait";
    return "";
  }
  // Now and then the next plan is late, or one more step is over before it.
  const bool full = in_flight_ == as_size(config_.scheduler.steps_in_flight) || status != PlanStatus::planned;
  for (bool more = full || random_.chance(50); more && in_flight_ > 0; more = random_.chance(100)) {
    if (std::string wrong = run_step(); !wrong.empty()) return wrong;
    if (std::string wrong = handle_events(); !wrong.empty()) return wrong;
    if (const auto wrong = scheduler_.check()) return "after commit: " + *wrong;
  }
  return "";
}

std::string Simulator::after_drain() {
  if (!live_.empty()) return "requests were lost";
  scheduler_.clear_cache();
  const SchedulerCounters counters = scheduler_.counters();
  report_.counters = counters;
  if (counters.running + counters.waiting + counters.returning != 0) return "somebody is still there";
  if (counters.slots_used != 0 || counters.snapshots != 0) return "slots were lost";
  for (const GroupCounters& group : counters.groups) {
    if (group.free != group.total) return "blocks were lost";
  }
  if (counters.accepted != counters.finished) return "requests are miscounted";
  if (counters.best_stalls != 0) return "the best branch had to wait";
  if (counters.vain_preemptions != 0) return "somebody was preempted for nothing";
  if (counters.longest_prefix_wait > config_.longest_prefix_wait) return "a prefix was waited for too long";
  return "";
}

std::string Simulator::run() {
  const auto describe = [this](const std::string& wrong) {
    return fmt::format("seed {}, step {}: {}", config_.seed, report_.steps, wrong);
  };
  while (report_.steps < config_.steps) {
    if (std::string wrong = step(true); !wrong.empty()) return describe(wrong);
    if (report_.steps % 256 != 0) continue;
    for (const auto& [id, live] : live_) {
      if (report_.steps - live.arrived_step > config_.longest_stay)
        return describe(fmt::format("request {} starves", id));
    }
  }
  scheduler_.resume();
  paused_ = false;
  for (std::int64_t rest = config_.longest_stay; rest > 0 && (!live_.empty() || in_flight_ > 0); --rest) {
    if (std::string wrong = step(false); !wrong.empty()) return describe("while draining: " + wrong);
  }
  const std::string wrong = after_drain();
  return wrong.empty() ? "" : describe(wrong);
}

}  // namespace quarrel::sim

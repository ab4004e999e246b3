#include "sched/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/as_size.h"

namespace quarrel::sim {

Simulator::Simulator(const SimulatorConfig& config)
    : config_(config),
      random_(config.seed),
      workload_(config.workload, config.seed + 1),
      scheduler_(config.scheduler),
      backend_(config.scheduler) {}

const Text* Simulator::text_of(RequestId id, std::int32_t branch) const {
  const auto found = live_.find(id);
  if (found == live_.end()) return nullptr;
  const LiveBranch& live = found->second.branches[as_size(branch)];
  return live.finished ? nullptr : &live.text;
}

void Simulator::arrive() {
  SchedRequest request = workload_.next(now_us_, scheduler_.longest());
  const SubmitResult result = scheduler_.submit(request, now_us_);
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
      std::any_of(live.branches.begin(), live.branches.end(), [](const auto& each) { return each.told > 0; });
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
  if (branch.told >= branch.expected.tokens.size()) return "a token after the answer's end";
  if (branch.expected.tokens[branch.told] != event.token) return "a wrong token";
  if (as_size(event.output) >= plan_.outputs.size()) return "a token of no output";
  const PlanOutput& output = plan_.outputs[as_size(event.output)];
  if (output.request != event.request || output.branch != event.branch) return "a token of another output";
  const auto scores = static_cast<std::int32_t>(live.request.prompt.size()) - 1;
  if (live.request.score_prompt && live.scores != scores) return "scores are missing or told twice";
  ++branch.told;
  branch.text.append(event.token);
  return "";
}

std::string Simulator::on_finished(LiveRequest& live, const SchedEvent& event) {
  LiveBranch& branch = live.branches[as_size(event.branch)];
  branch.finished = true;
  --live.open;
  report_.longest_stay = std::max(report_.longest_stay, report_.steps - live.arrived_step);
  switch (event.reason) {
    case EndReason::cancelled:
      ++report_.cut_short;
      return live.cancelled || branch.cancelled ? "" : "ended by nobody's wish";
    case EndReason::deadline:
      ++report_.cut_short;
      return live.request.deadline_us > 0 && live.request.deadline_us <= now_us_ ? "" : "ended before its deadline";
    case EndReason::failed: ++report_.cut_short; return branch.spoiled ? "" : "failed without a reason";
    default: break;
  }
  ++report_.answered;
  if (branch.spoiled) return "bad numbers went unnoticed";
  if (event.reason != branch.expected.reason) return "ended for the wrong reason";
  if (branch.told != branch.expected.tokens.size()) return "the answer is too short";
  if (branch.shifts != branch.expected.shifts.size()) return "a shift is missing";
  if (event.branch == 0 && branch.shifts == 0) workload_.remember(live.request.prompt, branch.expected.tokens);
  return "";
}

std::string Simulator::handle_events() {
  scheduler_.take_events(events_);
  for (const SchedEvent& event : events_) {
    const auto found = live_.find(event.request);
    if (found == live_.end()) return fmt::format("request {} is told of after its end", event.request);
    LiveRequest& live = found->second;
    LiveBranch& branch = live.branches[as_size(event.branch)];
    std::string wrong = branch.finished ? "it had finished" : "";
    if (wrong.empty() && event.kind == SchedEvent::Kind::started) {
      if (std::exchange(live.started, true)) wrong = "it had started";
      if (event.cached >= static_cast<std::int32_t>(live.request.prompt.size())) wrong = "all of it was cached";
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

std::string Simulator::run_step() {
  std::int32_t decode_rows = 0;
  for (const PlanSequence& sequence : plan_.sequences) decode_rows += sequence.rows == 1 ? 1 : 0;
  const auto rows = static_cast<std::int32_t>(plan_.rows.size());
  const std::int64_t micros = 800 + 20 * decode_rows + 60 * (rows - decode_rows) + random_.below(100);
  if (random_.chance(config_.abort_per_mille)) {
    backend_.run_badly(plan_, random_);
    std::string wrong = cancel_some();
    now_us_ += micros;
    scheduler_.abort_step();
    return wrong;
  }
  std::string wrong = backend_.run(plan_, [this](RequestId id, std::int32_t branch) { return text_of(id, branch); });
  if (!wrong.empty()) return wrong;
  sampled_.clear();
  for (const PlanOutput& output : plan_.outputs) {
    const PlanRow& row = plan_.rows[as_size(output.row)];
    const Text& text = *text_of(output.request, output.branch);
    sampled_.push_back(sample(text.hashes[as_size(row.position)], output.branch, config_.workload.vocabulary));
  }
  bad_.assign(plan_.sequences.size(), 0);
  if (random_.chance(config_.bad_per_mille)) {
    const std::size_t index = as_size(random_.below(static_cast<std::int32_t>(bad_.size())));
    const PlanSequence& sequence = plan_.sequences[index];
    bad_[index] = 1;
    backend_.spoil(plan_, index);
    LiveRequest& live = live_.at(sequence.request);
    const bool forked = sequence.length > static_cast<std::int32_t>(live.request.prompt.size()) ||
                        live.branches[as_size(sequence.branch)].told > 0;
    for (std::size_t i = 0; i < live.branches.size(); ++i) {
      if (!forked || i == as_size(sequence.branch)) live.branches[i].spoiled = true;
    }
  }
  for (const PlanOutput& output : plan_.outputs) {
    const PlanRow& row = plan_.rows[as_size(output.row)];
    if (output.score >= 0 && bad_[as_size(row.sequence)] == 0) ++live_.at(output.request).scores;
  }
  wrong = cancel_some();
  now_us_ += micros;
  scheduler_.commit({.micros = micros, .sampled = sampled_, .bad = bad_}, now_us_);
  return wrong;
}

std::string Simulator::step(bool arrivals) {
  ++report_.steps;
  if (arrivals) {
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
  if (std::string wrong = cancel_some(); !wrong.empty()) return wrong;
  const bool planned = scheduler_.plan(now_us_, plan_);
  if (std::string wrong = handle_events(); !wrong.empty()) return wrong;
  if (const auto wrong = scheduler_.check()) return "after plan: " + *wrong;
  if (!planned) {
    now_us_ += 500;
    if (!paused_ && !live_.empty()) return "nothing is planned though requests wait";
    return "";
  }
  if (plan_.rows.empty()) return "an empty plan";
  if (std::string wrong = run_step(); !wrong.empty()) return wrong;
  if (std::string wrong = handle_events(); !wrong.empty()) return wrong;
  if (const auto wrong = scheduler_.check()) return "after commit: " + *wrong;
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
  if (counters.vain_displacements != 0) return "somebody was preempted for nothing";
  if (counters.longest_follow > config_.longest_follow) return "a prefix was waited for too long";
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
  for (std::int64_t rest = config_.longest_stay; rest > 0 && !live_.empty(); --rest) {
    if (std::string wrong = step(false); !wrong.empty()) return describe("while draining: " + wrong);
  }
  const std::string wrong = after_drain();
  return wrong.empty() ? "" : describe(wrong);
}

}  // namespace quarrel::sim

// What the engine's thread does: plans a step and hands it to the executor, waits for the oldest one in flight, commits
// it, reports what came of it. With two steps in flight the device computes one while the host does all this for the
// other.
#include <algorithm>
#include <new>
#include <utility>

#include "base/as_size.h"
#include "base/error.h"
#include "engine/engine.h"

namespace quarrel {
namespace {

// A step that fails is tried again, smaller; after so many failures in a row its requests end instead.
constexpr std::int32_t kMostFailures = 4;
// How old what `observe` gives may be while steps run.
constexpr std::chrono::milliseconds kObserveEvery{100};

// Why a branch ended, where somebody knows. Without memory for it, nobody does.
std::string end_note(EngineJob& job, EngineBranch& branch, FinishReason reason) noexcept {
  std::string note;
  note.swap(branch.error);
  const bool ended_by_somebody = reason == FinishReason::failed || reason == FinishReason::cancelled;
  if (!note.empty() || !ended_by_somebody) return note;
  try {
    note = job.why;
  } catch (const std::bad_alloc&) {
    note.clear();
  }
  return note;
}

}  // namespace

void Engine::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    alive_at_ = Clock::now().time_since_epoch().count();
    const std::uint64_t seen = signals_;
    bool worked = false;
    try {
      worked = advance(lock);
    } catch (const std::bad_alloc&) {
      // Planning leaves the scheduler as it was, and somebody may free memory.
      ++failed_steps_;
    }
    deliver(lock);
    end_drain(lock);
    if (worked) continue;
    // What came while sinks were called is not slept over.
    const auto something_came = [&] { return signals_ != seen; };
    if (jobs_.empty()) {
      alive_at_ = 0;
      changed_.wait(lock, something_came);
    } else {
      changed_.wait_for(lock, deadline_check_, something_came);
    }
  }
  alive_at_ = 0;
  abandon_steps(lock);
  cancel_everything(FinishReason::cancelled, "");
  collect({}, lock);
  deliver(lock);
  draining_ = true;
  end_drain(lock);
}

// Begins the next step if it can, and ends the oldest one if as many are in flight as may be, or nothing else is to be
// done. False: there was nothing to do.
bool Engine::advance(std::unique_lock<std::mutex>& lock) {
  if (in_flight_ < as_size(config_.steps_in_flight)) {
    bool begun = false;
    try {
      begun = begin_step(lock);
    } catch (const std::bad_alloc&) {
      if (in_flight_ == 0) throw;
      ++failed_steps_;  // ending the one in flight may free memory, and needs little
    }
    if (begun && in_flight_ < as_size(config_.steps_in_flight)) return true;
  }
  if (in_flight_ == 0) return false;
  finish_step(lock);
  return true;
}

bool Engine::begin_step(std::unique_lock<std::mutex>& lock) {
  if (times_wanted_) executor_->watch_times(*std::exchange(times_wanted_, std::nullopt));
  StepBuilder& step = steps_[(oldest_ + in_flight_) % steps_.size()];
  const PlanStatus status = scheduler_.plan(now(), step.plan, executor_->backend().pace());
  if (status != PlanStatus::planned) {
    collect({}, lock);  // whose deadline has passed
    return false;
  }
  ++in_flight_;
  try {
    step.build(jobs_, executor_->spec().vocabulary);
    collect({}, lock);  // what was started, too
    lock.unlock();
    step.ticket = executor_->submit(step.step());
    step.submitted = true;
  } catch (const std::bad_alloc&) {
    step.fail("there was no memory for a step", true);
  } catch (const Error& error) {
    step.fail(error.what(), error.kind() == ErrorKind::out_of_memory);
  } catch (const std::exception& error) {
    step.fail(error.what(), false);
  }
  step.let_go();
  if (!lock.owns_lock()) lock.lock();
  return true;
}

// Waits for the oldest step with the lock open, and commits it.
void Engine::finish_step(std::unique_lock<std::mutex>& lock) {
  StepBuilder& step = steps_[oldest_];
  if (step.submitted) {
    lock.unlock();
    try {
      step.submitted = false;
      StepResults results = executor_->wait(step.ticket);
      if (executor_->file().cut_short())
        fail(ErrorKind::bad_file, "the model's file was cut short while it was in use");
      lock.lock();
      commit(step, results, lock);
      failures_in_a_row_ = 0;
      return;
    } catch (const std::bad_alloc&) {
      step.fail("there was no memory for a step", true);
    } catch (const Error& error) {
      step.fail(error.what(), error.kind() == ErrorKind::out_of_memory);
    } catch (const std::exception& error) {
      step.fail(error.what(), false);
    }
    if (!lock.owns_lock()) lock.lock();
  }
  give_up(step, lock);
}

void Engine::commit(StepBuilder& step, StepResults& results, std::unique_lock<std::mutex>& lock) {
  step.read(results, jobs_);
  scheduler_.commit(step.outcome(results.micros), now());
  // From here on nothing needs memory: what was committed is reported.
  oldest_ = (oldest_ + 1) % steps_.size();
  --in_flight_;
  for (std::size_t i = 0; i < step.plan.outputs.size(); ++i) report_output(step, i, results.samples[i], lock);
  collect(results.samples, lock, &step);
  refresh_observations(jobs_.empty());
}

// What an output gives beside a sampled token, which the scheduler's events tell of.
void Engine::report_output(StepBuilder& step, std::size_t index, SampleResult& sample,
                           std::unique_lock<std::mutex>& lock) {
  const PlanOutput& output = step.plan.outputs[index];
  const auto found = jobs_.find(output.request);
  if (output.kind == PlanOutput::Kind::sample || found == jobs_.end() || step.bad(output)) return;
  TokenEvent event{{.branch = output.branch, .request = output.request}};
  event.values = std::move(step.values(index));
  switch (output.kind) {
    case PlanOutput::Kind::sample: return;
    case PlanOutput::Kind::score:
      event.kind = TokenEvent::Kind::prompt_score;
      event.sample = std::move(sample);
      break;
    case PlanOutput::Kind::vector: event.kind = TokenEvent::Kind::prompt_vector; break;
    case PlanOutput::Kind::pooled: event.kind = TokenEvent::Kind::vector; break;
  }
  send(found->second, std::move(event), lock);
}

// The oldest step came to nothing, and so did the one that was to follow it. What they were for is tried again, or
// ends.
void Engine::give_up(StepBuilder& failed, std::unique_lock<std::mutex>& lock) {
  const std::string why = failed.failure;
  const bool again = failed.may_succeed_smaller && ++failures_in_a_row_ < kMostFailures;
  ++failed_steps_;
  const std::size_t count = in_flight_;
  abandon_steps(lock);
  scheduler_.abort_step();
  const bool lost = executor_->device_lost();
  if (lost || executor_->file().cut_short()) {
    end_for_good(lost ? ErrorKind::device_lost : ErrorKind::bad_file, why);
  } else if (!again) {
    failures_in_a_row_ = 0;
    for (std::size_t i = 0; i < count; ++i) {
      for (const PlanOwner& owner : steps_[(oldest_ + i) % steps_.size()].plan.owners) {
        const auto found = jobs_.find(owner.request);
        if (scheduler_.cancel(owner.request, FinishReason::failed) && found != jobs_.end()) found->second->why = why;
      }
    }
  }
  collect({}, lock);
}

// Waits for whatever is still being computed, and forgets it.
void Engine::abandon_steps(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  for (std::size_t i = 0; i < in_flight_; ++i) {
    StepBuilder& step = steps_[(oldest_ + i) % steps_.size()];
    if (!std::exchange(step.submitted, false)) continue;
    try {
      executor_->wait(step.ticket);
    } catch (const std::exception&) {
      // It is given up whatever became of it; the first failure is the one that is reported.
    }
  }
  lock.lock();
  in_flight_ = 0;
}

// Adds to the scheduler's events what the step computed. `samples` are the results of the step they speak of.
void Engine::collect(std::span<SampleResult> samples, std::unique_lock<std::mutex>& lock, StepBuilder* step) {
  // Events may be delivered on the way, with the lock open, and others may add to them then.
  for (std::size_t i = 0; i < scheduler_.events().size(); ++i) {
    const SchedEvent event = scheduler_.events()[i];
    const auto found = jobs_.find(event.request);
    if (found == jobs_.end()) continue;
    const std::shared_ptr<EngineJob> job = found->second;
    EngineBranch& branch = job->branches[as_size(event.branch)];
    TokenEvent reported{event};
    switch (event.kind) {
      case SchedEvent::Kind::token:
        reported.sample = std::move(samples[as_size(event.output)]);
        reported.values = std::move(step->values(as_size(event.output)));
        ++branch.drawn;
        branch.mirostat_mu = reported.sample.mirostat_mu;
        if (job->keeps_text) branch.text.push_back(event.token);  // its room was made with the step
        ++tokens_;
        break;
      case SchedEvent::Kind::finished:
        reported.error = end_note(*job, branch, event.reason);
        // A mask that threw left no token.
        if (event.reason == FinishReason::no_token && !reported.error.empty()) reported.reason = FinishReason::failed;
        if (--job->unfinished == 0) jobs_.erase(found);
        break;
      default: break;
    }
    send(job, std::move(reported), lock);
  }
  scheduler_.clear_events();
}

void Engine::send(const std::shared_ptr<EngineJob>& job, TokenEvent event, std::unique_lock<std::mutex>& lock) {
  event.at = Clock::now();
  if (outbox_.full()) deliver(lock);
  outbox_.put(job, std::move(event));
}

// Hands out the events with the lock open: a sink may call the engine.
void Engine::deliver(std::unique_lock<std::mutex>& lock) {
  if (outbox_.empty()) return;
  lock.unlock();
  outbox_.deliver([this](RequestId id) { cancel(id, FinishReason::failed); });
  lock.lock();
}

// Everything was served, or its time is over.
void Engine::end_drain(std::unique_lock<std::mutex>& lock) {
  if (!draining_) return;
  if (!jobs_.empty() && drain_until_us_ > 0 && now() >= drain_until_us_) {
    drain_until_us_ = 0;
    cancel_everything(FinishReason::cancelled, drain_reason_);
  }
  if (!jobs_.empty() || !outbox_.empty() || on_drained_.empty()) return;
  std::vector<std::function<void()>> done;
  done.swap(on_drained_);
  lock.unlock();
  for (const auto& call : done) call();
  lock.lock();
}

void Engine::refresh_observations(bool at_once) {
  const auto time = Clock::now();
  if (!at_once && time - observed_at_ < kObserveEvery) return;
  try {
    observed_ = executor_->observe();
    observed_at_ = time;
  } catch (const Error& error) {
    // What was committed stays so, and the next step will tell; unless the device is lost, and there is none.
    if (error.kind() == ErrorKind::device_lost) end_for_good(error.kind(), error.what());
  } catch (const std::exception&) {
    // The next step will tell.
  }
}

// No request can be served any more.
void Engine::end_for_good(ErrorKind kind, std::string_view why) noexcept {
  if (is_broken_.exchange(true)) return;
  try {
    broken_.emplace(kind, std::string(why));
    cancel_everything(FinishReason::failed, broken_->what());
  } catch (const std::bad_alloc&) {
    is_broken_ = false;  // the next step finds it so, too
  }
}

}  // namespace quarrel

// What happens next: everything here runs under the lock.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "session/refusal.h"
#include "session/registry_core.h"

namespace quarrel {
namespace {

// What lies beyond this is as good as never, and no sum with it overflows.
constexpr std::chrono::hours kLongest{24 * 365 * 10};
// When to come back to a model that too many wait for: nobody knows how long a load takes.
constexpr std::chrono::milliseconds kRetryAfter{2000};

void earliest(std::optional<Clock::time_point>& next, const std::optional<Clock::time_point>& other) {
  if (other && (!next || *other < *next)) next = other;
}

}  // namespace

RegistryCore::Deadline RegistryCore::after(Clock::time_point start, std::chrono::milliseconds time) {
  if (time.count() < 0 || time > kLongest) return {};
  return start + time;
}

RegistryCore::Deadline RegistryCore::expiry(const Resident& resident) {
  if (resident.leases > 0) return {};
  return after(resident.idle_since, resident.plan.keep_alive);
}

RegistryCore::Deadline RegistryCore::decide(Clock::time_point now) {
  Deadline next;
  take_results(now);
  if (closing_) {
    end_everything();
    return next;
  }
  serve_slots();
  give_up_waiting(now, next);
  expire(now, next);
  start_jobs(now, next);
  return next;
}

// Plans and loads that have ended.
void RegistryCore::take_results(Clock::time_point now) {
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    const JobPlace job = each++;
    if (job->phase == Job::Phase::planned) {
      planner_busy_ = false;
      job->phase = Job::Phase::waiting;
      if (job->error) {
        fail_job(job, job->error);
      } else if (job->stop) {
        stop(job);
      }
    } else if (job->phase == Job::Phase::loaded) {
      loader_busy_ = false;
      job->phase = Job::Phase::waiting;
      if (job->error) {
        deliveries_.events.splice(deliveries_.events.end(), job->report);
        fail_job(job, job->error);
      } else {
        install(job, now);
      }
    }
  }
}

// Those who wait get what is there; a name that is waited for has somebody who loads it.
void RegistryCore::serve_slots() {
  for (auto each = slots_.begin(); each != slots_.end();) {
    const auto place = each++;
    Slot& slot = place->second;
    if (slot.resident != nullptr && !slot.blocked) {
      for (AcquireWaiter& waiter : slot.waiters) lend(*slot.resident, waiter);
      deliveries_.acquires.splice(deliveries_.acquires.end(), slot.waiters);
    }
    if (slot.resident != nullptr || has_job(place->first)) continue;
    if (slot.waiters.empty()) {
      slots_.erase(place);
      continue;
    }
    // What they waited for came to nothing, but not by their doing.
    try {
      std::list<Job> job = new_job(Job::Kind::load, place->first);
      jobs_.splice(jobs_.end(), job);
    } catch (...) {
      fail_waiters(slot, std::current_exception());
    }
  }
}

// What they wait for is loaded all the same: whoever comes later finds it.
void RegistryCore::give_up_waiting(Clock::time_point now, Deadline& next) {
  for (auto& [name, slot] : slots_) {
    for (auto each = slot.waiters.begin(); each != slot.waiters.end();) {
      const auto waiter = each++;
      if (waiter->give_up_at && *waiter->give_up_at <= now) {
        waiter->error = timed_out(name);
        deliveries_.acquires.splice(deliveries_.acquires.end(), slot.waiters, waiter);
      } else {
        earliest(next, waiter->give_up_at);
      }
    }
  }
}

void RegistryCore::lend(Resident& resident, AcquireWaiter& waiter) {
  ++resident.leases;
  if (waiter.keep_alive) resident.plan.keep_alive = *waiter.keep_alive;
  waiter.model = resident.model;
  waiter.resident = resident.id;
}

void RegistryCore::expire(Clock::time_point now, Deadline& next) {
  for (Resident& resident : residents_) {
    if (resident.detached || has_active_job(resident.name)) continue;
    const Deadline end = expiry(resident);
    if (end && *end <= now) {
      detach(resident);
    } else {
      earliest(next, end);
    }
  }
}

void RegistryCore::start_jobs(Clock::time_point now, Deadline& next) {
  bool may_load = !loader_busy_;
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    const JobPlace job = each++;
    if (!is_first_of_its_name(job)) continue;
    if (job->phase == Job::Phase::queued && !planner_busy_) {
      planner_busy_ = true;
      job->phase = Job::Phase::planning;
      planner_.run([this, &running = *job] { plan(running); });
    }
    if (job->phase != Job::Phase::waiting) continue;
    if (job->kind == Job::Kind::exchange && !job->old && slots_[job->name].resident == nullptr) {
      std::swap(exchanged_[job->name], job->path);
      finish(job);
      continue;
    }
    if (!may_load) continue;
    const Room room = find_room(*job);
    // What will be free soon is not for those behind it.
    may_load = room == Room::none;
    if (room == Room::now) {
      loader_busy_ = true;
      job->phase = Job::Phase::loading;
      job->give_up_at.reset();
      loader_.run([this, &running = *job] { load(running); });
      continue;
    }
    if (!job->give_up_at) job->give_up_at = after(now, options_.patience);
    if (job->give_up_at && *job->give_up_at <= now) {
      fail_job(job, no_room(*job));
    } else {
      earliest(next, job->give_up_at);
    }
  }
}

// The model is there. An exchange that was cancelled too late to notice is made all the same.
void RegistryCore::install(JobPlace job, Clock::time_point now) {
  Slot& slot = slots_[job->name];
  const bool wanted = job->kind == Job::Kind::exchange ? !job->unloading : !job->stop || !slot.waiters.empty();
  if (closing_ || !wanted) return discard(job);
  deliveries_.events.splice(deliveries_.events.end(), job->report);
  residents_.splice(residents_.end(), job->arrived);
  Resident& resident = residents_.back();
  resident.idle_since = now;
  resident.last_used = ++uses_;
  if (job->old) resident.plan.keep_alive = job->old->keep_alive;
  if (slot.resident != nullptr) {
    resident.plan.keep_alive = slot.resident->plan.keep_alive;
    detach(*slot.resident);
  }
  slot.resident = &resident;
  if (job->kind == Job::Kind::exchange && !job->restoring) std::swap(exchanged_[job->name], job->path);
  job->error = job->failure;
  finish(job);
}

// Nobody wants it any more. It was never ready, so nobody hears of its end.
void RegistryCore::discard(JobPlace job) {
  for (LoadEvent& event : job->report) {
    event.kind = LoadEvent::Kind::failed;
    event.error = "cancelled";
  }
  deliveries_.events.splice(deliveries_.events.end(), job->report);
  residents_.splice(residents_.end(), job->arrived);
  residents_.back().was_ready = false;
  residents_.back().detached = true;
  residents_.back().unloads.splice(residents_.back().unloads.end(), job->unloads);
  stop(job);
}

// `error` by value: it may be the job's own.
void RegistryCore::fail_job(JobPlace job, std::exception_ptr error) {
  Slot& slot = slots_[job->name];
  if (job->old && !job->restoring && !job->unloading && !closing_) {
    job->failure = std::move(error);
    job->restoring = true;
    job->stop = false;
    job->give_up_at.reset();
    std::swap(job->plan, *job->old);
    job->old->keep_alive = job->plan.keep_alive;
    signal();
    return;
  }
  // Who came after a load was cancelled waits for the next one.
  const bool waited_for = job->kind == Job::Kind::load ? !job->stop : job->restoring && !job->unloading;
  if (waited_for) fail_waiters(slot, error);
  job->error = job->failure ? job->failure : std::move(error);
  finish(job);
}

// Ends it now, or as soon as it notices.
void RegistryCore::stop(JobPlace job) {
  job->stop = true;
  if (!job->runs()) fail_job(job, cancelled(job->name));
}

std::exception_ptr RegistryCore::cancelled(const std::string& name) const noexcept {
  try {
    fail(ErrorKind::cancelled, "waiting for '{}' was cancelled{}", name, closing_ ? ": all models are given up" : "");
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr RegistryCore::timed_out(const std::string& name) noexcept {
  try {
    throw TimedOutError(fmt::format("'{}' was not loaded within the time that a request may wait", name));
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr RegistryCore::too_many_wait(const std::string& name) noexcept {
  try {
    throw BusyError(fmt::format("too many requests wait for '{}'; try again in {} ms", name, kRetryAfter.count()),
                    kRetryAfter);
  } catch (...) {
    return std::current_exception();
  }
}

void RegistryCore::finish(JobPlace job) {
  if (is_first_of_its_name(job)) slots_[job->name].blocked = false;
  deliveries_.jobs.splice(deliveries_.jobs.end(), jobs_, job);
  signal();
}

void RegistryCore::fail_waiters(Slot& slot, const std::exception_ptr& error) {
  for (AcquireWaiter& waiter : slot.waiters) waiter.error = error;
  deliveries_.acquires.splice(deliveries_.acquires.end(), slot.waiters);
  signal();
}

// Nobody gets it any more; it ends with its last lease.
void RegistryCore::detach(Resident& resident) {
  resident.detached = true;
  Slot& slot = slots_[resident.name];
  if (slot.resident == &resident) slot.resident = nullptr;
  signal();
}

void RegistryCore::end_everything() {
  for (auto each = jobs_.begin(); each != jobs_.end();) stop(each++);
  for (auto& [name, slot] : slots_) {
    if (!slot.waiters.empty()) fail_waiters(slot, cancelled(name));
    slot.resident = nullptr;
  }
  for (Resident& resident : residents_) {
    resident.detached = true;
    deliveries_.unloads.splice(deliveries_.unloads.end(), resident.unloads);
  }
}

std::list<RegistryCore::Job> RegistryCore::new_job(Job::Kind kind, const std::string& name) {
  std::list<Job> made;
  Job& job = made.emplace_back();
  job.kind = kind;
  job.name = name;
  return made;
}

bool RegistryCore::has_job(const std::string& name) const {
  return std::ranges::any_of(jobs_, [&](const Job& job) { return job.name == name; });
}

// One that counts on what the name has now.
bool RegistryCore::has_active_job(const std::string& name) const {
  return std::ranges::any_of(jobs_,
                             [&](const Job& job) { return job.name == name && job.phase >= Job::Phase::waiting; });
}

bool RegistryCore::is_first_of_its_name(std::list<Job>::const_iterator job) const {
  return std::none_of(jobs_.begin(), job, [&](const Job& earlier) { return earlier.name == job->name; });
}

}  // namespace quarrel

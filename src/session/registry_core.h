// The state of a ModelRegistry: which models are loaded, who waits for which, and the loads that wait or run. One mutex
// guards all of it; no callback is called and no model is released while it is held.
//
// Threads: only the registry's thread (`run`) decides: it takes the results of planning and loading, unloads models,
// starts the next plan and the next load, and calls back. Two threads work for it, one that plans and one that loads.
// Calls from outside add to the lists, or find a loaded model, and signal. Decisions allocate nothing (list nodes move
// from list to list), so nothing is left half done when memory runs out.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "session/model_registry.h"
#include "session/model_retirer.h"
#include "session/task_thread.h"

namespace quarrel {

class RegistryCore : public std::enable_shared_from_this<RegistryCore> {
 public:
  using Lease = ModelRegistry::Lease;

  RegistryCore(std::shared_ptr<Device> device, RegistryOptions options, Log& log);
  void start();
  void close();  // see ~ModelRegistry

  std::uint64_t acquire(const std::string& name, ModelRegistry::OnAcquired callback, const AcquireOptions& options);
  std::uint64_t exchange(const std::string& name, const std::filesystem::path& path,
                         ModelRegistry::OnExchanged callback);
  std::uint64_t renew(const std::string& name, ModelRegistry::OnExchanged callback);
  void unload(const std::string& name, ModelRegistry::OnUnloaded callback);
  void end_requests(const std::string& why);
  void cancel(std::uint64_t ticket);
  void configure(const std::string& name, ModelSettings settings);
  void look();
  bool clear_cache(const std::string& name);
  std::vector<ModelRegistry::Status> list() const;
  std::vector<ModelRegistry::Watched> watch() const;
  Clock::duration longest_silence() const;
  std::uint64_t bytes_used() const;
  std::uint64_t budget() const noexcept { return budget_; }
  void require_other_thread() const;  // throws Error(internal) on one of ours

 private:
  struct UnloadWaiter {
    ModelRegistry::OnUnloaded callback = {};
    bool found = true;
  };

  struct AcquireWaiter {
    std::uint64_t ticket = 0;
    std::uint64_t key = 0;
    ModelRegistry::OnAcquired callback = {};
    std::optional<std::chrono::milliseconds> keep_alive = {};
    std::optional<Clock::time_point> give_up_at = {};
    // What it completes with.
    std::shared_ptr<LoadedModel> model = {};
    std::uint64_t resident = 0;
    std::exception_ptr error = {};
  };

  // What a load will take, found out before anything is given up for it.
  struct Plan {
    ResolvedModel source = {};
    LoadOptions options = {};  // with the context that fits alone
    std::string context_limit = {};
    std::shared_ptr<Device> device = {};  // the registry's, or what that falls back to
    std::uint64_t bytes = 0;              // of that device
    std::chrono::milliseconds keep_alive = {};
  };

  // A model in memory, until it has ended.
  struct Resident {
    std::uint64_t id = 0;
    std::string name = {};
    Plan plan = {};
    std::shared_ptr<LoadedModel> model = {};  // null: it lives with its leases alone
    std::weak_ptr<LoadedModel> leased = {};   // the same, then
    std::int64_t leases = 0;
    std::uint64_t last_used = 0;  // a count, larger is later
    Clock::time_point idle_since = {};
    bool detached = false;  // nobody gets it any more
    bool was_ready = true;  // so its end is reported
    std::list<UnloadWaiter> unloads = {};
  };

  // What a name has, and who waits for it.
  struct Slot {
    Resident* resident = nullptr;
    bool blocked = false;  // it is exchanged without room for both: new requests wait
    std::list<AcquireWaiter> waiters = {};
  };

  // A load or an exchange that waits or runs. Those of one name run in the order they came.
  struct Job {
    enum class Kind : std::uint8_t { load, exchange };
    enum class Phase : std::uint8_t { queued, planning, planned, waiting, loading, loaded };
    Kind kind = Kind::load;
    Phase phase = Phase::queued;
    std::string name = {};
    std::uint64_t ticket = 0;
    std::filesystem::path path = {};  // of exchange: the file
    bool renews = false;              // of exchange: what the name stands for now
    Plan plan = {};
    std::optional<Plan> old = {};  // what was given up for it, to be loaded again if it fails
    bool restoring = false;        // that is what it does now
    std::optional<Clock::time_point> give_up_at = {};
    std::uint64_t done = 0, total = 0;  // bytes of weights
    std::atomic<bool> stop = false;     // it ends as soon as it can
    bool unloading = false;             // and the old model is not wanted back
    std::exception_ptr error = {};      // what came of the phase; in the end, what the caller gets
    std::exception_ptr failure = {};    // of restoring: why it does that
    std::list<Resident> arrived = {};
    std::list<LoadEvent> report = {};
    ModelRegistry::OnExchanged callback = {};
    std::list<UnloadWaiter> unloads = {};

    bool runs() const noexcept { return phase != Phase::queued && phase != Phase::waiting; }
  };
  using JobPlace = std::list<Job>::iterator;

  // What is to be called or let go of with the lock open.
  struct Deliveries {
    std::list<LoadEvent> events = {};
    std::list<AcquireWaiter> acquires = {};
    std::list<Job> jobs = {};
    std::list<Resident> gone = {};
    std::list<UnloadWaiter> unloads = {};

    bool empty() const noexcept {
      return events.empty() && acquires.empty() && jobs.empty() && gone.empty() && unloads.empty();
    }
  };

  struct LeaseEnd;

  std::uint64_t add_exchange(std::list<Job> call);
  bool queue_is_full(const std::string& name, const Slot& slot, std::uint64_t key) const;  // under the lock

  // Threads and callbacks: registry_core.cpp.
  void run();
  void deliver(Deliveries deliveries);
  void complete(AcquireWaiter& waiter);
  bool drop_detached(std::unique_lock<std::mutex>& lock);
  template <typename Call>
  void guarded(const Call& call) noexcept;  // calls what is not ours
  void signal();
  Clock::time_point now() const { return options_.now ? options_.now() : Clock::now(); }
  void release(std::uint64_t resident);
  void gone(std::uint64_t resident);

  // The two that work: registry_load.cpp.
  void plan(Job& job);
  Plan make_plan(const std::string& name, ResolvedModel source, const ModelSettings& settings);
  std::uint64_t budget_on(const Device& device);
  void load(Job& job);
  void load_resident(Job& job, Resident& resident);
  void report(const LoadEvent& event) const;

  // Decisions, all under the lock: registry_decide.cpp, and registry_room.cpp for memory.
  using Deadline = std::optional<Clock::time_point>;
  Deadline decide(Clock::time_point now);
  void take_results(Clock::time_point now);
  void serve_slots();
  void give_up_waiting(Clock::time_point now, Deadline& next);
  void expire(Clock::time_point now, Deadline& next);
  void start_jobs(Clock::time_point now, Deadline& next);
  void install(JobPlace job, Clock::time_point now);
  void discard(JobPlace job);
  void fail_job(JobPlace job, std::exception_ptr error);
  void stop(JobPlace job);
  void finish(JobPlace job);
  void fail_waiters(Slot& slot, const std::exception_ptr& error);
  void lend(Resident& resident, AcquireWaiter& waiter);
  void detach(Resident& resident);
  void end_everything();
  std::exception_ptr cancelled(const std::string& name) const noexcept;
  static std::exception_ptr timed_out(const std::string& name) noexcept;
  static std::exception_ptr too_many_wait(const std::string& name) noexcept;
  static std::list<Job> new_job(Job::Kind kind, const std::string& name);
  bool has_job(const std::string& name) const;
  bool has_active_job(const std::string& name) const;
  bool is_first_of_its_name(std::list<Job>::const_iterator job) const;
  static Deadline expiry(const Resident& resident);
  static Deadline after(Clock::time_point start, std::chrono::milliseconds time);

  enum class Room : std::uint8_t { none, soon, now };
  Room find_room(Job& job);
  bool make_room(const Job& job);
  // Each device has a budget of its own.
  std::uint64_t budget_of(const Plan& plan) const { return plan.device == device_ ? budget_ : *fallback_budget_; }
  bool fits(const Plan& plan) const;
  std::uint64_t used_beside(const Plan& plan) const;
  template <typename Call>
  void for_each_plan(const Call& call) const;  // of what is in memory, or being loaded
  static bool has_own_memory(const Plan& plan) { return plan.device != nullptr && plan.device->has_own_memory(); }
  std::exception_ptr no_room(const Job& job) const noexcept;

  const std::shared_ptr<Device> device_;
  const RegistryOptions options_;
  Log& log_;
  const std::uint64_t budget_;  // of `device_`; 0: there is none

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t signals_ = 0;  // whatever could give the registry's thread something to do raises it
  bool closing_ = false;
  bool planner_busy_ = false;
  bool loader_busy_ = false;
  std::uint64_t last_id_ = 0;
  std::uint64_t uses_ = 0;
  std::map<std::string, ModelSettings> settings_;
  std::map<std::string, Slot> slots_;
  std::map<std::string, std::filesystem::path> exchanged_;  // empty: not yet
  std::list<Resident> residents_;
  std::list<Job> jobs_;  // in the order they came
  // What the device fallen back to had when the first model went there; 0: nobody knows.
  std::optional<std::uint64_t> fallback_budget_;
  Deliveries deliveries_;

  ModelRetirer retirer_;
  TaskThread planner_;
  TaskThread loader_;
  std::thread thread_;
};

template <typename Call>
void RegistryCore::for_each_plan(const Call& call) const {
  for (const Resident& resident : residents_) call(resident.plan);
  for (const Job& job : jobs_) {
    if (job.phase >= Job::Phase::loading) call(job.plan);
  }
}

template <typename Call>
void RegistryCore::guarded(const Call& call) noexcept {
  try {
    try {
      call();
    } catch (const std::exception& error) {
      log_.warn("a callback of the model registry threw: {}", error.what());
    } catch (...) {
      log_.warn("a callback of the model registry threw something");
    }
  } catch (...) {
    // Not even the log works.
  }
}

}  // namespace quarrel

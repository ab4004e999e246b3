// The registry's thread, its callbacks, and leases.
#include "session/registry_core.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/memory_plan.h"

namespace quarrel {
namespace {

// The longest that the registry's thread sleeps; a sum beyond it could overflow.
constexpr std::chrono::hours kLongestSleep{1};

}  // namespace

// The end of a lease. Only the registry's own references are counted by shared_ptr alone; leases are counted here, so
// that whoever waits for the last one is woken.
struct RegistryCore::LeaseEnd {
  std::weak_ptr<RegistryCore> core;
  std::uint64_t resident;
  std::shared_ptr<LoadedModel> model;

  void operator()(LoadedModel*) noexcept {
    // Before the registry hears of it: it may be what the model's memory waits for.
    model.reset();
    if (const std::shared_ptr<RegistryCore> registry = core.lock()) registry->release(resident);
  }
};

RegistryCore::RegistryCore(std::shared_ptr<Device> device, RegistryOptions options, Log& log)
    : device_(std::move(device)),
      options_(std::move(options)),
      log_(log),
      budget_(options_.budget > 0 ? options_.budget : free_share(*device_)),
      settings_(options_.models) {}

void RegistryCore::start() {
  thread_ = std::thread([this] { run(); });
}

void RegistryCore::close() {
  {
    const std::scoped_lock lock(mutex_);
    closing_ = true;
    for (Job& job : jobs_) job.stop = true;
    signal();
  }
  if (thread_.joinable()) thread_.join();
  planner_.close();
  loader_.close();
  retirer_.close();
}

void RegistryCore::signal() {
  ++signals_;
  changed_.notify_all();
}

void RegistryCore::look() {
  const std::scoped_lock lock(mutex_);
  signal();
}

void RegistryCore::require_other_thread() const {
  if (planner_.is_this_thread() || loader_.is_this_thread() || thread_.get_id() == std::this_thread::get_id()) {
    fail(ErrorKind::internal, "a thread of the model registry must not wait for it");
  }
}

void RegistryCore::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    lock.unlock();
    const Clock::time_point time = now();
    lock.lock();
    const std::uint64_t seen = signals_;
    const Deadline next = decide(time);
    Deliveries deliveries;
    std::swap(deliveries, deliveries_);
    if (!deliveries.empty()) {
      lock.unlock();
      deliver(std::move(deliveries));  // which end there too: a callback may hold a lease
      lock.lock();
      continue;
    }
    if (drop_detached(lock)) continue;
    if (closing_ && jobs_.empty()) return;
    const auto sleep = next ? std::min<Clock::duration>(*next - time, kLongestSleep) : kLongestSleep;
    changed_.wait_for(lock, std::max(sleep, Clock::duration::zero()), [&] { return signals_ != seen; });
  }
}

// Lets go of one model that nobody gets any more.
bool RegistryCore::drop_detached(std::unique_lock<std::mutex>& lock) {
  const auto found = std::ranges::find_if(residents_, [](const Resident& each) { return each.detached && each.model; });
  if (found == residents_.end()) return false;
  found->leased = found->model;
  std::shared_ptr<LoadedModel> model = std::move(found->model);
  lock.unlock();
  model.reset();
  lock.lock();
  return true;
}

void RegistryCore::deliver(Deliveries deliveries) {
  for (const LoadEvent& event : deliveries.events) guarded([&] { report(event); });
  for (Resident& resident : deliveries.gone) {
    if (resident.was_ready) {
      guarded([&] {
        report({.kind = LoadEvent::Kind::unloaded, .name = resident.name, .path = resident.plan.source.path});
      });
    }
    deliveries.unloads.splice(deliveries.unloads.end(), resident.unloads);
  }
  for (AcquireWaiter& waiter : deliveries.acquires) complete(waiter);
  for (Job& job : deliveries.jobs) {
    if (job.callback) guarded([&] { job.callback(std::exchange(job.error, {})); });
    deliveries.unloads.splice(deliveries.unloads.end(), job.unloads);
  }
  for (const UnloadWaiter& waiter : deliveries.unloads) {
    if (waiter.callback) guarded([&] { waiter.callback(waiter.found); });
  }
}

// Its lease has been counted.
void RegistryCore::complete(AcquireWaiter& waiter) {
  Lease lease;
  if (waiter.model) {
    LoadedModel* const model = waiter.model.get();
    try {
      // If there is no memory for this, the lease ends here.
      lease = Lease(model, LeaseEnd{weak_from_this(), waiter.resident, std::move(waiter.model)});
    } catch (...) {
      waiter.error = std::current_exception();
    }
  }
  guarded([&] { waiter.callback(std::move(lease), std::exchange(waiter.error, {})); });
}

void RegistryCore::release(std::uint64_t id) {
  const Clock::time_point time = now();
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(residents_, id, &Resident::id);
  if (found == residents_.end() || --found->leases > 0) return;
  found->idle_since = time;
  found->last_used = ++uses_;
  signal();
}

// The model has ended: its memory is free.
void RegistryCore::gone(std::uint64_t id) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(residents_, id, &Resident::id);
  if (found == residents_.end()) return;
  deliveries_.gone.splice(deliveries_.gone.end(), residents_, found);
  signal();
}

std::uint64_t RegistryCore::bytes_used() const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t bytes = 0;
  for_each_plan([&](const Plan& plan) { bytes += plan.bytes; });
  return bytes;
}

std::vector<ModelRegistry::Watched> RegistryCore::watch() const {
  std::vector<std::shared_ptr<LoadedModel>> models;  // let go of with the lock open
  std::vector<ModelRegistry::Watched> all;
  {
    const std::scoped_lock lock(mutex_);
    for (const Resident& resident : residents_) {
      if (resident.model == nullptr || resident.detached) continue;
      models.push_back(resident.model);
      all.push_back({.name = resident.name, .bytes = resident.plan.bytes});
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].observations = models[i]->engine().observe();
    all[i].counters = models[i]->engine().counters();
  }
  return all;
}

Clock::duration RegistryCore::longest_silence() const {
  std::vector<std::shared_ptr<LoadedModel>> models;  // let go of with the lock open
  {
    const std::scoped_lock lock(mutex_);
    for (const Resident& resident : residents_) {
      if (resident.model != nullptr) models.push_back(resident.model);
    }
  }
  Clock::duration longest{};
  for (const std::shared_ptr<LoadedModel>& model : models) longest = std::max(longest, model->engine().silent_for());
  return longest;
}

bool RegistryCore::clear_cache(const std::string& name) {
  std::vector<std::shared_ptr<LoadedModel>> models;  // let go of with the lock open
  {
    const std::scoped_lock lock(mutex_);
    for (const Resident& resident : residents_) {
      if (resident.name == name && resident.model != nullptr && !resident.detached) models.push_back(resident.model);
    }
  }
  for (const std::shared_ptr<LoadedModel>& model : models) model->engine().clear_cache();
  return !models.empty();
}

std::vector<ModelRegistry::Status> RegistryCore::list() const {
  using State = ModelRegistry::State;
  std::vector<ModelRegistry::Status> all;
  const std::scoped_lock lock(mutex_);
  for (const Resident& resident : residents_) {
    all.push_back({.name = resident.name,
                   .path = resident.plan.source.path,
                   .bytes = resident.plan.bytes,
                   .has_device_memory = has_own_memory(resident.plan),
                   .state = resident.detached ? State::unloading : State::ready,
                   .context = resident.model != nullptr ? resident.model->context() : 0,
                   .context_limit = resident.plan.context_limit,
                   .in_use = resident.leases > 0,
                   .expires = resident.detached ? std::nullopt : expiry(resident),
                   .keep_alive = resident.plan.keep_alive});
  }
  for (const Job& job : jobs_) {
    if (job.kind == Job::Kind::exchange && job.phase < Job::Phase::waiting) continue;
    all.push_back({.name = job.name,
                   .path = job.plan.source.path,
                   .bytes = job.plan.bytes,
                   .has_device_memory = has_own_memory(job.plan),
                   .state = State::loading,
                   .done = job.done,
                   .total = job.total});
  }
  std::ranges::stable_sort(all, {}, &ModelRegistry::Status::name);
  return all;
}

}  // namespace quarrel

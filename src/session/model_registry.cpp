// Calls from outside: each finds what is there, or leaves a note for the registry's thread.
#include "session/model_registry.h"

#include <algorithm>
#include <future>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"
#include "session/registry_core.h"

namespace quarrel {
namespace {

// What a call came to, for the one who waits for it. An Error travels as its values, so that its last reference is
// dropped on the thread that made it known: the sanitizers do not see how the standard library counts them.
struct CallResult {
  ModelRegistry::Lease model = {};
  std::optional<ErrorKind> kind = {};
  std::string message = {};
  std::exception_ptr other = {};

  explicit CallResult(const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const Error& known) {
      kind = known.kind();
      message = known.what();
    } catch (...) {
      other = error;
    }
  }
  void require_success() const {
    if (kind) throw Error(*kind, message);
    if (other) std::rethrow_exception(other);
  }
};

}  // namespace

std::uint64_t RegistryCore::acquire(const std::string& name, ModelRegistry::OnAcquired callback,
                                    const AcquireOptions& options) {
  std::list<AcquireWaiter> call;
  AcquireWaiter& waiter = call.emplace_back();
  waiter.key = options.key;
  waiter.callback = std::move(callback);
  waiter.keep_alive = options.keep_alive;
  if (options.patience.value_or(std::chrono::milliseconds(0)).count() > 0) {
    waiter.give_up_at = after(now(), *options.patience);
  }
  {
    const std::scoped_lock lock(mutex_);
    if (closing_) {
      waiter.error = cancelled(name);
    } else {
      Slot& slot = slots_[name];
      // One that cannot serve anybody any more is loaded again; there may be a whole file by now.
      const bool broken = slot.resident != nullptr && slot.resident->model->engine().broken();
      if (broken && !slot.blocked && !has_job(name)) detach(*slot.resident);
      if (slot.resident != nullptr && !slot.blocked) {
        lend(*slot.resident, waiter);
      } else if (queue_is_full(name, slot, options.key)) {
        waiter.error = too_many_wait(name);
      } else {
        if (slot.resident == nullptr && !has_job(name)) {
          std::list<Job> load = new_job(Job::Kind::load, name);
          jobs_.splice(jobs_.end(), load);
        }
        const std::uint64_t ticket = waiter.ticket = ++last_id_;
        slot.waiters.splice(slot.waiters.end(), call);
        signal();
        return ticket;
      }
    }
  }
  complete(waiter);
  return 0;
}

// Those who wait for a model become those who wait in its queue: as many may, of all and of one key.
bool RegistryCore::queue_is_full(const std::string& name, const Slot& slot, std::uint64_t key) const {
  const auto own = settings_.find(name);
  const EngineOptions& limits = (own == settings_.end() ? options_.load : own->second.load).engine;
  if (limits.queue_limit > 0 && std::ssize(slot.waiters) >= limits.queue_limit) return true;
  return limits.key_queue_limit > 0 &&
         std::ranges::count(slot.waiters, key, &AcquireWaiter::key) >= limits.key_queue_limit;
}

std::uint64_t RegistryCore::exchange(const std::string& name, const std::filesystem::path& path,
                                     ModelRegistry::OnExchanged callback) {
  std::list<Job> call = new_job(Job::Kind::exchange, name);
  call.back().path = path;
  call.back().callback = std::move(callback);
  return add_exchange(std::move(call));
}

std::uint64_t RegistryCore::renew(const std::string& name, ModelRegistry::OnExchanged callback) {
  std::list<Job> call = new_job(Job::Kind::exchange, name);
  call.back().renews = true;
  call.back().callback = std::move(callback);
  return add_exchange(std::move(call));
}

std::uint64_t RegistryCore::add_exchange(std::list<Job> call) {
  Job& job = call.back();
  {
    const std::scoped_lock lock(mutex_);
    if (!closing_) {
      slots_.try_emplace(job.name);
      exchanged_.try_emplace(job.name);
      const std::uint64_t ticket = job.ticket = ++last_id_;
      jobs_.splice(jobs_.end(), call);
      signal();
      return ticket;
    }
    job.error = cancelled(job.name);
  }
  Deliveries deliveries;
  deliveries.jobs.splice(deliveries.jobs.end(), call);
  deliver(std::move(deliveries));
  return 0;
}

void RegistryCore::unload(const std::string& name, ModelRegistry::OnUnloaded callback) {
  std::list<UnloadWaiter> call;
  call.push_back({.callback = std::move(callback), .found = false});
  {
    const std::scoped_lock lock(mutex_);
    const auto found = slots_.find(name);
    if (found != slots_.end() && !closing_) {
      Slot& slot = found->second;
      std::list<UnloadWaiter>* waits_for = nullptr;
      call.back().found = slot.resident != nullptr || !slot.waiters.empty();
      if (slot.resident != nullptr) {
        waits_for = &slot.resident->unloads;
        detach(*slot.resident);
      }
      for (auto each = jobs_.begin(); each != jobs_.end();) {
        const JobPlace job = each++;
        if (job->name != name) continue;
        job->unloading = true;
        if (job->runs() && waits_for == nullptr) waits_for = &job->unloads;
        stop(job);
      }
      if (!slot.waiters.empty()) fail_waiters(slot, cancelled(name));
      if (waits_for != nullptr) {
        waits_for->splice(waits_for->end(), call);
        return;
      }
    }
  }
  Deliveries deliveries;
  deliveries.unloads.splice(deliveries.unloads.end(), call);
  deliver(std::move(deliveries));
}

void RegistryCore::end_requests(const std::string& why) {
  std::vector<std::shared_ptr<LoadedModel>> models;  // let go of with the lock open
  {
    const std::scoped_lock lock(mutex_);
    const std::exception_ptr error = std::make_exception_ptr(Error(ErrorKind::cancelled, why));
    for (const Resident& resident : residents_) {
      std::shared_ptr<LoadedModel> model = resident.model != nullptr ? resident.model : resident.leased.lock();
      if (model != nullptr) models.push_back(std::move(model));
    }
    for (auto& [name, slot] : slots_) {
      if (!slot.waiters.empty()) fail_waiters(slot, error);
    }
    for (auto each = jobs_.begin(); each != jobs_.end();) stop(each++);
  }
  for (const std::shared_ptr<LoadedModel>& model : models) {
    model->engine().drain({.within = std::chrono::microseconds(0), .reason = why});
  }
}

void RegistryCore::cancel(std::uint64_t ticket) {
  const std::scoped_lock lock(mutex_);
  for (auto& [name, slot] : slots_) {
    const auto waiter = std::ranges::find(slot.waiters, ticket, &AcquireWaiter::ticket);
    if (waiter == slot.waiters.end()) continue;
    waiter->error = cancelled(name);
    deliveries_.acquires.splice(deliveries_.acquires.end(), slot.waiters, waiter);
    signal();
    const auto load =
        std::ranges::find_if(jobs_, [&](const Job& job) { return job.kind == Job::Kind::load && job.name == name; });
    if (slot.waiters.empty() && load != jobs_.end()) stop(load);
    return;
  }
  const auto exchange = std::ranges::find(jobs_, ticket, &Job::ticket);
  if (exchange != jobs_.end() && !exchange->restoring) stop(exchange);
}

void RegistryCore::configure(const std::string& name, ModelSettings settings) {
  const std::scoped_lock lock(mutex_);
  std::swap(settings_[name], settings);
}

void ModelRegistry::Ticket::cancel() const {
  if (id_ == 0) return;
  if (const std::shared_ptr<RegistryCore> core = core_.lock()) core->cancel(id_);
}

ModelRegistry::ModelRegistry(std::shared_ptr<Device> device, RegistryOptions options, Log& log)
    : core_(std::make_shared<RegistryCore>(std::move(device), std::move(options), log)) {
  core_->start();
}

ModelRegistry::~ModelRegistry() { core_->close(); }

ModelRegistry::Ticket ModelRegistry::acquire(const std::string& name, OnAcquired callback,
                                             const AcquireOptions& options) {
  return {core_, core_->acquire(name, std::move(callback), options)};
}

ModelRegistry::Ticket ModelRegistry::exchange(const std::string& name, const std::filesystem::path& path,
                                              OnExchanged callback) {
  return {core_, core_->exchange(name, path, std::move(callback))};
}

ModelRegistry::Ticket ModelRegistry::renew(const std::string& name, OnExchanged callback) {
  return {core_, core_->renew(name, std::move(callback))};
}

bool ModelRegistry::clear_cache(const std::string& name) { return core_->clear_cache(name); }

void ModelRegistry::end_requests(const std::string& why) { core_->end_requests(why); }

void ModelRegistry::unload(const std::string& name, OnUnloaded callback) { core_->unload(name, std::move(callback)); }

ModelRegistry::Lease ModelRegistry::acquire_and_wait(const std::string& name, const AcquireOptions& options) {
  core_->require_other_thread();
  const auto result = std::make_shared<std::promise<CallResult>>();
  acquire(
      name,
      [result](Lease model, const std::exception_ptr& error) {
        CallResult call(error);
        call.model = std::move(model);
        result->set_value(std::move(call));
      },
      options);
  CallResult call = result->get_future().get();
  call.require_success();
  return std::move(call.model);
}

void ModelRegistry::exchange_and_wait(const std::string& name, const std::filesystem::path& path) {
  core_->require_other_thread();
  const auto result = std::make_shared<std::promise<CallResult>>();
  exchange(name, path, [result](const std::exception_ptr& error) { result->set_value(CallResult(error)); });
  result->get_future().get().require_success();
}

bool ModelRegistry::unload_and_wait(const std::string& name) {
  core_->require_other_thread();
  const auto result = std::make_shared<std::promise<bool>>();
  unload(name, [result](bool found) { result->set_value(found); });
  return result->get_future().get();
}

void ModelRegistry::configure(const std::string& name, ModelSettings settings) {
  core_->configure(name, std::move(settings));
}

std::vector<ModelRegistry::Status> ModelRegistry::list() const { return core_->list(); }
std::vector<ModelRegistry::Watched> ModelRegistry::watch() const { return core_->watch(); }
Clock::duration ModelRegistry::longest_silence() const { return core_->longest_silence(); }
std::uint64_t ModelRegistry::bytes_used() const { return core_->bytes_used(); }
std::uint64_t ModelRegistry::budget() const noexcept { return core_->budget(); }
void ModelRegistry::look() { core_->look(); }

}  // namespace quarrel

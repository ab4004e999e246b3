// What runs on the two threads that work: finding and planning a model, and loading it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/placement.h"
#include "session/registry_core.h"

namespace quarrel {
namespace {

std::string error_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "something was thrown that is not an exception";
  }
}

// What made a context shorter than the model's own, in words. `budget_is_set`: somebody has set what memory it gets.
std::string context_limit(const ExecutorOptions& asked, const MemoryPlan& plan, bool budget_is_set) {
  if (plan.context >= plan.trained_context) return {};
  if (asked.context > 0) return fmt::format("its setting ctx = {}", asked.context);
  if (!budget_is_set) return "the machine's free memory";
  return fmt::format("the memory budget of {:.0f} MiB", mebibytes(*asked.memory_budget));
}

}  // namespace

void RegistryCore::report(const LoadEvent& event) const {
  if (options_.on_event) options_.on_event(event);
}

RegistryCore::Plan RegistryCore::make_plan(const std::string& name, ResolvedModel source,
                                           const ModelSettings& settings) {
  Plan plan{.source = std::move(source), .options = settings.load};
  if (plan.source.name.empty()) plan.source.name = name;
  plan.keep_alive = settings.keep_alive.value_or(options_.keep_alive);
  const GgufFile file = GgufFile::open(plan.source.path);
  const ExecutorOptions wanted = settled(file, plan.options.executor);
  Placement placed = place_model(file, device_, wanted, [this](const Device& device) { return budget_on(device); });
  if (!placed.moved.empty()) log_.warn("'{}': {}", name, placed.moved);
  // A budget that nobody has set is what the device has.
  const bool is_within_set = placed.device == device_ && options_.budget > 0;
  const bool is_own = wanted.memory_budget && wanted.memory_budget == placed.options.memory_budget;
  plan.context_limit = context_limit(placed.options, placed.memory, is_within_set || is_own);
  // What fits alone is what is loaded, whoever must go for it.
  ExecutorOptions& executor = plan.options.executor;
  executor = std::move(placed.options);
  executor.context = placed.memory.context;
  executor.repack = placed.memory.repack;
  executor.mirrors = placed.memory.mirrored;
  plan.options.has_device = true;
  plan.device = std::move(placed.device);
  plan.bytes = placed.memory.total();
  return plan;
}

std::uint64_t RegistryCore::budget_on(const Device& device) {
  if (&device == device_.get()) return budget_;
  const std::uint64_t share = free_share(device);
  const std::scoped_lock lock(mutex_);
  if (!fallback_budget_) fallback_budget_ = share;
  return *fallback_budget_;
}

void RegistryCore::plan(Job& job) {
  Plan plan;
  std::exception_ptr error;
  try {
    ModelSettings settings{.load = options_.load};
    ResolvedModel source{};
    source.path = job.path;
    {
      const std::scoped_lock lock(mutex_);
      if (const auto own = settings_.find(job.name); own != settings_.end()) settings = own->second;
      const auto exchanged = exchanged_.find(job.name);
      if (job.kind == Job::Kind::load && exchanged != exchanged_.end()) source.path = exchanged->second;
    }
    if (job.renews || (job.kind == Job::Kind::load && source.path.empty())) {
      if (!options_.resolve) fail(ErrorKind::not_found, "there is no model called '{}'", job.name);
      source = options_.resolve(job.name);
    }
    plan = make_plan(job.name, std::move(source), settings);
  } catch (...) {
    error = std::current_exception();
  }
  const std::scoped_lock lock(mutex_);
  std::swap(job.plan, plan);
  job.error = std::move(error);
  job.phase = Job::Phase::planned;
  signal();
}

void RegistryCore::load(Job& job) {
  std::list<Resident> arrived;
  std::list<LoadEvent> event;
  std::exception_ptr error;
  try {
    arrived.emplace_back();
    event.push_back({.kind = LoadEvent::Kind::ready, .name = job.name, .path = job.plan.source.path});
    load_resident(job, arrived.back());
  } catch (...) {
    error = std::current_exception();
    arrived.clear();
    guarded([&] {
      if (event.empty()) return;
      event.back().kind = LoadEvent::Kind::failed;
      event.back().error = error_text(error);
    });
  }
  const std::scoped_lock lock(mutex_);
  job.arrived.splice(job.arrived.end(), arrived);
  job.report.splice(job.report.end(), event);
  job.error = std::move(error);
  job.phase = Job::Phase::loaded;
  signal();
}

void RegistryCore::load_resident(Job& job, Resident& resident) {
  const auto go_on = [&job] {
    if (job.stop) fail(ErrorKind::cancelled, "loading '{}' was cancelled", job.name);
  };
  LoadEvent event{.kind = LoadEvent::Kind::loading, .name = job.name, .path = job.plan.source.path};
  report(event);
  go_on();
  resident.name = job.name;
  resident.plan = job.plan;
  LoadOptions options = job.plan.options;
  options.warm_up = true;
  options.executor.on_load = [&](std::uint64_t done, std::uint64_t total) {
    {
      const std::scoped_lock lock(mutex_);
      job.done = done;
      job.total = total;
    }
    event.kind = LoadEvent::Kind::progress;
    event.done = done;
    event.total = total;
    report(event);
    go_on();
  };
  options.on_warming = [&] {
    event.kind = LoadEvent::Kind::warming;
    report(event);
    go_on();
  };
  {
    const std::scoped_lock lock(mutex_);
    resident.id = ++last_id_;
  }
  options.retire = retirer_.hook([core = weak_from_this(), id = resident.id] {
    if (const std::shared_ptr<RegistryCore> registry = core.lock()) registry->gone(id);
  });
  resident.model = LoadedModel::load(resident.plan.source, resident.plan.device, options, log_);
}

}  // namespace quarrel

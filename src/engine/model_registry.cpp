#include "engine/model_registry.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quarrel {
namespace {

// How often a thread that waits for leases to end looks again.
constexpr std::chrono::milliseconds kLook{10};

// How often a warm-up tells that it goes on.
constexpr std::chrono::milliseconds kWarming{100};

std::uint64_t budget_of(const Device& device, const RegistryOptions& options) {
  return options.budget > 0 ? options.budget : device.memory_available() / 10 * 9;
}

}  // namespace

ModelRegistry::ModelRegistry(Device& device, RegistryOptions options)
    : device_(device), options_(std::move(options)), budget_(budget_of(device, options_)) {}

ModelRegistry::~ModelRegistry() = default;

void ModelRegistry::tell(const LoadEvent& event) const {
  if (options_.on_event) options_.on_event(event);
}

ModelRegistry::Plan ModelRegistry::plan(const std::filesystem::path& path) const {
  Plan plan{.options = options_.executor};
  if (budget_ > 0) plan.options.memory_budget = budget_;
  const MemoryPlan memory = plan_memory(GgufFile::open(path), device_, plan.options);
  // What fits alone is what is loaded, whoever must go for it.
  plan.options.context = memory.context;
  plan.options.repack = memory.repack;
  plan.bytes = memory.total();
  return plan;
}

// One small request, so that no other pays for pages that nobody has touched: rows of a prompt, and a generated one. It
// leaves nothing in the prefix cache.
void ModelRegistry::warm_up(const std::string& name, LoadedModel& model) const {
  if (!model.executor().spec().has_head) return;  // it answers nothing
  tell({.kind = LoadEvent::Kind::warming, .name = name});
  GenerateRequest request{.prompt = {0, 0},
                          .max_tokens = 2,
                          .overflow = Overflow::stop,
                          .use_cache = false,
                          .deadline = std::chrono::microseconds(0)};
  if (model.engine().longest_text() <= std::ssize(request.prompt)) request.prompt.pop_back();
  const Engine::Submission submission = model.engine().submit(std::move(request));
  if (!submission.stream) fail(ErrorKind::internal, "the first request to '{}' was refused", name);
  while (!submission.stream->done()) {
    const auto event = submission.stream->next_within(kWarming);
    if (!event) {
      tell({.kind = LoadEvent::Kind::warming, .name = name});
    } else if (event->kind == TokenEvent::Kind::finished && event->reason == EndReason::failed) {
      fail(ErrorKind::bad_file, "{}", event->error);
    }
  }
}

std::shared_ptr<LoadedModel> ModelRegistry::load(const std::string& name, const std::filesystem::path& path,
                                                 const Plan& plan) const {
  tell({.kind = LoadEvent::Kind::loading, .name = name});
  try {
    ExecutorOptions options = plan.options;
    options.on_load = [&](std::uint64_t done, std::uint64_t total) {
      tell({.kind = LoadEvent::Kind::progress, .name = name, .done = done, .total = total});
    };
    auto model = std::make_shared<LoadedModel>(path, device_, options, options_.engine);
    warm_up(name, *model);
    tell({.kind = LoadEvent::Kind::ready, .name = name});
    return model;
  } catch (const std::exception& error) {
    tell({.kind = LoadEvent::Kind::failed, .name = name, .error = error.what()});
    throw;
  }
}

std::uint64_t ModelRegistry::used() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : entries_) bytes += entry.bytes;
  for (const Lingering& old : lingering_) bytes += old.model.expired() ? 0 : old.bytes;
  return bytes;
}

void ModelRegistry::drop(std::unique_lock<std::mutex>& lock, const std::string& name) {
  const auto found = entries_.find(name);
  std::shared_ptr<LoadedModel> model = std::move(found->second.model);
  // Its bytes count until it is gone.
  found->second.loading = true;
  lock.unlock();
  model.reset();
  tell({.kind = LoadEvent::Kind::unloaded, .name = name});
  lock.lock();
  entries_.erase(name);
  changed_.notify_all();
}

bool ModelRegistry::drop_oldest(std::unique_lock<std::mutex>& lock) {
  const Entry* oldest = nullptr;
  std::string name;
  for (const auto& [each, entry] : entries_) {
    if (!idle(entry) || (oldest != nullptr && oldest->last_used <= entry.last_used)) continue;
    oldest = &entry;
    name = each;
  }
  if (oldest == nullptr) return false;
  drop(lock, name);
  return true;
}

void ModelRegistry::make_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, const std::string& name) {
  const auto until = Clock::now() + options_.patience;
  while (budget_ > 0 && used() + bytes > budget_) {
    if (drop_oldest(lock)) continue;
    if (Clock::now() >= until) {
      fail(ErrorKind::out_of_memory,
           "'{}' needs {:.0f} MiB, but {:.0f} of {:.0f} are taken by models in use; try again when they are done", name,
           mebibytes(bytes), mebibytes(used()), mebibytes(budget_));
    }
    changed_.wait_for(lock, kLook);
  }
  std::erase_if(lingering_, [](const Lingering& old) { return old.model.expired(); });
}

ModelRegistry::Lease ModelRegistry::acquire(const std::string& name) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) break;
    if (!found->second.loading) {
      found->second.last_used = Clock::now();
      return found->second.model;
    }
    changed_.wait(lock);
  }
  Entry& entry = entries_[name];
  entry.loading = true;
  try {
    const auto renamed = renamed_.find(name);
    std::filesystem::path path = renamed != renamed_.end() ? renamed->second : std::filesystem::path();
    lock.unlock();
    if (path.empty()) path = options_.resolve(name);
    const Plan wanted = plan(path);
    lock.lock();
    make_room(lock, wanted.bytes, name);
    entry.bytes = wanted.bytes;
    lock.unlock();
    std::shared_ptr<LoadedModel> model = load(name, path, wanted);
    lock.lock();
    entry.model = model;
    entry.loading = false;
    entry.last_used = Clock::now();
    changed_.notify_all();
    return model;
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    entries_.erase(name);
    changed_.notify_all();
    throw;
  }
}

void ModelRegistry::exchange(const std::string& name, const std::filesystem::path& path) {
  const Plan wanted = plan(path);  // a file that cannot be loaded is no reason to touch the old one
  std::unique_lock lock(mutex_);
  auto found = entries_.find(name);
  while (found != entries_.end() && (found->second.loading || found->second.exchanging)) {
    changed_.wait(lock);
    found = entries_.find(name);
  }
  if (found == entries_.end()) {
    renamed_[name] = path;
    return;
  }
  Entry& entry = found->second;
  entry.exchanging = true;
  try {
    const auto too_little = [&] { return budget_ > 0 && used() + wanted.bytes > budget_; };
    for (bool dropped = true; dropped && too_little();) dropped = drop_oldest(lock);
    if (too_little()) {
      exchange_in_place(lock, name, path, wanted);
    } else {
      const std::uint64_t old_bytes = entry.bytes;
      entry.bytes += wanted.bytes;
      lock.unlock();
      std::shared_ptr<LoadedModel> model;
      try {
        model = load(name, path, wanted);
      } catch (...) {
        lock.lock();
        entry.bytes = old_bytes;
        throw;
      }
      lock.lock();
      lingering_.push_back({.model = entry.model, .bytes = old_bytes});
      entry.bytes = wanted.bytes;
      entry.model.swap(model);
      entry.exchanging = false;
      renamed_[name] = path;
      changed_.notify_all();
      lock.unlock();
      model.reset();  // here, if nobody holds the old one
      return;
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    if (const auto still = entries_.find(name); still != entries_.end()) still->second.exchanging = false;
    changed_.notify_all();
    throw;
  }
}

// There is no room for both: the old model ends what it has begun while new requests wait.
void ModelRegistry::exchange_in_place(std::unique_lock<std::mutex>& lock, const std::string& name,
                                      const std::filesystem::path& path, const Plan& wanted) {
  Entry& entry = entries_.at(name);
  entry.loading = true;
  const auto until = Clock::now() + options_.patience;
  while (entry.model.use_count() > 1) {
    if (Clock::now() >= until) {
      entry.loading = false;
      fail(ErrorKind::out_of_memory, "there is no room for both models of '{}', and the old one was not done in time",
           name);
    }
    changed_.wait_for(lock, kLook);
  }
  const std::filesystem::path old_path = entry.model->path();
  const auto replace = [&](const std::filesystem::path& from, const Plan& with) {
    entry.bytes = 0;
    make_room(lock, with.bytes, name);
    entry.bytes = with.bytes;
    lock.unlock();
    std::shared_ptr<LoadedModel> model;
    try {
      model = load(name, from, with);
    } catch (...) {
      lock.lock();
      throw;
    }
    lock.lock();
    entry.model = std::move(model);
  };
  std::shared_ptr<LoadedModel> old = std::move(entry.model);
  lock.unlock();
  old.reset();
  lock.lock();
  try {
    replace(path, wanted);
    renamed_[name] = path;
  } catch (...) {
    try {
      replace(old_path, plan(old_path));
      entry.loading = entry.exchanging = false;
    } catch (...) {
      entries_.erase(name);  // the first error is the one to tell
    }
    changed_.notify_all();
    throw;
  }
  entry.loading = entry.exchanging = false;
  entry.last_used = Clock::now();
  changed_.notify_all();
}

bool ModelRegistry::unload(const std::string& name) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return false;
    if (idle(found->second)) break;
    changed_.wait_for(lock, kLook);
  }
  drop(lock, name);
  return true;
}

void ModelRegistry::expire(Clock::time_point now) {
  if (options_.keep_alive.count() < 0) return;
  std::unique_lock lock(mutex_);
  std::vector<std::string> old;
  for (auto& [name, entry] : entries_) {
    if (!idle(entry)) {
      entry.last_used = std::max(entry.last_used, now);
    } else if (now - entry.last_used >= options_.keep_alive) {
      old.push_back(name);
    }
  }
  for (const std::string& name : old) {
    const auto found = entries_.find(name);
    if (found != entries_.end() && idle(found->second)) drop(lock, name);
  }
}

std::vector<ModelRegistry::Status> ModelRegistry::list() const {
  const std::scoped_lock lock(mutex_);
  std::vector<Status> all;
  all.reserve(entries_.size());
  for (const auto& [name, entry] : entries_) {
    all.push_back({.name = name,
                   .path = entry.model ? entry.model->path() : std::filesystem::path(),
                   .bytes = entry.bytes,
                   .loading = entry.loading,
                   .in_use = entry.model.use_count() > 1});
  }
  return all;
}

std::uint64_t ModelRegistry::bytes_used() const {
  const std::scoped_lock lock(mutex_);
  return used();
}

}  // namespace quarrel

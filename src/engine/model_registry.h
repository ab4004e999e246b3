// The models in memory: loaded when somebody asks for one, warmed up by a small request, kept while they are used and
// for a while after, given up oldest first when another needs the room, exchanged without dropping a request.
//
// Threads: every member may be called from any thread. A load runs on the thread that asked for it; others that want
// the same model wait for it, and requests to other models go on. Whoever holds a Lease keeps its model where it is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"

namespace quarrel {

// A model that answers. Its parts are made in this order and end in the other.
class LoadedModel {
 public:
  LoadedModel(const std::filesystem::path& path, Device& device, const ExecutorOptions& executor,
              const EngineOptions& engine)
      : path_(path), executor_(GgufFile::open(path), device, executor), engine_(executor_, engine) {}
  const std::filesystem::path& path() const noexcept { return path_; }
  Engine& engine() noexcept { return engine_; }
  Executor& executor() noexcept { return executor_; }

 private:
  const std::filesystem::path path_;
  Executor executor_;
  Engine engine_;
};

struct LoadEvent {
  // `warming` is told when the weights are there and a first request runs, and again while it takes its time.
  enum class Kind : std::uint8_t { loading, progress, warming, ready, failed, unloaded };
  Kind kind = Kind::loading;
  std::string name = {};
  std::uint64_t done = 0, total = 0;  // of progress: bytes of weights
  std::string error = {};             // of failed
};

struct RegistryOptions {
  ExecutorOptions executor = {};
  EngineOptions engine = {};
  std::uint64_t budget = 0;  // bytes for all models; 0: what the device has now
  std::chrono::milliseconds keep_alive =
      std::chrono::minutes(5);                                   // how long an unused model stays; below zero: forever
  std::chrono::milliseconds patience = std::chrono::minutes(5);  // how long a load waits for room
  // What a name stands for; throws Error(not_found) for none.
  std::function<std::filesystem::path(const std::string&)> resolve = {};
  // Called from whatever thread loads or unloads; must not call the registry. What it throws of `loading`, `progress`
  // or `warming` ends that load.
  std::function<void(const LoadEvent&)> on_event = {};
};

class ModelRegistry {
 public:
  // While it lives, its model is not unloaded.
  using Lease = std::shared_ptr<LoadedModel>;

  ModelRegistry(Device& device, RegistryOptions options);
  ~ModelRegistry();
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  // The model, loaded if it must be. Throws what the load threw, Error(bad_file) if it cannot answer even a small
  // request; Error(out_of_memory) if it does not fit even alone, or if nobody left in time.
  Lease acquire(const std::string& name);

  // From now on `name` is this file. The old model goes on serving until the new one is ready, if there is room for
  // both; else it ends what it has begun, and new requests wait. If the new file cannot be loaded or does not answer,
  // the old one stays and the error is thrown.
  void exchange(const std::string& name, const std::filesystem::path& path);

  // Gives the model up as soon as its last lease ends. False: there is none.
  bool unload(const std::string& name);

  // Gives up what nobody has used for as long as keep_alive. To be called now and then.
  void expire(Clock::time_point now = Clock::now());

  struct Status {
    std::string name = {};
    std::filesystem::path path = {};
    std::uint64_t bytes = 0;
    bool loading = false;
    bool in_use = false;
  };
  std::vector<Status> list() const;
  std::uint64_t bytes_used() const;
  std::uint64_t budget() const noexcept { return budget_; }

 private:
  struct Entry {
    std::shared_ptr<LoadedModel> model = {};  // null while it is loaded for the first time
    std::uint64_t bytes = 0;
    bool loading = false;     // or exchanged with no room for both: whoever wants it waits
    bool exchanging = false;  // the next one is being loaded beside it
    Clock::time_point last_used = {};
  };
  // Exchanged, but somebody still holds it.
  struct Lingering {
    std::weak_ptr<LoadedModel> model = {};
    std::uint64_t bytes = 0;
  };
  // What a load will take, found out before anything is given up for it.
  struct Plan {
    ExecutorOptions options = {};
    std::uint64_t bytes = 0;
  };

  void tell(const LoadEvent& event) const;
  Plan plan(const std::filesystem::path& path) const;
  void warm_up(const std::string& name, LoadedModel& model) const;
  std::shared_ptr<LoadedModel> load(const std::string& name, const std::filesystem::path& path, const Plan& plan) const;
  std::uint64_t used() const;
  // Only the registry holds it, and only under the lock could somebody else come to.
  static bool idle(const Entry& entry) { return !entry.loading && !entry.exchanging && entry.model.use_count() == 1; }
  // Gives up the model that was unused for longest. False: all are in use.
  bool drop_oldest(std::unique_lock<std::mutex>& lock);
  void drop(std::unique_lock<std::mutex>& lock, const std::string& name);
  // Gives up idle models until so many bytes fit; waits for leases to end. Throws Error(out_of_memory) in the end.
  void make_room(std::unique_lock<std::mutex>& lock, std::uint64_t bytes, const std::string& name);
  void exchange_in_place(std::unique_lock<std::mutex>& lock, const std::string& name, const std::filesystem::path& path,
                         const Plan& plan);

  Device& device_;
  const RegistryOptions options_;
  const std::uint64_t budget_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::filesystem::path> renamed_;  // by `exchange`
  std::vector<Lingering> lingering_;
};

}  // namespace quarrel

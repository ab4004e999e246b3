// The models in memory: loaded when one is asked for, warmed up by a small request, kept while they are used and for a
// while after, unloaded oldest first when another needs the room, exchanged without dropping a request.
//
// Threads: every member may be called from any thread, from callbacks and from an engine's sinks too, and none waits
// except those that say so. Models are found, planned and loaded on the registry's own threads (one load at a time),
// and destroyed on another, wherever their last lease was dropped. A callback is called exactly once and with no lock
// held: before the call returns if there is nothing to wait for, else on the registry's thread, so it must not block.
// What it throws is only logged.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/log.h"
#include "session/loaded_model.h"
#include "store/store.h"

namespace quarrel {

class RegistryCore;

// Every `loading` is followed by `progress` and `warming`, and by one `ready` or one `failed`; every `ready` by one
// `unloaded` when the model's memory is free again, unless the registry ends before.
struct LoadEvent {
  // `warming` is reported when the weights are loaded and a first request runs, and repeatedly while it runs.
  enum class Kind : std::uint8_t { loading, progress, warming, ready, failed, unloaded };
  Kind kind = Kind::loading;
  std::string name = {};
  std::filesystem::path path = {};
  std::uint64_t done = 0, total = 0;  // of progress: bytes of weights
  std::string error = {};             // of failed
};

struct ModelSettings {
  // `executor.on_load`, `on_warming`, `warm_up` and `retire` are the registry's own.
  LoadOptions load = {};
  std::optional<std::chrono::milliseconds> keep_alive = {};  // none: the registry's
};

struct RegistryOptions {
  LoadOptions load = {};  // of every model without settings of its own
  std::map<std::string, ModelSettings> models = {};
  std::uint64_t budget = 0;  // bytes for all models of the device; 0: what it has now
  // How long an unused model stays; 0: it goes when its last lease ends; below zero: it stays.
  std::chrono::milliseconds keep_alive = std::chrono::minutes(5);
  std::chrono::milliseconds patience = std::chrono::minutes(5);  // how long a load waits for room; below zero: no limit
  // The model of a name; throws Error(not_found). Called on a thread that may wait for a disk.
  std::function<ResolvedModel(const std::string&)> resolve = {};
  // Called from two threads of the registry, perhaps by both at once; may call the registry. If it throws for
  // `loading`, `progress` or `warming`, that load ends; for the others the error is logged.
  std::function<void(const LoadEvent&)> on_event = {};
  std::function<Clock::time_point()> now = {};  // for tests: another clock; call `look` after moving it
};

struct AcquireOptions {
  // From now on the model stays this long after use; none: unchanged. Forgotten when the model is unloaded.
  std::optional<std::chrono::milliseconds> keep_alive = {};
  // How long the call waits; then it completes with TimedOutError, and the load continues for later callers. None or
  // 0: no limit.
  std::optional<std::chrono::milliseconds> patience = {};
  // Whose call it is. Of those that wait for a model each key has its share, as in the model's own queue.
  std::uint64_t key = 0;
};

class ModelRegistry {
 public:
  // While it lives, its model is not unloaded. It may outlive the registry: then the model lives as long as the lease,
  // and is destroyed on a thread made for that.
  using Lease = std::shared_ptr<LoadedModel>;
  using OnAcquired = std::function<void(Lease model, std::exception_ptr error)>;  // one of them is null
  using OnExchanged = std::function<void(std::exception_ptr error)>;              // null: it is exchanged
  using OnUnloaded = std::function<void(bool found)>;

  // Cancels a call.
  class Ticket {
   public:
    Ticket() = default;
    // If it still waits, it completes with Error(cancelled); a load that nobody else waits for is ended. Else nothing
    // happens.
    void cancel() const;

   private:
    friend class ModelRegistry;
    Ticket(std::weak_ptr<RegistryCore> core, std::uint64_t id) : core_(std::move(core)), id_(id) {}
    std::weak_ptr<RegistryCore> core_ = {};
    std::uint64_t id_ = 0;
  };

  ModelRegistry(std::shared_ptr<Device> device, RegistryOptions options, Log& log);
  // Ends the running load, completes waiting calls with Error(cancelled), and returns when all of that is done and
  // every model without a lease is destroyed. It does not wait for leases. Not from a callback, nor from a sink.
  ~ModelRegistry();
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  // The model, loaded if necessary. Completes at once if it is in memory, whatever else is being loaded, and with
  // BusyError if as many wait for it as its engine's queue may hold (EngineOptions), of all or of this key. Other
  // errors: what `resolve` and the load threw, bad_file if it cannot answer even a small request, out_of_memory if it
  // does not fit even alone or if no model was released in time, TimedOutError, cancelled.
  Ticket acquire(const std::string& name, OnAcquired callback, const AcquireOptions& options = {});

  // From now on `name` is this file. The old model keeps serving until the new one is ready, if there is room for
  // both; else it finishes its requests while new ones wait. If the new file cannot be loaded or does not answer,
  // the old one stays, or is loaded again. A name that is not loaded is only remembered.
  Ticket exchange(const std::string& name, const std::filesystem::path& path, OnExchanged callback);

  // The same with what `resolve` now gives for the name: its file, or what a store keeps beside it, was replaced.
  Ticket renew(const std::string& name, OnExchanged callback);

  // Nobody gets this model any more; existing leases keep it. Ends a load or an exchange of the name with
  // Error(cancelled). Completes when the model is gone, with false if there was none.
  void unload(const std::string& name, OnUnloaded callback = {});

  // Cancels all running and queued requests of the models, and completes calls that wait for a load with
  // Error(cancelled); `why` is each one's reason. The models accept nothing more. Called before the registry ends.
  // Returns at once.
  void end_requests(const std::string& why);

  // The same for those who may wait; throws the error. Error(internal) on a thread of the registry's own.
  Lease acquire_and_wait(const std::string& name, const AcquireOptions& options = {});
  void exchange_and_wait(const std::string& name, const std::filesystem::path& path);
  bool unload_and_wait(const std::string& name);

  // Forgets the texts in the model's prefix cache; false: it is not loaded. Does not count as a use of the model.
  bool clear_cache(const std::string& name);

  // How the model is loaded from now on: by the next load or exchange.
  void configure(const std::string& name, ModelSettings settings);

  enum class State : std::uint8_t { loading, ready, unloading };
  struct Status {
    std::string name = {};
    std::filesystem::path path = {};  // empty: it is still looked for
    std::uint64_t bytes = 0;
    bool has_device_memory = false;  // they are a GPU's
    State state = State::loading;
    std::uint64_t done = 0, total = 0;  // of loading: bytes of weights; 0: it has not begun
    std::int32_t context = 0;           // of ready: tokens that a text may have
    std::string context_limit = {};     // what made it shorter than the model's own, in words; empty: nothing did
    bool in_use = false;
    std::optional<Clock::time_point> expires = {};  // none: it is in use, or stays loaded
    std::chrono::milliseconds keep_alive = {};      // how long it stays after use; below zero: it stays loaded
  };
  // Ordered by name; a model that is being exchanged is listed twice.
  std::vector<Status> list() const;
  // Observations of the loaded models. Does not count as a use of them.
  struct Watched {
    std::string name = {};
    std::uint64_t bytes = 0;
    Observations observations = {};
    EngineCounters counters = {};
  };
  std::vector<Watched> watch() const;
  // The longest time for which one of their engines has made no progress with its work; zero: all do.
  Clock::duration longest_silence() const;
  std::uint64_t bytes_used() const;  // of models until they are destroyed, and of the one that is being loaded
  std::uint64_t budget() const noexcept;
  void look();  // the clock was moved

 private:
  std::shared_ptr<RegistryCore> core_;
};

}  // namespace quarrel

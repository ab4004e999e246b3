// What all requests share: the models, the threads for text, and the names by which models may be asked for. Made once
// by the server. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "server/http/byte_budget.h"
#include "server/http/exchange.h"
#include "server/limits.h"
#include "server/load_watch.h"
#include "server/long_jobs.h"
#include "server/longbow_stores.h"
#include "server/request_record.h"
#include "server/ws_hub.h"
#include "session/model_registry.h"
#include "store/store.h"

namespace quarrel {

class Metrics;

// Whose form a body of POST /api/generate has.
enum class GenerateDialect : std::uint8_t { automatic, native, ollama };

// Where models may be fetched from on a client's word.
struct PullSettings {
  std::string registry = {};            // "https://registry.example"; empty: none are
  std::vector<std::string> hosts = {};  // that models and their parts may come from beside it: "name" or "name:port"
};

// What runs.
struct ProgramFacts {
  std::string version = {}, commit = {}, build = {};
  std::vector<std::string> backends = {};  // that it could compute with
};

struct ServiceOptions {
  // Names or paths, the first of them the default; empty: all of the stores and of `configured`.
  std::vector<std::string> models = {};
  std::map<std::string, std::string> configured = {};        // files that are offered under names of the settings
  std::map<std::string, ModelSettings> model_settings = {};  // of models that are not like the others
  std::string default_model = {};                            // where `models` is empty; empty: the stores' default
  GenerateDialect generate_dialect = GenerateDialect::automatic;
  LoadOptions load = {};
  std::chrono::milliseconds keep_alive = std::chrono::minutes(5);
  // So long a request may wait for its model, for its start, and for each token.
  std::chrono::milliseconds patience = std::chrono::minutes(5);  // 0: forever
  int text_threads = 1;
  PullSettings pull = {};
  LongbowSettings longbow = {};
  ProgramFacts program = {};
  // An engine that does not get on for so long is stuck: whoever started the server should know.
  std::chrono::milliseconds stuck_after = std::chrono::seconds(30);
  SocketOptions sockets = {};
};

// A model that a client may name.
struct OfferedModel {
  std::string name = {};
  std::string source = {};  // what the store is asked for: a name, or a path that the server was started with
  bool named = false;       // it is a name, which is never taken for a path
  ModelPlace place = ModelPlace::file;  // as it was found there
  std::string stored = {};              // its other name in the store, by which it is found too; empty: it has one
  std::uint64_t bytes = 0;
  std::int64_t created = 0;  // seconds since 1970
  std::string parameters = {}, quantisation = {};
};

// Tasks that engines have for I/O threads, all that gather meanwhile at one wake-up. It outlives the service: an engine
// may still have something to say then.
class StepPoster {
 public:
  using RunOnIo = std::function<void(std::function<void()>)>;
  // Before the first task. What it throws (the I/O threads have ended) makes the tasks run where they are posted.
  void set(RunOnIo run_on_io) { run_on_io_ = std::move(run_on_io); }
  static void post(const std::shared_ptr<StepPoster>& self, std::function<void()> task);

 private:
  void run_gathered();

  RunOnIo run_on_io_;
  std::mutex mutex_;
  std::vector<std::function<void()>> gathered_;  // guarded by mutex_
};

class Service {
 public:
  // Throws Error: not_found for a model that it is to offer, or that the settings speak of, and that does not exist,
  // usage for two of one name, for two tables about one model and for vector stores that are none.
  Service(ServiceOptions options, std::shared_ptr<Device> device, ModelStore store, Log& log);
  // No request may come any more. What is being worked on is ended.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Looks at the stores and files again. What is not there any more is left out, unless it is loaded and so still
  // served.
  std::vector<OfferedModel> all_models() const;
  // Those that the caller may use.
  std::vector<OfferedModel> models(const Caller& caller) const;
  // The model that a request means: the one it names, with the tag that Ollama's clients see or without it, the first
  // that its caller may use where it names none. Throws ApiError(404): a model that the caller may not use is as one
  // that is not there. One that a store lost a moment ago may still be found, and not be loaded then.
  OfferedModel find(const std::string& name, const Caller& caller) const;
  // Whether a caller may use a model. A key for one of its names is good for both, but only where they mean one model
  // of our own store: the other may be the name of a file, or of a model of Ollama's store, and then means that alone.
  bool may_use(const Caller& caller, const OfferedModel& model) const;
  // The same for a model that is loaded, or was, and goes by this name.
  bool may_use(const Caller& caller, const std::string& name) const;
  // The same; none: it is not there.
  std::optional<OfferedModel> look_up(const std::string& name, const Caller& caller) const;

  // Its file and what a store keeps beside it. Throws Error as ModelStore does.
  ResolvedModel resolve(const OfferedModel& model) const;
  // Whether models that come into a store are offered: not where the server was started with names.
  bool offers_stores() const noexcept { return named_.empty(); }
  // A store has another list of models now; what was looked up before does not count any more.
  void stores_changed();
  // A store has a model of this name that was made, or took the place of another, a moment ago: whatever is loaded
  // under one of the names that mean it now, in another spelling perhaps, is renewed.
  void replaced(const std::string& name);

  // The callback comes on a thread for texts, with no lock held, while `owner` is held; not at all if that has gone.
  // Where the options say nothing of patience, the service's counts.
  ModelRegistry::Ticket acquire(const OfferedModel& model, std::weak_ptr<const void> owner,
                                ModelRegistry::OnAcquired callback, const AcquireOptions& options);
  ModelRegistry& registry() noexcept { return *registry_; }
  const ModelStore& store() const noexcept { return store_; }
  // How the settings want a model of this name to be loaded.
  const LoadOptions& load_options(const std::string& name) const;
  GenerateDialect generate_dialect() const noexcept { return options_.generate_dialect; }
  std::chrono::milliseconds patience() const noexcept { return options_.patience; }

  LoadWatch& loads() noexcept { return loads_; }
  LongJobs& jobs() noexcept { return *jobs_; }
  LongbowStores& stores() noexcept { return *stores_; }
  const PullSettings& pull_settings() const noexcept { return options_.pull; }

  // Runs a task on a thread that may take its time over a text.
  void run_text_work(std::function<void()> task);
  // The same for somebody who may outlive the service, as an engine may: what it has to say then is dropped.
  std::function<void(std::function<void()>)> text_poster() const;
  const std::shared_ptr<StepPoster>& poster() const noexcept { return poster_; }

  // Who is told what becomes of requests. Before the first of them.
  void observe(std::shared_ptr<RequestObserver> observer) { observers_.push_back(std::move(observer)); }
  std::shared_ptr<RequestRecord> new_record(RequestFacts facts) const {
    return std::make_shared<RequestRecord>(std::move(facts), observers_);
  }

  // What is counted of requests. Set before the first of them.
  void set_metrics(std::shared_ptr<Metrics> metrics) { metrics_ = std::move(metrics); }
  const Metrics& metrics() const noexcept { return *metrics_; }
  Limits& limits() noexcept { return limits_; }
  // Whether a caller may still ask: for connections that stay open, on which a key may outlive itself.
  bool accepts(const Caller& caller) const { return !accepts_ || accepts_(caller); }
  void set_accepts(std::function<bool(const Caller&)> accepts) { accepts_ = std::move(accepts); }  // before the first
  SocketHub& sockets() noexcept { return *sockets_; }
  // Of vectors on their way to clients, and of what is written of them.
  const std::shared_ptr<http::ByteBudget>& vector_bytes() const noexcept { return vector_bytes_; }
  // Of those that go to a vector store, which may be slow, before they go to clients.
  const std::shared_ptr<http::ByteBudget>& stored_bytes() const noexcept { return stored_bytes_; }

  bool ready() const noexcept { return !draining_ && !device_->lost(); }
  bool draining() const noexcept { return draining_; }
  // Nothing can be computed any more: the server has to be started again.
  bool device_lost() const noexcept { return device_->lost(); }
  // New requests are refused from now on.
  void begin_drain() noexcept { draining_ = true; }
  // What runs or waits is cancelled and told why; what comes later is refused. Returns at once.
  void end_requests(const std::string& why);
  // An engine has something to do and does not get on with it.
  bool stuck() const { return registry_->longest_silence() > options_.stuck_after; }
  const ProgramFacts& program() const noexcept { return options_.program; }
  Clock::duration uptime() const { return Clock::now() - begun_; }
  Log& log() noexcept { return log_; }

 private:
  class TextPool;
  std::vector<OfferedModel> listed_since(Clock::time_point time) const;
  std::optional<std::vector<OfferedModel>> known_since(Clock::time_point time) const;
  bool is_loaded(const std::string& name) const;
  // The model's file or settings are others now: if it is loaded, the new one takes the place of the old.
  void renew(const std::string& name);
  OfferedModel configured_model(const std::string& name) const;
  using SecondNames = std::map<std::string, std::string, std::less<>>;
  SecondNames find_second_names() const;
  // The other name of the model of our own store that this one means; empty: it has one, or the other means another.
  std::string second_name(const std::string& name) const;
  std::map<std::string, ModelSettings> settings_by_all_names() const;
  void check_names() const;

  const ServiceOptions options_;
  const Clock::time_point begun_ = Clock::now();
  const std::shared_ptr<Device> device_;
  const ModelStore store_;
  Log& log_;
  std::vector<OfferedModel> named_;  // that it was started with; fixed from then on, like the next two
  SecondNames second_names_;
  std::map<std::string, ModelSettings> model_settings_;
  mutable std::mutex listing_mutex_;  // held by who looks at the stores, before the other
  mutable std::mutex listed_mutex_;
  mutable std::vector<OfferedModel> listed_;            // of the stores, as they were; guarded, like the next
  mutable std::optional<Clock::time_point> listed_at_;  // when the look at them began
  std::uint64_t store_changes_ = 0;
  RequestObservers observers_;
  std::shared_ptr<Metrics> metrics_;
  Limits limits_;
  const std::shared_ptr<http::ByteBudget> vector_bytes_ = std::make_shared<http::ByteBudget>(std::size_t{512} << 20);
  const std::shared_ptr<http::ByteBudget> stored_bytes_ = std::make_shared<http::ByteBudget>(std::size_t{512} << 20);
  std::function<bool(const Caller&)> accepts_;
  std::atomic<bool> draining_ = false;
  const std::shared_ptr<StepPoster> poster_ = std::make_shared<StepPoster>();
  LoadWatch loads_;
  std::shared_ptr<TextPool> pool_;           // ended with the service, whoever holds it
  std::unique_ptr<ModelRegistry> registry_;  // what waits for a model is told so on the pool
  std::unique_ptr<SocketHub> sockets_;       // ends early
  std::unique_ptr<LongJobs> jobs_;           // end first: they use all of the above
  std::unique_ptr<LongbowStores> stores_;    // so do calls to these
};

// Who sent it.
inline std::shared_ptr<const Caller> caller_of(const http::Exchange& exchange) {
  return exchange.request().record->caller();
}

}  // namespace quarrel

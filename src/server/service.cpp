#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/thread_name.h"
#include "server/api_error.h"
#include "server/model_tag.h"
#include "store/model_description.h"
#include "store/own_store.h"
#include "store/pull.h"

namespace quarrel {

// Threads that take tasks in turn. Bounded by the requests that are open, each of which has at most one task here.
class Service::TextPool {
 public:
  TextPool(int threads, Log& log) : log_(log) {
    for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { run(); });
  }
  ~TextPool() { end(); }

  // Runs what it has; what comes later is dropped.
  void end() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    std::deque<std::function<void()>> dropped;  // with the lock open: they may be the last to hold something
    const std::scoped_lock lock(mutex_);
    ended_ = true;
    dropped.swap(tasks_);
  }

  void post(std::function<void()> task) {
    {
      const std::scoped_lock lock(mutex_);
      if (ended_) return;
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    name_thread("quarrel-text");
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      try {
        task();
      } catch (const std::exception& error) {
        log_.try_warn("a request's text could not be worked on: {}", error.what());
      }
    }
  }

  Log& log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

namespace {

// How long a look at the stores counts.
constexpr std::chrono::seconds kListedFor{1};

std::int64_t seconds_of(std::chrono::system_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

// What clients call a model of the stores.
const std::string& name_of(const ListedModel& listed) { return listed.alias.empty() ? listed.name : listed.alias; }

void add_description(OfferedModel& model, const std::filesystem::path& path) {
  ModelDescription description = describe_file(path);
  model.bytes = description.bytes;
  model.created = seconds_of(modified_time(path));
  model.parameters = std::move(description.parameters);
  model.quantisation = std::move(description.quantisation);
}

// A model that was named when the server was started: what it is called, without a path's folders. One of a store has
// the names that it would have without that.
OfferedModel offered(const ModelStore& store, const std::string& source) {
  const ResolvedModel resolved = store.resolve(source);
  OfferedModel model{.name = resolved.place == ModelPlace::file ? resolved.path.stem().string() : source,
                     .source = source,
                     .named = resolved.place != ModelPlace::file,
                     .place = resolved.place};
  if (model.named && source != resolved.name) {
    model.stored = resolved.name;
  } else if (model.named &&
             resolved.path.filename() == source + std::string(kModelExtension)) {  // in one piece, as `pull` has it
    model.stored = other_name(source);
  }
  add_description(model, resolved.path);
  return model;
}

}  // namespace

Service::Service(ServiceOptions options, std::shared_ptr<Device> device, ModelStore store, Log& log)
    : options_(std::move(options)), device_(std::move(device)), store_(std::move(store)), log_(log) {
  stores_ = std::make_unique<LongbowStores>(options_.longbow, log_);
  for (const std::string& source : options_.models) {
    OfferedModel model = options_.configured.contains(source) ? configured_model(source) : offered(store_, source);
    if (std::ranges::find(named_, model.name, &OfferedModel::name) != named_.end()) {
      fail(ErrorKind::usage, "two of the models would be called '{}'", printable(model.name));
    }
    named_.push_back(std::move(model));
  }
  for (const auto& each : options_.configured) configured_model(each.first);
  second_names_ = find_second_names();
  model_settings_ = settings_by_all_names();
  check_names();
  RegistryOptions registry{.load = options_.load, .models = model_settings_, .keep_alive = options_.keep_alive};
  registry.resolve = [this](const std::string& name) { return resolve(find(name, Caller{})); };
  registry.on_event = [this](const LoadEvent& event) { loads_.report(event); };
  pool_ = std::make_shared<TextPool>(options_.text_threads, log_);
  registry_ = std::make_unique<ModelRegistry>(device_, std::move(registry), log_);
  sockets_ = std::make_unique<SocketHub>(*this, options_.sockets);
  observe(sockets_->activity());
  jobs_ = std::make_unique<LongJobs>(log_);
}

// Without the tag, which each of Ollama's has, only models of our own store are called so, unless the settings or the
// start name something else.
Service::SecondNames Service::find_second_names() const {
  const auto means_another = [this](std::string_view name) {
    return options_.configured.contains(std::string(name)) ||
           std::ranges::any_of(named_, [name](const OfferedModel& model) {
             return model.name == name && model.place != ModelPlace::quarrel;
           });
  };
  SecondNames names;
  for (const Pullable& row : pullables()) {
    const std::string_view file = other_name(row.name);
    if (means_another(row.name) || means_another(file)) continue;
    names.emplace(row.name, file);
    names.emplace(file, row.name);
  }
  return names;
}

std::string Service::second_name(const std::string& name) const {
  const auto found = second_names_.find(name);
  return found == second_names_.end() ? std::string() : found->second;
}

bool Service::may_use(const Caller& caller, const std::string& name) const {
  if (caller.may_use(name)) return true;
  const std::string other = second_name(name);
  return !other.empty() && caller.may_use(other);
}

// The name alone is not enough where the model is at hand: one in parts, for example, has no second name.
bool Service::may_use(const Caller& caller, const OfferedModel& model) const {
  return caller.may_use(model.name) || (!model.stored.empty() && model.stored == second_name(model.name) &&
                                        model.place == ModelPlace::quarrel && caller.may_use(model.stored));
}

// A model that has two names is one model under both.
std::map<std::string, ModelSettings> Service::settings_by_all_names() const {
  std::map<std::string, ModelSettings> settings = options_.model_settings;
  for (const auto& [name, own] : options_.model_settings) {
    const std::string other = second_name(name);
    if (other.empty()) continue;
    if (options_.model_settings.contains(other)) {
      fail(ErrorKind::usage, "[models.\"{}\"] and [models.\"{}\"] are about one model", printable(name),
           printable(other));
    }
    settings.emplace(other, own);
  }
  return settings;
}

// What the settings say of a model that nobody has would never count. A registry may still bring it.
void Service::check_names() const {
  std::vector<std::string> known;
  for (const OfferedModel& model : named_) known.push_back(model.name);
  for (const auto& each : options_.configured) known.push_back(each.first);
  bool looked = false;
  const auto check = [&](const std::string& name, std::string_view fault, std::string_view remedy) {
    if (!std::exchange(looked, true)) {
      for (const ListedModel& listed : store_.list()) {
        if (!listed.usable) continue;
        known.push_back(listed.name);
        if (!listed.alias.empty()) known.push_back(listed.alias);
      }
    }
    if (std::ranges::find(known, name) != known.end()) return;
    if (!options_.pull.registry.empty()) {
      return log_.warn("the model '{}' of the settings is not there yet", printable(name));
    }
    const std::vector<std::string> near = nearest(name, known, 1);
    fail(ErrorKind::not_found, "{}{}{}", fault,
         near.empty() ? "" : fmt::format("; did you mean '{}'?", printable(near.front())), remedy);
  };
  if (!options_.default_model.empty()) {
    const std::string& name = options_.default_model;
    check(name, fmt::format("there is no model '{}', which the settings name as the default model", printable(name)),
          "");
  }
  for (const auto& each : options_.model_settings) {
    if (options_.configured.contains(each.first)) continue;
    check(each.first, fmt::format("[models.\"{}\"] is about a model that is not there", printable(each.first)),
          "; a file gets this name by its 'path'");
  }
}

const LoadOptions& Service::load_options(const std::string& name) const {
  const auto own = model_settings_.find(name);
  return own == model_settings_.end() ? options_.load : own->second.load;
}

// What the pool still has asks the registry for models, and what the registry ends is said on the pool: so the pool
// runs out first, and takes nothing more while the registry ends. It may ask for a job too, and is refused.
Service::~Service() {
  jobs_->end();
  stores_->end();
  sockets_->end();
  pool_->end();
}

void Service::end_requests(const std::string& why) {
  jobs_->stop();
  stores_->stop();
  registry_->end_requests(why);
}

ResolvedModel Service::resolve(const OfferedModel& model) const {
  return model.named ? store_.resolve_name(model.source) : store_.resolve(model.source);
}

void Service::stores_changed() {
  const std::scoped_lock lock(listed_mutex_);
  listed_at_.reset();
  ++store_changes_;
}

void Service::replaced(const std::string& name) {
  stores_changed();
  try {
    renew(name);
    for (const std::string& meant : store_.replaced_names(name)) {
      if (meant != name) renew(meant);
    }
  } catch (const std::exception& error) {
    // What was made is there all the same: who made it must not hear that it failed.
    log_.try_warn("models that were loaded from '{}' may not have been renewed: {}", printable(name), error.what());
  }
}

void Service::renew(const std::string& name) {
  const auto loaded = registry_->list();
  if (std::ranges::find(loaded, name, &ModelRegistry::Status::name) == loaded.end()) return;
  registry_->renew(name, [this, name](const std::exception_ptr& error) {
    if (error != nullptr) log_.warn("'{}' could not be reloaded; the loaded one goes on serving", printable(name));
  });
}

// A file of the settings, which clients know by its name there. Throws Error(not_found) if it is not there.
OfferedModel Service::configured_model(const std::string& name) const {
  OfferedModel model = offered(store_, options_.configured.at(name));
  model.name = name;
  return model;
}

std::vector<OfferedModel> Service::all_models() const {
  std::vector<OfferedModel> models;
  for (OfferedModel model : named_) {
    try {
      add_description(model, resolve(model).path);
    } catch (const Error&) {
      if (!is_loaded(model.name)) continue;
    }
    models.push_back(std::move(model));
  }
  if (!named_.empty()) return models;
  for (const ListedModel& listed : store_.list()) {
    if (!listed.usable) continue;
    const std::string& name = name_of(listed);
    if (options_.configured.contains(name)) continue;
    models.push_back({.name = name,
                      .source = name,
                      .named = true,
                      .place = listed.place,
                      .stored = listed.alias.empty() ? "" : listed.name,
                      .bytes = listed.bytes,
                      .created = seconds_of(listed.modified),
                      .parameters = listed.parameters,
                      .quantisation = listed.quantisation});
  }
  for (const auto& each : options_.configured) {
    try {
      models.push_back(configured_model(each.first));
    } catch (const Error&) {
      continue;  // it was there when the server was started
    }
  }
  // Without names the default is that of the settings, or the model that `pull` gets, if it is there.
  const std::string wanted = options_.default_model.empty() ? "default" : options_.default_model;
  const auto first = std::ranges::find_if(
      models, [&](const OfferedModel& model) { return model.name == wanted || model.stored == wanted; });
  if (first != models.end()) std::rotate(models.begin(), first, first + 1);
  return models;
}

std::optional<std::vector<OfferedModel>> Service::known_since(Clock::time_point time) const {
  const std::scoped_lock lock(listed_mutex_);
  return listed_at_ && *listed_at_ >= time ? std::optional(listed_) : std::nullopt;
}

// Listing a store opens every file in it, which is too much for every request: one does it at a time, and all who came
// before it began have what it found.
std::vector<OfferedModel> Service::listed_since(Clock::time_point time) const {
  if (!named_.empty()) return named_;
  if (auto known = known_since(time)) return std::move(*known);
  const std::scoped_lock listing(listing_mutex_);
  if (auto known = known_since(time)) return std::move(*known);
  const Clock::time_point begun = Clock::now();
  std::uint64_t changes = 0;
  {
    const std::scoped_lock lock(listed_mutex_);
    changes = store_changes_;
  }
  std::vector<OfferedModel> found = all_models();
  const std::scoped_lock lock(listed_mutex_);
  if (changes == store_changes_) {
    listed_ = found;
    listed_at_ = begun;
  }
  return found;
}

std::vector<OfferedModel> Service::models(const Caller& caller) const {
  std::vector<OfferedModel> usable = all_models();
  std::erase_if(usable, [&](const OfferedModel& model) { return !may_use(caller, model); });
  return usable;
}

// One that is served goes on being served, though its file was replaced by something that is no model.
bool Service::is_loaded(const std::string& name) const {
  return std::ranges::any_of(registry_->list(), [&](const ModelRegistry::Status& status) {
    return status.name == name && status.state == ModelRegistry::State::ready;
  });
}

std::optional<OfferedModel> Service::look_up(const std::string& name, const Caller& caller) const {
  const std::array spellings = {name, std::string(without_tag(name)), with_tag(name)};  // the likeliest first
  const Clock::time_point now = Clock::now();
  for (const Clock::time_point since : {now - kListedFor, now}) {
    const std::vector<OfferedModel> all = listed_since(since);
    for (const std::string& spelling : spellings) {
      for (const auto called : {&OfferedModel::name, &OfferedModel::stored}) {
        for (const OfferedModel& model : all) {
          if (may_use(caller, model) && (name.empty() || (!spelling.empty() && model.*called == spelling)))
            return model;
        }
      }
    }
  }
  for (const std::string& spelling : spellings) {
    if (!may_use(caller, spelling) || !is_loaded(spelling)) continue;
    return OfferedModel{.name = spelling, .source = spelling, .named = true};
  }
  return std::nullopt;
}

OfferedModel Service::find(const std::string& name, const Caller& caller) const {
  if (std::optional<OfferedModel> found = look_up(name, caller)) return std::move(*found);
  const std::string message =
      name.empty() ? "this server has no model: `quarrel pull` gets one"
                   : fmt::format("there is no model '{}' here; GET /v1/models lists those that are", printable(name));
  throw ApiError(404, "not_found_error", "model_not_found", message, "model");
}

ModelRegistry::Ticket Service::acquire(const OfferedModel& model, std::weak_ptr<const void> owner,
                                       ModelRegistry::OnAcquired callback, const AcquireOptions& options) {
  AcquireOptions with_patience = options;
  if (!with_patience.patience) with_patience.patience = options_.patience;
  return registry_->acquire(
      model.name,
      [this, owner = std::move(owner), callback = std::move(callback)](ModelRegistry::Lease lease,
                                                                       std::exception_ptr error) {
        run_text_work([owner, callback, lease = std::move(lease), error] {
          if (const auto held = owner.lock()) callback(lease, error);
        });
      },
      with_patience);
}

void Service::run_text_work(std::function<void()> task) { pool_->post(std::move(task)); }

std::function<void(std::function<void()>)> Service::text_poster() const {
  return [pool = pool_](std::function<void()> task) { pool->post(std::move(task)); };
}

// An engine's step reports to every stream; only the first of them wakes an I/O thread.
void StepPoster::post(const std::shared_ptr<StepPoster>& self, std::function<void()> task) {
  {
    const std::scoped_lock lock(self->mutex_);
    self->gathered_.push_back(std::move(task));
    if (self->gathered_.size() > 1) return;
  }
  try {
    self->run_on_io_([self] { self->run_gathered(); });
  } catch (const std::exception&) {
    self->run_gathered();
  }
}

void StepPoster::run_gathered() {
  std::vector<std::function<void()>> tasks;
  {
    const std::scoped_lock lock(mutex_);
    tasks.swap(gathered_);
  }
  for (const std::function<void()>& each : tasks) each();
}

}  // namespace quarrel

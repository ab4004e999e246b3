#include "server/ws_hub.h"

#include <utility>

#include "server/service.h"
#include "server/watch/metrics.h"
#include "server/ws_protocol.h"
#include "server/ws_session.h"

namespace quarrel {
namespace {

constexpr std::chrono::milliseconds kLookEvery{250};
constexpr unsigned kLooksASecond = 4;
// Every machine that asks without a key counts as one, and there are many machines.
constexpr std::size_t kManyKeys = 4096;

// What computes, and is no look at something.
bool is_work(const RequestFacts& facts) noexcept { return !facts.route.empty() && !facts.route.starts_with("GET "); }

std::string_view name_of(ModelRegistry::State state) noexcept {
  switch (state) {
    case ModelRegistry::State::loading: return "loading";
    case ModelRegistry::State::ready: return "loaded";
    case ModelRegistry::State::unloading: return "unloading";
  }
  return "";
}

}  // namespace

void Activity::begun(const RequestFacts& facts) {
  if (!is_work(facts)) return;
  const std::scoped_lock lock(mutex_);
  if (keys_.size() >= kManyKeys) std::erase_if(keys_, [](const auto& each) { return each.second.running == 0; });
  ++keys_[facts.caller->key].running;
}

void Activity::tokens(const RequestFacts& facts, const TokenBatch& batch) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = keys_.find(facts.caller->key); found != keys_.end()) found->second.tokens += batch.tokens;
}

void Activity::ended(const RequestFacts& facts) {
  if (!is_work(facts)) return;
  const std::scoped_lock lock(mutex_);
  const auto found = keys_.find(facts.caller->key);
  if (found == keys_.end()) return;
  --found->second.running;
  if (!facts.model.empty()) ++found->second.requests;
}

Activity::Counts Activity::of(std::uint64_t key) const {
  const std::scoped_lock lock(mutex_);
  const auto found = keys_.find(key);
  return found == keys_.end() ? Counts() : found->second;
}

// Outlives the hub: an answer that ends late gives its place back.
struct SocketHub::Places {
  std::mutex mutex;
  std::map<std::string, std::size_t> taken;  // guarded
};

struct SocketHub::Place {
  Place(std::shared_ptr<Places> among, std::string of) : places(std::move(among)), model(std::move(of)) {}
  ~Place() {
    if (!taken) return;
    const std::scoped_lock lock(places->mutex);
    const auto found = places->taken.find(model);
    if (--found->second == 0) places->taken.erase(found);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const std::shared_ptr<Places> places;
  const std::string model;
  bool taken = false;
};

SocketHub::SocketHub(Service& service, SocketOptions options)
    : service_(service),
      options_(std::move(options)),
      places_(std::make_shared<Places>()),
      answers_(options_.resume),
      feed_(options_.broadcast, [&service] { return service.metrics().read(); }) {}

SocketHub::~SocketHub() { end(); }

void SocketHub::end() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  ending_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  answers_.end();
}

ResumableAnswers& SocketHub::answers() {
  watch_time();
  return answers_;
}

void SocketHub::add(const std::shared_ptr<SocketSession>& session) {
  watch_time();
  const std::scoped_lock lock(mutex_);
  sessions_.insert_or_assign(session.get(), session);  // one may have lain there before
  if (options_.broadcast.count() > 0) newcomers_.emplace_back(session);
}

void SocketHub::remove(const SocketSession* session) {
  const std::scoped_lock lock(mutex_);
  sessions_.erase(session);
}

SocketHub::Sessions SocketHub::sessions() const {
  Sessions all;
  const std::scoped_lock lock(mutex_);
  for (const auto& [session, weak] : sessions_) {
    if (auto held = weak.lock()) all.push_back(std::move(held));
  }
  return all;
}

std::shared_ptr<const void> SocketHub::take_place(const std::string& model) {
  auto place = std::make_shared<Place>(places_, model);
  const std::scoped_lock lock(places_->mutex);
  const auto found = places_->taken.try_emplace(model, 0).first;
  if (found->second >= options_.running_of_model) return nullptr;
  ++found->second;
  place->taken = true;
  return place;
}

void SocketHub::watch(std::weak_ptr<RunningCall> call, std::shared_ptr<const Caller> caller) {
  watch_time();
  running_.add(std::move(call), std::move(caller));
}

void SocketHub::watch_time() {
  const std::scoped_lock lock(mutex_);
  if (ending_ || thread_.joinable()) return;
  thread_ = std::thread([this] { run(); });
}

void SocketHub::run() {
  unsigned looks = 0;
  std::unique_lock lock(mutex_);
  while (!ending_changed_.wait_for(lock, kLookEvery, [&] { return ending_; })) {
    lock.unlock();
    try {
      answers_.look();
      if (++looks % kLooksASecond == 0) {
        for (const std::shared_ptr<SocketSession>& session : sessions()) session->may_stay();
        const auto accepts = [this](const Caller& caller) { return service_.accepts(caller); };
        running_.look(accepts, Clock::now());
        answers_.forget(accepts);
      }
      if (options_.broadcast.count() > 0) broadcast(Clock::now());
    } catch (const std::exception& error) {
      service_.log().try_warn("the status could not be sent to WebSockets: {}", error.what());
    }
    lock.lock();
  }
}

Json SocketHub::status(const Caller& caller) const {
  Json models = Json::array();
  for (const ModelRegistry::Status& each : service_.registry().list()) {
    if (!service_.may_use(caller, each.name)) continue;
    Json model{{"name", each.name}, {"state", name_of(each.state)}, {"bytes", each.bytes}};
    if (each.context > 0) model["context_length"] = each.context;
    models.push_back(std::move(model));
  }
  return {{"connected", true},
          {"ready", service_.ready()},
          {"broadcast", std::chrono::duration<double>(options_.broadcast).count()},
          {"models", std::move(models)}};
}

Json SocketHub::metrics(const Caller& caller, const MetricsNews& news) const {
  Json payload = metrics_payload(news, [&](const std::string& model) { return service_.may_use(caller, model); });
  {
    const std::scoped_lock lock(mutex_);
    payload["connections"] = sessions_.size();
  }
  const Activity::Counts own = activity_->of(caller.key);
  payload["own"] = {{"running", own.running}, {"requests_total", own.requests}, {"tokens_total", own.tokens}};
  return payload;
}

// A text for each key, however many connections it has.
void SocketHub::broadcast(Clock::time_point now) {
  MetricsFeed::Listeners listeners;
  Sessions newcomers;
  {
    const std::scoped_lock lock(mutex_);
    listeners.all = sessions_.size();
    for (const std::weak_ptr<SocketSession>& each : newcomers_) {
      if (auto held = each.lock()) newcomers.push_back(std::move(held));
    }
    newcomers_.clear();
  }
  listeners.newcomers = newcomers.size();
  const std::optional<MetricsFeed::Due> due = feed_.look(now, listeners);
  if (!due) return;
  struct Texts {
    std::string status = {}, metrics = {};
  };
  std::map<const Caller*, Texts> texts;
  for (const std::shared_ptr<SocketSession>& session : due->to_all ? sessions() : newcomers) {
    const std::shared_ptr<const Caller>& caller = session->caller();
    Texts& each = texts[caller.get()];
    if (each.status.empty()) {
      each = {.status = status_message("", status(*caller)), .metrics = metrics_message(metrics(*caller, due->news))};
    }
    session->broadcast(each.status, each.metrics);
  }
}

}  // namespace quarrel

#include "server/model_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utc_time.h"
#include "server/model_abilities.h"
#include "server/ollama_models.h"
#include "server/progress_stream.h"
#include "server/question.h"
#include "server/request_record.h"
#include "server/routes.h"
#include "server/running_calls.h"
#include "server/schema.h"
#include "session/recommended_sampling.h"
#include "store/model_description.h"

namespace quarrel {
namespace {

using http::Exchange;

Json body_of(const Exchange& exchange) {
  return exchange.request().body.empty() ? Json::object() : parse_body(exchange.request().body);
}

OfferedModel named_in_path(const Service& service, const Exchange& exchange) {
  return service.find(route_argument(exchange.request().method, exchange.request().path), *caller_of(exchange));
}

std::string_view state_name(const ModelRegistry::Status* status) noexcept {
  if (status == nullptr) return "unloaded";
  switch (status->state) {
    case ModelRegistry::State::loading: return "loading";
    case ModelRegistry::State::ready: return "loaded";
    case ModelRegistry::State::unloading: return "unloading";
  }
  return "unloaded";
}

// Of one that is exchanged, the one that serves.
const ModelRegistry::Status* status_of(const std::string& name, const std::vector<ModelRegistry::Status>& all) {
  const ModelRegistry::Status* found = nullptr;
  for (const ModelRegistry::Status& status : all) {
    if (status.name != name) continue;
    if (found == nullptr || status.state == ModelRegistry::State::ready) found = &status;
  }
  return found;
}

Json model_json(const OfferedModel& model, const ModelRegistry::Status* status) {
  return {{"name", model.name},
          {"loaded", status != nullptr && status->state == ModelRegistry::State::ready},
          {"state", state_name(status)},
          {"parameters", model.parameters},
          {"quantization", model.quantisation},
          {"size", model.bytes}};
}

// 0.2, not the 0.20000000298 that the float is.
Json shortest(float value) { return Json::parse(fmt::format("{}", value), nullptr, false); }

// How its makers want it asked, where a request says nothing.
Json recommended_json(const ResolvedModel& model, Log& log) {
  RecommendedSampling said;
  try {
    said = read_recommended_sampling(GgufFile::open(model.path), model.params.value_or(""), log);
  } catch (const Error&) {
    // A broken file recommends nothing.
  }
  Json json = Json::object();
  if (said.temperature) json["temperature"] = shortest(*said.temperature);
  if (said.top_k) json["top_k"] = *said.top_k;
  if (said.top_p) json["top_p"] = shortest(*said.top_p);
  if (said.min_p) json["min_p"] = shortest(*said.min_p);
  return json;
}

// What its file says, and what a store keeps beside it.
void describe_into(Json& json, Service& service, const ResolvedModel& resolved) {
  const GgufFile file = GgufFile::open(resolved.path);
  const ModelDescription description = describe_file(file);
  json["parameters"] = description.parameters;
  json["quantization"] = description.quantisation;
  json["parameter_count"] = description.parameter_count;
  json["family"] = description.family;
  json["size"] = description.bytes;
  json["digest"] = model_digest(resolved.path);
  json["modified_at"] = rfc3339(modified_time(resolved.path));
  json["system"] = resolved.system ? Json(*resolved.system) : Json();
  const Json stored = Json::parse(resolved.params.value_or("{}"), nullptr, false);
  json["settings"] = stored.is_object() ? stored : Json::object();
  json["recommended"] = recommended_json(resolved, service.log());
  json["capabilities"] = read_abilities(file).capabilities;
}

// Why there is no more to say of it. What is wrong with the file in detail, and where it lies, is the log's matter.
std::string problem_of(const Error& error, bool serves) {
  const std::string_view what = error.kind() == ErrorKind::not_found
                                    ? "its file is not there any more"
                                    : "its file cannot be read as a model; the server's log says why";
  return fmt::format("{}{}", what, serves ? "; the model that was loaded goes on serving" : "");
}

// The same with all that is known; the file is opened for it. One that was replaced by something that is no model is no
// fault of who asks, nor of the server: what is known is told, and that.
Json details_json(Service& service, const OfferedModel& model, const ModelRegistry::Status* status) {
  Json json = model_json(model, status);
  json.update({{"parameter_count", 0},
               {"family", ""},
               {"digest", ""},
               {"modified_at", rfc3339(std::chrono::system_clock::time_point{})},
               {"system", nullptr},
               {"settings", Json::object()},
               {"recommended", Json::object()},
               {"capabilities", Json::array()}});
  const bool serves = status != nullptr && status->state == ModelRegistry::State::ready;
  try {
    describe_into(json, service, service.resolve(model));
  } catch (const Error& error) {
    const bool of_the_file = error.kind() == ErrorKind::bad_file || error.kind() == ErrorKind::unsupported ||
                             error.kind() == ErrorKind::io || (error.kind() == ErrorKind::not_found && serves);
    if (!of_the_file) throw;
    service.log().try_warn("'{}' cannot be described: {}", model.name, error.what());
    json["problem"] = problem_of(error, serves);
  }
  json["context_length"] = status != nullptr && status->context > 0 ? Json(status->context) : Json();
  json["memory_usage"] = status != nullptr ? status->bytes : 0;
  json["in_use"] = status != nullptr && status->in_use;
  if (status != nullptr && status->state == ModelRegistry::State::loading) {
    json["completed"] = status->done;
    json["total"] = status->total;
  }
  return json;
}

Json event_json(const LoadEvent& event) {
  switch (event.kind) {
    case LoadEvent::Kind::loading: return {{"status", "loading"}};
    case LoadEvent::Kind::progress: return {{"status", "loading"}, {"completed", event.done}, {"total", event.total}};
    case LoadEvent::Kind::warming: return {{"status", "warming"}};
    case LoadEvent::Kind::ready:
    case LoadEvent::Kind::failed:
    case LoadEvent::Kind::unloaded: break;
  }
  return nullptr;
}

// A request that loads a model, or loads it again. The exchange owns it: when the client is gone it is cancelled.
class LoadCall final : public RunningCall, public std::enable_shared_from_this<LoadCall> {
 public:
  LoadCall(Service& service, const std::shared_ptr<Exchange>& exchange, OfferedModel model,
           const ModelControlRequest& request)
      : service_(service),
        record_(exchange->request().record),
        model_(std::move(model)),
        request_(request),
        news_(exchange, request.stream) {}
  ~LoadCall() override {
    renewal_.cancel();
    ticket_.cancel();
  }

  void start() {
    record_->update([&](RequestFacts& facts) { facts.model = model_.name; });
    const std::weak_ptr<LoadCall> weak = weak_from_this();
    auto watching = service_.loads().watch(model_.name, [weak](const LoadEvent& event) {
      if (const auto self = weak.lock()) self->take(event);
    });
    {
      const std::scoped_lock lock(mutex_);
      watching_ = std::move(watching);
    }
    if (!request_.reload) return acquire();
    ModelRegistry::Ticket renewal =
        service_.registry().renew(model_.name, [weak, &service = service_](const std::exception_ptr& error) {
          service.run_text_work([weak, error] {
            if (const auto self = weak.lock()) self->renewed(error);
          });
        });
    const std::scoped_lock lock(mutex_);
    renewal_ = std::move(renewal);
    if (why_) renewal_.cancel();
  }

  void end(const ApiError& why) override {
    const std::scoped_lock lock(mutex_);
    if (!why_) why_ = why;
    renewal_.cancel();
    ticket_.cancel();
  }

 private:
  // What is thrown in a callback reaches nobody, and the client would wait forever.
  template <typename Work>
  void end_with(const Work& work) noexcept {
    try {
      work();
    } catch (const std::exception& error) {
      service_.log().try_warn("request {} failed: {}", record_->id(), error.what());
      news_.abandon();
    }
  }

  void renewed(const std::exception_ptr& error) {
    end_with([&] { error != nullptr ? report(error) : acquire(); });
  }

  void acquire() {
    ModelRegistry::Ticket ticket = service_.acquire(
        model_, weak_from_this(),
        [this](const ModelRegistry::Lease& lease, const std::exception_ptr& error) {
          end_with([&] { error != nullptr ? report(error) : acquired(*lease); });
        },
        {.keep_alive = request_.keep_alive, .patience = std::chrono::milliseconds(0), .key = record_->caller()->key});
    const std::scoped_lock lock(mutex_);
    ticket_ = std::move(ticket);
    if (why_) ticket_.cancel();
  }

  void acquired(const LoadedModel& model) {
    record_->update([](RequestFacts& facts) { facts.acquired = Clock::now(); });
    news_.end({{"status", "ready"},
               {"model", model_.name},
               {"context_length", model.context()},
               {"load_seconds", model.load_seconds()}});
  }

  // On a thread of the registry, which what is thrown here would stop.
  void take(const LoadEvent& event) noexcept {
    try {
      const Json json = event_json(event);
      if (json.is_null()) return;
      const bool often = event.kind != LoadEvent::Kind::loading && event.done != event.total;
      if (often) {
        news_.tell_now_and_then(json);
      } else {
        news_.tell(json);
      }
    } catch (const std::exception&) {
      // The end of it will be told all the same.
    }
  }

  void report(const std::exception_ptr& error) {
    const std::optional<ApiError> given = why();
    ApiError said = given ? *given : load_error(error);
    if (!given && service_.draining()) said = as_draining(std::move(said));
    log_fault(service_.log(), record_->id(), said, error);
    news_.fail(said);
  }

  std::optional<ApiError> why() {
    const std::scoped_lock lock(mutex_);
    return why_;
  }

  Service& service_;
  const std::shared_ptr<RequestRecord> record_;
  const OfferedModel model_;
  const ModelControlRequest request_;
  ProgressStream news_;
  std::mutex mutex_;
  ModelRegistry::Ticket renewal_, ticket_;  // guarded, like the next
  std::shared_ptr<void> watching_;
  std::optional<ApiError> why_;  // somebody ended it, and said so
};

using LoadField = Field<ModelControlRequest>;

constexpr std::array kLoadFields = {
    LoadField{.name = "stream",
              .kind = FieldKind::boolean,
              .help = "news as they come",
              .read = [](const Json& v, ModelControlRequest& r) { r.stream = as_flag(v); }},
    LoadField{.name = "reload",
              .kind = FieldKind::boolean,
              .help = "what the name stands for now takes the place of what is loaded",
              .read = [](const Json& v, ModelControlRequest& r) { r.reload = as_flag(v); }},
    LoadField{.name = "keep_alive",
              .help = "how long it stays after use, as 300 or \"5m\"; below 0: forever",
              .read = [](const Json& v, ModelControlRequest& r) { r.keep_alive = read_keep_alive(v); },
              .schema = keep_alive_schema},
};

using UnloadField = Field<ModelControlRequest>;

constexpr std::array kUnloadFields = {
    UnloadField{.name = "stream",
                .kind = FieldKind::boolean,
                .help = "news as they come",
                .read = [](const Json& v, ModelControlRequest& r) { r.stream = as_flag(v); }},
};

}  // namespace

Json load_schema() { return schema::request_of<ModelControlRequest>("LoadRequest", {}, kLoadFields); }

ModelControlRequest read_load(const Json& body) {
  ModelControlRequest request;
  read_fields<ModelControlRequest>(body, kLoadFields, request);
  return request;
}

Json unload_schema() { return schema::request_of<ModelControlRequest>("UnloadRequest", {}, kUnloadFields); }

ModelControlRequest read_unload(const Json& body) {
  ModelControlRequest request;
  read_fields<ModelControlRequest>(body, kUnloadFields, request);
  return request;
}

void native_models(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::vector<ModelRegistry::Status> loaded = service.registry().list();
  Json list = Json::array();
  for (const OfferedModel& model : service.models(*caller_of(*exchange))) {
    list.push_back(model_json(model, status_of(model.name, loaded)));
  }
  exchange->respond({.body = compact_json(list)});
}

void native_model(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OfferedModel model = named_in_path(service, *exchange);
  const std::vector<ModelRegistry::Status> loaded = service.registry().list();
  exchange->respond({.body = compact_json(details_json(service, model, status_of(model.name, loaded)))});
}

void load_model(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const ModelControlRequest request = read_load(body_of(*exchange));
  OfferedModel model = named_in_path(service, *exchange);
  auto call = std::make_shared<LoadCall>(service, exchange, std::move(model), request);
  exchange->keep(call);
  service.sockets().watch(call, caller_of(*exchange));
  call->start();
}

void unload_model(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const ModelControlRequest request = read_unload(body_of(*exchange));
  const OfferedModel model = named_in_path(service, *exchange);
  exchange->request().record->update([&](RequestFacts& facts) { facts.model = model.name; });
  auto news = std::make_shared<ProgressStream>(exchange, request.stream);
  exchange->keep(news);
  news->tell({{"status", "unloading"}, {"model", model.name}});
  service.registry().unload(model.name, [weak = std::weak_ptr(news), name = model.name](bool found) {
    const auto told = weak.lock();
    if (told == nullptr) return;
    try {
      told->end({{"status", found ? "unloaded" : "not_loaded"}, {"model", name}});
    } catch (const std::exception&) {
      told->abandon();
    }
  });
}

void clear_model_cache(Service& service, const std::shared_ptr<Exchange>& exchange) {
  require_no_fields(exchange->request().body);
  const OfferedModel model = named_in_path(service, *exchange);
  exchange->request().record->update([&](RequestFacts& facts) { facts.model = model.name; });
  const bool found = service.registry().clear_cache(model.name);
  exchange->respond({.body = compact_json({{"status", found ? "cleared" : "not_loaded"}, {"model", model.name}})});
}

}  // namespace quarrel

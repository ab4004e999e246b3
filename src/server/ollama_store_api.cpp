#include "server/ollama_store_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "server/model_abilities.h"
#include "server/model_tag.h"
#include "server/ollama_models.h"
#include "server/ollama_request.h"
#include "server/progress_stream.h"
#include "server/question.h"
#include "server/registry_client.h"
#include "server/request_record.h"
#include "server/running_calls.h"
#include "server/schema.h"
#include "store/model_description.h"
#include "store/modelfile.h"
#include "store/registry_pull.h"
#include "store/store_fault.h"
#include "text/chat_template.h"

namespace quarrel {
namespace {

using http::Exchange;

// What a pull came to, as whoever asked for it may know it: see pull_from_registry.
ApiError pull_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const StoreFault& fault) {
    if (fault.full()) return {507, "server_error", "store_full", fault.what()};
    return {500, "server_error", "store_failed", fault.what()};
  } catch (const Error& known) {
    switch (known.kind()) {
      case ErrorKind::not_found: return {404, "not_found_error", "model_not_found", known.what(), "model"};
      case ErrorKind::usage:
      case ErrorKind::unsupported: return {400, "invalid_request_error", "unsupported", known.what(), "model"};
      case ErrorKind::bad_file:
      case ErrorKind::io: return {502, "upstream_error", "pull_failed", known.what()};
      default: return api_error(error);
    }
  } catch (...) {
    return api_error(error);
  }
}

Json progress_json(const RegistryProgress& progress) {
  Json json{{"status", progress.status}};
  if (progress.digest.empty()) return json;
  json["digest"] = progress.digest;
  json["total"] = progress.total;
  if (progress.completed > 0) json["completed"] = progress.completed;
  return json;
}

// Ends a pull: its client or the server goes, or its key is not good any more.
class PullCall final : public RunningCall {
 public:
  void end(const ApiError& why) override {
    {
      const std::scoped_lock lock(mutex_);
      if (!why_) why_ = why;
    }
    stop();
  }
  void stop() { source_.request_stop(); }
  void end_with_server() {
    server_ends_ = true;
    stop();
  }
  std::stop_token token() const { return source_.get_token(); }
  std::optional<ApiError> why() {
    const std::scoped_lock lock(mutex_);
    if (!why_ && server_ends_) return ApiError(503, "unavailable_error", "draining", "the server is about to end");
    return why_;
  }

 private:
  std::stop_source source_;
  std::atomic<bool> server_ends_ = false;
  std::mutex mutex_;
  std::optional<ApiError> why_;  // guarded; somebody ended it, and said so
};

// On a thread of its own.
void pull(Service& service, ProgressStream& news, const OllamaName& name, const std::string& request_id,
          PullCall& call) {
  RegistryPullOptions options{.stored_name = pulled_name(name), .stop = call.token()};
  options.progress = [&](const RegistryProgress& progress) {
    const bool often = progress.completed > 0 && progress.completed < progress.total;
    const Json json = progress_json(progress);
    if (!(often ? news.tell_now_and_then(json) : news.tell(json))) {
      fail(ErrorKind::cancelled, "the pull was cancelled: no client waits for it any more");
    }
  };
  try {
    RegistryClient client(service.pull_settings(), name, call.token());
    pull_from_registry(name, service.store(), client, options);
    service.replaced(options.stored_name);
    news.end({{"status", "success"}});
  } catch (...) {
    const std::optional<ApiError> given = call.why();
    const ApiError said = given ? *given : pull_error(std::current_exception());
    log_fault(service.log(), request_id, said, std::current_exception());
    news.fail(said);
  }
}

void check_template(const std::string& text) {
  if (is_go_template(text)) {
    throw unsupported_field("template",
                            "'template' is written for Go's template engine: templates are written in Jinja here");
  }
  try {
    ChatTemplate::compile(text);
  } catch (const Error& error) {
    throw invalid_field("template", fmt::format("'template' is not a Jinja template: {}", error.what()));
  }
}

// "0.5" is a number in a Modelfile, and a stop string may come several times.
Json parameters_of(const Modelfile& file) {
  Json parameters = Json::object();
  for (const auto& [name, text] : file.parameters) {
    if (name == "stop") {
      parameters["stop"].push_back(text);
      continue;
    }
    const Json value = Json::parse(text, nullptr, false);
    parameters[name] = value.is_number() || value.is_boolean() ? value : Json(text);
  }
  return parameters;
}

void read_modelfile_into(const Json& value, OllamaCreateRequest& request) {
  Modelfile file;
  try {
    file = read_modelfile(as_text(value));
  } catch (const Error& error) {
    throw invalid_field("modelfile", error.what());
  }
  if (request.from.empty()) request.from = file.from;
  if (!request.system) request.system = std::move(file.system);
  if (!request.template_text) request.template_text = std::move(file.template_text);
  if (request.license.empty()) request.license = std::move(file.license);
  Json parameters = parameters_of(file);
  parameters.update(request.parameters);
  request.parameters = std::move(parameters);
}

void read_license(const Json& value, OllamaCreateRequest& request) {
  for (const Json& each : value.is_array() ? value : Json::array({value})) {
    if (!each.is_string()) throw invalid_field("license", "'license' is a text or a list of texts");
    request.license += (request.license.empty() ? "" : "\n") + as_text(each);
  }
}

// `num_ctx` as an option of a request would be refused: as the model's own it would never count.
void check_stored_context(const Service& service, const OllamaCreateRequest& request, const std::string& name,
                          const ResolvedModel& from) {
  const std::int32_t given = service.load_options(name).executor.context;
  if (given == 0 || !request.parameters.contains("num_ctx")) return;  // 0: as much as fits
  check_context(as_integer(request.parameters["num_ctx"]), given, read_abilities(from.path).trained_context);
}

// What the model that it is made of has, under what the request says.
StoredSettings settings_of(const OllamaCreateRequest& request, const ResolvedModel& from) {
  StoredSettings settings = kept_settings(from);
  settings.from = from.name;
  if (request.system) settings.system = request.system;
  if (request.template_text) settings.template_text = request.template_text;
  if (!request.license.empty()) settings.license = request.license;
  Json parameters = Json::parse(settings.params.value_or("{}"), nullptr, false);
  if (!parameters.is_object()) parameters = Json::object();
  parameters.update(request.parameters);
  if (!parameters.empty()) settings.params = compact_json(parameters);
  return settings;
}

using PullField = Field<OllamaPullRequest>;

constexpr auto kRead = [](const Json& v, OllamaPullRequest& r) {
  if (!v.get_ref<const std::string&>().empty()) r.model = as_text(v);
};
constexpr std::array kPullFields = {
    PullField{.name = "model", .kind = FieldKind::text, .help = "a model of the registry, as name:tag", .read = kRead},
    PullField{.name = "name", .kind = FieldKind::text, .help = "the same, in older clients", .read = kRead},
    PullField{.name = "stream",
              .kind = FieldKind::boolean,
              .help = "lines of news; else the end alone",
              .read = [](const Json& v, OllamaPullRequest& r) { r.stream = as_flag(v); }},
    PullField{.name = "insecure", .kind = FieldKind::refused, .help = "the server's settings name the registry"},
    PullField{.name = "username", .kind = FieldKind::refused, .help = "models are pulled without an account"},
    PullField{.name = "password", .kind = FieldKind::refused, .help = "models are pulled without an account"},
};

using CreateField = Field<OllamaCreateRequest>;

constexpr auto kName = [](const Json& v, OllamaCreateRequest& r) {
  if (!v.get_ref<const std::string&>().empty()) r.model = as_text(v);
};
constexpr std::array kCreateFields = {
    CreateField{.name = "model", .kind = FieldKind::text, .help = "what it is called", .read = kName},
    CreateField{.name = "name", .kind = FieldKind::text, .help = "the same, in older clients", .read = kName},
    CreateField{.name = "from",
                .kind = FieldKind::text,
                .help = "the model whose weights it has, by name",
                .read = [](const Json& v, OllamaCreateRequest& r) { r.from = as_text(v); }},
    CreateField{.name = "system",
                .kind = FieldKind::text,
                .help = "what a conversation begins with",
                .read = [](const Json& v, OllamaCreateRequest& r) { r.system = as_text(v); }},
    CreateField{.name = "template",
                .kind = FieldKind::text,
                .help = "a Jinja template",
                .read = [](const Json& v, OllamaCreateRequest& r) { r.template_text = as_text(v); }},
    CreateField{.name = "parameters",
                .help = "what options of a request say otherwise",
                .read =
                    [](const Json& v, OllamaCreateRequest& r) {
                      if (!v.is_object()) throw invalid_field("parameters", "'parameters' must be an object");
                      for (const auto& [name, value] : v.items()) {
                        // As good as absent: the other model's stays.
                        if (!value.is_null() && value != "") r.parameters[name] = value;
                      }
                    },
                .schema = ollama_options_schema},
    CreateField{.name = "license",
                .help = "a text or several",
                .read = read_license,
                .schema = [] { return schema::either({schema::text(), schema::list(schema::text())}); }},
    CreateField{.name = "modelfile",
                .kind = FieldKind::text,
                .help = "all of it as the text of a Modelfile"},  // read behind all others
    CreateField{.name = "stream",
                .kind = FieldKind::boolean,
                .help = "lines of news; else the end alone",
                .read = [](const Json& v, OllamaCreateRequest& r) { r.stream = as_flag(v); }},
    CreateField{.name = "files", .kind = FieldKind::refused, .help = "'from' names a model; files are not sent"},
    CreateField{.name = "adapters", .kind = FieldKind::refused, .help = "models run without adapters"},
    CreateField{.name = "messages", .kind = FieldKind::refused, .help = "'system' is what a conversation begins with"},
    CreateField{.name = "quantize", .kind = FieldKind::refused, .help = "`quarrel quantize` does that"},
    CreateField{.name = "quantization", .kind = FieldKind::refused, .help = "`quarrel quantize` does that"},
    CreateField{.name = "path", .kind = FieldKind::refused, .help = "models are named, never by a path"},
    CreateField{.name = "renderer", .kind = FieldKind::refused, .help = "the model's template writes prompts"},
    CreateField{.name = "parser", .kind = FieldKind::refused, .help = "answers are told as the model writes them"},
    CreateField{.name = "requires", .kind = FieldKind::refused, .help = "there are no versions of Ollama here"},
    CreateField{.name = "remote_host", .kind = FieldKind::refused, .help = "models run here, on no other host"},
    CreateField{.name = "info", .kind = FieldKind::refused, .help = "a model is what its file says"},
};

}  // namespace

Json ollama_pull_schema() { return schema::request_of<OllamaPullRequest>("OllamaPullRequest", {}, kPullFields); }

OllamaPullRequest read_ollama_pull(const Json& body) {
  OllamaPullRequest request;
  read_fields<OllamaPullRequest>(body, kPullFields, request);
  require_same_text(body, "model", "name");
  if (request.model.empty()) throw invalid_field("model", "'model' is missing");
  if (!OllamaName::parse(request.model)) {
    throw invalid_field("model",
                        fmt::format("'{}' is not the name of a model in a registry", printable(request.model)));
  }
  return request;
}

Json ollama_create_schema() {
  return schema::request_of<OllamaCreateRequest>("OllamaCreateRequest", {}, kCreateFields);
}

OllamaCreateRequest read_ollama_create(const Json& body) {
  OllamaCreateRequest request;
  read_fields<OllamaCreateRequest>(body, kCreateFields, request);
  require_same_text(body, "model", "name");
  if (body.contains("modelfile") && body["modelfile"].is_string()) read_modelfile_into(body["modelfile"], request);
  if (request.model.empty()) throw invalid_field("model", "'model' is missing");
  if (request.from.empty()) throw invalid_field("from", "'from' is missing: it names the model to begin with");
  check_ollama_options(request.parameters);
  if (request.template_text) check_template(*request.template_text);
  return request;
}

void ollama_pull(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OllamaPullRequest request = read_ollama_pull(parse_body(exchange->request().body));
  const OllamaName name = *OllamaName::parse(request.model);
  require_may_make(service, pulled_name(name), *caller_of(*exchange));
  require_stores(service);
  check_registry(service.pull_settings(), name);
  const auto call = std::make_shared<PullCall>();
  exchange->on_closed([call] { call->stop(); });
  service.sockets().watch(call, caller_of(*exchange));
  const std::weak_ptr<Exchange> weak = exchange;
  const bool started = service.jobs().start([&service, weak, request, name, call](const std::stop_token& ending) {
    const std::stop_callback on_ending(ending, [call] { call->end_with_server(); });
    std::shared_ptr<Exchange> held = weak.lock();
    if (held == nullptr) return;
    const std::string id = held->request().id;
    ProgressStream news(held, request.stream);
    held.reset();
    pull(service, news, name, id, *call);
  });
  if (!started) throw ApiError(503, "unavailable_error", "queue_full", "too many pulls are running");
}

void ollama_create(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OllamaCreateRequest request = read_ollama_create(parse_body(exchange->request().body));
  const std::string name(without_tag(request.model));
  require_may_make(service, name, *caller_of(*exchange));
  require_stores(service);
  const ResolvedModel from = service.resolve(find_ollama_model(service, request.from, *caller_of(*exchange)));
  check_stored_context(service, request, name, from);
  const std::string digest = known_digest(from.path);
  service.store().create(name, from, settings_of(request, from));
  service.replaced(name);
  ProgressStream news(exchange, request.stream);
  news.tell({{"status", "using existing layer" + (digest.empty() ? "" : " sha256:" + digest)}});
  news.tell({{"status", "writing manifest"}});
  news.end({{"status", "success"}});
}

void ollama_push(Service&, const std::shared_ptr<Exchange>&) {
  throw invalid_request("unsupported", "pushing a model to a registry is not offered");
}

}  // namespace quarrel

#include <utility>

#include "server/native_request.h"
#include "server/ollama_request.h"
#include "server/operation.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using namespace schema;

constexpr std::string_view kNativeTag = "Quarrel";
constexpr std::string_view kHealthTag = "Health";
constexpr std::string_view kDocumentTag = "Documentation";
constexpr std::string_view kPageTag = "Page";

Json generate_answer() {
  return named("GenerateAnswer",
               object({{"text", text()},
                       {"tokens_generated", integer()},
                       {"tokens_per_sec", number()},
                       {"finish_reason", one_of({"stop", "length", "context"}, "why the answer ends")},
                       {"model", text()},
                       {"prompt_tokens", integer()},
                       {"sources", sources_schema(), false}}));
}

Json question() { return {{"prompt", "Explain quantum computing"}, {"max_tokens", 100}}; }

Json status() { return named("Status", object({{"status", text()}})); }

// Also that another connection has taken the answer up before it had begun here.
std::vector<Operation::Failure> stream_errors() {
  std::vector<Operation::Failure> errors = store_errors();
  errors.push_back({409});
  return errors;
}

Operation::Header last_event(bool required) {
  Json id = text(required ? "the id of any of the answer's events" : "the id of the last event that came");
  id["pattern"] = required ? "^[0-9a-f]{32}:[0-9]+$" : "^([0-9a-f]{32}:[0-9]+)?$";  // an empty one is none
  return {"Last-Event-ID", std::move(id), required};
}

Json health_schema() {
  return named("Health",
               object({{"status", one_of({"ok", "stuck", "device_lost"}, "anything but ok comes with 503")},
                       {"version", text()},
                       {"uptime", text("as 1d 2h 3m 4s")},
                       {"timestamp", text("RFC 3339, in UTC")},
                       {"checks", object({{"server", status()}, {"engine", status()}, {"device", status()}})}}));
}

Operation health_at(std::string_view id) {
  return {.id = id,
          .tag = kHealthTag,
          .description =
              "503 where an engine has had something to do for 30 seconds and does not get on with it, or "
              "where the device is lost.",
          .answers = {{.schema = health_schema()}},
          .errors = {{503, health_schema()}}};
}

Operation file_at(std::string_view id, std::string_view media_type) {
  return {.id = id, .tag = kDocumentTag, .answers = {{.media_type = media_type, .schema = text()}}};
}

}  // namespace

Operation describe_shared_generate() {
  return {
      .id = "generate",
      .tag = kNativeTag,
      .description =
          "A body with `max_tokens`, `temperature`, `topk` or `topp` at its top, or without `model`, is Quarrel's own "
          "form and gets its answer; any other is Ollama's and gets lines of JSON, or one object with "
          "`\"stream\": false`.",
      .body = either({native_request_schema(), ollama_generate_schema()}),
      .example = question(),
      .queued = true,
      .answers = {{.schema = either({generate_answer(), ollama_generate_answer_schema()})},
                  {.media_type = "application/x-ndjson", .schema = text()}},
      .errors = store_errors()};
}

Operation describe_native_generate() {
  return {.id = "nativeGenerate",
          .tag = kNativeTag,
          .description = "Give either `prompt` or `messages`.",
          .body = native_request_schema(),
          .example = question(),
          .queued = true,
          .answers = {{.schema = generate_answer()}},
          .errors = store_errors()};
}

Operation describe_native_stream() {
  return {
      .id = "stream",
      .tag = kNativeTag,
      .description =
          "Server-sent events with `token`, `token_id`, `stream`, `complete` and `tokens_per_sec`; the last "
          "one is complete and has the `finish_reason`. With `resume` each event has an id, and the same request with "
          "the last of them as Last-Event-ID gets the rest after a lost connection; 204 where nothing is left. With "
          "`progress` events of the type `status` tell before how much of the prompt is read. An answer that fails "
          "once "
          "it has begun ends with an event of the type `error`: what the body of an error is.",
      .body = native_request_schema(),
      .body_required = false,  // with Last-Event-ID
      .example = question(),
      .queued = true,
      .headers = {last_event(false)},
      .answers = {{.media_type = "text/event-stream", .schema = schema::event()}, {.media_type = {}, .status = 204}},
      .errors = stream_errors()};
}

Operation describe_stop_stream() {
  return {.id = "stopStream",
          .tag = kNativeTag,
          .body = nothing(),
          .body_required = false,
          .headers = {last_event(true)},
          .answers = {{.schema = status()}},
          .errors = {{404}}};
}

Operation describe_websocket() {
  return {.id = "websocket",
          .tag = kNativeTag,
          .description =
              "Messages are `{\"type\", \"id\", \"payload\"}`; the payload of `inference` is what /api/stream "
              "takes.",
          .queued = true,
          .answers = {{.media_type = {}, .status = 101}},
          .errors = {{426}}};
}

Operation describe_health() { return health_at("health"); }
Operation describe_v1_health() { return health_at("v1Health"); }
Operation describe_api_health() { return health_at("apiHealth"); }
Operation describe_healthz() { return health_at("healthz"); }

Operation describe_readiness() {
  return {.id = "readiness", .tag = kHealthTag, .answers = {{.schema = status()}}, .errors = {{503, status()}}};
}

Operation describe_metrics() {
  return {.id = "metrics", .tag = kHealthTag, .answers = {{.media_type = "text/plain", .schema = text()}}};
}
Operation describe_metrics_json() {
  return {.id = "metricsJson", .tag = kHealthTag, .answers = {{.schema = Json{{"type", "object"}}}}};
}

Operation describe_version() {
  return {.id = "version",
          .tag = kHealthTag,
          .answers = {{.schema = named("Version", object({{"version", text()},
                                                          {"commit", text()},
                                                          {"build", text()},
                                                          {"backends", list(text())},
                                                          {"role", one_of({"use", "admin"})}}))}}};
}

Operation describe_openapi_json() {
  return {.id = "openapiJson", .tag = kDocumentTag, .answers = {{.schema = Json{{"type", "object"}}}}};
}
Operation describe_openapi_yaml() {
  return {.id = "openapiYaml", .tag = kDocumentTag, .answers = {{.media_type = "application/yaml"}}};
}
Operation describe_docs() { return file_at("docs", "text/html"); }
Operation describe_docs_script() { return file_at("docsScript", "text/javascript"); }
Operation describe_docs_style() { return file_at("docsStyle", "text/css"); }

Operation describe_page_root() {
  return {.id = "pageRoot",
          .tag = kPageTag,
          .description = "A client that does not accept `text/html`, and a `HEAD`, gets `Ollama is running`.",
          .answers = {{.media_type = "text/html"}, {.media_type = "text/plain", .schema = text()}}};
}
Operation describe_page_status() {
  return {.id = "pageStatus", .tag = kPageTag, .answers = {{.media_type = "text/html"}}};
}
Operation describe_page_embeddings() {
  return {.id = "pageEmbeddings", .tag = kPageTag, .answers = {{.media_type = "text/html"}}};
}
Operation describe_page_asset() {
  return {.id = "pageAsset",
          .tag = kPageTag,
          .answers = {{.media_type = "text/javascript"}, {.media_type = "text/css"}, {.media_type = "image/svg+xml"}},
          .errors = {{404}}};
}

}  // namespace quarrel

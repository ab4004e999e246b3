#include "server/ollama_api.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/clock.h"
#include "server/admission.h"
#include "server/embedding_call.h"
#include "server/generation_call.h"
#include "server/ollama_models.h"
#include "server/ollama_request.h"
#include "server/ollama_writer.h"

namespace quarrel {
namespace {

using http::Exchange;

// Of Ollama, whose API is spoken here: the one that brought the newest field that is answered, `logprobs`. Clients
// compare it, part by part as numbers: VS Code's Copilot wants 0.6.4 or later. GET /version tells our own.
constexpr std::string_view kSpokenVersion = "0.12.11";

// How long a model stays is its server's own affair: of those who may only use it, it is passed over. Clients send it
// unasked.
AcquireOptions acquire_options(const Caller& caller, const KeepAlive& keep_alive) {
  if (caller.role != Role::admin) return {};
  return {.keep_alive = keep_alive};
}

// A request without a question: the model is loaded, or unloaded where it is not to be kept.
void answer_idle(Service& service, const std::shared_ptr<Exchange>& exchange, OllamaForm form,
                 const OllamaRequest& request, const OfferedModel& model) {
  require_admin(*caller_of(*exchange));
  if (request.keep_alive && request.keep_alive->count() == 0) {
    service.registry().unload(model.name);  // who uses it keeps it until the end; nobody waits for that here
    exchange->respond({.body = ollama_idle_answer(form, request.model, "unload")});
    return;
  }
  const auto respond = [form, name = request.model](std::span<const Embedding>, double) {
    return http::Response{.body = ollama_idle_answer(form, name, "load")};
  };
  start_embedding_call(service, exchange, model, {.acquire = {.keep_alive = request.keep_alive}},
                       {.respond = respond, .fail = plain_error});
}

void generate(Service& service, const std::shared_ptr<Exchange>& exchange, OllamaForm form, OllamaRequest request) {
  const OfferedModel model = find_ollama_model(service, request.model, *caller_of(*exchange));
  if (request.model.empty()) request.model = model.name;
  if (request.prompt.empty() && request.messages.empty()) return answer_idle(service, exchange, form, request, model);
  auto writer = make_ollama_writer(exchange, form, request);
  const AcquireOptions acquire = acquire_options(*caller_of(*exchange), request.keep_alive);
  serve_generation(service, exchange, model,
                   [request = std::move(request)](const LoadedModel& loaded) { return ask_of(request, loaded); },
                   std::move(writer), {.acquire = acquire});
}

// Without a text the model is only loaded.
EmbeddingAsk ask_of(OllamaEmbedRequest request, bool normalize, const Caller& caller) {
  if (request.inputs.empty()) require_admin(caller);
  EmbeddingAsk ask{.truncate = request.truncate, .acquire = acquire_options(caller, request.keep_alive)};
  ask.options = {.normalize = normalize, .dimensions = request.dimensions, .priority = Priority::batch};
  for (std::string& text : request.inputs) ask.inputs.emplace_back(std::move(text));
  return ask;
}

std::string embed_body(const std::string& model, std::span<const Embedding> embeddings, double seconds,
                       double load_seconds) {
  std::string body = "{\"model\":";
  append_json_string(body, model);
  body += ",\"embeddings\":[";
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    if (i > 0) body.push_back(',');
    append_json_vector(body, embeddings[i].values);
    tokens += embeddings[i].tokens;
  }
  body += fmt::format("],\"total_duration\":{},\"load_duration\":{},\"prompt_eval_count\":{}}}",
                      std::llround(seconds * 1e9), std::llround(load_seconds * 1e9), tokens);
  return body;
}

}  // namespace

void ollama_generate(Service& service, const std::shared_ptr<Exchange>& exchange, const Json& body) {
  generate(service, exchange, OllamaForm::generate, read_ollama_generate(body));
}

void ollama_chat(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, OllamaForm::chat, read_ollama_chat(parse_body(exchange->request().body)));
}

void ollama_embed(Service& service, const std::shared_ptr<Exchange>& exchange) {
  OllamaEmbedRequest request = read_ollama_embed(parse_body(exchange->request().body));
  const OfferedModel model = find_ollama_model(service, request.model, *caller_of(*exchange));
  const std::string name = request.model.empty() ? model.name : request.model;
  const auto respond = [name, asked = Clock::now()](std::span<const Embedding> embeddings, double load_seconds) {
    return http::Response{.body = embed_body(name, embeddings, seconds_since(asked), load_seconds)};
  };
  start_embedding_call(service, exchange, model, ask_of(std::move(request), true, *caller_of(*exchange)),
                       {.respond = respond, .fail = plain_error});
}

void ollama_embeddings(Service& service, const std::shared_ptr<Exchange>& exchange) {
  OllamaEmbedRequest request = read_ollama_embeddings(parse_body(exchange->request().body));
  const OfferedModel model = find_ollama_model(service, request.model, *caller_of(*exchange));
  const auto respond = [](std::span<const Embedding> embeddings, double) {
    std::string body = "{\"embedding\":";
    append_json_vector(body, embeddings.empty() ? std::span<const float>() : embeddings.front().values);
    return http::Response{.body = body + "}"};
  };
  start_embedding_call(service, exchange, model, ask_of(std::move(request), false, *caller_of(*exchange)),
                       {.respond = respond, .fail = plain_error});
}

void ollama_root(Service&, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.content_type = "text/plain; charset=utf-8", .body = "Ollama is running"});
}

void ollama_version(Service&, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = fmt::format("{{\"version\":\"{}\"}}", kSpokenVersion)});
}

}  // namespace quarrel

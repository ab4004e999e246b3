#include "server/openai_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "server/base64.h"
#include "server/embedding_call.h"
#include "server/model_abilities.h"
#include "server/openai_request.h"
#include "server/openai_writer.h"
#include "server/retrieval.h"
#include "server/routes.h"
#include "server/store_texts.h"

namespace quarrel {
namespace {

using http::Exchange;

// What an answer calls its model: a program may look for the name that it sent.
std::string as_asked(const std::string& name, const OfferedModel& model) { return name.empty() ? model.name : name; }

void generate(Service& service, const std::shared_ptr<Exchange>& exchange, OpenAiForm form, OpenAiRequest request) {
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  request.ask.priority = request.stream ? Priority::interactive : Priority::normal;
  const std::shared_ptr<Retrieval> retrieval =
      Retrieval::of(service, request.retrieval, request.messages, {}, *caller_of(*exchange));
  auto writer = make_openai_writer(
      exchange, form, request,
      {.model = as_asked(request.model, model), .fingerprint = "quarrel-" + service.program().version}, retrieval);
  CallOptions options{.before = retrieval, .further_prompts = further_prompts(request)};
  if (form == OpenAiForm::chat) options.prompt_field = "messages";
  MakeAsk make_ask = [request = std::move(request)](const LoadedModel& loaded) { return ask_of(request, loaded); };
  serve_generation(service, exchange, model, with_retrieval(retrieval, std::move(make_ask)), std::move(writer),
                   options);
}

// The whole answer; `name` is the model's.
std::string embeddings_body(std::span<const Embedding> embeddings, bool base64, std::string_view name) {
  std::string body = "{\"object\":\"list\",\"data\":[";
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < embeddings.size(); ++i) {
    const std::vector<float>& values = embeddings[i].values;
    body += fmt::format("{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i == 0 ? "" : ",", i);
    if (base64) {
      body += fmt::format("\"{}\"", to_base64(std::as_bytes(std::span(values))));
    } else {
      append_json_vector(body, values);
    }
    body.push_back('}');
    tokens += embeddings[i].tokens;
  }
  body += "],\"model\":";
  append_json_string(body, name);
  body += fmt::format(",\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}}}}", tokens);
  return body;
}

// What comes back goes into this dataset too, on its way.
constexpr const char* kStoreHeader = "x-quarrel-store";

// None: the header is not there. One that says nothing is a mistake, and not the same.
std::optional<std::string> store_address(const http::Request& request) {
  std::optional<std::string> address;
  for (const auto& [name, value] : request.headers) {
    if (!http::equals_ignoring_case(name, kStoreHeader)) continue;
    if (value.empty()) throw invalid_field(kStoreHeader, fmt::format("the header {} is empty", kStoreHeader));
    if (address) throw invalid_field(kStoreHeader, fmt::format("the header {} is there twice", kStoreHeader));
    address = value;
  }
  return address;
}

std::shared_ptr<StoreTexts> texts_to_store(Service& service, const std::string& address, const EmbeddingAsk& ask) {
  StoreTextsRequest storing{.to = service.stores().address(address, kStoreHeader), .options = ask.options};
  for (const auto& input : ask.inputs) {
    const std::string* text = std::get_if<std::string>(&input);
    if (text == nullptr || is_blank(*text)) {
      throw invalid_field("input", fmt::format("with {} each input is a text, neither tokens nor empty", kStoreHeader));
    }
    storing.texts.push_back({.text = *text});
  }
  return std::make_shared<StoreTexts>(service, std::move(storing));
}

// None of one whose file cannot be read now.
ModelAbilities abilities_of(const Service& service, const OfferedModel& model) {
  try {
    return read_abilities(service.resolve(model).path);
  } catch (const Error&) {
    return {};
  }
}

Json model_json(const Service& service, const OfferedModel& model, const std::vector<ModelRegistry::Status>& loaded) {
  Json json{{"id", model.name}, {"object", "model"}, {"created", model.created}, {"owned_by", "quarrel"}};
  const auto found = std::ranges::find(loaded, model.name, &ModelRegistry::Status::name);
  const char* status = "unloaded";
  if (found != loaded.end()) status = found->state == ModelRegistry::State::loading ? "loading" : "loaded";
  json["status"] = status;
  if (found != loaded.end() && found->context > 0) {
    json["context_length"] = found->context;
    json["max_model_len"] = found->context;  // where clients of vLLM look for it
  }
  json["size"] = model.bytes;
  if (!model.parameters.empty()) json["parameters"] = model.parameters;
  if (!model.quantisation.empty()) json["quantization"] = model.quantisation;
  const ModelAbilities abilities = abilities_of(service, model);
  json["capabilities"] = abilities.capabilities;
  if (abilities.trained_context > 0) {
    json["meta"] = {{"n_ctx_train", abilities.trained_context}};  // where clients of llama.cpp look for it
  }
  return json;
}

}  // namespace

void openai_chat(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, OpenAiForm::chat, read_chat_request(parse_body(exchange->request().body)));
}

void openai_completion(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, OpenAiForm::completion, read_completion_request(parse_body(exchange->request().body)));
}

void openai_embeddings(Service& service, const std::shared_ptr<Exchange>& exchange) {
  OpenAiEmbeddingRequest request = read_embedding_request(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  EmbeddingAsk ask{.inputs = std::move(request.inputs), .truncate = request.truncate};
  ask.options = {.normalize = request.normalize, .dimensions = request.dimensions, .priority = Priority::batch};
  const auto respond = [base64 = request.base64, name = as_asked(request.model, model)](
                           std::span<const Embedding> embeddings, double) {
    return http::Response{.body = embeddings_body(embeddings, base64, name)};
  };
  EmbeddingAnswer answer{.respond = respond, .fail = openai_error};
  if (const auto store = store_address(exchange->request())) {
    answer.store =
        store_work(service, texts_to_store(service, *store, ask),
                   [respond](std::span<const Embedding> embeddings, const IngestReport& report) {
                     http::Response response = respond(embeddings, 0.0);
                     response.headers.emplace_back("x-quarrel-stored", fmt::format("{}", report.progress.sent));
                     return response;
                   });
  }
  start_embedding_call(service, exchange, model, std::move(ask), std::move(answer));
}

void openai_models(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::vector<ModelRegistry::Status> loaded = service.registry().list();
  Json list = Json::array();
  for (const OfferedModel& model : service.models(*caller_of(*exchange))) {
    list.push_back(model_json(service, model, loaded));
  }
  exchange->respond({.body = compact_json(Json{{"object", "list"}, {"data", list}})});
}

void openai_model(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const OfferedModel model =
      service.find(route_argument(exchange->request().method, exchange->request().path), *caller_of(*exchange));
  exchange->respond({.body = compact_json(model_json(service, model, service.registry().list()))});
}

}  // namespace quarrel

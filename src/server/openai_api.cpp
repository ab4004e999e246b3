#include "server/openai_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "server/base64.h"
#include "server/openai_request.h"
#include "server/openai_writer.h"
#include "session/embedding.h"

namespace quarrel {
namespace {

using http::Exchange;

void generate(Service& service, const std::shared_ptr<Exchange>& exchange, OpenAiForm form, OpenAiRequest request) {
  const OfferedModel model = service.find(request.model);
  request.ask.priority = request.stream ? Priority::interactive : Priority::normal;
  auto writer = make_openai_writer(form, request, {.model = model.name, .fingerprint = "quarrel-" + service.version()});
  start_generation(
      service, exchange, model,
      [request = std::move(request)](const LoadedModel& loaded) { return ask_of(request, loaded); }, std::move(writer));
}

void append_vector(std::string& body, const std::vector<float>& values, bool base64) {
  if (base64) {
    body.push_back('"');
    body += to_base64(std::as_bytes(std::span(values)));
    body.push_back('"');
    return;
  }
  body.push_back('[');
  char digits[32];
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) body.push_back(',');
    body.append(digits, std::to_chars(digits, digits + sizeof digits, values[i]).ptr);
  }
  body.push_back(']');
}

// Texts on their way to vectors; the exchange owns it.
class EmbeddingCall : public std::enable_shared_from_this<EmbeddingCall> {
 public:
  EmbeddingCall(Service& service, std::weak_ptr<Exchange> exchange, OpenAiEmbeddingRequest request, std::string name)
      : service_(service), exchange_(std::move(exchange)), request_(std::move(request)), name_(std::move(name)) {}
  ~EmbeddingCall() { ticket_.cancel(); }

  void acquire(const OfferedModel& model) {
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    ModelRegistry::Ticket ticket =
        service_.acquire(model, [weak, &service = service_](ModelRegistry::Lease lease, std::exception_ptr error) {
          service.run_text_work([weak, lease = std::move(lease), error] {
            if (const auto self = weak.lock()) self->acquired(lease, error);
          });
        });
    const std::scoped_lock lock(mutex_);
    ticket_ = std::move(ticket);
  }

 private:
  void acquired(const ModelRegistry::Lease& model, const std::exception_ptr& error) {
    if (error != nullptr) return report(load_error(error), error);
    try {
      start(model);
    } catch (...) {
      report(api_error(std::current_exception()), std::current_exception());
    }
  }

  void start(const ModelRegistry::Lease& model) {
    std::vector<std::vector<TokenId>> texts;
    for (std::size_t i = 0; i < request_.inputs.size(); ++i) {
      if (const auto* ids = std::get_if<std::vector<TokenId>>(&request_.inputs[i])) {
        texts.push_back(*ids);
        continue;
      }
      EncodedText encoded = encode_text(*model, std::get<std::string>(request_.inputs[i]));
      if (encoded.cut && !request_.truncate) {
        throw invalid_field("input",
                            fmt::format("text {} has {} tokens and the model takes {}: send \"truncate\": true "
                                        "to have it cut",
                                        i, encoded.full_tokens, longest_embedded_text(*model)));
      }
      texts.push_back(std::move(encoded.tokens));
    }
    const EmbeddingOptions options{
        .normalize = request_.normalize, .dimensions = request_.dimensions, .priority = Priority::batch};
    const std::weak_ptr<EmbeddingCall> weak = weak_from_this();
    const std::scoped_lock lock(mutex_);
    run_ = start_embedding(model, std::move(texts), options, [weak](EmbeddingOutcome outcome) {
      // An engine may outlive the service; a call that is still there does not.
      const std::shared_ptr<EmbeddingCall> call = weak.lock();
      if (call == nullptr) return;
      // Off the engine's thread: thousands of numbers become text.
      auto kept = std::make_shared<EmbeddingOutcome>(std::move(outcome));
      call->service_.run_text_work([weak, kept] {
        if (const auto self = weak.lock()) self->finish(*kept);
      });
    });
  }

  void finish(const EmbeddingOutcome& outcome) {
    if (outcome.error != nullptr) {
      report(api_error(outcome.error), outcome.error);
      return;
    }
    const std::shared_ptr<Exchange> exchange = exchange_.lock();
    if (exchange == nullptr) return;
    std::string body = "{\"object\":\"list\",\"data\":[";
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < outcome.embeddings.size(); ++i) {
      body += fmt::format("{}{{\"object\":\"embedding\",\"index\":{},\"embedding\":", i == 0 ? "" : ",", i);
      append_vector(body, outcome.embeddings[i].values, request_.base64);
      body.push_back('}');
      tokens += outcome.embeddings[i].tokens;
    }
    body += "],\"model\":";
    append_json_string(body, name_);
    body += fmt::format(",\"usage\":{{\"prompt_tokens\":{0},\"total_tokens\":{0}}}}}", tokens);
    exchange->respond({.body = std::move(body)});
  }

  void report(const ApiError& said, const std::exception_ptr& error) {
    const std::shared_ptr<Exchange> exchange = exchange_.lock();
    if (exchange == nullptr) return;
    log_fault(service_.log(), exchange->request().id, said, error);
    exchange->respond(openai_error(said));
  }

  Service& service_;
  const std::weak_ptr<Exchange> exchange_;
  const OpenAiEmbeddingRequest request_;
  const std::string name_;
  std::mutex mutex_;  // guards all below
  ModelRegistry::Ticket ticket_;
  EmbeddingRun run_;
};

Json model_json(const OfferedModel& model, const std::vector<ModelRegistry::Status>& loaded) {
  Json json{{"id", model.name}, {"object", "model"}, {"created", model.created}, {"owned_by", "quarrel"}};
  const auto found = std::ranges::find(loaded, model.name, &ModelRegistry::Status::name);
  const char* status = "unloaded";
  if (found != loaded.end()) status = found->state == ModelRegistry::State::loading ? "loading" : "loaded";
  json["status"] = status;
  json["size"] = model.bytes;
  if (!model.parameters.empty()) json["parameters"] = model.parameters;
  if (!model.quantisation.empty()) json["quantization"] = model.quantisation;
  return json;
}

// A file's name may be no UTF-8.
std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

void openai_chat(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, OpenAiForm::chat, read_chat_request(parse_body(exchange->request().body)));
}

void openai_completion(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, OpenAiForm::completion, read_completion_request(parse_body(exchange->request().body)));
}

void openai_embeddings(Service& service, const std::shared_ptr<Exchange>& exchange) {
  OpenAiEmbeddingRequest request = read_embedding_request(parse_body(exchange->request().body));
  const OfferedModel model = service.find(request.model);
  auto call = std::make_shared<EmbeddingCall>(service, exchange, std::move(request), model.name);
  exchange->keep(call);
  call->acquire(model);
}

void openai_models(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const std::vector<ModelRegistry::Status> loaded = service.registry().list();
  Json list = Json::array();
  for (const OfferedModel& model : service.models()) list.push_back(model_json(model, loaded));
  exchange->respond({.body = text_of(Json{{"object", "list"}, {"data", list}})});
}

void openai_model(Service& service, const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const OfferedModel model = service.find(exchange->request().path.substr(kPrefix.size()));
  exchange->respond({.body = text_of(model_json(model, service.registry().list()))});
}

}  // namespace quarrel

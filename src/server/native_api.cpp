#include "server/native_api.h"

#include <fmt/format.h>

#include <utility>

#include "server/generation_call.h"
#include "server/native_request.h"
#include "server/native_writer.h"
#include "server/ollama_api.h"

namespace quarrel {
namespace {

using http::Exchange;

// The whole answer as one object.
class NativeWriter final : public HttpAnswerWriter {
 public:
  NativeWriter(const std::shared_ptr<Exchange>& exchange, std::string model, std::shared_ptr<const Retrieval> retrieval)
      : HttpAnswerWriter(exchange), model_(std::move(model)), retrieval_(std::move(retrieval)) {}

  void send_head(Exchange&, const LoadedModel&, const Generations&) override {}

  void send_events(Exchange&, std::span<GenerationEvent> events) override {
    for (const GenerationEvent& event : events) {
      if (event.kind == GenerationEvent::Kind::finished) reason_ = reason_name(event.reason);
      if (event.kind == GenerationEvent::Kind::piece) text_ += event.text;
    }
  }

  void send_end(Exchange& exchange, const Usage& usage) override {
    std::string body = "{\"text\":";
    append_json_string(body, text_);
    body +=
        fmt::format(",\"tokens_generated\":{},\"tokens_per_sec\":{:.2f},\"finish_reason\":\"{}\",\"model\":",
                    usage.generated_tokens, tokens_per_second(usage.generated_tokens, usage.generate_seconds), reason_);
    append_json_string(body, model_);
    body += fmt::format(",\"prompt_tokens\":{}{}}}", usage.prompt_tokens, sources_member(retrieval_.get()));
    exchange.respond({.body = std::move(body)});
  }

  void send_error(Exchange& exchange, const ApiError& error) override { exchange.respond(plain_error(error)); }

 private:
  const std::string model_;
  const std::shared_ptr<const Retrieval> retrieval_;
  std::string text_;
  std::string reason_ = "stop";
};

void generate(Service& service, const std::shared_ptr<Exchange>& exchange, const Json& body) {
  NativeRequest request = read_native_request(body);
  if (request.stream.value_or(false)) {
    throw invalid_field("stream", "'stream' is false here: /api/stream answers token by token");
  }
  if (request.resume || request.reattach) {
    throw unsupported_field("resume", "'resume' is for answers token by token: /api/stream and /ws");
  }
  if (request.progress) {
    throw unsupported_field("progress", "'progress' is for answers token by token: /api/stream and /ws");
  }
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  const std::shared_ptr<Retrieval> retrieval = retrieval_for(service, request, *caller_of(*exchange));
  auto writer = std::make_unique<NativeWriter>(exchange, model.name, retrieval);
  const CallOptions options = native_call_options(request, retrieval);
  serve_generation(service, exchange, model, make_native_ask(std::move(request), Priority::normal, retrieval),
                   std::move(writer), options);
}

}  // namespace

void native_generate(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, parse_body(exchange->request().body));
}

void shared_generate(Service& service, const std::shared_ptr<Exchange>& exchange) {
  Json body = parse_body(exchange->request().body);
  const GenerateDialect dialect = service.generate_dialect();
  if (dialect == GenerateDialect::ollama) return ollama_generate(service, exchange, body);
  if (dialect == GenerateDialect::native) return generate(service, exchange, body);
  bool ours = !body.contains("model") || body["model"].is_null();
  for (const char* name : {"max_tokens", "temperature", "topk", "topp"}) {
    if (!body.contains(name)) continue;
    if (body[name].is_null()) {
      body.erase(name);  // as good as absent, and no field of Ollama's
    } else {
      ours = true;
    }
  }
  if (!ours) return ollama_generate(service, exchange, body);
  generate(service, exchange, body);
}

}  // namespace quarrel

#include "server/native_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "server/generation_call.h"
#include "server/ollama_api.h"
#include "server/question.h"
#include "server/schema.h"

namespace quarrel {
namespace {

using http::Exchange;

struct NativeRequest {
  std::string model = {};
  std::string prompt = {};
  Json messages = nullptr;
  RecommendedSampling options = {};  // comes in place of what the model's makers recommend
};

using NativeField = Field<NativeRequest>;
constexpr std::array kNativeFields = {
    NativeField{.name = "model",
                .kind = FieldKind::text,
                .help = "a name that GET /v1/models lists; without it, the server's default",
                .read = [](const Json& v, NativeRequest& r) { r.model = as_text(v); }},
    NativeField{.name = "prompt",
                .kind = FieldKind::text,
                .help = "what is to be answered",
                .read = [](const Json& v, NativeRequest& r) { r.prompt = as_text(v); }},
    NativeField{.name = "messages",
                .help = "a conversation, in place of a prompt",
                .read = [](const Json& v, NativeRequest& r) { r.messages = read_conversation(v); },
                .schema = conversation_schema},
    NativeField{.name = "temperature",
                .kind = FieldKind::number,
                .least = 0,
                .most = 2,
                .help = "how freely answers are drawn; 0: always the likeliest token",
                .read = [](const Json& v, NativeRequest& r) { r.options.temperature = as_float(v); }},
    NativeField{.name = "topk",
                .kind = FieldKind::integer,
                .least = 0,
                .most = kMostTokens,
                .help = "draws from this many of the likeliest tokens; 0: from all",
                .read = [](const Json& v, NativeRequest& r) { r.options.top_k = as_integer(v); }},
    NativeField{.name = "topp",
                .kind = FieldKind::number,
                .least = 0,
                .most = 1,
                .help = "draws from the likeliest tokens that together have this probability",
                .read = [](const Json& v, NativeRequest& r) { r.options.top_p = as_float(v); }},
    NativeField{.name = "minp",
                .kind = FieldKind::number,
                .least = 0,
                .most = 1,
                .help = "leaves out tokens less likely than this share of the likeliest one",
                .read = [](const Json& v, NativeRequest& r) { r.options.min_p = as_float(v); }},
    NativeField{.name = "repeat_penalty",
                .kind = FieldKind::number,
                .least = 0.01,
                .most = 10,
                .help = "makes tokens that came lately less likely; 1: not at all",
                .read = [](const Json& v, NativeRequest& r) { r.options.repeat_penalty = as_float(v); }},
    NativeField{.name = "max_tokens",
                .kind = FieldKind::integer,
                .least = -1,
                .most = kMostTokens,
                .help = "the answer's length; -1: until the context is full",
                .read = [](const Json& v, NativeRequest& r) { r.options.max_tokens = as_integer(v); }},
    NativeField{
        .name = "seed",
        .kind = FieldKind::integer,
        .least = 0,
        .most = kMostSeed,
        .help = "the same seed, the same answer",
        .read = [](const Json& v, NativeRequest& r) { r.options.seed = static_cast<std::uint64_t>(v.get<double>()); }},
    NativeField{.name = "stop",
                .help = "texts that end the answer before they come",
                .read = [](const Json& v, NativeRequest& r) { r.options.stop = read_stop_strings(v); },
                .schema = stop_strings_schema},
};

NativeRequest read_request(const Json& body) {
  NativeRequest request;
  read_fields<NativeRequest>(body, kNativeFields, request);
  if (request.messages.is_null() == request.prompt.empty()) {
    throw invalid_field("prompt", "either 'prompt' or 'messages' says what is to be answered");
  }
  return request;
}

// A prompt is a question to a model that can chat, and a text to continue for one that cannot, as `quarrel run` has it.
Ask ask_of(const NativeRequest& request, const LoadedModel& model) {
  Ask ask;
  if (!request.messages.is_null()) {
    ask.prompt = ChatInput{.messages = request.messages};
  } else if (model.chat_template() != nullptr) {
    ask.prompt = ChatInput{.messages = asked_by_user(request.prompt)};
  } else {
    ask.prompt = request.prompt;
  }
  apply_options(ask, request.options, model);
  return ask;
}

double tokens_per_second(std::size_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

class NativeWriter final : public HttpAnswerWriter {
 public:
  NativeWriter(const std::shared_ptr<Exchange>& exchange, bool stream, std::string model)
      : HttpAnswerWriter(exchange), stream_(stream), model_(std::move(model)) {}

  void send_head(Exchange& exchange, const LoadedModel&, const Generation&) override {
    if (!stream_) return;
    exchange.begin(http::stream_head("text/event-stream"));
  }

  void send_events(Exchange& exchange, std::span<GenerationEvent> events) override {
    std::string bytes;
    for (const GenerationEvent& event : events) {
      if (event.kind == GenerationEvent::Kind::finished) reason_ = reason_name(event.reason);
      if (event.kind != GenerationEvent::Kind::piece) continue;
      if (event.token >= 0 && tokens_++ == 0) first_ = Clock::now();
      if (stream_) {
        append_event(bytes, event.text, event.token, false);
      } else {
        text_ += event.text;
      }
    }
    if (!bytes.empty()) exchange.write(bytes);
  }

  void send_end(Exchange& exchange, const Usage& usage) override {
    if (stream_) {
      std::string bytes;
      append_event(bytes, "", -1, true);
      exchange.write(bytes);
      exchange.finish();
      return;
    }
    std::string body = "{\"text\":";
    append_json_string(body, text_);
    body +=
        fmt::format(",\"tokens_generated\":{},\"tokens_per_sec\":{:.2f},\"finish_reason\":\"{}\",\"model\":",
                    usage.generated_tokens, tokens_per_second(usage.generated_tokens, usage.generate_seconds), reason_);
    append_json_string(body, model_);
    body += fmt::format(",\"prompt_tokens\":{}}}", usage.prompt_tokens);
    exchange.respond({.body = std::move(body)});
  }

  void send_error(Exchange& exchange, const ApiError& error) override {
    if (!exchange.begun()) {
      exchange.respond(plain_error(error));
      return;
    }
    exchange.write("event: error\ndata: " + plain_error(error).body + "\n\n");
    exchange.finish();
  }

 private:
  void append_event(std::string& bytes, std::string_view text, TokenId token, bool complete) const {
    bytes += "data: {\"token\":";
    append_json_string(bytes, text);
    bytes += fmt::format(",\"token_id\":{},\"stream\":true,\"complete\":{},\"tokens_per_sec\":{:.2f}", token, complete,
                         tokens_per_second(tokens_, seconds_since(first_)));
    if (complete) bytes += fmt::format(",\"finish_reason\":\"{}\"", reason_);
    bytes += "}\n\n";
  }

  const bool stream_;
  const std::string model_;
  std::string text_;
  std::string reason_ = "stop";
  std::size_t tokens_ = 0;
  Clock::time_point first_ = Clock::now();
};

void generate(Service& service, const std::shared_ptr<Exchange>& exchange, const Json& body, bool stream) {
  NativeRequest request = read_request(body);
  const OfferedModel model = service.find(request.model, *caller_of(*exchange));
  auto writer = std::make_unique<NativeWriter>(exchange, stream, model.name);
  serve_generation(
      service, exchange, model,
      [request = std::move(request), stream](const LoadedModel& loaded) {
        Ask ask = ask_of(request, loaded);
        ask.priority = stream ? Priority::interactive : Priority::normal;
        return ask;
      },
      std::move(writer));
}

}  // namespace

Json native_request_schema() { return schema::request_of<NativeRequest>("GenerateRequest", {}, kNativeFields); }

void native_generate(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, parse_body(exchange->request().body), false);
}

void shared_generate(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const Json body = parse_body(exchange->request().body);
  const auto has = [&](const char* name) { return body.contains(name); };
  const GenerateDialect dialect = service.generate_dialect();
  if (dialect == GenerateDialect::ollama) return ollama_generate(service, exchange, body);
  if (dialect == GenerateDialect::native) return generate(service, exchange, body, false);
  if (has("model") && !has("max_tokens") && !has("temperature") && !has("topk") && !has("topp")) {
    return ollama_generate(service, exchange, body);
  }
  generate(service, exchange, body, false);
}

void native_stream(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, parse_body(exchange->request().body), true);
}

void health(Service&, const std::shared_ptr<Exchange>& exchange) { exchange->respond({.body = "{\"status\":\"ok\"}"}); }

void readiness(Service& service, const std::shared_ptr<Exchange>& exchange) {
  if (service.ready()) {
    exchange->respond({.body = "{\"status\":\"ready\"}"});
  } else {
    exchange->respond({.status = 503, .headers = {{"Retry-After", "5"}}, .body = "{\"status\":\"draining\"}"});
  }
}

void version(Service& service, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond({.body = Json{{"version", service.version()}}.dump()});
}

}  // namespace quarrel

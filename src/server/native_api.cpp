#include "server/native_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/clock.h"
#include "server/generation_call.h"
#include "server/ollama_api.h"
#include "server/openai_request.h"

namespace quarrel {
namespace {

using http::Exchange;

struct NativeRequest {
  std::string model = {};
  std::string prompt = {};
  Json messages = nullptr;
  std::optional<float> temperature = {}, top_p = {}, min_p = {}, repeat_penalty = {};
  std::optional<std::int32_t> top_k = {}, max_tokens = {};
  std::optional<std::uint64_t> seed = {};
  std::vector<std::string> stop = {};
};

NativeRequest read_request(const Json& body) {
  using NativeField = Field<NativeRequest>;
  static constexpr std::array kFields = {
      NativeField{.name = "model",
                  .kind = FieldKind::text,
                  .read = [](const Json& v, NativeRequest& r) { r.model = v.get<std::string>(); }},
      NativeField{.name = "prompt",
                  .kind = FieldKind::text,
                  .read = [](const Json& v, NativeRequest& r) { r.prompt = v.get<std::string>(); }},
      NativeField{.name = "messages",
                  .read = [](const Json& v, NativeRequest& r) { r.messages = read_conversation(v); }},
      NativeField{.name = "temperature",
                  .kind = FieldKind::number,
                  .least = 0,
                  .most = 2,
                  .read = [](const Json& v, NativeRequest& r) { r.temperature = v.get<float>(); }},
      NativeField{
          .name = "topk",
          .kind = FieldKind::integer,
          .least = 0,
          .most = 1 << 30,
          .read = [](const Json& v, NativeRequest& r) { r.top_k = static_cast<std::int32_t>(v.get<double>()); }},
      NativeField{.name = "topp",
                  .kind = FieldKind::number,
                  .least = 0,
                  .most = 1,
                  .read = [](const Json& v, NativeRequest& r) { r.top_p = v.get<float>(); }},
      NativeField{.name = "minp",
                  .kind = FieldKind::number,
                  .least = 0,
                  .most = 1,
                  .read = [](const Json& v, NativeRequest& r) { r.min_p = v.get<float>(); }},
      NativeField{.name = "repeat_penalty",
                  .kind = FieldKind::number,
                  .least = 0.01,
                  .most = 10,
                  .read = [](const Json& v, NativeRequest& r) { r.repeat_penalty = v.get<float>(); }},
      NativeField{
          .name = "max_tokens",
          .kind = FieldKind::integer,
          .least = -1,
          .most = 1 << 30,
          .read = [](const Json& v, NativeRequest& r) { r.max_tokens = static_cast<std::int32_t>(v.get<double>()); }},
      NativeField{
          .name = "seed",
          .kind = FieldKind::integer,
          .least = 0,
          .most = 9007199254740992.0,
          .read = [](const Json& v, NativeRequest& r) { r.seed = static_cast<std::uint64_t>(v.get<double>()); }},
      NativeField{.name = "stop",
                  .read =
                      [](const Json& v, NativeRequest& r) {
                        for (const Json& each : v.is_array() ? v : Json::array({v})) {
                          if (!each.is_string() || each.get<std::string>().empty() || r.stop.size() == 16) {
                            throw invalid_field("stop",
                                                "'stop' is a string or a list of at most 16, none of them empty");
                          }
                          r.stop.push_back(each.get<std::string>());
                        }
                      }},
  };
  NativeRequest request;
  read_fields<NativeRequest>(body, kFields, request);
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
    ask.prompt = ChatInput{.messages = Json::array({{{"role", "user"}, {"content", request.prompt}}})};
  } else {
    ask.prompt = request.prompt;
  }
  ask.sampling = default_sampling(model);
  if (request.temperature) ask.sampling.temperature = *request.temperature;
  if (request.top_p) ask.sampling.top_p = *request.top_p;
  if (request.min_p) ask.sampling.min_p = *request.min_p;
  if (request.top_k) ask.sampling.top_k = *request.top_k;
  if (request.repeat_penalty) ask.sampling.repeat_penalty = *request.repeat_penalty;
  ask.seed = request.seed ? request.seed : model.recommended().seed;
  ask.max_tokens = request.max_tokens.value_or(model.recommended().max_tokens.value_or(-1));
  ask.stop = request.stop.empty() ? model.recommended().stop : request.stop;
  return ask;
}

double tokens_per_second(std::size_t tokens, double seconds) {
  return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
}

class NativeWriter final : public AnswerWriter {
 public:
  NativeWriter(bool stream, std::string model) : stream_(stream), model_(std::move(model)) {}

  void begin(Exchange& exchange, const LoadedModel&, const Generation&) override {
    if (!stream_) return;
    exchange.begin(
        {.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}});
  }

  void take(Exchange& exchange, std::span<GenerationEvent> events) override {
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

  void end(Exchange& exchange, const Usage& usage) override {
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

  void fail(Exchange& exchange, const ApiError& error) override {
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
  const OfferedModel model = service.find(request.model);
  auto writer = std::make_unique<NativeWriter>(stream, model.name);
  start_generation(
      service, exchange, model,
      [request = std::move(request), stream](const LoadedModel& loaded) {
        Ask ask = ask_of(request, loaded);
        ask.priority = stream ? Priority::interactive : Priority::normal;
        return ask;
      },
      std::move(writer));
}

}  // namespace

void native_generate(Service& service, const std::shared_ptr<Exchange>& exchange) {
  generate(service, exchange, parse_body(exchange->request().body), false);
}

void shared_generate(Service& service, const std::shared_ptr<Exchange>& exchange) {
  const Json body = parse_body(exchange->request().body);
  const auto has = [&](const char* name) { return body.contains(name); };
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

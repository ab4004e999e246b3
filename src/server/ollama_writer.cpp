#include "server/ollama_writer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>

#include "base/clock.h"
#include "server/logprob_json.h"

namespace quarrel {
namespace {

using http::Exchange;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// Up to the text: the model as it was asked for, and now.
std::string opening(std::string_view model_json) {
  return fmt::format("{{\"model\":{},\"created_at\":\"{}\",", model_json, rfc3339(std::chrono::system_clock::now()));
}

void append_text(std::string& out, OllamaForm form, std::string_view text) {
  out += form == OllamaForm::chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"response\":";
  append_json_string(out, text);
  if (form == OllamaForm::chat) out += "}";
}

std::string json_string(std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return json;
}

// Ollama has two names for an answer that ended well.
std::string_view done_reason(FinishReason reason) noexcept { return reason == FinishReason::stop ? "stop" : "length"; }

class OllamaWriter final : public HttpAnswerWriter {
 public:
  OllamaWriter(const std::shared_ptr<Exchange>& exchange, OllamaForm form, const OllamaRequest& request)
      : HttpAnswerWriter(exchange),
        form_(form),
        stream_(request.stream),
        logprobs_(request.logprobs),
        top_logprobs_(request.top_logprobs > 0),
        with_context_(form == OllamaForm::generate && !request.raw),
        model_(json_string(request.model)) {}

  void send_head(Exchange& exchange, const LoadedModel& model, const Generation& generation) override {
    tokenizer_ = model.tokenizer();
    load_seconds_ = seconds_since(asked_);
    if (with_context_) context_.assign(generation.prompt().begin(), generation.prompt().end());
    if (!stream_) return;
    exchange.begin(http::stream_head("application/x-ndjson"));
  }

  void send_events(Exchange& exchange, std::span<GenerationEvent> events) override {
    std::string bytes;
    for (const GenerationEvent& event : events) {
      if (event.kind == GenerationEvent::Kind::finished) reason_ = done_reason(event.reason);
      if (event.kind != GenerationEvent::Kind::piece) continue;
      if (with_context_ && event.token >= 0) context_.push_back(event.token);
      if (logprobs_ && event.token >= 0 && !event.hidden) {
        if (!likely_.empty()) likely_.push_back(',');
        append_logprob(likely_, tokenizer_, event, top_logprobs_);
      }
      if (event.text.empty()) continue;
      if (!stream_) {
        text_ += event.text;
        continue;
      }
      bytes += opening(model_);
      append_text(bytes, form_, event.text);
      append_likely(bytes);
      bytes += ",\"done\":false}\n";
    }
    if (!bytes.empty()) exchange.write(bytes);
  }

  void send_end(Exchange& exchange, const Usage& usage) override {
    std::string body = opening(model_);
    append_text(body, form_, text_);
    append_likely(body);
    body += fmt::format(",\"done\":true,\"done_reason\":\"{}\"", reason_);
    if (with_context_) body += fmt::format(",\"context\":[{}]", fmt::join(context_, ","));
    body += fmt::format(
        ",\"total_duration\":{},\"load_duration\":{},\"prompt_eval_count\":{},\"prompt_eval_duration\":{},"
        "\"eval_count\":{},\"eval_duration\":{}}}",
        nanoseconds(seconds_since(asked_)), nanoseconds(load_seconds_), usage.prompt_tokens,
        nanoseconds(usage.prompt_seconds), usage.generated_tokens, nanoseconds(usage.generate_seconds));
    if (!stream_) {
      exchange.respond({.body = std::move(body)});
      return;
    }
    exchange.write(body + "\n");
    exchange.finish();
  }

  void send_error(Exchange& exchange, const ApiError& error) override {
    if (!exchange.begun()) {
      exchange.respond(plain_error(error));
      return;
    }
    exchange.write(plain_error(error).body + "\n");
    exchange.finish();
  }

 private:
  // Those of the tokens since the last ones.
  void append_likely(std::string& bytes) {
    if (likely_.empty()) return;
    bytes += fmt::format(",\"logprobs\":[{}]", likely_);
    likely_.clear();
  }

  const OllamaForm form_;
  const bool stream_;
  const bool logprobs_, top_logprobs_;
  const bool with_context_;  // the ids of the conversation go back to the client
  const std::string model_;  // as JSON
  const Clock::time_point asked_ = Clock::now();
  double load_seconds_ = 0.0;
  const Tokenizer* tokenizer_ = nullptr;  // the model's, which the generation holds
  std::string likely_;                    // entries of `logprobs`, with commas between them
  std::vector<TokenId> context_;
  std::string text_;
  std::string reason_ = "stop";
};

}  // namespace

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto rest = std::chrono::duration_cast<std::chrono::microseconds>(time - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     rest.count());
}

std::unique_ptr<AnswerWriter> make_ollama_writer(const std::shared_ptr<Exchange>& exchange, OllamaForm form,
                                                 const OllamaRequest& request) {
  return std::make_unique<OllamaWriter>(exchange, form, request);
}

std::string ollama_idle_answer(OllamaForm form, const std::string& model, std::string_view reason) {
  std::string body = opening(json_string(model));
  append_text(body, form, "");
  body += fmt::format(",\"done\":true,\"done_reason\":\"{}\"}}", reason);
  return body;
}

}  // namespace quarrel

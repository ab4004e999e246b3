#include "server/ollama_writer.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "base/clock.h"
#include "base/utc_time.h"
#include "server/json_text.h"
#include "server/logprob_json.h"

namespace quarrel {
namespace {

using http::Exchange;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// About what stands behind a line's beginning.
constexpr std::size_t kRestOfALine = 128;

// What stands around a line's time and text, the same for every line of an answer.
struct Frame {
  std::string before_time, before_text, after_text;

  Frame(OllamaForm form, std::string_view model)
      : before_time(fmt::format("{{\"model\":{},\"created_at\":\"", json_string(model))),
        before_text(form == OllamaForm::chat ? "\",\"message\":{\"role\":\"assistant\",\"content\":"
                                             : "\",\"response\":"),
        after_text(form == OllamaForm::chat ? "}" : "") {}

  void append(std::string& out, std::string_view text) const {
    out += before_time;
    append_rfc3339(out, std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now()), 6);
    out += before_text;
    append_json_string(out, text);
    out += after_text;
  }
};

// Ollama has two names for an answer that ended well.
std::string_view done_reason(FinishReason reason) noexcept { return reason == FinishReason::stop ? "stop" : "length"; }

class OllamaWriter final : public HttpAnswerWriter {
 public:
  OllamaWriter(const std::shared_ptr<Exchange>& exchange, OllamaForm form, const OllamaRequest& request)
      : HttpAnswerWriter(exchange),
        frame_(form, request.model),
        stream_(request.stream),
        logprobs_(request.logprobs),
        top_logprobs_(request.top_logprobs > 0),
        with_context_(form == OllamaForm::generate && !request.raw) {}

  void send_head(Exchange& exchange, const LoadedModel& model, const Generations& generations) override {
    tokenizer_ = model.tokenizer();
    load_seconds_ = seconds_since(asked_);
    if (with_context_) context_.assign(generations.prompt(0).begin(), generations.prompt(0).end());
    if (!stream_) return;
    exchange.begin(http::stream_head("application/x-ndjson"));
  }

  void send_events(Exchange& exchange, std::span<GenerationEvent> events) override {
    std::string bytes;
    if (stream_) bytes.reserve(events.size() * (frame_.before_time.size() + kRestOfALine));
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
      frame_.append(bytes, event.text);
      append_likely(bytes);
      bytes += ",\"done\":false}\n";
    }
    if (!bytes.empty()) exchange.write(bytes);
  }

  void send_end(Exchange& exchange, const Usage& usage) override {
    std::string body;
    frame_.append(body, text_);
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
    exchange.write(plain_error_body(error) + "\n");
    exchange.finish();
  }

 private:
  // Those of the tokens since the last ones.
  void append_likely(std::string& bytes) {
    if (likely_.empty()) return;
    bytes += fmt::format(",\"logprobs\":[{}]", likely_);
    likely_.clear();
  }

  const Frame frame_;
  const bool stream_;
  const bool logprobs_, top_logprobs_;
  const bool with_context_;  // the ids of the conversation go back to the client
  const Clock::time_point asked_ = Clock::now();
  double load_seconds_ = 0.0;
  const Tokenizer* tokenizer_ = nullptr;  // the model's, which the generation holds
  std::string likely_;                    // entries of `logprobs`, with commas between them
  std::vector<TokenId> context_;
  std::string text_;
  std::string reason_ = "stop";
};

}  // namespace

std::unique_ptr<AnswerWriter> make_ollama_writer(const std::shared_ptr<Exchange>& exchange, OllamaForm form,
                                                 const OllamaRequest& request) {
  return std::make_unique<OllamaWriter>(exchange, form, request);
}

std::string ollama_idle_answer(OllamaForm form, const std::string& model, std::string_view reason) {
  std::string body;
  Frame(form, model).append(body, "");
  body += fmt::format(",\"done\":true,\"done_reason\":\"{}\"}}", reason);
  return body;
}

}  // namespace quarrel

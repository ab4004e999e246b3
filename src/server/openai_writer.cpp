#include "server/openai_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <span>

#include "server/json_text.h"
#include "server/logprob_json.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

// About what stands behind a piece's opening.
constexpr std::size_t kRestOfAnEvent = 96;

std::string new_id(const char* prefix) {
  static constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 random(std::random_device{}());
  std::uniform_int_distribution<std::size_t> any(0, kLetters.size() - 1);
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id.push_back(kLetters[any(random)]);
  return id;
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// OpenAI has two names for an answer that ended well: one that the full context cut off is not over.
std::string_view openai_reason(FinishReason reason) noexcept {
  return reason == FinishReason::length || reason == FinishReason::context ? "length" : "stop";
}

// `hidden`: tokens of the answers' other channels.
std::string usage_json(const Usage& usage, std::size_t hidden) {
  return fmt::format(
      "{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{},\"prompt_tokens_details\":"
      "{{\"cached_tokens\":{}}},\"completion_tokens_details\":{{\"reasoning_tokens\":{}}}}}",
      usage.prompt_tokens, usage.generated_tokens, usage.prompt_tokens + usage.generated_tokens, usage.cached_tokens,
      hidden);
}

// In UTF-8.
std::size_t character_count(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u; }));
}

double rate(double count, double seconds) { return seconds > 0.0 ? count / seconds : 0.0; }

std::string timings_json(const Usage& usage) {
  const auto computed = static_cast<double>(usage.prompt_tokens - usage.cached_tokens);
  const auto generated = static_cast<double>(usage.generated_tokens);
  return fmt::format(
      "{{\"cache_n\":{},\"prompt_n\":{},\"prompt_ms\":{:.3f},\"prompt_per_second\":{:.3f},\"predicted_n\":{},"
      "\"predicted_ms\":{:.3f},\"predicted_per_second\":{:.3f}}}",
      usage.cached_tokens, usage.prompt_tokens - usage.cached_tokens, usage.prompt_seconds * 1000.0,
      rate(computed, usage.prompt_seconds), usage.generated_tokens, usage.generate_seconds * 1000.0,
      rate(generated, usage.generate_seconds));
}

class OpenAiWriter final : public HttpAnswerWriter {
 public:
  OpenAiWriter(const std::shared_ptr<http::Exchange>& exchange, OpenAiForm form, const OpenAiRequest& request,
               const AnswerNames& names, std::shared_ptr<const Retrieval> retrieval)
      : HttpAnswerWriter(exchange),
        retrieval_(std::move(retrieval)),
        form_(form),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_(request.logprobs),
        echo_(request.echo),
        to_a_prompt_(static_cast<std::size_t>(request.ask.answers)),
        echoed_(request.echo ? request.prompts.size() : 0),
        answers_(to_a_prompt_ * std::max<std::size_t>(1, request.prompts.size())) {
    head_ = fmt::format("{{\"id\":\"{}\",\"object\":\"{}\",\"created\":{},\"model\":",
                        new_id(chat() ? "chatcmpl-" : "cmpl-"), object_name(), unix_seconds());
    for (std::size_t i = 0; i < echoed_.size(); ++i) {
      if (const auto* text = std::get_if<std::string>(&request.prompts[i])) echoed_[i] = *text;
    }
    append_json_string(head_, names.model);
    head_ += ",\"system_fingerprint\":";
    append_json_string(head_, names.fingerprint);
    if (stream_) prepare_frames();
  }

  void send_head(http::Exchange& exchange, const LoadedModel& model, const Generations& generations) override {
    tokenizer_ = model.tokenizer();
    for (std::size_t i = 0; i < echoed_.size(); ++i) begin_with_prompt(i, generations.prompt(i));
    if (!stream_) return;
    exchange.begin(http::stream_head("text/event-stream"));
    std::string bytes;  // of all, in one piece: a client cannot read them as fast as they would come
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      if (chat()) bytes += chunk(i, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", "");
      if (const std::string& prompt = prompt_text(i); !prompt.empty()) append_piece(bytes, answers_[i], prompt);
    }
    if (!bytes.empty()) exchange.write(bytes);
  }

  void send_events(http::Exchange& exchange, std::span<GenerationEvent> events) override {
    std::string bytes;
    if (stream_) bytes.reserve(events.size() * (answers_.front().opening.size() + kRestOfAnEvent));
    for (const GenerationEvent& event : events) {
      if (event.kind == GenerationEvent::Kind::piece) {
        take_piece(event, bytes);
      } else if (event.kind == GenerationEvent::Kind::finished) {
        answer(event).reason = openai_reason(event.reason);
        if (stream_) bytes += last_chunk(event);
      } else if (event.kind == GenerationEvent::Kind::prompt_score) {
        take_prompt_score(event);
      }
    }
    if (!bytes.empty()) exchange.write(bytes);
  }

  void send_end(http::Exchange& exchange, const Usage& usage) override {
    if (stream_) {
      if (include_usage_) {
        exchange.write(fmt::format("data: {},\"choices\":[],\"usage\":{},\"timings\":{}}}\n\n", head_,
                                   usage_json(usage, hidden_tokens_), timings_json(usage)));
      }
      exchange.write("data: [DONE]\n\n");
      exchange.finish();
      return;
    }
    std::string body = head_ + ",\"choices\":[";
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      if (i > 0) body.push_back(',');
      append_choice(body, i);
    }
    body += fmt::format("],\"usage\":{},\"timings\":{}{}}}", usage_json(usage, hidden_tokens_), timings_json(usage),
                        sources_member(retrieval_.get()));
    exchange.respond({.body = std::move(body)});
  }

  void send_error(http::Exchange& exchange, const ApiError& error) override {
    if (!exchange.begun()) {
      exchange.respond(openai_error(error));
      return;
    }
    exchange.write("data: " + openai_error_body(error) + "\n\ndata: [DONE]\n\n");
    exchange.finish();
  }

 private:
  struct Answer {
    std::string opening = {};  // of its pieces, up to the text
    std::string text = {};
    std::string logprobs = {};  // entries, with commas between them
    std::string reason = {};
    // Of a completion's older form, lists that grow side by side.
    std::string tokens = {}, token_logprobs = {}, top_logprobs = {}, offsets = {};
    std::size_t characters = 0;  // of the text so far, the echoed prompt included
  };

  bool chat() const noexcept { return form_ == OpenAiForm::chat; }
  const char* object_name() const noexcept {
    if (!chat()) return "text_completion";
    return stream_ ? "chat.completion.chunk" : "chat.completion";
  }
  // Empty where it is not echoed.
  const std::string& prompt_text(std::size_t answer) const {
    static const std::string kNone;
    return echo_ ? echoed_[answer / to_a_prompt_] : kNone;
  }
  std::span<Answer> answers_to(std::size_t prompt) {
    return std::span(answers_).subspan(prompt * to_a_prompt_, to_a_prompt_);
  }

  // Of its tokens the first has no probability: nothing comes before it.
  void begin_with_prompt(std::size_t number, std::span<const TokenId> prompt) {
    std::string& text = echoed_[number];
    if (text.empty() && tokenizer_ != nullptr) text = to_valid_utf8(tokenizer_->decode(prompt));  // half characters
    for (Answer& to : answers_to(number)) {
      if (logprobs_ && !prompt.empty()) {
        append_json_string(to.tokens, to_valid_utf8(spelled(tokenizer_, prompt.front())));
        to.token_logprobs = to.top_logprobs = "null";
        to.offsets = "0";
        to.characters = characters_of(prompt.front());
      } else {
        to.characters = character_count(text);
      }
    }
  }

  // That begin with this token of a text: none with a control token, nor with the rest of one.
  std::size_t characters_of(TokenId token) const {
    return tokenizer_ == nullptr ? 0 : character_count(tokenizer_->decode(std::span(&token, 1)));
  }

  void take_prompt_score(const GenerationEvent& event) {
    for (Answer& to : answers_to(static_cast<std::size_t>(event.answer) / to_a_prompt_)) {
      append_logprob(to, event);
      to.characters += characters_of(event.token);
    }
  }

  Answer& answer(const GenerationEvent& event) { return answers_[static_cast<std::size_t>(event.answer)]; }

  std::string chunk(std::size_t index, std::string_view inside, std::string_view reason,
                    std::string_view more = {}) const {
    std::string text = fmt::format("data: {},\"choices\":[{{\"index\":{},{},\"finish_reason\":", head_, index, inside);
    text += reason.empty() ? "null" : fmt::format("\"{}\"", reason);
    text += include_usage_ ? "}],\"usage\":null" : "}]";
    text += more;
    text += "}\n\n";
    return text;
  }

  // The end of a chat has an empty delta.
  std::string last_chunk(const GenerationEvent& event) const {
    return chunk(static_cast<std::size_t>(event.answer),
                 chat() ? "\"delta\":{},\"logprobs\":null" : "\"text\":\"\",\"logprobs\":null",
                 openai_reason(event.reason), sources_member(retrieval_.get()));
  }

  // What stands around every piece of text, made once.
  void prepare_frames() {
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      answers_[i].opening = fmt::format("data: {},\"choices\":[{{\"index\":{},{}", head_, i,
                                        chat() ? "\"delta\":{\"content\":" : "\"text\":");
    }
    after_text_ = chat() ? "},\"logprobs\":" : ",\"logprobs\":";
    after_logprobs_ =
        include_usage_ ? ",\"finish_reason\":null}],\"usage\":null}\n\n" : ",\"finish_reason\":null}]}\n\n";
    after_text_alone_ = after_text_ + "null" + after_logprobs_;
  }

  void append_piece(std::string& bytes, const Answer& from, std::string_view text) const {
    bytes += from.opening;
    append_json_string(bytes, text);
    bytes += after_text_alone_;
  }

  void append_piece(std::string& bytes, const Answer& from, std::string_view text, std::string_view logprobs) const {
    bytes += from.opening;
    append_json_string(bytes, text);
    bytes += after_text_;
    bytes += logprobs;
    bytes += after_logprobs_;
  }

  void take_piece(const GenerationEvent& event, std::string& bytes) {
    Answer& to = answer(event);
    if (event.hidden && event.token >= 0) ++hidden_tokens_;
    if (logprobs_ && event.token >= 0 && !event.hidden) append_logprob(to, event);
    if (stream_) {
      if (event.text.empty() && to.logprobs.empty() && to.tokens.empty()) return;
      if (logprobs_) {
        append_piece(bytes, to, event.text, logprobs_json(to));
        to.logprobs.clear();
        to.tokens.clear(), to.token_logprobs.clear(), to.top_logprobs.clear(), to.offsets.clear();
      } else {
        append_piece(bytes, to, event.text);
      }
    } else {
      to.text += event.text;
    }
    to.characters += character_count(event.text);
  }

  void append_logprob(Answer& to, const GenerationEvent& event) const {
    if (chat()) {
      if (!to.logprobs.empty()) to.logprobs.push_back(',');
      quarrel::append_logprob(to.logprobs, tokenizer_, event, true);
      return;
    }
    const char* comma = to.tokens.empty() ? "" : ",";
    to.tokens += comma;
    append_json_string(to.tokens, to_valid_utf8(spelled(tokenizer_, event.token)));
    to.token_logprobs += fmt::format("{}{:.6g}", comma, finite_logprob(event.logprob));
    to.offsets += fmt::format("{}{}", comma, to.characters);
    to.top_logprobs += comma;
    to.top_logprobs += "{";
    for (std::size_t i = 0; i < event.top.size(); ++i) {
      if (i > 0) to.top_logprobs.push_back(',');
      append_json_string(to.top_logprobs, to_valid_utf8(spelled(tokenizer_, event.top[i].id)));
      to.top_logprobs += fmt::format(":{:.6g}", finite_logprob(event.top[i].logprob));
    }
    to.top_logprobs += "}";
  }

  std::string logprobs_json(const Answer& from) const {
    if (chat()) return fmt::format("{{\"content\":[{}],\"refusal\":null}}", from.logprobs);
    return fmt::format("{{\"tokens\":[{}],\"token_logprobs\":[{}],\"top_logprobs\":[{}],\"text_offset\":[{}]}}",
                       from.tokens, from.token_logprobs, from.top_logprobs, from.offsets);
  }

  void append_choice(std::string& body, std::size_t index) const {
    const Answer& from = answers_[index];
    body += fmt::format("{{\"index\":{},", index);
    if (chat()) {
      body += "\"message\":{\"role\":\"assistant\",\"content\":";
      append_json_string(body, from.text);
      body += ",\"refusal\":null}";
    } else {
      body += "\"text\":";
      append_json_string(body, prompt_text(index) + from.text);
    }
    body += fmt::format(",\"logprobs\":{},\"finish_reason\":\"{}\"}}", logprobs_ ? logprobs_json(from) : "null",
                        from.reason);
  }

  const std::shared_ptr<const Retrieval> retrieval_;
  const OpenAiForm form_;
  const bool stream_, include_usage_, logprobs_, echo_;
  std::string head_;  // of every chunk, up to its choices
  std::string after_text_, after_logprobs_;
  std::string after_text_alone_;          // the two with nothing between them
  const Tokenizer* tokenizer_ = nullptr;  // the model's, which the generation holds
  const std::size_t to_a_prompt_;         // answers
  std::vector<std::string> echoed_;       // the prompts, where answers begin with them
  std::vector<Answer> answers_;           // those to the first prompt first
  std::size_t hidden_tokens_ = 0;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_openai_writer(const std::shared_ptr<http::Exchange>& exchange, OpenAiForm form,
                                                 const OpenAiRequest& request, const AnswerNames& names,
                                                 std::shared_ptr<const Retrieval> retrieval) {
  return std::make_unique<OpenAiWriter>(exchange, form, request, names, std::move(retrieval));
}

}  // namespace quarrel

#include "server/answer_event.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "server/json_text.h"

namespace quarrel {
namespace {

template <typename Number>
void append_number(std::string& out, Number value) {
  const fmt::format_int digits(value);
  out.append(digits.data(), digits.size());
}

// With two digits behind the point, as integers: a double's own way takes longer than the rest of an event.
void append_hundredths(std::string& out, float value) {
  constexpr float kMost = 1e9f;
  const auto hundredths = static_cast<std::uint64_t>(std::llround(std::min(std::max(value, 0.0f), kMost) * 100.0));
  append_number(out, hundredths / 100);
  out.push_back('.');
  out.push_back(static_cast<char>('0' + hundredths / 10 % 10));
  out.push_back(static_cast<char>('0' + hundredths % 10));
}

}  // namespace

AnswerEvent failure_event(const ApiError& error) {
  return {.end = std::make_shared<const AnswerEnd>(AnswerEnd{.finish_reason = "error", .error = error})};
}

void AnswerReceiver::replaced() {
  const AnswerEvent event = failure_event({409, "", "connection_lost", "another connection has taken the answer up"});
  take(std::span(&event, 1), {});
}

Json queued_status(std::size_t ahead) { return {{"state", "queued"}, {"ahead", ahead}}; }

Json reading_status(std::size_t read, std::size_t prompt_tokens) {
  return {{"state", "reading"}, {"prompt_tokens", prompt_tokens}, {"prompt_tokens_read", read}};
}

void append_payload(std::string& out, const AnswerEvent& event, std::string_view resume) {
  out += "{\"token\":";
  append_json_string(out, event.text);
  out += ",\"token_id\":";
  append_number(out, event.token);
  if (event.end == nullptr) {
    out += ",\"stream\":true,\"complete\":false,\"tokens_per_sec\":";
  } else {
    out += event.end->whole ? ",\"stream\":false,\"complete\":true,\"tokens_per_sec\":"
                            : ",\"stream\":true,\"complete\":true,\"tokens_per_sec\":";
  }
  append_hundredths(out, event.tokens_per_second);
  if (event.end != nullptr) {
    fmt::format_to(std::back_inserter(out), ",\"finish_reason\":\"{}\",\"tokens_generated\":{},\"prompt_tokens\":{}",
                   event.end->finish_reason, event.end->tokens_generated, event.end->prompt_tokens);
    if (!event.end->sources.empty()) out += ",\"sources\":" + event.end->sources;
  }
  if (!resume.empty()) {
    out += ",\"resume\":\"";
    out += resume;
    out.push_back('"');
  }
  out.push_back('}');
}

}  // namespace quarrel

#include "server/answer_event.h"

#include <fmt/format.h>

#include "server/fields.h"

namespace quarrel {

void append_payload(std::string& out, const AnswerEvent& event, std::string_view resume) {
  out += "{\"token\":";
  append_json_string(out, event.text);
  fmt::format_to(std::back_inserter(out), ",\"token_id\":{},\"stream\":{},\"complete\":{},\"tokens_per_sec\":{:.2f}",
                 event.token, event.end == nullptr || !event.end->whole, event.end != nullptr, event.tokens_per_second);
  if (event.end != nullptr) {
    fmt::format_to(std::back_inserter(out), ",\"finish_reason\":\"{}\",\"tokens_generated\":{},\"prompt_tokens\":{}",
                   event.end->finish_reason, event.end->tokens_generated, event.end->prompt_tokens);
  }
  if (!resume.empty()) fmt::format_to(std::back_inserter(out), ",\"resume\":\"{}\"", resume);
  out.push_back('}');
}

}  // namespace quarrel

#include "server/logprob_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/fields.h"
#include "text/unicode.h"

namespace quarrel {
namespace {

// Without its closing brace.
void append_token(std::string& out, const Tokenizer* tokenizer, TokenId token, float logprob) {
  const std::string bytes = spelled(tokenizer, token);
  out += "{\"token\":";
  append_json_string(out, to_valid_utf8(bytes));
  out += fmt::format(",\"logprob\":{:.6g},\"bytes\":[", finite_logprob(logprob));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ",", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  out += "]";
}

}  // namespace

std::string spelled(const Tokenizer* tokenizer, TokenId token) {
  return tokenizer == nullptr ? "" : tokenizer->piece(token, false, true);
}

float finite_logprob(float logprob) noexcept { return std::max(logprob, -9999.0f); }

void append_logprob(std::string& out, const Tokenizer* tokenizer, const GenerationEvent& event, bool with_top) {
  append_token(out, tokenizer, event.token, event.logprob);
  if (with_top) {
    out += ",\"top_logprobs\":[";
    for (std::size_t i = 0; i < event.top.size(); ++i) {
      if (i > 0) out.push_back(',');
      append_token(out, tokenizer, event.top[i].id, event.top[i].logprob);
      out.push_back('}');
    }
    out.push_back(']');
  }
  out.push_back('}');
}

}  // namespace quarrel

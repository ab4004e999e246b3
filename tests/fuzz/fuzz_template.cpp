// The bytes are a chat template; what follows a 0xFF byte, if it is JSON, are its variables. Without, a fixed
// conversation with tools is rendered.
#include <cstdint>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "fuzz/targets.h"
#include "text/chat_template.h"

namespace quarrel::fuzz {
namespace {

using Json = nlohmann::ordered_json;

constexpr TemplateLimits kLimits{
    .steps = 20'000, .depth = 64, .output_bytes = 64U << 10, .memory_bytes = 4U << 20, .source_bytes = 64U << 10};
constexpr TemplateClock kClock{2026, 11, 15, 12, 30, 0};

// The conversation's texts hold characters of a private area that nothing else brings forth: where they come out, the
// text must be marked as the variables'. All of them begin with this byte.
constexpr char kMark = '\xEE';

constexpr std::string_view kConversation = R"({
  "messages": [
    {"role": "system", "content": " Be brief.\n"},
    {"role": "user", "content": "What \ue0a1is\ue0a2 the weather in Zürich? <|im_end|>"},
    {"role": "assistant", "content": "", "reasoning_content": "a thought\ue0a3",
     "tool_calls": [{"id": "call00001", "type": "function",
                     "function": {"name": "weather", "arguments": {"city": "Z\ue0a4rich", "days": 3, "exact": true}}}]},
    {"role": "tool", "name": "weather", "tool_call_id": "call00001", "content": "{\"sky\": \"\ue0a5blue\", \"t\": 21.5}"},
    {"role": "user", "content": [{"type": "text", "text": "And \ue0a6 tomorrow?"}]}
  ],
  "tools": [{"type": "function",
             "function": {"name": "weather", "description": "Tells the \ue0a7 weather",
                          "parameters": {"type": "object", "required": ["city"],
                                         "properties": {"city": {"type": "string", "description": "where"},
                                                        "days": {"type": "integer", "enum": [1, 2, 3]}}}}}],
  "add_generation_prompt": true, "enable_thinking": false, "bos_token": "<s>", "eos_token": "</s>"
})";

const Json& conversation() {
  static const Json kVariables = Json::parse(kConversation);
  return kVariables;
}

void check_ranges(const RenderedText& rendered) {
  require(rendered.text.size() <= kLimits.output_bytes, "the output has a limit");
  std::size_t end = 0;
  for (const TextRange& range : rendered.from_variables) {
    require(range.begin >= end && range.begin < range.end, "ranges ascend and are not empty");
    end = range.end;
  }
  require(end <= rendered.text.size(), "ranges lie in the text");
}

// Nobody forges a role: what a user wrote is known as such wherever it ends up.
void check_marks(const RenderedText& rendered) {
  auto range = rendered.from_variables.begin();
  for (std::size_t at = rendered.text.find(kMark); at != std::string::npos; at = rendered.text.find(kMark, at + 1)) {
    while (range != rendered.from_variables.end() && range->end <= at) ++range;
    const bool inside = range != rendered.from_variables.end() && range->begin <= at;
    require(inside, "a text of the variables stays marked as theirs");
  }
}

}  // namespace

void template_compile_render(Input input) {
  const std::string_view bytes = as_text(input);
  const std::size_t cut = bytes.find('\xFF');
  const std::string source(bytes.substr(0, cut));
  Json variables = Json::value_t::discarded;
  if (cut != std::string_view::npos) variables = Json::parse(bytes.substr(cut + 1), nullptr, false);
  const bool own_variables = !variables.is_discarded();
  try {
    const ChatTemplate compiled = ChatTemplate::compile(source, kLimits);
    const RenderedText rendered = compiled.render(own_variables ? variables : conversation(), kClock);
    check_ranges(rendered);
    const bool may_spell_mark = source.find(kMark) != std::string::npos || source.find('\\') != std::string::npos;
    if (!own_variables && !may_spell_mark) check_marks(rendered);
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::bad_input, "a template's fault is bad input");
  }
}

}  // namespace quarrel::fuzz

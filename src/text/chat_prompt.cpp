#include "text/chat_prompt.h"

#include <optional>

#include "base/error.h"
#include "text/default_templates.h"

namespace quarrel {
namespace {

std::string spelling(const Tokenizer& tokenizer, const std::optional<TokenId>& id) {
  return id ? std::string(tokenizer.spelling(*id)) : std::string();
}

}  // namespace

TemplateChoice choose_template(const GgufFile& file, const Tokenizer& tokenizer) {
  const auto own = file.string("tokenizer.chat_template");
  if (own && !own->empty()) return {.source = std::string(*own)};
  const std::string_view name =
      choose_default_template([&](std::string_view token) { return tokenizer.find(token).has_value(); });
  return {.source = std::string(find_default_template(name)), .name = std::string(name)};
}

EncodedChat encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const ChatInput& input) {
  if (!input.messages.is_array() || input.messages.empty()) fail(ErrorKind::bad_input, "there are no messages");
  if (!input.tools.is_null() && !input.tools.is_array()) fail(ErrorKind::bad_input, "the tools are not a list");
  if (!input.arguments.is_null() && !input.arguments.is_object()) {
    fail(ErrorKind::bad_input, "the template's arguments are not an object");
  }
  nlohmann::ordered_json variables{{"messages", input.messages},
                                   {"tools", input.tools},
                                   {"add_generation_prompt", input.add_generation_prompt},
                                   {"bos_token", spelling(tokenizer, tokenizer.special().bos)},
                                   {"eos_token", spelling(tokenizer, tokenizer.special().eos)}};
  if (input.arguments.is_object()) variables.insert(input.arguments.begin(), input.arguments.end());
  RenderedText rendered = chat_template.render(variables, input.clock ? *input.clock : TemplateClock::now());
  if (!input.answer_start.empty()) {
    rendered.from_variables.push_back({rendered.text.size(), rendered.text.size() + input.answer_start.size()});
    rendered.text += input.answer_start;
  }
  EncodedChat result;
  result.tokens = tokenizer.encode(rendered.text, {.parse_special = true, .literal = rendered.from_variables});
  put_bos(tokenizer, result.tokens);
  result.text = std::move(rendered.text);
  return result;
}

void put_bos(const Tokenizer& tokenizer, std::vector<TokenId>& ids) {
  const std::optional<TokenId> bos = tokenizer.special().bos;
  if (!tokenizer.special().add_bos || !bos) return;
  if (ids.empty() || ids.front() != *bos) ids.insert(ids.begin(), *bos);
}

}  // namespace quarrel

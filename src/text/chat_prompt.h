// From a conversation to the tokens a model continues: which template, what it is given, and where BOS stands. Used by
// whatever chats with a model. Pure functions: any thread may call them.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "gguf/file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quarrel {

struct TemplateChoice {
  std::string source = {};
  std::string name = {};  // of the built-in template; empty: the file has one of its own
};

// The file's own template, else the built-in one that its vocabulary was made for.
TemplateChoice choose_template(const GgufFile& file, const Tokenizer& tokenizer);

// What a template is given.
struct ChatInput {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools = nullptr;      // a list, or null: none
  nlohmann::ordered_json arguments = nullptr;  // an object: more variables of the template's own, by name; null: none
  bool add_generation_prompt = true;           // ends where the assistant's next message begins
  std::string answer_start = {};               // of the answer, which is continued; behind add_generation_prompt
  std::optional<TemplateClock> clock = {};     // none: now
};

// The variables that every template has; arguments do not hide them.
inline constexpr std::array<std::string_view, 5> kTemplateVariables = {"messages", "tools", "add_generation_prompt",
                                                                       "bos_token", "eos_token"};

struct EncodedChat {
  std::string text = {};
  std::vector<TokenId> tokens = {};
};

// Text that comes from the input never becomes a control token. Throws Error(bad_input) as ChatTemplate::render does,
// and for messages, tools or arguments of the wrong kind.
EncodedChat encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const ChatInput& input);

// Puts BOS in front, where the vocabulary asks for it and it does not stand there yet.
void put_bos(const Tokenizer& tokenizer, std::vector<TokenId>& ids);

}  // namespace quarrel

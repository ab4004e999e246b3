// From a conversation to the tokens a model continues: which template, what it is given, and where BOS stands. Used by
// whatever chats with a model. Pure functions: any thread may call them.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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

struct EncodedChat {
  std::string text = {};
  std::vector<TokenId> tokens = {};
};

// `messages` is the list that templates are given. Text that comes from it never becomes a control token. Throws
// Error(bad_input) as ChatTemplate::render does.
EncodedChat encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                        const nlohmann::ordered_json& messages, const TemplateClock& clock);

// Puts BOS in front, where the vocabulary asks for it and it does not stand there yet.
void put_bos(const Tokenizer& tokenizer, std::vector<TokenId>& ids);

}  // namespace quarrel

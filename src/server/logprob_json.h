// How likely tokens were, as OpenAI's and Ollama's clients read it. Any thread.
#pragma once

#include <string>

#include "session/generation.h"
#include "text/tokenizer.h"

namespace quarrel {

// The token's text with control tokens as they are spelled; empty without a vocabulary.
std::string spelled(const Tokenizer* tokenizer, TokenId token);
// JSON knows no infinity.
float finite_logprob(float logprob) noexcept;

// {"token","logprob","bytes","top_logprobs"}, the last one where `with_top`: a token may be half a character, which
// only its bytes can say.
void append_logprob(std::string& out, const Tokenizer* tokenizer, const GenerationEvent& event, bool with_top);

}  // namespace quarrel

// Texts of a vector store before a question: which of those that a search found fit into a budget of tokens, and the
// question as the model is asked it. Called by `quarrel run --context` and the server; pure functions, any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "ingest/chunker.h"
#include "ingest/lookup.h"

namespace quarrel {

struct ContextOptions {
  std::size_t max_tokens = 1024;     // of all texts together, with their numbers
  std::string prompt_template = {};  // with {texts} and {question}; empty: ours
};

// A text that stands in the prompt, as "[number] text".
struct UsedText {
  std::size_t number = 0;  // from 1
  FoundText found = {};    // its text as it stands there
  bool cut = false;        // to what the budget has room for
};

struct PromptContext {
  std::string question = {};           // as the model is asked it; as it was where there are no texts
  std::vector<UsedText> sources = {};  // the nearest first
};

// Throws Error(usage) for one in which {texts} and {question} do not stand once each.
void check_context_template(std::string_view prompt_template);

// The nearest texts that fit; one that does not is left out, but the nearest of all is cut. `count` counts tokens of
// the model that is asked. Throws what it throws.
PromptContext with_context(std::span<const FoundText> found, std::string_view question, const ContextOptions& options,
                           const CountTokens& count);

// {"number","score","id","text"}, `cut` where it is, and what else found_json tells.
nlohmann::ordered_json source_json(const UsedText& used);

}  // namespace quarrel

#include "ingest/prompt_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ingest/found_json.h"
#include "ingest/text_source.h"

namespace quarrel {
namespace {

constexpr std::string_view kTexts = "{texts}";
constexpr std::string_view kQuestion = "{question}";
constexpr std::string_view kUsualTemplate =
    "Answer the question with the help of these texts, and give the number of each text that you use in brackets. If "
    "they do not help, say so.\n\n{texts}\n\nQuestion: {question}";

std::string entry(std::size_t number, std::string_view text) { return fmt::format("[{}] {}", number, text); }

// What comes in the place of one is never looked at again: a text may hold the other's name.
std::string filled(std::string_view prompt_template, std::string_view texts, std::string_view question) {
  std::string prompt;
  while (!prompt_template.empty()) {
    const std::size_t next = std::min(prompt_template.find(kTexts), prompt_template.find(kQuestion));
    prompt += prompt_template.substr(0, next);
    if (next == std::string_view::npos) break;
    prompt_template.remove_prefix(next);
    const bool is_texts = prompt_template.starts_with(kTexts);
    prompt += is_texts ? texts : question;
    prompt_template.remove_prefix(is_texts ? kTexts.size() : kQuestion.size());
  }
  return prompt;
}

// As much of the text's beginning as fits; empty: nothing does.
std::string beginning(std::string_view text, std::size_t budget, const CountTokens& count) {
  const auto at_character = [&](std::size_t at) {
    while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return at;
  };
  std::size_t fits = 0;
  std::size_t exceeds = text.size();
  while (exceeds - fits > 1) {
    const std::size_t middle = at_character(fits + (exceeds - fits) / 2);
    if (middle <= fits) break;
    (count(entry(1, text.substr(0, middle))) <= budget ? fits : exceeds) = middle;
  }
  return std::string(text.substr(0, fits));
}

}  // namespace

void check_context_template(std::string_view prompt_template) {
  for (const std::string_view name : {kTexts, kQuestion}) {
    const std::size_t first = prompt_template.find(name);
    if (first != std::string_view::npos && prompt_template.find(name, first + 1) == std::string_view::npos) continue;
    fail(ErrorKind::usage, "a template for texts and a question has {} and {} in it, once each", kTexts, kQuestion);
  }
}

PromptContext with_context(std::span<const FoundText> found, std::string_view question, const ContextOptions& options,
                           const CountTokens& count) {
  PromptContext context;
  std::string texts;
  std::size_t left = options.max_tokens;
  for (const FoundText& each : found) {
    if (each.state != TextState::found || is_blank(each.text)) continue;
    UsedText used{.number = context.sources.size() + 1, .found = each};
    std::size_t tokens = count(entry(used.number, used.found.text));
    if (tokens > left && context.sources.empty()) {
      used.found.text = beginning(each.text, left, count);
      used.cut = true;
      if (is_blank(used.found.text)) break;  // the budget is too small for anything
      tokens = count(entry(used.number, used.found.text));
    }
    if (tokens > left) continue;
    left -= tokens;
    texts += (texts.empty() ? "" : "\n\n") + entry(used.number, used.found.text);
    context.sources.push_back(std::move(used));
  }
  context.question =
      context.sources.empty()
          ? std::string(question)
          : filled(options.prompt_template.empty() ? kUsualTemplate : options.prompt_template, texts, question);
  return context;
}

nlohmann::ordered_json source_json(const UsedText& used) {
  nlohmann::ordered_json object{{"number", used.number}};
  if (used.cut) object["cut"] = true;
  object.update(found_json(used.found));
  return object;
}

}  // namespace quarrel

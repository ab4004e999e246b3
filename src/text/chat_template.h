// Chat templates: a Jinja interpreter over plain JSON values, compiled once a model. A template comes from a model file
// and is hostile: it can read nothing but what it is given, and fuel, depth, memory and output are bounded. Errors
// carry line and column. Immutable after `compile`: any thread may render.
//
// The rules are those of Python's jinja2 in the sandbox chat templates are written for, with three deviations: lists
// and dicts can be changed (append, update …; only copies that die with the rendering), `from_json` exists, and `safe`
// and `escape` give plain strings, so adding to them escapes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer.h"

namespace quarrel {

struct TemplateLimits {
  std::uint64_t steps = 1'000'000;       // fuel: expressions evaluated and loop turns
  std::uint32_t depth = 64;              // nested macro calls; nested blocks and expressions in the source
  std::size_t output_bytes = 4u << 20;   // of the rendered text
  std::size_t memory_bytes = 64u << 20;  // of all strings and lists made on the way
  std::size_t source_bytes = 1u << 20;   // of the template itself
};

// A date for `strftime_now`, so that rendering is a function of its arguments.
struct TemplateClock {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
  static TemplateClock now();                             // local time
  static TemplateClock parse(std::string_view iso_date);  // YYYY-MM-DD; throws Error(usage)
};

struct RenderedText {
  std::string text;
  // Which parts of it came out of the variables (what a user wrote), not out of the template: ascending byte ranges.
  // Pass them to EncodeOptions::literal, so that nobody forges a role by typing a control token.
  std::vector<TextRange> from_variables;
};

class ChatTemplate {
 public:
  // Throws Error(bad_input) with line and column.
  static ChatTemplate compile(std::string source, const TemplateLimits& limits = {});

  // `variables` is a JSON object with its keys in order: messages, tools, add_generation_prompt, bos_token … Throws
  // Error(bad_input): the template's own raise_exception gives its message, faults of the template line and column,
  // a limit its name.
  RenderedText render(const nlohmann::ordered_json& variables, const TemplateClock& clock) const;

  const std::string& source() const noexcept;

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

}  // namespace quarrel

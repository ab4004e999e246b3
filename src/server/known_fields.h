// The fields that clients send with every question, whichever form it has: OpenAI's, Ollama's or Quarrel's own. Each
// form has a table of what it offers; what stands in none of its rows is looked up here, in one list for all of them.
// Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace quarrel {

// The kinds of values with which a field can ask for nothing, beside null: false, an empty text, list or object.
enum class Nothing : std::uint8_t { none = 0, flag = 1, text = 2, list = 4, text_or_list = 6, object = 8, any = 15 };

struct KnownField {
  std::string_view name;
  FieldKind kind = FieldKind::refused;  // or no_effect
  // Why no form offers it. Empty: another form does, where its name says what it is.
  std::string_view help = {};
  bool (*is_default)(const Json& value) = nullptr;  // beside the neutral values: asks for what is so anyway
  // What the form that offers it would take for nothing; where none does, whatever may be meant so.
  Nothing nothing = Nothing::any;
};

std::span<const KnownField> known_fields() noexcept;

}  // namespace quarrel

// JSON in both directions: the `tojson` filter as Hugging Face configures it, and the way of the caller's variables
// into values.
#pragma once

#include <optional>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // one level's white space
  Text item_separator;
  Text key_separator;
};

// Throws Fault for what JSON cannot say.
Text write_json(Runtime& runtime, const Value& value, const JsonStyle& style);
// The `from_json` filter. What it reads has the text's origin.
Value read_json(Runtime& runtime, Text text);
// Strings are not copied: `json` must outlive the rendering.
Value value_of_json(Runtime& runtime, const nlohmann::ordered_json& json, Origin origin, std::size_t depth = 0);

}  // namespace quarrel::jinja

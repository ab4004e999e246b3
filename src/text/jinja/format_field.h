// One formatted field: what stands between a '%' and its letter, or after a ':' in braces.
#pragma once

#include <cstdint>
#include <optional>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

struct FieldSpec {
  Text fill;               // one character; empty for a blank
  char align = 0;          // '<', '>', '^', '=', or 0 for the kind's own
  char sign = '-';         // '+', ' ' or '-'
  bool alternate = false;  // 0x and its like
  char grouping = 0;       // ',' or '_' between thousands
  std::int64_t width = 0;
  std::optional<std::int64_t> precision;
  char type = 0;  // the letter, or 0
};

// Reads digits at `at` and moves it. Throws Fault for a number no field could have.
std::int64_t read_number(std::string_view pattern, std::size_t& at);

void append_text_field(TextBuilder& out, Runtime& runtime, Text text, const FieldSpec& spec);
// For d i u x X o b c; `value` is integral.
void append_integer_field(TextBuilder& out, Runtime& runtime, std::int64_t value, const FieldSpec& spec);
// For e E f F g G % and, with type 0, Python's shortest form.
void append_float_field(TextBuilder& out, Runtime& runtime, double value, const FieldSpec& spec);

}  // namespace quarrel::jinja

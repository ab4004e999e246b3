// The filters, by name.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

using FilterFunction = Value (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

struct FilterEntry {
  std::string_view name;
  FilterFunction function;
};

// Null when there is none of this name.
FilterFunction find_filter(std::string_view name);

// The tables it looks through.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> choosing_filters();

}  // namespace quarrel::jinja

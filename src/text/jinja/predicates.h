// The tests of `is`, by name.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

using PredicateFunction = bool (*)(Runtime& runtime, const Value& input, const Arguments& arguments);

// Null when there is none of this name.
PredicateFunction find_predicate(std::string_view name);

}  // namespace quarrel::jinja

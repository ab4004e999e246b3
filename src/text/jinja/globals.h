// The functions every template can call: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

// Undefined when there is none of this name.
Value global_function(Runtime& runtime, std::string_view name);

// strftime with the directives templates use; others stay as they are.
std::string format_date(const TemplateClock& clock, std::string_view format);

}  // namespace quarrel::jinja

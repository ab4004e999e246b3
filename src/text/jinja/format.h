// Python's two ways to format: "%-5s" % value, and "{:>8.2f}".format(value).
#pragma once

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

// `value` is one value, a tuple of them, or a dict for %(name)s.
Text format_percent(Runtime& runtime, Text pattern, const Value& value);
Text format_braces(Runtime& runtime, Text pattern, const Arguments& arguments);

}  // namespace quarrel::jinja

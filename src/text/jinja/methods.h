// The methods of strings, lists and dicts: looked up by name, nothing else can be reached through a dot.
#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace quarrel::jinja {

using MethodFunction = Value (*)(Runtime& runtime, const Value& self, const Arguments& arguments);

// Null when values of this kind have no such method.
MethodFunction find_method(const Value& object, std::string_view name);
// The method as a value that remembers its object, or undefined.
Value bound_method(Runtime& runtime, const Value& object, std::string_view name);

// str's table (methods_text.cpp).
MethodFunction find_text_method(std::string_view name);

}  // namespace quarrel::jinja

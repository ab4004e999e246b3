// What the operators and the conversions of the language mean, value by value: Python's rules. Each takes fuel for its
// work and throws Fault where Python raises.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace quarrel::jinja {

// ---- printing (printing.cpp)

Text to_text(Runtime& runtime, const Value& value);  // str()
void append_text(TextBuilder& out, Runtime& runtime, const Value& value);
void append_repr(TextBuilder& out, Runtime& runtime, const Value& value, Origin origin = Origin::of_template,
                 std::size_t depth = 0);
std::string float_repr(double value);
// The digits of a number rounded to `precision` places, "%f" style. Throws Fault for absurd precisions.
std::string fixed_digits(double value, std::int64_t precision);

// ---- comparing (comparison.cpp)

bool truth(const Value& value);
bool equal(Runtime& runtime, const Value& a, const Value& b, std::size_t depth = 0);
// Negative, zero or positive. Throws Fault for kinds without an order.
int compare(Runtime& runtime, const Value& a, const Value& b, std::size_t depth = 0);
bool contains(Runtime& runtime, const Value& container, const Value& item);
// Where `needle` next occurs at or after `from`, or npos. Linear time.
std::size_t find_text(Runtime& runtime, std::string_view haystack, std::string_view needle, std::size_t from);

// ---- looking into values (access.cpp)

// Code points, elements or keys. Nothing for values without a length.
std::optional<std::size_t> length(Runtime& runtime, const Value& value);
// Everything that `for` would iterate over; a list gives itself. Throws Fault for what cannot be iterated over.
ListObject& elements(Runtime& runtime, const Value& value);
Value attribute(Runtime& runtime, const Value& object, Text name);      // object.name
Value item(Runtime& runtime, const Value& object, const Value& index);  // object[index]
Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step);
Value entry_pair(Runtime& runtime, const DictObject::Entry& entry);  // (key, value)
// Follows a dotted path ("function.name", "0.id") as filters take it.
Value attribute_path(Runtime& runtime, const Value& object, const Value& path);

// ---- arithmetic (arithmetic.cpp)

enum class ArithmeticOp : std::uint8_t { add, subtract, multiply, divide, floor_divide, modulo, power };
Value arithmetic(Runtime& runtime, ArithmeticOp op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);
// An integer argument (an index, a width …); booleans count. Throws Fault otherwise, naming `what`.
std::int64_t require_integer(const Value& value, std::string_view what);

[[noreturn]] void fail_undefined(const Value& value);

}  // namespace quarrel::jinja

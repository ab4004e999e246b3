// Filters on numbers and on values of any kind.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_functions.h"

namespace quarrel::jinja {
namespace {

// A string the way Python's int() and float() read it: blanks around, underscores between digits.
std::string plain_number(Runtime& runtime, Text text) {
  const std::string_view view = strip(runtime, text, Side::both, std::nullopt).view();
  if (view.size() > 400) return {};
  std::string out;
  for (std::size_t i = 0; i < view.size(); ++i) {
    const bool between = view[i] == '_' && i > 0 && i + 1 < view.size() && view[i - 1] != '_' && view[i + 1] != '_';
    if (!between) out += view[i];
  }
  if (!out.empty() && out[0] == '+' && out.size() > 1 && out[1] != '-') out.erase(0, 1);
  return out;
}

std::optional<double> parse_float(Runtime& runtime, Text text) {
  const std::string number = plain_number(runtime, text);
  double value = 0;
  const char* const end = number.data() + number.size();
  const auto result = std::from_chars(number.data(), end, value);
  if (number.empty() || result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_integer(Runtime& runtime, Text text, int base) {
  std::string number = plain_number(runtime, text);
  const std::size_t sign = number.starts_with('-') ? 1 : 0;
  const auto prefixed = [&](char letter) {
    return number.size() > sign + 2 && number[sign] == '0' && (number[sign + 1] | 0x20) == letter;
  };
  if ((base == 16 && prefixed('x')) || (base == 8 && prefixed('o')) || (base == 2 && prefixed('b'))) {
    number.erase(sign, 2);
  }
  std::int64_t value = 0;
  const char* const end = number.data() + number.size();
  const auto result = std::from_chars(number.data(), end, value, base);
  if (number.empty() || result.ptr != end || result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> truncated(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

Value to_integer(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("int", arguments, {"default", "base"});
  const Value otherwise = bound.get(0, Value::integer(0));
  if (!input.is_defined()) fail_undefined(input);
  if (input.is_integral()) return Value::integer(input.as_integer());
  std::optional<std::int64_t> result;
  if (input.is(Kind::floating)) result = truncated(input.as_floating());
  if (input.is(Kind::text)) {
    const std::int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) fault("a base of {} is out of range", base);
    result = parse_integer(runtime, input.as_text(), static_cast<int>(base));
    if (!result) {
      if (const auto number = parse_float(runtime, input.as_text())) result = truncated(*number);
    }
  }
  return result ? Value::integer(*result) : otherwise;
}

Value to_float(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("float", arguments, {"default"});
  const Value otherwise = bound.get(0, Value::floating(0));
  if (!input.is_defined()) fail_undefined(input);
  if (input.is_number()) return Value::floating(input.as_number());
  if (!input.is(Kind::text)) return otherwise;
  const auto number = parse_float(runtime, input.as_text());
  return number ? Value::floating(*number) : otherwise;
}

Value absolute(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const BoundArguments none("abs", arguments, {});
  if (input.is(Kind::floating)) return Value::floating(std::abs(input.as_floating()));
  if (!input.is_defined()) fail_undefined(input);
  if (!input.is_integral()) fault("abs takes a number, not {}", a_type(input));
  return input.as_integer() < 0 ? negate(input) : Value::integer(input.as_integer());
}

// Python's round: to the even neighbour from exact halves, judged on the number's exact decimal value.
double round_to(double value, std::int64_t precision) {
  if (!std::isfinite(value) || precision > 350) return value;
  if (precision < -350) return 0;
  if (precision >= 0) {
    const std::string digits = fixed_digits(value, precision);
    double result = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), result);
    return result;
  }
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Value round_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("round", arguments, {"precision", "method"});
  const std::int64_t precision = bound.integer(0, 0);
  const std::string_view method = bound.has(1) ? bound.text(1).view() : "common";
  if (!input.is_defined()) fail_undefined(input);
  if (!input.is_number()) fault("round takes a number, not {}", a_type(input));
  if (method == "common") {
    if (!input.is_integral()) return Value::floating(round_to(input.as_floating(), precision));
    if (precision >= 0) return Value::integer(input.as_integer());
    const double rounded = round_to(input.as_number(), precision);
    return Value::integer(truncated(rounded).value_or(input.as_integer()));
  }
  if (method != "ceil" && method != "floor") fault("round's method is common, ceil or floor");
  if (precision > 300 || precision < -300) fault("a precision of {} is out of range", precision);
  runtime.spend(1);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_number() * scale;
  return Value::floating((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value default_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("default", arguments, {"default_value", "boolean"});
  if (input.is_defined() && !(bound.flag(1) && !truth(input))) return input;
  return bound.has(0) ? bound[0] : runtime.text_value("");
}

Value length_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("length", arguments, {});
  const auto count = length(runtime, input);
  if (!count) fault("{} has no length", a_type(input));
  return Value::integer(static_cast<std::int64_t>(*count));
}

Value attribute_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("attr", arguments, {"name"}, 1);
  const Text name = bound.text(0);
  // Attributes only: a dict's keys are not.
  if (input.is(Kind::dict)) {
    const Value method = name.view().starts_with("__") ? Value{} : item(runtime, Value::dict(runtime.dict()), bound[0]);
    return method.is(Kind::host) ? attribute(runtime, input, name) : Value::missing(name);
  }
  return attribute(runtime, input, name);
}

constexpr FilterEntry kNumberFilters[] = {
    {"int", to_integer},       {"float", to_float},         {"abs", absolute},
    {"round", round_filter},   {"default", default_filter}, {"d", default_filter},
    {"length", length_filter}, {"count", length_filter},    {"attr", attribute_filter},
};

}  // namespace

std::span<const FilterEntry> number_filters() { return kNumberFilters; }

}  // namespace quarrel::jinja

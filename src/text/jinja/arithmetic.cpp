// + - * / // % ** and the signs.
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

constexpr std::string_view kNames[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void too_large() { fault("an integer grows beyond 64 bits"); }

std::int64_t integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value integers(ArithmeticOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case ArithmeticOp::add:
      if (__builtin_add_overflow(a, b, &result)) too_large();
      break;
    case ArithmeticOp::subtract:
      if (__builtin_sub_overflow(a, b, &result)) too_large();
      break;
    case ArithmeticOp::multiply:
      if (__builtin_mul_overflow(a, b, &result)) too_large();
      break;
    case ArithmeticOp::divide:
      if (b == 0) fault("division by zero");
      return Value::floating(static_cast<double>(a) / static_cast<double>(b));
    case ArithmeticOp::floor_divide:
    case ArithmeticOp::modulo: {
      if (b == 0) fault("division by zero");
      if (b == -1) {  // the one quotient that may not fit
        if (op == ArithmeticOp::modulo) return Value::integer(0);
        if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) too_large();
        break;
      }
      std::int64_t quotient = a / b;
      std::int64_t rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      result = op == ArithmeticOp::modulo ? rest : quotient;
      break;
    }
    case ArithmeticOp::power:
      if (b < 0) {
        if (a == 0) fault("division by zero");
        return Value::floating(std::pow(static_cast<double>(a), static_cast<double>(b)));
      }
      result = a == 0 || a == 1 ? (b == 0 ? 1 : a) : integer_power(a, b);
      break;
  }
  return Value::integer(result);
}

Value floats(ArithmeticOp op, double a, double b) {
  switch (op) {
    case ArithmeticOp::add: return Value::floating(a + b);
    case ArithmeticOp::subtract: return Value::floating(a - b);
    case ArithmeticOp::multiply: return Value::floating(a * b);
    case ArithmeticOp::power: return Value::floating(std::pow(a, b));
    default: break;
  }
  if (b == 0) fault("division by zero");
  if (op == ArithmeticOp::divide) return Value::floating(a / b);
  if (op == ArithmeticOp::floor_divide) return Value::floating(std::floor(a / b));
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return Value::floating(rest);
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t count) {
  const std::uint64_t times = count < 0 ? 0 : static_cast<std::uint64_t>(count);
  if (value.is(Kind::text)) {
    TextBuilder out(runtime);
    const Text text = value.as_text();
    out.repeat(text.view(), times, origin_of(text.from_variables()));
    return Value::text(out.finish());
  }
  const auto& source = value.as_list().items;
  ListObject* result = runtime.list(value.as_list().flavor);
  for (std::uint64_t i = 0; !source.empty() && i < times; ++i) {
    runtime.spend(1);
    runtime.spend_items(source.size());
    for (const Value& element : source) result->push(runtime.heap(), element);
  }
  return Value::list(result);
}

Value join_lists(Runtime& runtime, const ListObject& a, const ListObject& b) {
  ListObject* result = runtime.list(a.flavor);
  runtime.spend_items(a.items.size() + b.items.size());
  for (const Value& element : a.items) result->push(runtime.heap(), element);
  for (const Value& element : b.items) result->push(runtime.heap(), element);
  return Value::list(result);
}

bool is_repeatable(const Value& value) {
  return value.is(Kind::text) || (value.is(Kind::list) && (value.as_list().flavor == ListFlavor::list ||
                                                           value.as_list().flavor == ListFlavor::tuple));
}

}  // namespace

void fail_undefined(const Value& value) {
  if (value.as_text().size == 0) fault("a value is undefined");
  fault("'{}' is undefined", value.view().substr(0, 200));
}

Value arithmetic(Runtime& runtime, ArithmeticOp op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return integers(op, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return floats(op, a.as_number(), b.as_number());
  if (op == ArithmeticOp::add) {
    if (a.is(Kind::text) && b.is(Kind::text)) return Value::text(concatenate(runtime, a.as_text(), b.as_text()));
    if (is_repeatable(a) && is_repeatable(b) && a.is(Kind::list) && b.is(Kind::list) &&
        a.as_list().flavor == b.as_list().flavor) {
      return join_lists(runtime, a.as_list(), b.as_list());
    }
  }
  if (op == ArithmeticOp::multiply) {
    if (is_repeatable(a) && b.is_integral()) return repeat(runtime, a, b.as_integer());
    if (is_repeatable(b) && a.is_integral()) return repeat(runtime, b, a.as_integer());
  }
  if (op == ArithmeticOp::modulo && a.is(Kind::text)) return Value::text(format_percent(runtime, a.as_text(), b));
  if (!a.is_defined()) fail_undefined(a);
  if (!b.is_defined()) fail_undefined(b);
  fault("'{}' does not work on {} and {}", kNames[static_cast<std::size_t>(op)], a_type(a), a_type(b));
}

Value negate(const Value& value) {
  if (value.is(Kind::floating)) return Value::floating(-value.as_floating());
  if (value.is_integral()) return integers(ArithmeticOp::subtract, 0, value.as_integer());
  if (!value.is_defined()) fail_undefined(value);
  fault("{} has no negative", a_type(value));
}

Value plus(const Value& value) {
  if (value.is(Kind::floating)) return value;
  if (value.is_integral()) return Value::integer(value.as_integer());
  if (!value.is_defined()) fail_undefined(value);
  fault("{} has no sign", a_type(value));
}

std::int64_t require_integer(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_integer();
  if (!value.is_defined()) fail_undefined(value);
  fault("{} must be an integer, not {}", what, a_type(value));
}

}  // namespace quarrel::jinja

#include "text/jinja/format_field.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_functions.h"

namespace quarrel::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 400;

void to_upper_ascii(std::string& text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

void group_thousands(std::string& digits, char separator) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
}

// Puts sign, prefix and digits into the field's width.
void append_number(TextBuilder& out, Runtime& runtime, bool negative, std::string_view prefix, std::string digits,
                   const FieldSpec& spec) {
  if (spec.grouping != 0) group_thousands(digits, spec.grouping);
  std::string head;
  if (negative) {
    head = "-";
  } else if (spec.sign != '-') {
    head = spec.sign;
  }
  head += prefix;
  const std::string_view fill = spec.fill.size == 0 ? std::string_view(" ") : spec.fill.view();
  const Origin origin = origin_of(spec.fill.from_variables());
  const auto size = static_cast<std::int64_t>(head.size() + digits.size());
  const std::int64_t missing = spec.width > size ? spec.width - size : 0;
  std::int64_t left = 0;
  if (spec.align == '>' || spec.align == 0) left = missing;
  if (spec.align == '^') left = missing / 2;
  const std::int64_t inner = spec.align == '=' ? missing : 0;
  runtime.spend(1);
  out.repeat(fill, static_cast<std::uint64_t>(left), origin);
  out.append(head);
  out.repeat(fill, static_cast<std::uint64_t>(inner), origin);
  out.append(digits);
  out.repeat(fill, static_cast<std::uint64_t>(missing - left - inner), origin);
}

std::string float_digits(double value, std::chars_format format, std::int64_t precision) {
  if (precision < 0 || precision > kMaxPrecision) fault("a precision of {} is out of range", precision);
  std::string digits(static_cast<std::size_t>(precision) + 400, '\0');
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), value, format, static_cast<int>(precision));
  digits.resize(static_cast<std::size_t>(end.ptr - digits.data()));
  return digits;
}

}  // namespace

std::int64_t read_number(std::string_view pattern, std::size_t& at) {
  std::int64_t number = 0;
  for (; at < pattern.size() && pattern[at] >= '0' && pattern[at] <= '9'; ++at) {
    number = number * 10 + (pattern[at] - '0');
    if (number > INT32_MAX) fault("the format has a number that is too large");
  }
  return number;
}

void append_text_field(TextBuilder& out, Runtime& runtime, Text text, const FieldSpec& spec) {
  if (spec.precision) {
    const std::int64_t limit = std::max<std::int64_t>(*spec.precision, 0);
    text = text.slice(0, byte_of_character(text.view(), static_cast<std::size_t>(limit)));
  }
  const Side side = spec.align == '>' ? Side::left : spec.align == '^' ? Side::both : Side::right;
  if (spec.align == '=') fault("'=' does not align a string");
  runtime.spend_bytes(text.size);
  const auto size = static_cast<std::int64_t>(count_characters(text.view()));
  if (spec.width <= size) {
    out.append(text);
    return;
  }
  const std::int64_t missing = spec.width - size;
  const std::int64_t left = side == Side::left ? missing : side == Side::both ? missing / 2 : 0;
  const std::string_view fill = spec.fill.size == 0 ? std::string_view(" ") : spec.fill.view();
  const Origin origin = origin_of(spec.fill.from_variables());
  out.repeat(fill, static_cast<std::uint64_t>(left), origin);
  out.append(text);
  out.repeat(fill, static_cast<std::uint64_t>(missing - left), origin);
}

void append_integer_field(TextBuilder& out, Runtime& runtime, std::int64_t value, const FieldSpec& spec) {
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fault("{} is not a character", value);
    std::string character;
    append_character(character, static_cast<char32_t>(value));
    // The number may be a caller's, and a character is as good as text.
    append_text_field(out, runtime, runtime.text(character, Origin::of_variables), spec);
    return;
  }
  const bool negative = value < 0;
  const std::uint64_t magnitude =
      negative ? std::uint64_t{0} - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
  std::string digits(buffer, end.ptr);
  if (spec.type == 'X') to_upper_ascii(digits);
  if (spec.precision) {
    if (*spec.precision > kMaxPrecision) fault("a precision of {} is out of range", *spec.precision);
    const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(*spec.precision, 0));
    if (digits.size() < wanted) digits.insert(0, wanted - digits.size(), '0');
  }
  std::string prefix;
  if (spec.alternate && base != 10) prefix = {'0', spec.type};
  append_number(out, runtime, negative, prefix, std::move(digits), spec);
}

void append_float_field(TextBuilder& out, Runtime& runtime, double value, const FieldSpec& spec) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  double magnitude = std::abs(value);
  std::string digits;
  const char kind = static_cast<char>(spec.type >= 'A' && spec.type <= 'Z' ? spec.type - 'A' + 'a' : spec.type);
  if (kind == '%') magnitude *= 100;
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    digits = std::isnan(magnitude) ? "nan" : "inf";
  } else if (kind == 'f' || kind == '%') {
    digits = float_digits(magnitude, std::chars_format::fixed, spec.precision.value_or(6));
  } else if (kind == 'e') {
    digits = float_digits(magnitude, std::chars_format::scientific, spec.precision.value_or(6));
  } else if (kind == 'g' || spec.precision) {
    digits = float_digits(magnitude, std::chars_format::general, std::max<std::int64_t>(spec.precision.value_or(6), 1));
    if (kind == 0 && digits.find_first_not_of("0123456789") == std::string::npos) digits += ".0";
  } else {
    digits = float_repr(magnitude);
  }
  if (kind != spec.type) to_upper_ascii(digits);
  if (kind == '%') digits += '%';
  append_number(out, runtime, negative, {}, std::move(digits), spec);
}

}  // namespace quarrel::jinja

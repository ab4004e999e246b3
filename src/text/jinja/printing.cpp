// str() and repr() as Python writes them.
#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

constexpr std::int64_t kMaxPrecision = 400;  // digits after the point: beyond what a double can say

void append_text_repr(TextBuilder& out, Text text, Origin origin) {
  const std::string_view view = text.view();
  const bool single = view.find('\'') == std::string_view::npos || view.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string quoted(1, quote);
  for (std::size_t at = 0; at < view.size();) {
    const Character c = character_at(view, at);
    if (c.code == static_cast<char32_t>(quote) || c.code == '\\') {
      quoted += '\\';
      quoted += static_cast<char>(c.code);
    } else if (c.code == '\n') {
      quoted += "\\n";
    } else if (c.code == '\r') {
      quoted += "\\r";
    } else if (c.code == '\t') {
      quoted += "\\t";
    } else if (c.code > 0x10FFFF) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(view[at]));
    } else if (is_printable(c.code)) {
      quoted.append(view.substr(at, c.size));
    } else if (c.code < 0x100) {
      quoted += fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c.code));
    } else if (c.code < 0x10000) {
      quoted += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.code));
    } else {
      quoted += fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c.code));
    }
    at += c.size;
  }
  quoted += quote;
  out.append(quoted, text.from_variables() ? Origin::of_variables : origin);
}

void append_items(TextBuilder& out, Runtime& runtime, const ListObject& list, Origin origin, std::size_t depth) {
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ", origin);
    append_repr(out, runtime, list.items[i], origin, depth + 1);
  }
}

void append_list_repr(TextBuilder& out, Runtime& runtime, const ListObject& list, Origin origin, std::size_t depth) {
  if (list.flavor == ListFlavor::range) {
    out.append(fmt::format("range({}, {}", list.range_start, list.range_stop), origin);
    if (list.range_step != 1) out.append(fmt::format(", {}", list.range_step), origin);
    out.append(")", origin);
    return;
  }
  if (list.flavor == ListFlavor::tuple) {
    out.append("(", origin);
    append_items(out, runtime, list, origin, depth);
    out.append(list.items.size() == 1 ? ",)" : ")", origin);
    return;
  }
  const bool view =
      list.flavor == ListFlavor::keys || list.flavor == ListFlavor::values || list.flavor == ListFlavor::items;
  if (view) out.append(fmt::format("{}(", type_name(Value::list(const_cast<ListObject*>(&list)))), origin);
  out.append("[", origin);
  append_items(out, runtime, list, origin, depth);
  out.append(view ? "])" : "]", origin);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(scientific.ptr - buffer));
  const std::size_t e = shortest.find('e');
  int exponent = 0;
  const bool negative = shortest[e + 1] == '-';
  std::from_chars(shortest.data() + e + 2, scientific.ptr, exponent);
  if (negative) exponent = -exponent;
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  char plain[64];
  const auto fixed = std::to_chars(plain, plain + sizeof plain, value, std::chars_format::fixed);
  std::string result(plain, fixed.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::string fixed_digits(double value, std::int64_t precision) {
  if (precision < 0 || precision > kMaxPrecision) fault("a precision of {} is out of range", precision);
  std::string result(static_cast<std::size_t>(precision) + 400, '\0');
  const auto end = std::to_chars(result.data(), result.data() + result.size(), value, std::chars_format::fixed,
                                 static_cast<int>(precision));
  result.resize(static_cast<std::size_t>(end.ptr - result.data()));
  return result;
}

void append_repr(TextBuilder& out, Runtime& runtime, const Value& value, Origin origin, std::size_t depth) {
  if (depth > kMaxValueDepth) fault("values are nested more than {} deep", kMaxValueDepth);
  runtime.spend(depth > 0 ? 1 : 0);
  switch (value.kind()) {
    case Kind::undefined: out.append("Undefined", origin); return;
    case Kind::none: out.append("None", origin); return;
    case Kind::boolean: out.append(value.as_boolean() ? "True" : "False", origin); return;
    case Kind::integer: out.append(std::to_string(value.as_integer()), origin); return;
    case Kind::floating: out.append(float_repr(value.as_floating()), origin); return;
    case Kind::text: append_text_repr(out, value.as_text(), origin); return;
    case Kind::host: out.append(fmt::format("<{}>", value.as_host().type_name()), origin); return;
    case Kind::list: {
      const Origin own = value.as_list().from_variables ? Origin::of_variables : origin;
      append_list_repr(out, runtime, value.as_list(), own, depth);
      return;
    }
    case Kind::space:
    case Kind::dict: break;
  }
  const DictObject& dict = value.as_dict();
  const Origin own = dict.from_variables ? Origin::of_variables : origin;
  out.append(value.is(Kind::space) ? "<Namespace {" : "{", own);
  for (std::size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ", own);
    append_repr(out, runtime, dict.entries[i].key, own, depth + 1);
    out.append(": ", own);
    append_repr(out, runtime, dict.entries[i].value, own, depth + 1);
  }
  out.append(value.is(Kind::space) ? "}>" : "}", own);
}

void append_text(TextBuilder& out, Runtime& runtime, const Value& value) {
  if (value.is(Kind::text)) {
    out.append(value.as_text());
  } else if (value.is_defined()) {
    append_repr(out, runtime, value);
  }
}

Text to_text(Runtime& runtime, const Value& value) {
  if (value.is(Kind::text)) return value.as_text();
  TextBuilder out(runtime);
  append_text(out, runtime, value);
  return out.finish();
}

}  // namespace quarrel::jinja

// The filters' lookup, and those on texts.
#include "text/jinja/filters.h"

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/json.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_functions.h"

namespace quarrel::jinja {
namespace {

template <Text (*function)(Runtime&, Text)>
Value rewrite(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("this filter", arguments, {});
  return Value::text(function(runtime, to_text(runtime, input)));
}

Value to_string(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("this filter", arguments, {});
  return Value::text(to_text(runtime, input));
}

Value trim(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("trim", arguments, {"chars"});
  std::optional<Text> characters;
  if (bound.given(0)) characters = bound.text(0);
  return Value::text(strip(runtime, to_text(runtime, input), Side::both, characters));
}

Value replace_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t limit = bound.given(2) ? bound.integer(2, -1) : -1;
  return Value::text(
      replace(runtime, to_text(runtime, input), to_text(runtime, bound[0]), to_text(runtime, bound[1]), limit));
}

Value indent(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("indent", arguments, {"width", "first", "blank"});
  Text indention;
  if (bound.has(0) && bound[0].is(Kind::text)) {
    indention = bound.text(0);
  } else {
    TextBuilder blanks(runtime);
    const std::int64_t width = bound.integer(0, 4);
    blanks.repeat(" ", width < 0 ? 0 : static_cast<std::uint64_t>(width));
    indention = blanks.finish();
  }
  if (!input.is_defined()) fail_undefined(input);
  if (!input.is(Kind::text)) fault("indent takes a string, not {}", a_type(input));
  TextBuilder out(runtime);
  TextBuilder whole(runtime);
  whole.append(input.as_text());
  whole.append("\n");  // so that a last line end gives an empty last line
  const ListObject* lines = split_lines(runtime, whole.finish(), false);
  if (bound.flag(1)) out.append(indention);
  for (std::size_t i = 0; i < lines->items.size(); ++i) {
    const Text line = lines->items[i].as_text();
    runtime.spend(1);
    if (i > 0) out.append("\n");
    if (i > 0 && (line.size > 0 || bound.flag(2))) out.append(indention);
    out.append(line);
  }
  return Value::text(out.finish());
}

Value center(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("center", arguments, {"width"});
  const Text blank = runtime.borrowed(" ", Origin::of_template);
  return Value::text(pad(runtime, to_text(runtime, input), bound.integer(0, 80), Side::both, blank));
}

Value word_count(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("wordcount", arguments, {});
  const std::string_view text = to_text(runtime, input).view();
  runtime.spend_bytes(text.size());
  std::int64_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    const bool word = is_alpha(c.code) || is_digit(c.code) || c.code == '_';
    if (word && !inside) ++count;
    inside = word;
    at += c.size;
  }
  return Value::integer(count);
}

Value escape_html(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("escape", arguments, {});
  TextBuilder out(runtime);
  for (const auto& [piece, origin] : runs_of(to_text(runtime, input))) {
    std::string escaped;
    for (const char c : piece.view()) {
      switch (c) {
        case '&': escaped += "&amp;"; break;
        case '<': escaped += "&lt;"; break;
        case '>': escaped += "&gt;"; break;
        case '\'': escaped += "&#39;"; break;
        case '"': escaped += "&#34;"; break;
        default: escaped += c;
      }
    }
    out.append(escaped, origin);
  }
  return Value::text(out.finish());
}

void append_quoted_url(TextBuilder& out, Text text, bool query) {
  for (const auto& [piece, origin] : runs_of(text)) {
    std::string quoted;
    for (const char c : piece.view()) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                         c == '.' || c == '-' || c == '~' || (c == '/' && !query);
      if (plain) {
        quoted += c;
      } else if (c == ' ' && query) {
        quoted += '+';
      } else {
        quoted += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      }
    }
    out.append(quoted, origin);
  }
}

Value url_encode(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("urlencode", arguments, {});
  TextBuilder out(runtime);
  if (!input.is(Kind::dict) && !input.is(Kind::list)) {
    append_quoted_url(out, to_text(runtime, input), false);
    return Value::text(out.finish());
  }
  const auto add = [&](const Value& key, const Value& value) {
    runtime.spend(1);
    if (out.size() > 0) out.append("&");
    append_quoted_url(out, to_text(runtime, key), true);
    out.append("=");
    append_quoted_url(out, to_text(runtime, value), true);
  };
  if (input.is(Kind::dict)) {
    for (const auto& entry : input.as_dict().entries) add(entry.key, entry.value);
  } else {
    for (const Value& pair : input.as_list().items) {
      const ListObject& parts = elements(runtime, pair);
      if (parts.items.size() != 2) fault("urlencode takes pairs");
      add(parts.items[0], parts.items[1]);
    }
  }
  return Value::text(out.finish());
}

Value format_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    fault("format takes positional or named arguments, not both");
  }
  if (!arguments.named.empty()) {
    DictObject* dict = runtime.dict();
    for (const NamedValue& named : arguments.named) dict->set(runtime, runtime.text_value(named.name), named.value);
    return Value::text(format_percent(runtime, to_text(runtime, input), Value::dict(dict)));
  }
  ListObject* tuple = runtime.list(ListFlavor::tuple);
  for (const Value& value : arguments.positional) tuple->push(runtime.heap(), value);
  return Value::text(format_percent(runtime, to_text(runtime, input), Value::list(tuple)));
}

Value to_json(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.flag(0);
  style.sort_keys = bound.flag(3);
  if (bound.given(1)) {
    if (bound[1].is(Kind::text)) {
      style.indent = bound.text(1);
    } else {
      TextBuilder blanks(runtime);
      const std::int64_t width = bound.integer(1, 0);
      blanks.repeat(" ", width < 0 ? 0 : static_cast<std::uint64_t>(width));
      style.indent = blanks.finish();
    }
  }
  style.item_separator = runtime.borrowed(style.indent ? "," : ", ", Origin::of_template);
  style.key_separator = runtime.borrowed(": ", Origin::of_template);
  if (bound.given(2)) {
    const ListObject& pair = elements(runtime, bound[2]);
    if (pair.items.size() != 2 || !pair.items[0].is(Kind::text) || !pair.items[1].is(Kind::text)) {
      fault("tojson's separators are two strings");
    }
    style.item_separator = pair.items[0].as_text();
    style.key_separator = pair.items[1].as_text();
  }
  return Value::text(write_json(runtime, input, style));
}

Value from_json(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("from_json", arguments, {});
  if (!input.is_defined()) fail_undefined(input);
  if (!input.is(Kind::text)) fault("from_json takes a string, not {}", a_type(input));
  return read_json(runtime, input.as_text());
}

constexpr FilterEntry kTextFilters[] = {
    {"upper", rewrite<upper>},
    {"lower", rewrite<lower>},
    {"title", rewrite<title_filter>},
    {"capitalize", rewrite<capitalize>},
    {"string", to_string},
    {"safe", to_string},
    {"trim", trim},
    {"replace", replace_filter},
    {"indent", indent},
    {"center", center},
    {"wordcount", word_count},
    {"e", escape_html},
    {"escape", escape_html},
    {"forceescape", escape_html},
    {"urlencode", url_encode},
    {"format", format_filter},
    {"tojson", to_json},
    {"from_json", from_json},
    {"fromjson", from_json},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kTextFilters; }

FilterFunction find_filter(std::string_view name) {
  for (const auto table : {text_filters(), number_filters(), sequence_filters(), choosing_filters()}) {
    for (const FilterEntry& entry : table) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

}  // namespace quarrel::jinja

// str's methods.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_functions.h"

namespace quarrel::jinja {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

std::optional<Text> optional_text(const BoundArguments& bound, std::size_t index) {
  if (!bound.given(index)) return std::nullopt;
  return bound.text(index);
}

template <Text (*function)(Runtime&, Text)>
Value rewrite(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("this method", arguments, {});
  return Value::text(function(runtime, self.as_text()));
}

template <Side side>
Value strip_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("strip", arguments, {"chars"});
  return Value::text(strip(runtime, self.as_text(), side, optional_text(bound, 0)));
}

template <bool right>
Value split_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("split", arguments, {"sep", "maxsplit"});
  return Value::list(
      (right ? split_right : split)(runtime, self.as_text(), optional_text(bound, 0), bound.integer(1, -1)));
}

Value splitlines(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("splitlines", arguments, {"keepends"});
  return Value::list(split_lines(runtime, self.as_text(), bound.flag(0)));
}

// The part of a text between two optional character positions, and where it starts in characters.
struct Window {
  Text text;
  std::int64_t first = 0;
  bool valid = true;
};

Window window_of(Runtime& runtime, Text text, const BoundArguments& bound) {
  if (!bound.given(1) && !bound.given(2)) return {text, 0, true};
  const Value none = Value::none();
  runtime.spend_bytes(text.size);
  const auto count = static_cast<std::int64_t>(count_characters(text.view()));
  std::int64_t first = bound.given(1) ? bound.integer(1, 0) : 0;
  if (first < 0) first = first < -count ? 0 : first + count;
  if (first > count) return {text.slice(0, 0), count, false};
  const Value part = slice(runtime, Value::text(text), Value::integer(first), bound.get(2, none), none);
  return {part.as_text(), first, true};
}

template <bool at_end>
Value affix_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound(at_end ? "endswith" : "startswith", arguments, {"affix", "start", "end"}, 1);
  const Window window = window_of(runtime, self.as_text(), bound);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_defined()) fail_undefined(affix);
    if (!affix.is(Kind::text)) fault("startswith and endswith take a string or a tuple, not {}", a_type(affix));
    runtime.spend_bytes(affix.as_text().size);
    const std::string_view text = window.text.view();
    return window.valid && (at_end ? text.ends_with(affix.view()) : text.starts_with(affix.view()));
  };
  if (bound[0].is(Kind::list) && bound[0].as_list().flavor == ListFlavor::tuple) {
    const auto& affixes = bound[0].as_list().items;
    return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
  }
  return Value::boolean(matches(bound[0]));
}

Value replace_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("replace", arguments, {"old", "new", "count"}, 2);
  return Value::text(replace(runtime, self.as_text(), bound.text(0), bound.text(1), bound.integer(2, -1)));
}

std::size_t find_last(Runtime& runtime, std::string_view text, std::string_view part) {
  if (part.size() > text.size()) return kNowhere;
  for (std::size_t at = text.size() - part.size() + 1; at-- > 0;) {
    if (part.empty() || text[at] == part[0]) runtime.spend_bytes(part.size());
    if (text.compare(at, part.size(), part) == 0) return at;
  }
  return kNowhere;
}

enum class Missing { negative, fails };

template <bool last, Missing missing>
Value find_method_of_text(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("find", arguments, {"sub", "start", "end"}, 1);
  const Window window = window_of(runtime, self.as_text(), bound);
  const std::string_view text = window.text.view();
  const std::string_view part = bound.text(0).view();
  runtime.spend_bytes(text.size());
  std::size_t at = kNowhere;
  if (window.valid) at = last ? find_last(runtime, text, part) : find_text(runtime, text, part, 0);
  if (at != kNowhere)
    return Value::integer(window.first + static_cast<std::int64_t>(count_characters(text.substr(0, at))));
  if (missing == Missing::fails) fault("the substring was not found");
  return Value::integer(-1);
}

Value count_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"sub", "start", "end"}, 1);
  const Window window = window_of(runtime, self.as_text(), bound);
  const std::string_view text = window.text.view();
  const std::string_view part = bound.text(0).view();
  if (part.empty()) return Value::integer(static_cast<std::int64_t>(count_characters(text)) + (window.valid ? 1 : 0));
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = find_text(runtime, text, part, at)) != kNowhere; at += part.size()) ++count;
  return Value::integer(count);
}

Value join_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"iterable"}, 1);
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& part : elements(runtime, bound[0]).items) {
    if (!part.is(Kind::text)) fault("join takes strings, not {}", a_type(part));
    runtime.spend(1);
    if (!first) out.append(self.as_text());
    out.append(part.as_text());
    first = false;
  }
  return Value::text(out.finish());
}

Value format_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  return Value::text(format_braces(runtime, self.as_text(), arguments));
}

template <bool suffix>
Value remove_affix(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("removeprefix", arguments, {"affix"}, 1);
  const Text text = self.as_text();
  const std::size_t size = bound.text(0).size;
  runtime.spend_bytes(size);
  const std::string_view affix = bound.text(0).view();
  if (!(suffix ? text.view().ends_with(affix) : text.view().starts_with(affix))) return self;
  return Value::text(text.slice(suffix ? 0 : size, text.size - size));
}

template <Side side>
Value pad_method(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("padding", arguments, {"width", "fillchar"}, 1);
  const Text fill = bound.has(1) ? bound.text(1) : runtime.borrowed(" ", Origin::of_template);
  return Value::text(pad(runtime, self.as_text(), bound.integer(0, 0), side, fill));
}

Value zfill(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("zfill", arguments, {"width"}, 1);
  const Text text = self.as_text();
  const bool sign = text.size > 0 && (text.view()[0] == '-' || text.view()[0] == '+');
  const Text digits = sign ? text.slice(1, text.size - 1) : text;
  const std::int64_t width = std::max<std::int64_t>(bound.integer(0, 0), 1) - (sign ? 1 : 0);
  const Text padded = pad(runtime, digits, width, Side::left, runtime.borrowed("0", Origin::of_template));
  return Value::text(sign ? concatenate(runtime, text.slice(0, 1), padded) : padded);
}

template <bool last>
Value partition(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("partition", arguments, {"sep"}, 1);
  const Text text = self.as_text();
  const Text separator = bound.text(0);
  if (separator.size == 0) fault("the separator is empty");
  const std::size_t at =
      last ? find_last(runtime, text.view(), separator.view()) : find_text(runtime, text.view(), separator.view(), 0);
  ListObject* parts = runtime.list(ListFlavor::tuple);
  const auto add = [&](Text part) { parts->push(runtime.heap(), Value::text(part)); };
  const Text nothing = text.slice(0, 0);
  if (at == kNowhere) {
    add(last ? nothing : text);
    add(nothing);
    add(last ? text : nothing);
  } else {
    add(text.slice(0, at));
    add(text.slice(at, separator.size));
    add(text.slice(at + separator.size, text.size - at - separator.size));
  }
  return Value::list(parts);
}

template <bool (*property)(char32_t)>
Value all_characters(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("this method", arguments, {});
  const std::string_view text = self.view();
  runtime.spend_bytes(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (!property(c.code)) return Value::boolean(false);
    at += c.size;
  }
  return Value::boolean(!text.empty());
}

// Some letter has the case and none has the other.
template <bool (*wanted)(char32_t), bool (*unwanted)(char32_t)>
Value cased(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("this method", arguments, {});
  const std::string_view text = self.view();
  runtime.spend_bytes(text.size());
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (unwanted(c.code)) return Value::boolean(false);
    any = any || wanted(c.code);
    at += c.size;
  }
  return Value::boolean(any);
}

bool is_alphanumeric(char32_t code) { return is_alpha(code) || is_digit(code); }

struct Entry {
  std::string_view name;
  MethodFunction function;
};

constexpr Entry kMethods[] = {
    {"upper", rewrite<upper>},
    {"lower", rewrite<lower>},
    {"casefold", rewrite<lower>},
    {"title", rewrite<title>},
    {"capitalize", rewrite<capitalize>},
    {"strip", strip_method<Side::both>},
    {"lstrip", strip_method<Side::left>},
    {"rstrip", strip_method<Side::right>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"replace", replace_method},
    {"find", find_method_of_text<false, Missing::negative>},
    {"rfind", find_method_of_text<true, Missing::negative>},
    {"index", find_method_of_text<false, Missing::fails>},
    {"rindex", find_method_of_text<true, Missing::fails>},
    {"count", count_method},
    {"join", join_method},
    {"format", format_method},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"ljust", pad_method<Side::right>},
    {"rjust", pad_method<Side::left>},
    {"center", pad_method<Side::both>},
    {"zfill", zfill},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"isdigit", all_characters<is_digit>},
    {"isnumeric", all_characters<is_digit>},
    {"isdecimal", all_characters<is_digit>},
    {"isalpha", all_characters<is_alpha>},
    {"isalnum", all_characters<is_alphanumeric>},
    {"isspace", all_characters<is_space>},
    {"isupper", cased<is_upper, is_lower>},
    {"islower", cased<is_lower, is_upper>},
};

}  // namespace

MethodFunction find_text_method(std::string_view name) {
  for (const Entry& entry : kMethods) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace quarrel::jinja

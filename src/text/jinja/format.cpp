#include "text/jinja/format.h"

#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/format_field.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

Text repr_text(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime);
  append_repr(out, runtime, value);
  return out.finish();
}

// A number as an integer, dropping what stands after the point.
std::int64_t truncated(const Value& value) {
  if (value.is_integral()) return value.as_integer();
  const double number = value.as_floating();
  if (!(std::abs(number) < 9.2e18)) fault("{} does not fit an integer", float_repr(number));
  return static_cast<std::int64_t>(number);
}

// ---- "%"

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, Text pattern, const Value& value)
      : runtime_(runtime), pattern_(pattern), view_(pattern.view()), value_(value), out_(runtime) {}

  Text run() {
    while (at_ < view_.size()) {
      const std::size_t percent = std::min(view_.find('%', at_), view_.size());
      out_.append(pattern_.slice(at_, percent - at_));
      at_ = percent;
      if (at_ < view_.size()) field();
    }
    const bool tuple = is_tuple();
    const std::size_t given = tuple ? value_.as_list().items.size() : 1;
    if (next_ < given && !value_.is(Kind::dict) && (tuple || !value_.is(Kind::list))) {
      fault("the format does not use all its arguments");
    }
    return out_.finish();
  }

 private:
  bool is_tuple() const { return value_.is(Kind::list) && value_.as_list().flavor == ListFlavor::tuple; }

  Value next_argument() {
    if (is_tuple()) {
      if (next_ >= value_.as_list().items.size()) fault("the format needs more arguments");
      return value_.as_list().items[next_++];
    }
    if (next_++ > 0) fault("the format needs more arguments");
    return value_;
  }

  char here() const {
    if (at_ >= view_.size()) fault("the format ends inside a field");
    return view_[at_];
  }

  std::int64_t number_or_star() {
    if (at_ < view_.size() && view_[at_] == '*') {
      ++at_;
      const std::int64_t number = require_integer(next_argument(), "a field's width");
      if (std::abs(number) > INT32_MAX) fault("the format has a number that is too large");
      return number;
    }
    return read_number(view_, at_);
  }

  void field() {
    ++at_;
    std::optional<Value> named;
    if (here() == '(') {
      const std::size_t close = view_.find(')', at_);
      if (close == std::string_view::npos) fault("the format has a name without its ')'");
      if (!value_.is(Kind::dict)) fault("a format with names needs a dict, not {}", a_type(value_));
      const Text key = pattern_.slice(at_ + 1, close - at_ - 1);
      const Value* found = value_.as_dict().find(key.view());
      if (found == nullptr) fault("the format names '{}', which was not given", key.view());
      named = *found;
      at_ = close + 1;
    }
    FieldSpec spec;
    bool zero = false;
    spec.align = '>';
    for (;; ++at_) {
      const char flag = here();
      if (flag == '-') {
        spec.align = '<';
      } else if (flag == '+') {
        spec.sign = '+';
      } else if (flag == ' ') {
        if (spec.sign != '+') spec.sign = ' ';
      } else if (flag == '#') {
        spec.alternate = true;
      } else if (flag == '0') {
        zero = true;
      } else {
        break;
      }
    }
    spec.width = number_or_star();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (here() == '.') {
      ++at_;
      spec.precision = number_or_star();
    }
    while (here() == 'h' || here() == 'l' || here() == 'L') ++at_;
    spec.type = here();
    ++at_;
    if (spec.type == '%') {
      out_.append("%");
      return;
    }
    convert(named ? *named : next_argument(), spec, zero);
  }

  void convert(const Value& value, FieldSpec spec, bool zero) {
    if (zero && spec.align == '>' && spec.type != 's' && spec.type != 'r' && spec.type != 'c') {
      spec.align = '=';
      spec.fill = runtime_.borrowed("0", Origin::of_template);
    }
    switch (spec.type) {
      case 's': append_text_field(out_, runtime_, to_text(runtime_, value), spec); return;
      case 'a':
      case 'r': append_text_field(out_, runtime_, repr_text(runtime_, value), spec); return;
      case 'c':
        if (value.is(Kind::text) && count_characters(value.view()) == 1) {
          append_text_field(out_, runtime_, value.as_text(), spec);
          return;
        }
        append_integer_field(out_, runtime_, require_integer(value, "a character"), spec);
        return;
      case 'd':
      case 'i':
      case 'u':
        if (!value.is_number()) break;
        append_integer_field(out_, runtime_, truncated(value), spec);
        return;
      case 'x':
      case 'X':
      case 'o': append_integer_field(out_, runtime_, require_integer(value, "a hexadecimal field"), spec); return;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) break;
        append_float_field(out_, runtime_, value.as_number(), spec);
        return;
      default: fault("the format has no '%{}'", spec.type);
    }
    if (!value.is_defined()) fail_undefined(value);
    fault("'%{}' takes a number, not {}", spec.type, a_type(value));
  }

  Runtime& runtime_;
  Text pattern_;
  std::string_view view_;
  Value value_;
  TextBuilder out_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
};

// ---- braces

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, Text pattern, const Arguments& arguments)
      : runtime_(runtime), pattern_(pattern), view_(pattern.view()), arguments_(arguments), out_(runtime) {}

  Text run() {
    while (at_ < view_.size()) {
      const std::size_t brace = std::min(view_.find_first_of("{}", at_), view_.size());
      out_.append(pattern_.slice(at_, brace - at_));
      at_ = brace;
      if (at_ == view_.size()) break;
      if (at_ + 1 < view_.size() && view_[at_ + 1] == view_[at_]) {
        out_.append(pattern_.slice(at_, 1));
        at_ += 2;
      } else if (view_[at_] == '}') {
        fault("the format has a '}}' without its '{{'");
      } else {
        field();
      }
    }
    return out_.finish();
  }

 private:
  Value positional(std::size_t index) const {
    if (index >= arguments_.positional.size()) fault("the format needs more arguments");
    return arguments_.positional[index];
  }

  // What the part before '!' and ':' names: "", "0", "name", "0.key[1]".
  Value look_up(Text path) {
    const std::string_view view = path.view();
    std::size_t at = std::min(view.find_first_of(".["), view.size());
    const std::string_view head = view.substr(0, at);
    Value value;
    const bool counts = head.empty();
    const bool numbered = !counts && head.find_first_not_of("0123456789") == std::string_view::npos;
    if ((counts && numbered_) || (numbered && next_ > 0)) fault("the format mixes numbered fields with others");
    numbered_ = numbered_ || numbered;
    if (counts) {
      value = positional(next_++);
    } else if (numbered) {
      std::size_t zero = 0;
      value = positional(static_cast<std::size_t>(read_number(head, zero)));
    } else {
      value = named(head);
    }
    while (at < view.size()) {
      const bool bracket = view[at] == '[';
      const std::size_t begin = at + 1;
      const std::size_t end = std::min(bracket ? view.find(']', begin) : view.find_first_of(".[", begin), view.size());
      const Text part = path.slice(begin, end - begin);
      const bool number = bracket && part.size > 0 && part.size < 10 &&
                          part.view().find_first_not_of("0123456789") == std::string_view::npos;
      std::size_t zero = 0;
      runtime_.spend(1);
      if (number) {
        value = item(runtime_, value, Value::integer(read_number(part.view(), zero)));
      } else {
        value = bracket ? item(runtime_, value, Value::text(part)) : attribute(runtime_, value, part);
      }
      at = bracket ? std::min(end + 1, view.size()) : end;
    }
    return value;
  }

  Value named(std::string_view name) const {
    for (const NamedValue& argument : arguments_.named) {
      if (argument.name == name) return argument.value;
    }
    fault("the format names '{}', which was not given", name);
  }

  void field() {
    const std::size_t begin = at_ + 1;
    const std::size_t end = view_.find('}', begin);
    if (end == std::string_view::npos) fault("the format has a '{{' without its '}}'");
    const Text inside = pattern_.slice(begin, end - begin);
    if (inside.view().find('{') != std::string_view::npos) fault("a format field inside a field is not supported");
    at_ = end + 1;
    const std::size_t colon = std::min(inside.view().find(':'), inside.size);
    Text path = inside.slice(0, colon);
    const std::size_t bang = path.view().find('!');
    const bool repr = bang != std::string_view::npos && path.view().substr(bang) == "!r";
    const bool str = bang != std::string_view::npos && path.view().substr(bang) == "!s";
    if (bang != std::string_view::npos) {
      if (!repr && !str) fault("the format has an unknown conversion");
      path = path.slice(0, bang);
    }
    Value value = look_up(path);
    if (repr) value = Value::text(repr_text(runtime_, value));
    if (str) value = Value::text(to_text(runtime_, value));
    const Text spec = colon < inside.size ? inside.slice(colon + 1, inside.size - colon - 1) : inside.slice(0, 0);
    if (spec.size == 0) {
      append_text(out_, runtime_, value);
    } else {
      convert(value, read_spec(spec));
    }
  }

  FieldSpec read_spec(Text text) {
    const std::string_view view = text.view();
    const auto is_align = [&](std::size_t i) {
      return i < view.size() && std::string_view("<>^=").find(view[i]) != std::string_view::npos;
    };
    FieldSpec spec;
    std::size_t at = 0;
    const std::size_t first = character_at(view, 0).size;
    if (is_align(first)) {
      spec.fill = text.slice(0, first);
      spec.align = view[first];
      at = first + 1;
    } else if (is_align(0)) {
      spec.align = view[0];
      at = 1;
    }
    const auto take = [&](std::string_view any) {
      return at < view.size() && any.find(view[at]) != std::string_view::npos ? view[at++] : '\0';
    };
    if (const char sign = take("+- ")) spec.sign = sign;
    spec.alternate = take("#") != 0;
    if (take("0") != 0 && spec.align == 0) {
      spec.align = '=';
      spec.fill = runtime_.borrowed("0", Origin::of_template);
    }
    spec.width = read_number(view, at);
    spec.grouping = take(",_");
    if (take(".") != 0) spec.precision = read_number(view, at);
    spec.type = take("bcdeEfFgGnosxX%");
    if (at != view.size()) fault("the format has a field that cannot be read");
    return spec;
  }

  void convert(const Value& value, FieldSpec spec) {
    const bool for_floats = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    if (value.is(Kind::text)) {
      if (spec.type != 0 && spec.type != 's') fault("a string cannot be formatted as '{}'", spec.type);
      append_text_field(out_, runtime_, value.as_text(), spec);
    } else if (value.is_number() && (for_floats || (value.is(Kind::floating) && spec.type == 0))) {
      append_float_field(out_, runtime_, value.as_number(), spec);
    } else if (value.is_integral() && spec.type != 's') {
      append_integer_field(out_, runtime_, value.as_integer(), spec);
    } else {
      if (!value.is_defined()) fail_undefined(value);
      fault("{} cannot be formatted like this", a_type(value));
    }
  }

  Runtime& runtime_;
  Text pattern_;
  std::string_view view_;
  Arguments arguments_;
  TextBuilder out_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  bool numbered_ = false;  // a field with a number was seen
};

}  // namespace

Text format_percent(Runtime& runtime, Text pattern, const Value& value) {
  return PercentFormatter(runtime, pattern, value).run();
}

Text format_braces(Runtime& runtime, Text pattern, const Arguments& arguments) {
  return BraceFormatter(runtime, pattern, arguments).run();
}

}  // namespace quarrel::jinja

#include <algorithm>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/json.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

void append_escape(std::string& out, char32_t code) {
  if (code >= 0x10000) {
    const std::uint32_t rest = static_cast<std::uint32_t>(code) - 0x10000;
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    return;
  }
  out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(code));
}

std::string quoted(std::string_view text, bool ensure_ascii) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    switch (c.code) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\f': out += "\\f"; break;
      case '\b': out += "\\b"; break;
      default:
        if (c.code < 0x20 || (ensure_ascii && c.code > 0x7E && c.code <= 0x10FFFF)) {
          append_escape(out, c.code);
        } else {
          out.append(text.substr(at, c.size));
        }
    }
    at += c.size;
  }
  out += '"';
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style) : runtime_(runtime), style_(style), out_(runtime) {}

  void write(const Value& value, Origin origin, std::size_t depth) {
    if (depth > kMaxValueDepth) fault("values are nested more than {} deep", kMaxValueDepth);
    runtime_.spend(1);
    switch (value.kind()) {
      case Kind::none: out_.append("null", origin); return;
      case Kind::boolean: out_.append(value.as_boolean() ? "true" : "false", origin); return;
      case Kind::integer: out_.append(std::to_string(value.as_integer()), origin); return;
      case Kind::floating: out_.append(number_text(value.as_floating()), origin); return;
      case Kind::text: write_text(value.as_text(), origin); return;
      case Kind::list:
        if (value.as_list().flavor != ListFlavor::list && value.as_list().flavor != ListFlavor::tuple) break;
        write_list(value.as_list(), origin, depth);
        return;
      case Kind::dict: write_dict(value.as_dict(), origin, depth); return;
      default: break;
    }
    if (!value.is_defined()) fail_undefined(value);
    fault("{} cannot be written as JSON", a_type(value));
  }

  Text finish() { return out_.finish(); }

 private:
  void write_text(Text text, Origin origin) {
    const Origin own = text.from_variables() ? Origin::of_variables : origin;
    out_.append(quoted(text.view(), style_.ensure_ascii), own);
  }

  void line(Origin origin, std::size_t depth) {
    if (!style_.indent) return;
    out_.append("\n", origin);
    out_.repeat(style_.indent->view(), depth, origin);
  }

  void separator(Text text, Origin origin) { out_.append_all(text, origin); }

  void write_list(const ListObject& list, Origin origin, std::size_t depth) {
    if (list.from_variables) origin = Origin::of_variables;
    if (list.items.empty()) {
      out_.append("[]", origin);
      return;
    }
    out_.append("[", origin);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) separator(style_.item_separator, origin);
      line(origin, depth + 1);
      write(list.items[i], origin, depth + 1);
    }
    line(origin, depth);
    out_.append("]", origin);
  }

  void write_key(const Value& key, Origin origin) {
    switch (key.kind()) {
      case Kind::text: write_text(key.as_text(), origin); return;
      case Kind::none: out_.append("\"null\"", origin); return;
      case Kind::boolean: out_.append(key.as_boolean() ? "\"true\"" : "\"false\"", origin); return;
      case Kind::integer: out_.append(fmt::format("\"{}\"", key.as_integer()), origin); return;
      case Kind::floating: out_.append(fmt::format("\"{}\"", number_text(key.as_floating())), origin); return;
      default: fault("{} cannot be a key in JSON", a_type(key));
    }
  }

  void write_dict(const DictObject& dict, Origin origin, std::size_t depth) {
    if (dict.from_variables) origin = Origin::of_variables;
    if (dict.entries.empty()) {
      out_.append("{}", origin);
      return;
    }
    std::vector<const DictObject::Entry*> order;
    order.reserve(dict.entries.size());
    runtime_.spend_items(dict.entries.size());
    for (const auto& entry : dict.entries) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [this](const auto* a, const auto* b) {
        runtime_.spend(1);
        return compare(runtime_, a->key, b->key) < 0;
      });
    }
    out_.append("{", origin);
    bool first = true;
    for (const auto* entry : order) {
      if (!first) separator(style_.item_separator, origin);
      first = false;
      line(origin, depth + 1);
      write_key(entry->key, origin);
      separator(style_.key_separator, origin);
      write(entry->value, origin, depth + 1);
    }
    line(origin, depth);
    out_.append("}", origin);
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Text write_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value, Origin::of_template, 0);
  return writer.finish();
}

}  // namespace quarrel::jinja

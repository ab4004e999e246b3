#include "text/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>

namespace quarrel::jinja {
namespace {

[[noreturn]] void memory_fault(const Runtime& runtime) {
  fault("the template needs more than {} bytes of memory", runtime.limits().memory_bytes);
}

void add_range(Runtime& runtime, StringBuffer& buffer, std::size_t begin, std::size_t end) {
  if (begin == end) return;
  auto& ranges = buffer.from_variables;
  if (!ranges.empty() && ranges.back().end == begin) {
    ranges.back().end = end;
    return;
  }
  runtime.heap().charge(sizeof(TextRange) * 2);
  ranges.push_back({begin, end});
}

// Makes room for `extra` more bytes, doubling, and counts the growth before it happens.
void grow(Runtime& runtime, StringBuffer& buffer, std::size_t extra) {
  runtime.spend_bytes(extra + 8);
  const std::size_t size = buffer.own.size();
  if (extra <= buffer.charged - std::min(buffer.charged, size)) return;
  if (extra > runtime.limits().memory_bytes) memory_fault(runtime);  // the sums below cannot wrap
  const std::size_t capacity = std::max(size + extra, std::min(2 * size, size + (std::size_t{4} << 20)));
  runtime.heap().charge(capacity - buffer.charged);
  buffer.charged = capacity;
  buffer.own.reserve(capacity);
  buffer.bytes = buffer.own;
}

void append_to(Runtime& runtime, StringBuffer& buffer, Text text) {
  if (text.size == 0) return;
  grow(runtime, buffer, text.size);
  const std::size_t at = buffer.own.size();
  // The piece may lie in this very buffer: its ranges end where the new ones begin, so reading stops in time.
  const auto& source = text.buffer->from_variables;
  const std::size_t end = text.begin + text.size;
  auto index = static_cast<std::size_t>(
      std::upper_bound(source.begin(), source.end(), text.begin,
                       [](std::size_t begin, const TextRange& range) { return begin < range.end; }) -
      source.begin());
  const std::size_t count = source.size();
  for (; index < count && text.buffer->from_variables[index].begin < end; ++index) {
    const TextRange range = text.buffer->from_variables[index];
    const std::size_t from = std::max(range.begin, text.begin);
    const std::size_t to = std::min(range.end, end);
    if (to > from) add_range(runtime, buffer, at + (from - text.begin), at + (to - text.begin));
  }
  buffer.own.append(text.view());
  buffer.bytes = buffer.own;
}

}  // namespace

Text Runtime::text(std::string bytes, Origin origin) {
  auto* buffer = heap_.make<StringBuffer>();
  heap_.charge(bytes.size());
  spend_bytes(bytes.size());
  buffer->charged = bytes.size();
  buffer->own = std::move(bytes);
  buffer->bytes = buffer->own;
  if (origin == Origin::of_variables) add_range(*this, *buffer, 0, buffer->own.size());
  return {buffer, 0, buffer->own.size()};
}

Text Runtime::borrowed(std::string_view bytes, Origin origin) {
  auto* buffer = heap_.make<StringBuffer>();
  buffer->bytes = bytes;
  if (origin == Origin::of_variables) add_range(*this, *buffer, 0, bytes.size());
  return {buffer, 0, bytes.size()};
}

ListObject* Runtime::list(ListFlavor flavor) {
  auto* list = heap_.make<ListObject>();
  list->flavor = flavor;
  return list;
}

TextBuilder::TextBuilder(Runtime& runtime) : runtime_(runtime), buffer_(runtime.heap().make<StringBuffer>()) {
  buffer_->growable = true;
}

void TextBuilder::append(Text text) { append_to(runtime_, *buffer_, text); }

void TextBuilder::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  grow(runtime_, *buffer_, bytes.size());
  const std::size_t at = buffer_->own.size();
  buffer_->own.append(bytes);
  buffer_->bytes = buffer_->own;
  if (origin == Origin::of_variables) add_range(runtime_, *buffer_, at, buffer_->own.size());
}

void TextBuilder::append_all(Text text, Origin origin) { append(text.view(), origin); }

void TextBuilder::repeat(std::string_view unit, std::uint64_t count, Origin origin) {
  if (unit.empty() || count == 0) return;
  const std::size_t limit = runtime_.limits().memory_bytes;
  if (count > limit / unit.size()) memory_fault(runtime_);
  grow(runtime_, *buffer_, unit.size() * count);
  const std::size_t at = buffer_->own.size();
  if (unit.size() == 1) {
    buffer_->own.append(count, unit[0]);
  } else {
    for (std::uint64_t i = 0; i < count; ++i) buffer_->own.append(unit);
  }
  buffer_->bytes = buffer_->own;
  if (origin == Origin::of_variables) add_range(runtime_, *buffer_, at, buffer_->own.size());
}

Text concatenate(Runtime& runtime, Text left, Text right) {
  if (right.size == 0) return left;
  if (left.size == 0) return right;
  if (left.buffer->growable && left.begin + left.size == left.buffer->own.size()) {
    append_to(runtime, *left.buffer, right);
    return {left.buffer, left.begin, left.size + right.size};
  }
  TextBuilder builder(runtime);
  builder.append(left);
  builder.append(right);
  return builder.finish();
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "undefined value";
    case Kind::none: return "None";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::floating: return "float";
    case Kind::text: return "str";
    case Kind::dict: return "dict";
    case Kind::space: return "namespace";
    case Kind::host: return value.as_host().type_name();
    case Kind::list: break;
  }
  switch (value.as_list().flavor) {
    case ListFlavor::list: return "list";
    case ListFlavor::tuple: return "tuple";
    case ListFlavor::range: return "range";
    case ListFlavor::generator: return "generator";
    case ListFlavor::keys: return "dict_keys";
    case ListFlavor::values: return "dict_values";
    case ListFlavor::items: return "dict_items";
  }
  return "list";
}

std::string a_type(const Value& value) {
  const std::string_view name = type_name(value);
  if (value.is(Kind::none)) return std::string(name);
  const bool vowel = std::string_view("aeiou").find(name.front()) != std::string_view::npos;
  return fmt::format("{} {}", vowel ? "an" : "a", name);
}

}  // namespace quarrel::jinja

// Length, iteration, attributes, subscripts and slices.
#include <algorithm>

#include "text/jinja/characters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

ListObject& characters_of(Runtime& runtime, Text text) {
  ListObject* list = runtime.list();
  const std::string_view view = text.view();
  runtime.spend_items(view.size());
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t size = character_at(view, at).size;
    list->push(runtime.heap(), Value::text(text.slice(at, size)));
    at += size;
  }
  return *list;
}

// Python's rule for the three numbers of a slice over `count` elements.
struct SliceBounds {
  std::int64_t start, stop, step;
};

SliceBounds slice_bounds(const Value& start, const Value& stop, const Value& step, std::size_t count) {
  const auto given = [](const Value& value) { return !value.is(Kind::none); };
  const auto size = static_cast<std::int64_t>(count);
  SliceBounds bounds{};
  bounds.step = given(step) ? require_integer(step, "a slice's step") : 1;
  if (bounds.step == 0) fault("a slice's step must not be zero");
  bounds.step = std::clamp(bounds.step, -size - 1, size + 1);  // nothing further apart exists
  const std::int64_t low = bounds.step < 0 ? -1 : 0;
  const std::int64_t high = bounds.step < 0 ? size - 1 : size;
  const auto place = [&](const Value& value, std::int64_t otherwise) {
    if (!given(value)) return otherwise;
    std::int64_t at = require_integer(value, "a slice's bound");
    if (at < 0) at = at < -size ? -1 - size : at;  // far below: keeps the sum from wrapping
    if (at < 0) at += size;
    return std::clamp(at, low, high);
  };
  bounds.start = place(start, bounds.step < 0 ? high : low);
  bounds.stop = place(stop, bounds.step < 0 ? low : high);
  return bounds;
}

Value slice_text(Runtime& runtime, Text text, const Value& start, const Value& stop, const Value& step) {
  const std::string_view view = text.view();
  runtime.spend_bytes(2 * view.size());
  const SliceBounds bounds = slice_bounds(start, stop, step, count_characters(view));
  if (bounds.step == 1) {
    if (bounds.start >= bounds.stop) return Value::text(text.slice(0, 0));
    const std::size_t begin = byte_of_character(view, static_cast<std::size_t>(bounds.start));
    const std::size_t size =
        byte_of_character(view.substr(begin), static_cast<std::size_t>(bounds.stop - bounds.start));
    return Value::text(text.slice(begin, size));
  }
  const ListObject& characters = characters_of(runtime, text);
  TextBuilder out(runtime);
  for (std::int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop; i += bounds.step) {
    out.append(characters.items[static_cast<std::size_t>(i)].as_text());
  }
  return Value::text(out.finish());
}

// Where an index stands, counting from the end when negative; nothing when outside.
std::optional<std::size_t> place_index(std::int64_t index, std::size_t count) {
  if (index < 0) index = index < -static_cast<std::int64_t>(count) ? -1 : index + static_cast<std::int64_t>(count);
  if (index < 0 || static_cast<std::size_t>(index) >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value character_number(Runtime& runtime, Text text, std::int64_t index) {
  const std::string_view view = text.view();
  runtime.spend_bytes(view.size());
  const auto place = place_index(index, count_characters(view));
  if (!place) return {};
  const std::size_t at = byte_of_character(view, *place);
  return Value::text(text.slice(at, character_at(view, at).size));
}

}  // namespace

std::optional<std::size_t> length(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::text: runtime.spend_bytes(value.as_text().size); return count_characters(value.view());
    case Kind::list: return value.as_list().items.size();
    case Kind::dict: return value.as_dict().entries.size();
    default: return std::nullopt;
  }
}

Value entry_pair(Runtime& runtime, const DictObject::Entry& entry) {
  ListObject* pair = runtime.list(ListFlavor::tuple);
  pair->push(runtime.heap(), entry.key);
  pair->push(runtime.heap(), entry.value);
  return Value::list(pair);
}

ListObject& elements(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::list: return value.as_list();
    case Kind::undefined: return *runtime.list();
    case Kind::text: return characters_of(runtime, value.as_text());
    case Kind::dict: {
      ListObject* keys = runtime.list();
      runtime.spend_items(value.as_dict().entries.size());
      for (const auto& entry : value.as_dict().entries) keys->push(runtime.heap(), entry.key);
      return *keys;
    }
    default: fault("cannot iterate over {}", a_type(value));
  }
}

Value attribute(Runtime& runtime, const Value& object, Text name) {
  const std::string_view view = name.view();
  if (!object.is_defined()) fail_undefined(object);
  if (view.starts_with("__")) return Value::missing(name);
  if (object.is(Kind::host)) {
    const Value found = object.as_host().attribute(runtime, view);
    return found.is_defined() ? found : Value::missing(name);
  }
  if (object.is(Kind::space)) {
    const Value* found = object.as_dict().find(view);
    return found != nullptr ? *found : Value::missing(name);
  }
  if (const Value method = bound_method(runtime, object, view); method.is_defined()) return method;
  if (object.is(Kind::dict)) {
    if (const Value* found = object.as_dict().find(view)) return *found;
  }
  return Value::missing(name);
}

Value item(Runtime& runtime, const Value& object, const Value& index) {
  if (!object.is_defined()) fail_undefined(object);
  if (object.is(Kind::dict)) {
    const bool hashable =
        !index.is(Kind::dict) && !(index.is(Kind::list) && index.as_list().flavor == ListFlavor::list);
    if (hashable) {
      if (const Value* found = object.as_dict().find(runtime, index)) return *found;
    }
  } else if (index.is_integral()) {
    if (object.is(Kind::text)) return character_number(runtime, object.as_text(), index.as_integer());
    if (object.is(Kind::list)) {
      const auto& items = object.as_list().items;
      const auto place = place_index(index.as_integer(), items.size());
      return place ? items[*place] : Value{};
    }
  }
  if (index.is(Kind::text)) {
    if (!object.is(Kind::dict)) return attribute(runtime, object, index.as_text());
    const Value method = bound_method(runtime, object, index.view());
    return method.is_defined() ? method : Value::missing(index.as_text());
  }
  return {};
}

Value slice(Runtime& runtime, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (!object.is_defined()) fail_undefined(object);
  if (object.is(Kind::text)) return slice_text(runtime, object.as_text(), start, stop, step);
  if (!object.is(Kind::list)) fault("{} cannot be sliced", a_type(object));
  const ListObject& source = object.as_list();
  const SliceBounds bounds = slice_bounds(start, stop, step, source.items.size());
  ListObject* result = runtime.list(source.flavor == ListFlavor::tuple ? ListFlavor::tuple : ListFlavor::list);
  result->from_variables = source.from_variables;
  runtime.spend_items(source.items.size());
  for (std::int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop; i += bounds.step) {
    result->push(runtime.heap(), source.items[static_cast<std::size_t>(i)]);
  }
  return Value::list(result);
}

Value attribute_path(Runtime& runtime, const Value& object, const Value& path) {
  if (!path.is(Kind::text)) return item(runtime, object, path);
  const std::string_view view = path.view();
  Value current = object;
  for (std::size_t begin = 0; begin <= view.size();) {
    const std::size_t dot = std::min(view.find('.', begin), view.size());
    const Text part = path.as_text().slice(begin, dot - begin);
    const std::string_view name = part.view();
    runtime.spend(1);
    if (!name.empty() && name.size() < 10 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      current = item(runtime, current, Value::integer(std::stoll(std::string(name))));
    } else {
      current = item(runtime, current, Value::text(part));
    }
    begin = dot + 1;
  }
  return current;
}

}  // namespace quarrel::jinja

// Methods of lists and dicts, and the lookup over all kinds. The methods that change a value in place are here because
// templates use them to collect things; what they change lives only as long as the rendering.
#include "text/jinja/methods.h"

#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

class BoundMethod : public HostObject {
 public:
  BoundMethod(MethodFunction function, const Value& self) : function_(function), self_(self) {}
  std::string_view type_name() const override { return "built-in method"; }
  Value call(Runtime& runtime, const Arguments& arguments) override { return function_(runtime, self_, arguments); }

 private:
  MethodFunction function_;
  Value self_;
};

// ---- lists

Value list_append(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("append", arguments, {"object"}, 1);
  self.as_list().push(runtime.heap(), bound[0]);
  return Value::none();
}

Value list_extend(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("extend", arguments, {"iterable"}, 1);
  const ListObject& source = elements(runtime, bound[0]);
  const std::size_t count = source.items.size();  // a list may extend itself
  runtime.spend_items(count);
  for (std::size_t i = 0; i < count; ++i) {
    const Value element = source.items[i];
    self.as_list().push(runtime.heap(), element);
  }
  return Value::none();
}

std::size_t place_in(const ListObject& list, std::int64_t index, std::size_t limit) {
  const auto size = static_cast<std::int64_t>(list.items.size());
  if (index < 0) index = index < -size ? 0 : index + size;
  return std::min(static_cast<std::size_t>(index), limit);
}

Value list_insert(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("insert", arguments, {"index", "object"}, 2);
  ListObject& list = self.as_list();
  const std::size_t at = place_in(list, bound.integer(0, 0), list.items.size());
  runtime.spend_items(list.items.size());
  list.push(runtime.heap(), bound[1]);
  std::rotate(list.items.begin() + static_cast<std::ptrdiff_t>(at), list.items.end() - 1, list.items.end());
  return Value::none();
}

Value list_pop(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pop", arguments, {"index"});
  ListObject& list = self.as_list();
  const auto size = static_cast<std::int64_t>(list.items.size());
  const std::int64_t index = bound.integer(0, -1);
  if (index >= size || index < -size) fault("pop is out of range");
  const std::size_t at = place_in(list, index, list.items.size());
  runtime.spend_items(list.items.size());
  const Value result = list.items[at];
  list.items.erase(list.items.begin() + static_cast<std::ptrdiff_t>(at));
  return result;
}

std::optional<std::size_t> find_element(Runtime& runtime, const ListObject& list, const Value& wanted) {
  runtime.spend_items(list.items.size());
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (equal(runtime, list.items[i], wanted)) return i;
  }
  return std::nullopt;
}

Value list_remove(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("remove", arguments, {"value"}, 1);
  const auto at = find_element(runtime, self.as_list(), bound[0]);
  if (!at) fault("the value to remove is not in the list");
  self.as_list().items.erase(self.as_list().items.begin() + static_cast<std::ptrdiff_t>(*at));
  return Value::none();
}

Value list_index(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("index", arguments, {"value"}, 1);
  const auto at = find_element(runtime, self.as_list(), bound[0]);
  if (!at) fault("the value is not in the list");
  return Value::integer(static_cast<std::int64_t>(*at));
}

Value list_count(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("count", arguments, {"value"}, 1);
  std::int64_t count = 0;
  runtime.spend_items(self.as_list().items.size());
  for (const Value& element : self.as_list().items) count += equal(runtime, element, bound[0]) ? 1 : 0;
  return Value::integer(count);
}

Value list_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("copy", arguments, {});
  return slice(runtime, self, Value::none(), Value::none(), Value::none());
}

Value list_clear(Runtime& /*runtime*/, const Value& self, const Arguments& arguments) {
  const BoundArguments none("clear", arguments, {});
  self.as_list().items.clear();
  return Value::none();
}

Value list_reverse(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("reverse", arguments, {});
  runtime.spend_items(self.as_list().items.size());
  std::reverse(self.as_list().items.begin(), self.as_list().items.end());
  return Value::none();
}

// ---- dicts

Value dict_get(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("get", arguments, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(runtime, bound[0]);
  return found != nullptr ? *found : bound.get(1, Value::none());
}

template <ListFlavor flavor>
Value dict_view(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("this method", arguments, {});
  ListObject* list = runtime.list(flavor);
  list->from_variables = self.as_dict().from_variables;
  runtime.spend_items(self.as_dict().entries.size());
  for (const auto& entry : self.as_dict().entries) {
    const Value element = flavor == ListFlavor::keys     ? entry.key
                          : flavor == ListFlavor::values ? entry.value
                                                         : entry_pair(runtime, entry);
    list->push(runtime.heap(), element);
  }
  return Value::list(list);
}

Value dict_pop(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("pop", arguments, {"key", "default"}, 1);
  const Value* found = self.as_dict().find(runtime, bound[0]);
  if (found == nullptr) {
    if (!bound.has(1)) fault("the key to pop is not in the dict");
    return bound[1];
  }
  const Value result = *found;
  self.as_dict().erase(runtime, bound[0]);
  return result;
}

void merge(Runtime& runtime, DictObject& target, const Value& source) {
  if (!source.is(Kind::dict)) fault("update takes a dict, not {}", a_type(source));
  const auto& entries = source.as_dict().entries;
  if (&source.as_dict() == &target) return;
  runtime.spend(entries.size());
  for (const auto& entry : entries) target.set(runtime, entry.key, entry.value);
}

Value dict_update(Runtime& runtime, const Value& self, const Arguments& arguments) {
  if (arguments.positional.size() > 1) fault("update takes one dict");
  for (const Value& source : arguments.positional) merge(runtime, self.as_dict(), source);
  for (const NamedValue& named : arguments.named) {
    self.as_dict().set(runtime, runtime.text_value(named.name), named.value);
  }
  return Value::none();
}

Value dict_setdefault(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments bound("setdefault", arguments, {"key", "default"}, 1);
  if (const Value* found = self.as_dict().find(runtime, bound[0])) return *found;
  const Value value = bound.get(1, Value::none());
  self.as_dict().set(runtime, bound[0], value);
  return value;
}

Value dict_copy(Runtime& runtime, const Value& self, const Arguments& arguments) {
  const BoundArguments none("copy", arguments, {});
  DictObject* copy = runtime.dict();
  copy->from_variables = self.as_dict().from_variables;
  merge(runtime, *copy, self);
  return Value::dict(copy);
}

struct Entry {
  std::string_view name;
  MethodFunction function;
};

constexpr Entry kListMethods[] = {
    {"append", list_append}, {"extend", list_extend}, {"insert", list_insert}, {"pop", list_pop},
    {"remove", list_remove}, {"copy", list_copy},     {"clear", list_clear},   {"reverse", list_reverse},
    {"index", list_index},   {"count", list_count},
};
constexpr std::size_t kReadOnlyListMethods = 2;  // the last ones, which tuples and ranges have too

constexpr Entry kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<ListFlavor::items>},
    {"keys", dict_view<ListFlavor::keys>},
    {"values", dict_view<ListFlavor::values>},
    {"pop", dict_pop},
    {"update", dict_update},
    {"setdefault", dict_setdefault},
    {"copy", dict_copy},
};

MethodFunction find_in(std::span<const Entry> table, std::string_view name) {
  for (const Entry& entry : table) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

MethodFunction find_list_method(const ListObject& list, std::string_view name) {
  const std::span<const Entry> table(kListMethods);
  if (list.flavor == ListFlavor::list) return find_in(table, name);
  if (list.flavor == ListFlavor::tuple || list.flavor == ListFlavor::range) {
    return find_in(table.last(kReadOnlyListMethods), name);
  }
  return nullptr;
}

}  // namespace

MethodFunction find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::text: return find_text_method(name);
    case Kind::list: return find_list_method(object.as_list(), name);
    case Kind::dict: return find_in(kDictMethods, name);
    default: return nullptr;
  }
}

Value bound_method(Runtime& runtime, const Value& object, std::string_view name) {
  const MethodFunction function = find_method(object, name);
  if (function == nullptr) return {};
  return Value::host(runtime.heap().make<BoundMethod>(function, object));
}

}  // namespace quarrel::jinja

// Filters that rearrange or fold sequences.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_functions.h"

namespace quarrel::jinja {
namespace {

// What an element is compared by: itself or an attribute, in lower case unless case matters.
Value sort_key(Runtime& runtime, const Value& element, const Value& path, bool case_sensitive) {
  const Value key = path.is_defined() && !path.is(Kind::none) ? attribute_path(runtime, element, path) : element;
  if (case_sensitive || !key.is(Kind::text)) return key;
  return Value::text(lower(runtime, key.as_text()));
}

struct Keyed {
  Value key;
  Value element;
};

std::vector<Keyed> with_keys(Runtime& runtime, const ListObject& list, const Value& path, bool case_sensitive) {
  std::vector<Keyed> keyed;
  runtime.spend(list.items.size());
  runtime.heap().charge(list.items.size() * sizeof(Keyed));
  keyed.reserve(list.items.size());
  for (const Value& element : list.items) {
    keyed.push_back({sort_key(runtime, element, path, case_sensitive), element});
  }
  return keyed;
}

// A merge sort of our own: an order that contradicts itself (NaN) must do no harm, and comparing may throw.
void sort_by_key(Runtime& runtime, std::vector<Keyed>& keyed, bool descending) {
  std::vector<Keyed> other(keyed.size());
  runtime.heap().charge(keyed.size() * sizeof(Keyed));
  for (std::size_t width = 1; width < keyed.size(); width *= 2) {
    for (std::size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, keyed.size());
      const std::size_t end = std::min(begin + 2 * width, keyed.size());
      std::size_t left = begin;
      std::size_t right = middle;
      for (std::size_t at = begin; at < end; ++at) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          runtime.spend(1);
          const int order = compare(runtime, keyed[right].key, keyed[left].key);
          take_right = descending ? order > 0 : order < 0;
        }
        other[at] = take_right ? keyed[right++] : keyed[left++];
      }
    }
    keyed.swap(other);
  }
}

// Several attributes, "a,b", make a tuple to sort by.
Value multiple_key(Runtime& runtime, const Value& element, const Value& paths, bool case_sensitive) {
  const ListObject* parts = split(runtime, paths.as_text(), runtime.borrowed(",", Origin::of_template), -1);
  if (parts->items.size() == 1) return sort_key(runtime, element, paths, case_sensitive);
  ListObject* key = runtime.list(ListFlavor::tuple);
  for (const Value& part : parts->items) {
    key->push(runtime.heap(), sort_key(runtime, element, part, case_sensitive));
  }
  return Value::list(key);
}

Value list_of(Runtime& runtime, const std::vector<Keyed>& keyed) {
  ListObject* result = runtime.list();
  for (const Keyed& entry : keyed) result->push(runtime.heap(), entry.element);
  return Value::list(result);
}

Value sort_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const ListObject& list = elements(runtime, input);
  std::vector<Keyed> keyed;
  if (bound.has(2) && bound[2].is(Kind::text)) {
    runtime.heap().charge(list.items.size() * sizeof(Keyed));
    runtime.spend(list.items.size());
    for (const Value& element : list.items) {
      keyed.push_back({multiple_key(runtime, element, bound[2], bound.flag(1)), element});
    }
  } else {
    keyed = with_keys(runtime, list, bound[2], bound.flag(1));
  }
  sort_by_key(runtime, keyed, bound.flag(0));
  return list_of(runtime, keyed);
}

Value dictsort(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!input.is_defined()) fail_undefined(input);
  if (!input.is(Kind::dict)) fault("dictsort takes a dict, not {}", a_type(input));
  const std::string_view by = bound.has(1) ? bound.text(1).view() : "key";
  if (by != "key" && by != "value") fault("dictsort sorts by key or value");
  std::vector<Keyed> keyed;
  const auto& entries = input.as_dict().entries;
  runtime.spend(entries.size());
  runtime.heap().charge(entries.size() * sizeof(Keyed));
  for (const auto& entry : entries) {
    const Value& what = by == "key" ? entry.key : entry.value;
    keyed.push_back({sort_key(runtime, what, Value{}, bound.flag(0)), entry_pair(runtime, entry)});
  }
  sort_by_key(runtime, keyed, bound.flag(2));
  return list_of(runtime, keyed);
}

Value unique(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("unique", arguments, {"case_sensitive", "attribute"});
  ListObject* result = runtime.list(ListFlavor::generator);
  DictObject* seen = runtime.dict();
  for (const Keyed& entry : with_keys(runtime, elements(runtime, input), bound[1], bound.flag(0))) {
    if (seen->find(runtime, entry.key) != nullptr) continue;
    seen->set(runtime, entry.key, Value::none());
    result->push(runtime.heap(), entry.element);
  }
  return Value::list(result);
}

template <bool largest>
Value extreme(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const auto keyed = with_keys(runtime, elements(runtime, input), bound[1], bound.flag(0));
  if (keyed.empty()) return {};
  const Keyed* best = keyed.data();
  for (const Keyed& entry : keyed) {
    runtime.spend(1);
    const int order = compare(runtime, entry.key, best->key);
    if (largest ? order > 0 : order < 0) best = &entry;
  }
  return best->element;
}

Value group_by(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const auto keyed_by = [&](const Value& element, bool case_sensitive) {
    const Value key = sort_key(runtime, element, bound[0], case_sensitive);
    return key.is_defined() || !bound.has(1) ? key : bound[1];
  };
  std::vector<Keyed> keyed;
  const ListObject& list = elements(runtime, input);
  runtime.spend(list.items.size());
  runtime.heap().charge(list.items.size() * sizeof(Keyed));
  keyed.reserve(list.items.size());
  for (const Value& element : list.items) keyed.push_back({keyed_by(element, bound.flag(2)), element});
  sort_by_key(runtime, keyed, false);
  ListObject* groups = runtime.list();
  ListObject* members = nullptr;
  for (std::size_t i = 0; i < keyed.size(); ++i) {
    if (i == 0 || !equal(runtime, keyed[i].key, keyed[i - 1].key)) {
      members = runtime.list();
      const Value name = keyed_by(keyed[i].element, true);
      groups->push(runtime.heap(), entry_pair(runtime, {name, Value::list(members)}));
    }
    members->push(runtime.heap(), keyed[i].element);
  }
  return Value::list(groups);
}

Value join(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("join", arguments, {"d", "attribute"});
  const Text separator = bound.has(0) ? to_text(runtime, bound[0]) : Text{};
  const bool by_attribute = bound.given(1);
  TextBuilder out(runtime);
  bool first = true;
  for (const Value& element : elements(runtime, input).items) {
    runtime.spend(1);
    if (!first) out.append(separator);
    first = false;
    append_text(out, runtime, by_attribute ? attribute_path(runtime, element, bound[1]) : element);
  }
  return Value::text(out.finish());
}

Value sum(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sum", arguments, {"attribute", "start"});
  Value total = bound.get(1, Value::integer(0));
  if (total.is(Kind::text)) fault("sum does not add strings");
  for (const Value& element : elements(runtime, input).items) {
    runtime.spend(1);
    const Value term = bound.given(0) ? attribute_path(runtime, element, bound[0]) : element;
    total = arithmetic(runtime, ArithmeticOp::add, total, term);
  }
  return total;
}

Value first(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("first", arguments, {});
  const auto& items = elements(runtime, input).items;
  return items.empty() ? Value{} : items.front();
}

Value last(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("last", arguments, {});
  const auto& items = elements(runtime, input).items;
  return items.empty() ? Value{} : items.back();
}

Value copy_of(Runtime& runtime, const ListObject& source, ListFlavor flavor) {
  ListObject* result = runtime.list(flavor);
  result->from_variables = source.from_variables;
  runtime.spend_items(source.items.size());
  for (const Value& element : source.items) result->push(runtime.heap(), element);
  return Value::list(result);
}

Value to_list(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("list", arguments, {});
  return copy_of(runtime, elements(runtime, input), ListFlavor::list);
}

Value reverse(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("reverse", arguments, {});
  if (input.is(Kind::text)) return slice(runtime, input, Value::none(), Value::none(), Value::integer(-1));
  const Value result = copy_of(runtime, elements(runtime, input), ListFlavor::generator);
  std::reverse(result.as_list().items.begin(), result.as_list().items.end());
  return result;
}

Value items(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments none("items", arguments, {});
  ListObject* result = runtime.list(ListFlavor::generator);
  if (!input.is_defined()) return Value::list(result);
  if (!input.is(Kind::dict)) fault("items takes a dict, not {}", a_type(input));
  runtime.spend_items(input.as_dict().entries.size());
  for (const auto& entry : input.as_dict().entries) result->push(runtime.heap(), entry_pair(runtime, entry));
  return Value::list(result);
}

// batch: lists of so many elements.
Value batch(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t size = bound.integer(0, 0);
  ListObject* result = runtime.list(ListFlavor::generator);
  ListObject* line = nullptr;
  for (const Value& element : elements(runtime, input).items) {
    runtime.spend(1);
    if (line == nullptr || static_cast<std::int64_t>(line->items.size()) == size) {
      line = runtime.list();
      result->push(runtime.heap(), Value::list(line));
    }
    line->push(runtime.heap(), element);
  }
  while (line != nullptr && bound.given(1) && static_cast<std::int64_t>(line->items.size()) < size) {
    runtime.spend(1);
    line->push(runtime.heap(), bound[1]);
  }
  return Value::list(result);
}

// slice: so many lists.
Value slice_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("slice", arguments, {"slices", "fill_with"}, 1);
  const std::int64_t slices = bound.integer(0, 0);
  if (slices <= 0) fault("slice needs a number of slices above zero");
  const ListObject& source = elements(runtime, input);
  const auto count = static_cast<std::int64_t>(source.items.size());
  const std::int64_t longer = count % slices;  // so many have one element more
  ListObject* result = runtime.list(ListFlavor::generator);
  std::size_t at = 0;
  for (std::int64_t number = 0; number < slices; ++number) {
    runtime.spend(1);
    ListObject* part = runtime.list();
    for (std::int64_t i = 0; i < count / slices + (number < longer ? 1 : 0); ++i) {
      part->push(runtime.heap(), source.items[at++]);
    }
    if (bound.given(1) && number >= longer) part->push(runtime.heap(), bound[1]);
    result->push(runtime.heap(), Value::list(part));
  }
  return Value::list(result);
}

constexpr FilterEntry kSequenceFilters[] = {
    {"sort", sort_filter}, {"dictsort", dictsort}, {"unique", unique}, {"min", extreme<false>}, {"max", extreme<true>},
    {"groupby", group_by}, {"join", join},         {"sum", sum},       {"first", first},        {"last", last},
    {"list", to_list},     {"reverse", reverse},   {"items", items},   {"batch", batch},        {"slice", slice_filter},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace quarrel::jinja

// Filters that take other filters and tests by name: map, select, reject and their kin.
#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/operations.h"
#include "text/jinja/predicates.h"

namespace quarrel::jinja {
namespace {

Value map_filter(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ListObject* result = runtime.list(ListFlavor::generator);
  if (!truth(input)) return Value::list(result);
  if (arguments.positional.empty()) {
    const BoundArguments bound("map", arguments, {"attribute", "default"}, 1);
    for (const Value& element : elements(runtime, input).items) {
      runtime.spend(1);
      const Value found = attribute_path(runtime, element, bound[0]);
      result->push(runtime.heap(), found.is_defined() || !bound.has(1) ? found : bound[1]);
    }
    return Value::list(result);
  }
  const Value& name = arguments.positional[0];
  const FilterFunction filter = name.is(Kind::text) ? find_filter(name.view()) : nullptr;
  if (filter == nullptr) fault("map does not know this filter");
  if (filter == map_filter) fault("map cannot map itself");
  const Arguments rest{arguments.positional.subspan(1), arguments.named};
  for (const Value& element : elements(runtime, input).items) {
    runtime.spend(1);
    result->push(runtime.heap(), filter(runtime, element, rest));
  }
  return Value::list(result);
}

template <bool keep, bool by_attribute>
Value choose(Runtime& runtime, const Value& input, const Arguments& arguments) {
  ListObject* result = runtime.list(ListFlavor::generator);
  if (!truth(input)) return Value::list(result);
  std::span<const Value> rest = arguments.positional;
  Value path;
  if (by_attribute) {
    if (rest.empty()) fault("selectattr and rejectattr need an attribute's name");
    path = rest[0];
    rest = rest.subspan(1);
  }
  PredicateFunction test = nullptr;
  if (!rest.empty()) {
    test = rest[0].is(Kind::text) ? find_predicate(rest[0].view()) : nullptr;
    if (test == nullptr) fault("select and reject do not know this test");
    rest = rest.subspan(1);
  }
  const Arguments test_arguments{rest, arguments.named};
  for (const Value& element : elements(runtime, input).items) {
    runtime.spend(1);
    const Value value = by_attribute ? attribute_path(runtime, element, path) : element;
    const bool holds = test != nullptr ? test(runtime, value, test_arguments) : truth(value);
    if (holds == keep) result->push(runtime.heap(), element);
  }
  return Value::list(result);
}

constexpr FilterEntry kChoosingFilters[] = {
    {"map", map_filter},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
};

}  // namespace

std::span<const FilterEntry> choosing_filters() { return kChoosingFilters; }

}  // namespace quarrel::jinja

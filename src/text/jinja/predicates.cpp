#include "text/jinja/predicates.h"

#include "text/jinja/arguments.h"
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/operations.h"

namespace quarrel::jinja {
namespace {

void no_arguments(const Arguments& arguments) { const BoundArguments none("this test", arguments, {}); }

template <Kind kind>
bool is_kind(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is(kind);
}

bool is_defined(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is_defined();
}

bool is_iterable(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is(Kind::text) || input.is(Kind::list) || input.is(Kind::dict) || !input.is_defined();
}

bool is_sequence(Runtime& runtime, const Value& input, const Arguments& arguments) {
  if (!is_iterable(runtime, input, arguments)) return false;
  if (!input.is(Kind::list)) return true;
  const ListFlavor flavor = input.as_list().flavor;
  return flavor == ListFlavor::list || flavor == ListFlavor::tuple || flavor == ListFlavor::range;
}

bool is_number(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is_number();
}

template <bool wanted>
bool is_bool(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is(Kind::boolean) && input.as_boolean() == wanted;
}

bool is_callable(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return !input.is_defined() || (input.is(Kind::host) && input.as_host().callable());
}

enum class Order { eq, ne, lt, le, gt, ge };

template <Order order>
bool is_ordered(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("a comparing test", arguments, {"other"}, 1);
  switch (order) {
    case Order::eq: return equal(runtime, input, bound[0]);
    case Order::ne: return !equal(runtime, input, bound[0]);
    case Order::lt: return compare(runtime, input, bound[0]) < 0;
    case Order::le: return compare(runtime, input, bound[0]) <= 0;
    case Order::gt: return compare(runtime, input, bound[0]) > 0;
    case Order::ge: return compare(runtime, input, bound[0]) >= 0;
  }
  return false;
}

bool is_in(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("in", arguments, {"seq"}, 1);
  return contains(runtime, bound[0], input);
}

bool is_same(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("sameas", arguments, {"other"}, 1);
  const Value other = bound[0];
  if (input.kind() != other.kind()) return false;
  switch (input.kind()) {
    case Kind::list: return &input.as_list() == &other.as_list();
    case Kind::dict:
    case Kind::space: return &input.as_dict() == &other.as_dict();
    default: return equal(runtime, input, other);
  }
}

bool divides(const Value& input, std::int64_t divisor) {
  if (divisor == 0) fault("division by zero");
  return divisor == -1 || require_integer(input, "a number to divide") % divisor == 0;
}

bool is_divisible(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  const BoundArguments bound("divisibleby", arguments, {"num"}, 1);
  return divides(input, bound.integer(0, 1));
}

template <bool even>
bool is_even(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return divides(input, 2) == even;
}

// The text is in one case: what str.isupper and str.islower say.
template <bool upper>
bool is_case(Runtime& runtime, const Value& input, const Arguments& arguments) {
  const Value text = Value::text(to_text(runtime, input));
  return truth(find_text_method(upper ? "isupper" : "islower")(runtime, text, arguments));
}

bool is_filter(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is(Kind::text) && find_filter(input.view()) != nullptr;
}

bool is_test(Runtime& /*runtime*/, const Value& input, const Arguments& arguments) {
  no_arguments(arguments);
  return input.is(Kind::text) && find_predicate(input.view()) != nullptr;
}

bool is_escaped(Runtime& /*runtime*/, const Value& /*input*/, const Arguments& arguments) {
  no_arguments(arguments);
  return false;
}

struct Entry {
  std::string_view name;
  PredicateFunction function;
};

constexpr Entry kPredicates[] = {
    {"defined", is_defined},
    {"undefined", is_kind<Kind::undefined>},
    {"none", is_kind<Kind::none>},
    {"string", is_kind<Kind::text>},
    {"mapping", is_kind<Kind::dict>},
    {"boolean", is_kind<Kind::boolean>},
    {"integer", is_kind<Kind::integer>},
    {"float", is_kind<Kind::floating>},
    {"number", is_number},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"true", is_bool<true>},
    {"false", is_bool<false>},
    {"callable", is_callable},
    {"==", is_ordered<Order::eq>},
    {"eq", is_ordered<Order::eq>},
    {"equalto", is_ordered<Order::eq>},
    {"!=", is_ordered<Order::ne>},
    {"ne", is_ordered<Order::ne>},
    {"<", is_ordered<Order::lt>},
    {"lt", is_ordered<Order::lt>},
    {"lessthan", is_ordered<Order::lt>},
    {"<=", is_ordered<Order::le>},
    {"le", is_ordered<Order::le>},
    {">", is_ordered<Order::gt>},
    {"gt", is_ordered<Order::gt>},
    {"greaterthan", is_ordered<Order::gt>},
    {">=", is_ordered<Order::ge>},
    {"ge", is_ordered<Order::ge>},
    {"in", is_in},
    {"sameas", is_same},
    {"divisibleby", is_divisible},
    {"even", is_even<true>},
    {"odd", is_even<false>},
    {"upper", is_case<true>},
    {"lower", is_case<false>},
    {"filter", is_filter},
    {"test", is_test},
    {"escaped", is_escaped},
};

}  // namespace

PredicateFunction find_predicate(std::string_view name) {
  for (const Entry& entry : kPredicates) {
    if (entry.name == name) return entry.function;
  }
  return nullptr;
}

}  // namespace quarrel::jinja

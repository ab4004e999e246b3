#include "text/jinja/arguments.h"

#include <algorithm>

#include "text/jinja/operations.h"

namespace quarrel::jinja {

BoundArguments::BoundArguments(std::string_view callee, const Arguments& arguments,
                               std::initializer_list<std::string_view> names, std::size_t required)
    : callee_(callee) {
  std::copy(names.begin(), names.end(), names_.begin());
  if (arguments.positional.size() > names.size()) {
    fault("{} takes at most {} arguments, not {}", callee, names.size(), arguments.positional.size());
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const NamedValue& named : arguments.named) {
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), named.name) - names.begin());
    if (at == names.size()) fault("{} has no argument '{}'", callee, named.name);
    if (values_[at]) fault("{} is given '{}' twice", callee, named.name);
    values_[at] = named.value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!values_[i]) fault("{} needs the argument '{}'", callee, names_[i]);
  }
}

bool BoundArguments::flag(std::size_t index, bool otherwise) const {
  return truth(get(index, Value::boolean(otherwise)));
}

std::int64_t BoundArguments::integer(std::size_t index, std::int64_t otherwise) const {
  const Value value = get(index, Value::integer(otherwise));
  if (!value.is_integral()) {
    fault("'{}' of {} must be an integer, not {}", names_[index], callee_, a_type(value));
  }
  return value.as_integer();
}

Text BoundArguments::text(std::size_t index) const {
  const Value value = (*this)[index];
  if (!value.is(Kind::text)) {
    fault("'{}' of {} must be a string, not {}", names_[index], callee_, a_type(value));
  }
  return value.as_text();
}

}  // namespace quarrel::jinja

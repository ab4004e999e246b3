// Sorting a call's arguments under the names of its parameters.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace quarrel::jinja {

class BoundArguments {
 public:
  static constexpr std::size_t kMax = 8;

  // Throws Fault for too many, unknown or missing arguments: the first `required` must be there.
  BoundArguments(std::string_view callee, const Arguments& arguments, std::initializer_list<std::string_view> names,
                 std::size_t required = 0);

  bool has(std::size_t index) const { return values_[index].has_value(); }
  // The argument, or undefined when it was not given.
  Value operator[](std::size_t index) const { return values_[index].value_or(Value{}); }
  Value get(std::size_t index, const Value& otherwise) const { return values_[index].value_or(otherwise); }
  bool flag(std::size_t index, bool otherwise = false) const;
  std::int64_t integer(std::size_t index, std::int64_t otherwise) const;
  // The argument's text. Throws Fault for another kind.
  Text text(std::size_t index) const;
  // Neither absent nor None.
  bool given(std::size_t index) const { return !get(index, Value::none()).is(Kind::none); }

 private:
  std::string_view callee_;
  std::array<std::string_view, kMax> names_{};
  std::array<std::optional<Value>, kMax> values_{};
};

}  // namespace quarrel::jinja

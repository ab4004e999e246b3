#include "server/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/nearest.h"
#include "base/printable.h"

namespace quarrel {
namespace {

// Exact for whole numbers, of which a double has only those up to 2^53.
long double value_of(const Json& number) {
  if (number.is_number_unsigned()) return static_cast<long double>(number.get<std::uint64_t>());
  if (number.is_number_integer()) return static_cast<long double>(number.get<std::int64_t>());
  return static_cast<long double>(number.get<double>());
}

}  // namespace

std::string compact_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool is_neutral(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_array() || value.is_object()) return value.empty();
  return value.is_string() && (value.get_ref<const std::string&>().empty() || value == "text");
}

void check_field(std::string_view name, FieldKind kind, double least, double most, std::string_view help,
                 const Json& value) {
  const auto refuse = [&](std::string_view expected) {
    throw invalid_field(std::string(name), fmt::format("'{}' must be {}", name, expected));
  };
  switch (kind) {
    case FieldKind::boolean:
      if (!value.is_boolean()) refuse("true or false");
      break;
    case FieldKind::integer:
      // A whole number may be written as 5.0.
      if (!value.is_number() || value.get<double>() != std::floor(value.get<double>())) refuse("a whole number");
      [[fallthrough]];
    case FieldKind::number:
      if (!value.is_number()) refuse("a number");
      if (!(value_of(value) >= static_cast<long double>(least) && value_of(value) <= static_cast<long double>(most))) {
        refuse(fmt::format("between {} and {}", least, most));
      }
      break;
    case FieldKind::text:
      if (!value.is_string()) refuse("a string");
      break;
    case FieldKind::refused:
      if (!is_neutral(value)) {
        throw unsupported_field(std::string(name), fmt::format("'{}' is not supported: {}", name, help));
      }
      break;
    case FieldKind::any:
    case FieldKind::no_effect: break;
  }
}

void refuse_unknown(std::string_view name, std::span<const std::string_view> known) {
  std::string message = fmt::format("'{}' is not a field of this request", printable(name));
  const std::vector<std::string> names(known.begin(), known.end());
  const std::vector<std::string> close = nearest(name, names, 1);
  if (!close.empty()) message += fmt::format("; did you mean '{}'?", close.front());
  throw unsupported_field(printable(name), message);
}

void require_no_fields(std::string_view body) {
  if (body.empty()) return;
  const Json json = parse_body(body);
  if (!json.empty()) refuse_unknown(json.begin().key(), {});
}

}  // namespace quarrel

// The fields of a JSON body: a table a dialect has, with each field's kind, bounds and meaning in one row. It reads
// bodies, refuses what it does not know by name, and can be asked for the schema. Any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/json_body.h"
#include "server/json_text.h"

namespace quarrel {

enum class FieldKind : std::uint8_t {
  boolean,
  integer,
  number,
  text,
  any,        // `read` looks at it itself
  no_effect,  // taken and passed over
  refused,    // known and not offered: only neutral values are taken
};

template <typename Target>
struct Field {
  std::string_view name;
  FieldKind kind = FieldKind::any;
  double least = std::numeric_limits<double>::lowest();
  double most = std::numeric_limits<double>::max();
  std::string_view help = {};  // what it does, for the documentation; of `refused`: why
  void (*read)(const Json& value, Target& target) = nullptr;
  Json (*schema)() = nullptr;  // what `any` takes, as JSON Schema has it (server/schema.h)
  // A value beside null that asks for what is so anyway; of `refused`, beside the neutral ones.
  bool (*is_default)(const Json& value) = nullptr;
};

// Its text; what in it is no UTF-8, such as a file's name, is replaced.
std::string compact_json(const Json& json);

// null, false, 0 elements, "" and "text": what a client sends for a field that it does not use.
bool is_neutral(const Json& value);

// Throws ApiError that names the field if its value is not of that kind or beyond its bounds.
void check_field(std::string_view name, FieldKind kind, double least, double most, std::string_view help,
                 const Json& value);
[[noreturn]] void refuse_unknown(std::string_view name, std::span<const std::string_view> known);
// A body that says nothing: none, or an object without members, which some clients send with every request. Throws
// ApiError that names the first.
void require_no_fields(std::string_view body);

// What becomes of a field that stands in no row.
enum class OtherFields : std::uint8_t {
  refused,
  as_in_questions,  // known_fields.h may know it
};
// Whether one of known_fields.h may be there with this value. Throws ApiError for one that no form offers.
bool take_known_field(std::string_view name, const Json& value);
// Those that could have been meant by another name.
void append_known_names(std::vector<std::string_view>& names);

// Throws ApiError that names the first field which is unknown or wrong. null is as good as absent.
template <typename Target>
void read_fields(const Json& body, std::span<const Field<Target>> fields, Target& target,
                 OtherFields others = OtherFields::refused) {
  for (const auto& [name, value] : body.items()) {
    const Field<Target>* found = nullptr;
    for (const Field<Target>& field : fields) {
      if (field.name == name) found = &field;
    }
    if (found == nullptr) {
      if (others == OtherFields::as_in_questions && take_known_field(name, value)) continue;
      std::vector<std::string_view> known;
      for (const Field<Target>& field : fields) known.push_back(field.name);
      if (others == OtherFields::as_in_questions) append_known_names(known);
      refuse_unknown(name, known);
    }
    if (value.is_null() || (found->is_default != nullptr && found->is_default(value))) continue;
    check_field(name, found->kind, found->least, found->most, found->help, value);
    if (found->read != nullptr) found->read(value, target);
  }
}

}  // namespace quarrel

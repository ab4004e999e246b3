#include "server/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "server/known_fields.h"

namespace quarrel::schema {
namespace {

Json of_type(std::string_view type, std::string_view help) {
  Json schema{{"type", type}};
  if (!help.empty()) schema["description"] = help;
  return schema;
}

// Whole numbers are written as such.
Json bound(double value) {
  if (value == std::floor(value) && std::abs(value) <= 9007199254740992.0) return static_cast<std::int64_t>(value);
  return value;
}

Json of_kind(const FieldFacts& field) {
  switch (field.kind) {
    case FieldKind::boolean: return boolean();
    case FieldKind::text: return text();
    case FieldKind::integer:
    case FieldKind::number: {
      Json schema = field.kind == FieldKind::integer ? integer() : number();
      if (field.least != std::numeric_limits<double>::lowest()) schema["minimum"] = bound(field.least);
      if (field.most != std::numeric_limits<double>::max()) schema["maximum"] = bound(field.most);
      return schema;
    }
    case FieldKind::any:
    case FieldKind::no_effect:
    case FieldKind::refused: break;
  }
  return Json::object();
}

}  // namespace

Json without_effect() { return named("WithoutEffect", Json{{"description", "Taken, and without effect."}}); }

Json text(std::string_view help) { return of_type("string", help); }
Json integer(std::string_view help) { return of_type("integer", help); }
Json number(std::string_view help) { return of_type("number", help); }
Json boolean(std::string_view help) { return of_type("boolean", help); }

Json any(std::string_view help) { return help.empty() ? Json::object() : Json{{"description", help}}; }

Json list(Json items, std::string_view help) {
  Json schema = of_type("array", help);
  schema["items"] = std::move(items);
  return schema;
}

Json one_of(std::initializer_list<std::string_view> values, std::string_view help) {
  Json schema = of_type("string", help);
  schema["enum"] = Json(std::vector<std::string>(values.begin(), values.end()));
  return schema;
}

Json either(std::initializer_list<Json> kinds, std::string_view help) {
  Json schema{{"anyOf", Json::array()}};
  for (const Json& kind : kinds) schema["anyOf"].push_back(kind);
  if (!help.empty()) schema["description"] = help;
  return schema;
}

Json or_null(Json kind) {
  if (kind.contains("anyOf")) {
    kind["anyOf"].push_back({{"type", "null"}});
  } else if (kind.contains("type") && !kind.contains("enum") && !kind.contains("const") && !kind.contains("title")) {
    if (!kind["type"].is_array()) kind["type"] = Json::array({kind["type"]});
    kind["type"].push_back("null");
  } else if (!kind.empty() && !(kind.size() == 1 && kind.contains("description"))) {
    Json both{{"anyOf", Json::array({kind, {{"type", "null"}}})}};
    if (kind.contains("description")) {
      both["description"] = kind["description"];
      both["anyOf"][0].erase("description");
    }
    return both;
  }
  return kind;
}

Json object(std::initializer_list<Property> properties, std::string_view help) {
  Json schema = of_type("object", help);
  schema["properties"] = Json::object();
  Json required = Json::array();
  for (const Property& property : properties) {
    schema["properties"][std::string(property.name)] = property.schema;
    if (property.required) required.push_back(property.name);
  }
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

Json event() { return named("ServerSentEvent", object({{"data", text("JSON, or [DONE]")}, {"event", text(), false}})); }

Json named(std::string_view name, Json schema) {
  Json titled{{"title", name}};
  titled.update(schema);
  return titled;
}

Json request(std::string_view name, std::span<const FieldFacts> fields, std::span<const std::string_view> required) {
  Json schema{{"title", name}, {"type", "object"}, {"properties", Json::object()}};
  std::string refused;
  for (const FieldFacts& field : fields) {
    if (field.kind == FieldKind::refused) {
      refused +=
          fmt::format("{}`{}` ({})", refused.empty() ? "Known and not supported: " : ", ", field.name, field.help);
      continue;
    }
    Json property = field.schema != nullptr ? field.schema() : of_kind(field);
    const bool needed = std::ranges::find(required, field.name) != required.end();
    if (!needed) property = or_null(std::move(property));
    if (field.kind == FieldKind::no_effect) property = without_effect();
    if (!field.help.empty()) property["description"] = field.help;
    schema["properties"][std::string(field.name)] = std::move(property);
  }
  if (!required.empty()) schema["required"] = Json(std::vector<std::string>(required.begin(), required.end()));
  schema["additionalProperties"] = false;
  if (!refused.empty()) schema["description"] = refused + ".";
  return schema;
}

Json with_known_fields(Json question) {
  for (const KnownField& field : known_fields()) {
    if (field.kind != FieldKind::no_effect || question["properties"].contains(field.name)) continue;
    question["properties"][std::string(field.name)] = without_effect();
  }
  return question;
}

Json nothing() { return request("NoFields", {}, {}); }

}  // namespace quarrel::schema

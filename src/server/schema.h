// JSON Schemas of what goes in and comes out: of bodies, made from the tables of fields that read them, and of answers,
// put together by hand. openapi.cpp makes the document of them. Any thread.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace quarrel::schema {

// Plain kinds, with what they mean.
Json text(std::string_view help = {});
Json integer(std::string_view help = {});
Json number(std::string_view help = {});
Json boolean(std::string_view help = {});
Json list(Json items, std::string_view help = {});
Json one_of(std::initializer_list<std::string_view> values, std::string_view help = {});
Json either(std::initializer_list<Json> kinds, std::string_view help = {});
Json or_null(Json kind);
Json any(std::string_view help = {});
Json without_effect();

struct Property {
  std::string_view name;
  Json schema;
  bool required = true;
};
// An answer's object: further members may come with later versions.
Json object(std::initializer_list<Property> properties, std::string_view help = {});

// One of the server-sent events that an answer in pieces consists of.
Json event();

// A schema that the document keeps once, under this name, however often it is used.
Json named(std::string_view name, Json schema);

// What a row of a table of fields says about its field.
struct FieldFacts {
  std::string_view name;
  FieldKind kind;
  double least, most;
  std::string_view help;
  Json (*schema)();
};

// A request's object: members that are not named are refused, null is as good as absent for those not required.
// Refused fields are told of in its description.
Json request(std::string_view name, std::span<const FieldFacts> fields, std::span<const std::string_view> required);

template <typename Target>
void append_facts(std::vector<FieldFacts>& facts, std::span<const Field<Target>> fields) {
  for (const Field<Target>& field : fields) {
    facts.push_back({field.name, field.kind, field.least, field.most, field.help, field.schema});
  }
}

// The same from tables: request_of<OpenAiRequest>("ChatRequest", {"messages"}, kSharedFields, kChatFields).
template <typename Target, typename... Tables>
Json request_of(std::string_view name, std::initializer_list<std::string_view> required, const Tables&... tables) {
  std::vector<FieldFacts> facts;
  (append_facts<Target>(facts, tables), ...);
  return request(name, facts, required);
}

// Such a body asks for an answer, and may have what clients send with every question without an effect.
Json with_known_fields(Json question);
template <typename Target, typename... Tables>
Json question_of(std::string_view name, std::initializer_list<std::string_view> required, const Tables&... tables) {
  return with_known_fields(request_of<Target>(name, required, tables...));
}

// Of a body that has no fields: it may be an empty object.
Json nothing();

}  // namespace quarrel::schema

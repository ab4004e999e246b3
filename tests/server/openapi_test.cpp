// The description that programs read: every row and every field is in it, and says what it is.
#include "server/openapi.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "server/schema.h"

namespace quarrel {
namespace {

std::string name_of(const Route& row) { return fmt::format("{} {}", row.method, row.path); }

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(c | 0x20);
  return result;
}

TEST(OpenApi, EveryRowIsDescribed) {
  std::set<std::string_view> ids;
  for (const Route& row : routes()) {
    SCOPED_TRACE(name_of(row));
    EXPECT_FALSE(row.summary.empty()) << "the row needs a summary";
    ASSERT_NE(row.describe, nullptr) << "the row's last column needs a function of server/operation.h";
    const Operation told = row.describe();
    EXPECT_TRUE(ids.insert(told.id).second) << "another row has the id '" << told.id << "' too";
    EXPECT_FALSE(told.id.empty());
    EXPECT_FALSE(told.tag.empty()) << "it needs a heading";
    EXPECT_EQ(!told.body.is_null(), row.body_bytes > 0) << "what takes a body has a schema for it";
    EXPECT_TRUE(told.body.is_null() || told.body.contains("anyOf") || told.body.contains("title") ||
                told.body == Json({{"type", "object"}}))
        << "a body's schema has a name";
  }
}

// A property without a kind takes anything: only fields without effect do.
void expect_field(const std::string& owner, const std::string& name, const Json& field) {
  SCOPED_TRACE(fmt::format("the field '{}' of {}", name, owner));
  EXPECT_TRUE(field.contains("description") || field.contains("$ref")) << "its row needs a help text";
  const bool has_kind = field.contains("type") || field.contains("anyOf") || field.contains("$ref");
  EXPECT_TRUE(has_kind || field.value("description", "") == "Taken, and without effect.") << "its row needs a schema";
}

TEST(OpenApi, EveryFieldOfARequestSaysWhatItIs) {
  const Json document = openapi_document(routes());
  int requests = 0;
  for (const auto& [name, schema] : document["components"]["schemas"].items()) {
    if (!schema.contains("additionalProperties")) continue;  // an answer
    ++requests;
    for (const auto& [field, kind] : schema["properties"].items()) expect_field(name, field, kind);
  }
  EXPECT_GE(requests, 10);
}

TEST(OpenApi, EveryRowHasItsErrors) {
  const Json document = openapi_document(routes());
  for (const Route& row : routes()) {
    SCOPED_TRACE(name_of(row));
    const Json& operation = document["paths"][std::string(row.path)][lower(row.method)];
    for (const char* status : {"400", "403", "405", "408", "417", "431", "500", "503", "505"}) {
      EXPECT_TRUE(operation["responses"].contains(status)) << status;
    }
    const bool keyed = row.access != Access::everybody;
    EXPECT_EQ(operation["responses"].contains("401"), keyed);
    EXPECT_EQ(operation["responses"].contains("429"), keyed);
    EXPECT_EQ(operation["security"].empty(), !keyed);
    EXPECT_EQ(operation["responses"].contains("413"), row.body_bytes > 0);
    EXPECT_EQ(operation["responses"].contains("415"), row.body_bytes > 0);
    const bool reaches_store = row.describe().body.dump().find("\"retrieval\":") != std::string::npos ||
                               operation["tags"][0] == "Vector store";
    for (const char* status : {"501", "502"}) {
      EXPECT_TRUE(!reaches_store || operation["responses"].contains(status)) << status;
    }
  }
  EXPECT_EQ(document["components"]["responses"]["OpenAiError503"]["headers"].size(), 2u) << "Retry-After is told of";
}

// Names of the parameters of one place: "header", "path".
std::set<std::string> parameters_of(const Json& operation, std::string_view place) {
  std::set<std::string> names;
  for (const Json& each : operation.value("parameters", Json::array())) {
    EXPECT_TRUE(each["schema"].contains("type"));
    if (each["in"] == place) names.insert(each["name"].get<std::string>());
  }
  return names;
}

TEST(OpenApi, EveryRowHasItsParameters) {
  const Json document = openapi_document(routes());
  for (const Route& row : routes()) {
    SCOPED_TRACE(name_of(row));
    const Json& operation = document["paths"][std::string(row.path)][lower(row.method)];
    EXPECT_EQ(parameters_of(operation, "path").size(), row.path.find('{') != std::string_view::npos ? 1u : 0u);
    std::set<std::string> headers;
    // Only what a model reads may be long.
    const bool queued = (row.body_bytes > (1u << 20) && row.access == Access::key) || row.path == "/ws";
    if (queued) headers.insert("x-quarrel-priority");
    if (row.path == "/api/stream") headers.insert("Last-Event-ID");
    if (row.path == "/v1/embeddings") headers.insert("x-quarrel-store");
    EXPECT_EQ(parameters_of(operation, "header"), headers);
  }
  const Json& stream = document["paths"]["/api/stream"];
  EXPECT_EQ(stream["post"]["requestBody"]["required"], false) << "what is taken up needs none";
  EXPECT_EQ(stream["delete"]["parameters"][0]["required"], true);
}

TEST(OpenApi, AnswersHaveTheirStatus) {
  const Json paths = openapi_document(routes())["paths"];
  const Json& socket = paths["/ws"]["get"]["responses"];
  EXPECT_TRUE(socket.contains("101"));
  EXPECT_FALSE(socket.contains("200"));
  EXPECT_TRUE(paths["/api/stream"]["post"]["responses"].contains("204")) << "what is left of a resumed answer";
  for (const Route& row : routes()) {
    const Json& answers = paths[std::string(row.path)][lower(row.method)]["responses"];
    EXPECT_TRUE(answers.contains("200") || row.path == "/ws" || row.path == "/api/push") << name_of(row);
  }
}

// Whatever is referred to is there.
void expect_references(const Json& document, const Json& value) {
  if (value.is_object() && value.contains("$ref")) {
    const std::string place = value["$ref"].get<std::string>();
    EXPECT_TRUE(document.contains(Json::json_pointer(place.substr(1)))) << place;
  }
  if (!value.is_structured()) return;
  for (const Json& each : value) expect_references(document, each);
}

TEST(OpenApi, ReferencesLeadSomewhere) {
  const Json document = openapi_document(routes());
  expect_references(document, document);
}

TEST(OpenApi, TheKeptFileIsTheSame) {
  std::ifstream file(QUARREL_OPENAPI_FILE, std::ios::binary);
  const std::string kept(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(kept == to_yaml(openapi_document(routes())))
      << "docs/openapi.yaml is not what the tables say: `make openapi` writes it anew";
}

TEST(Yaml, QuotesWhatWouldBeReadAsSomethingElse) {
  const Json value{{"plain", "text/event-stream"},
                   {"empty", ""},
                   {"word", "true"},
                   {"number", "3.1.0"},
                   {"sentence", "a: b # c"},
                   {"{id}", Json(nullptr)},
                   {"list", {1, {{"a", 1}, {"b", {2}}}, Json::array({3})}},
                   {"none", Json::array()},
                   {"nothing", Json::object()}};
  EXPECT_EQ(to_yaml(value),
            "plain: text/event-stream\n"
            "empty: \"\"\n"
            "word: \"true\"\n"
            "number: \"3.1.0\"\n"
            "sentence: \"a: b # c\"\n"
            "\"{id}\": null\n"
            "list:\n"
            "  - 1\n"
            "  - a: 1\n"
            "    b:\n"
            "      - 2\n"
            "  - - 3\n"
            "none: []\n"
            "nothing: {}\n");
}

struct Asked {};

TEST(Schema, ARowSaysWhatItsReaderTakes) {
  static constexpr std::array kFields = {
      Field<Asked>{.name = "count", .kind = FieldKind::integer, .least = 1, .most = 9, .help = "how many"},
      Field<Asked>{.name = "name", .kind = FieldKind::text, .help = "whose"},
      Field<Asked>{.name = "user", .kind = FieldKind::no_effect},
      Field<Asked>{.name = "tools", .kind = FieldKind::refused, .help = "there are none"},
      Field<Asked>{.name = "mode", .help = "which", .schema = [] { return schema::one_of({"a", "b"}); }},
  };
  const Json told = schema::request_of<Asked>("Asked", {"name"}, kFields);
  const Json& properties = told["properties"];
  EXPECT_EQ(properties["count"], Json::parse(R"({"type": ["integer", "null"], "minimum": 1, "maximum": 9,
                                                 "description": "how many"})"));
  EXPECT_EQ(properties["name"]["type"], "string") << "what is required is not null";
  EXPECT_EQ(properties["user"], schema::without_effect()) << "told once";
  EXPECT_EQ(properties["mode"], Json::parse(R"({"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}],
                                                "description": "which"})"));
  EXPECT_FALSE(properties.contains("tools"));
  EXPECT_NE(told["description"].get<std::string>().find("`tools` (there are none)"), std::string::npos);
  EXPECT_EQ(told["required"], Json::array({"name"}));
  EXPECT_EQ(told["additionalProperties"], false);
}

}  // namespace
}  // namespace quarrel

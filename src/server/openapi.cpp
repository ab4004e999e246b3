#include "server/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "server/known_fields.h"
#include "server/schema.h"

namespace quarrel {
namespace {

constexpr std::string_view kApiVersion = "1.0.0";  // of what is described; the program's own is at /version

constexpr std::string_view kDescription =
    "OpenAI's API, Ollama's, and Quarrel's own, on one port.\n\n"
    "Every answer carries `x-request-id`: the request's own, or a new one. A field that is not known is refused by "
    "name. "
    "Where the server has keys, requests carry `Authorization: Bearer KEY`.";

// The lists that all questions share are told once.
std::string known_and_not_offered() {
  std::string names;
  for (const KnownField& field : known_fields()) {
    if (field.kind == FieldKind::refused && !field.help.empty()) {
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", field.name);
    }
  }
  return "\n\nFields that only another form offers, or none, are taken if they ask for nothing (`null`, `false`, `[]`, "
         "`{}`, an empty text), and refused by name otherwise. No form offers " +
         names + ".";
}

struct StatusMeaning {
  unsigned status;
  std::string_view meaning;
};
constexpr std::array kMeanings = {
    StatusMeaning{101, "The connection is a WebSocket from now on"},
    StatusMeaning{200, "It went well"},
    StatusMeaning{204, "Nothing is left of the answer"},
    StatusMeaning{400, "The body, a field or the request itself is wrong"},
    StatusMeaning{401, "The key is missing or wrong"},
    StatusMeaning{403, "The key, the host name or the page that asks has no right to it"},
    StatusMeaning{404, "There is no such model, dataset or path"},
    StatusMeaning{405, "The path does not take this method; `Allow` lists those it takes"},
    StatusMeaning{408, "The request did not come in time"},
    StatusMeaning{409, "Another connection has taken this over"},
    StatusMeaning{413, "The body is larger than is taken"},
    StatusMeaning{415, "The body is compressed"},
    StatusMeaning{417, "The only expectation that is understood is 100-continue"},
    StatusMeaning{429, "More was asked than this key may"},
    StatusMeaning{431, "The head is larger than is taken"},
    StatusMeaning{500, "Something failed here; the server's log says what"},
    StatusMeaning{501, "This server was built, or started, without what it takes"},
    StatusMeaning{502, "Another server, which was asked for this, failed"},
    StatusMeaning{503, "Too much waits already, there is no memory, or the server is about to end"},
    StatusMeaning{505, "The request is of another HTTP than 1.0 and 1.1"},
    StatusMeaning{507, "The disk with the store is full"},
};

std::string_view meaning_of(unsigned status) {
  const auto found = std::ranges::find(kMeanings, status, &StatusMeaning::status);
  return found == kMeanings.end() ? std::string_view("An error") : found->meaning;
}

Json reference(std::string_view kind, std::string_view name) {
  return {{"$ref", fmt::format("#/components/{}/{}", kind, name)}};
}

// Puts every schema that has a title among the components, once, and refers to it.
Json hoisted(const Json& schema, Json& components) {
  if (schema.is_array()) {
    Json list = Json::array();
    for (const Json& each : schema) list.push_back(hoisted(each, components));
    return list;
  }
  if (!schema.is_object()) return schema;
  Json plain = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (name != "title" || !value.is_string()) plain[name] = hoisted(value, components);
  }
  if (!schema.contains("title") || !schema["title"].is_string()) return plain;
  const std::string title = schema["title"].get<std::string>();
  components[title] = std::move(plain);
  return reference("schemas", title);
}

Json error_schema(Dialect dialect) {
  using namespace schema;
  if (dialect == Dialect::native) {
    return named("Error",
                 object({{"error", text()},
                         {"code", text("for programs, where there is one: `context_length_exceeded` …"), false}}));
  }
  return named("OpenAiError",
               object({{"error", named("ErrorDetails", object({{"message", text()},
                                                               {"type", text()},
                                                               {"param", or_null(text("the field that it is about"))},
                                                               {"code", or_null(text())}}))}}));
}

Json header(std::string_view help, const char* type) {
  return {{"description", help}, {"required", true}, {"schema", {{"type", type}}}};
}

Json response(std::string_view description) {
  return {{"description", description}, {"headers", {{"x-request-id", reference("headers", "RequestId")}}}};
}

// What a request has besides its body.
Json parameters(const Route& row, const Operation& told) {
  Json list = Json::array();
  const auto add = [&](std::string_view name, const char* in, bool required, Json schema) {
    list.push_back({{"name", name}, {"in", in}, {"required", required}, {"schema", std::move(schema)}});
  };
  if (const std::size_t open = row.path.find('{'); open != std::string_view::npos) {
    add(row.path.substr(open + 1, row.path.find('}') - open - 1), "path", true,
        Json{{"type", "string"}, {"minLength", 1}});
  }
  if (told.queued) {
    add("x-quarrel-priority", "header", false,
        schema::one_of({"interactive", "normal", "batch"}, "in place of that of its kind; a key's is the highest"));
  }
  for (const Operation::Header& header : told.headers) add(header.name, "header", header.required, header.schema);
  return list;
}

// The document while it grows.
class Document {
 public:
  Document() {
    headers_["RequestId"] = header("the request's own, or a new one", "string");
    headers_["Allow"] = header("the methods that the path has", "string");
    headers_["RetryAfter"] = header("seconds after which to try again", "integer");
  }

  void add(const Route& row) {
    Json operation{{"summary", row.summary}};
    Operation told;
    if (row.describe != nullptr) told = row.describe();
    operation["operationId"] = told.id;
    operation["tags"] = Json::array({told.tag});
    if (!told.description.empty()) operation["description"] = told.description;
    operation["security"] =
        row.access == Access::everybody ? Json::array() : Json::array({Json::object(), {{"key", Json::array()}}});
    if (Json list = parameters(row, told); !list.empty()) operation["parameters"] = std::move(list);
    if (!told.body.is_null()) add_body(operation, told);
    add_answers(operation, row, told);
    std::string method(row.method);
    std::ranges::transform(method, method.begin(), [](char c) { return static_cast<char>(c | 0x20); });
    paths_[std::string(row.path)][method] = std::move(operation);
  }

  Json finish() && {
    Json document{{"openapi", "3.1.0"},
                  {"info",
                   {{"title", "Quarrel"},
                    {"version", kApiVersion},
                    {"description", std::string(kDescription) + known_and_not_offered()}}},
                  {"servers", Json::array({{{"url", "/"}}})}};
    document["paths"] = std::move(paths_);
    Json& components = document["components"];
    components["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
    components["headers"] = std::move(headers_);
    components["responses"] = std::move(responses_);
    components["schemas"] = std::move(schemas_);
    return document;
  }

 private:
  void add_body(Json& operation, const Operation& told) {
    Json content{{"schema", hoisted(told.body, schemas_)}};
    if (!told.example.is_null()) content["example"] = told.example;
    operation["requestBody"] = {{"required", told.body_required}, {"content", {{"application/json", content}}}};
  }

  void add_answers(Json& operation, const Route& row, const Operation& told) {
    Json& answers = operation["responses"] = Json::object();
    for (const Operation::Answer& answer : told.answers) {
      Json& well = answers[fmt::format("{}", answer.status)];
      if (well.is_null()) well = response(meaning_of(answer.status));
      if (answer.media_type.empty()) continue;
      Json& content = well["content"][std::string(answer.media_type)] = Json::object();
      if (!answer.schema.is_null()) content["schema"] = hoisted(answer.schema, schemas_);
    }
    std::map<unsigned, Json> failures;
    for (const unsigned status : {400u, 403u, 405u, 408u, 417u, 431u, 500u, 503u, 505u}) failures[status] = nullptr;
    if (row.access != Access::everybody) failures[401] = failures[429] = nullptr;
    if (row.body_bytes > 0) failures[413] = failures[415] = nullptr;
    for (const Operation::Failure& failure : told.errors) failures[failure.status] = failure.schema;
    for (const auto& [status, own] : failures) {
      answers[fmt::format("{}", status)] = own.is_null() ? shared_failure(row.dialect, status) : failed(status, own);
    }
  }

  Json failed(unsigned status, const Json& body) {
    Json answer = response(meaning_of(status));
    if (status == 429 || status == 503) answer["headers"]["Retry-After"] = reference("headers", "RetryAfter");
    if (status == 405) answer["headers"]["Allow"] = reference("headers", "Allow");
    answer["content"]["application/json"]["schema"] = hoisted(body, schemas_);
    return answer;
  }

  Json shared_failure(Dialect dialect, unsigned status) {
    const std::string name = fmt::format("{}{}", dialect == Dialect::openai ? "OpenAiError" : "Error", status);
    if (!responses_.contains(name)) responses_[name] = failed(status, error_schema(dialect));
    return reference("responses", name);
  }

  Json paths_ = Json::object(), schemas_ = Json::object(), responses_ = Json::object(), headers_ = Json::object();
};

// ---- YAML ----

// A text that YAML reads as itself without quotes. What it might take for something else is quoted.
bool is_plain(std::string_view text) {
  static constexpr std::array<std::string_view, 12> kWords = {"true", "false", "null",  "yes", "no", "on",
                                                              "off",  "True",  "False", "y",   "n",  "None"};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto usual = [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (text.empty() || !(letter(text.front()) || text.front() == '/') || !std::ranges::all_of(text, usual)) return false;
  return std::ranges::find(kWords, text) == kWords.end();
}

std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get_ref<const std::string&>())) return value.get<std::string>();
  return value.dump();
}

bool is_block(const Json& value) { return (value.is_object() || value.is_array()) && !value.empty(); }

void write_yaml(const Json& value, std::size_t depth, std::string& out) {
  const std::string indent(2 * depth, ' ');
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      out += indent + scalar(Json(name)) + ':';
      if (is_block(member)) {
        out += '\n';
        write_yaml(member, depth + 1, out);
      } else {
        out += ' ' + scalar(member) + '\n';
      }
    }
    return;
  }
  for (const Json& item : value) {
    if (!is_block(item)) {
      out += indent + "- " + scalar(item) + '\n';
      continue;
    }
    // The first line of what is inside takes the place of its own indent.
    const std::size_t begin = out.size();
    write_yaml(item, depth + 1, out);
    out[begin + 2 * depth] = '-';
  }
}

}  // namespace

Json openapi_document(std::span<const Route> rows) {
  Document document;
  for (const Route& row : rows) document.add(row);
  return std::move(document).finish();
}

std::string to_yaml(const Json& value) {
  if (!is_block(value)) return scalar(value) + '\n';
  std::string out;
  write_yaml(value, 0, out);
  return out;
}

void openapi_json(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  static const std::string kText = openapi_document(routes()).dump();
  exchange->respond({.body = kText});
}

void openapi_yaml(Service&, const std::shared_ptr<http::Exchange>& exchange) {
  static const std::string kText = to_yaml(openapi_document(routes()));
  exchange->respond({.content_type = "application/yaml", .body = kText});
}

}  // namespace quarrel

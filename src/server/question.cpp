#include "server/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "server/schema.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostStops = 16;
constexpr std::size_t kMostStopBytes = 4096;  // of all of them; each answer searches for each byte
constexpr std::size_t kMostBiases = 1024;
constexpr double kMostBias = 100.0;

using Member = Field<Json>;  // of a message, or of a part of one

constexpr std::string_view kOnlyTexts = "only texts are read";

constexpr std::array kPartMembers = {
    Member{.name = "type", .help = "what it is", .schema = [] { return schema::one_of({"text"}); }},
    Member{.name = "text", .kind = FieldKind::text, .help = "what it says"},
    Member{.name = "cache_control", .kind = FieldKind::no_effect},  // prompts are cached without being asked
    Member{.name = "annotations", .kind = FieldKind::refused, .help = kOnlyTexts},
};

Json part_schema() { return schema::request_of<Json>("TextPart", {"type", "text"}, kPartMembers); }

Json content_schema() {
  return schema::either({schema::text(), schema::list(part_schema())}, "null only of an assistant's message");
}

void check_tool_calls(const Json& value, Json&) {
  const auto is_object = [](const Json& call) { return call.is_object(); };
  if (!value.is_array() || !std::ranges::all_of(value, is_object)) {
    throw invalid_field("messages", "a message's 'tool_calls' are a list of objects");
  }
}

// What templates may know is left to them. What answers bring along is taken where it says nothing: clients send them
// back as they came.
constexpr std::array kMessageMembers = {
    Member{.name = "role",
           .help = "who says it",
           .schema = [] { return schema::one_of({"system", "developer", "user", "assistant", "tool"}); }},
    Member{.name = "content", .help = "what it says; null only of an assistant's message", .schema = content_schema},
    Member{.name = "name", .kind = FieldKind::text, .help = "of who says it; for the model's template"},
    Member{.name = "tool_calls",
           .help = "for the model's template",
           .read = check_tool_calls,
           .schema = [] { return schema::list(Json{{"type", "object"}}); }},
    Member{.name = "tool_call_id", .kind = FieldKind::text, .help = "for the model's template"},
    Member{.name = "tool_name", .kind = FieldKind::text, .help = "for the model's template"},
    Member{.name = "reasoning_content", .kind = FieldKind::text, .help = "for the model's template"},
    Member{.name = "reasoning", .kind = FieldKind::text, .help = "for the model's template"},
    Member{.name = "thinking", .kind = FieldKind::text, .help = "for the model's template"},
    Member{.name = "function_call", .kind = FieldKind::refused, .help = "calls stand in `tool_calls`"},
    Member{.name = "refusal", .kind = FieldKind::refused, .help = "what was said stands in `content`"},
    Member{.name = "annotations", .kind = FieldKind::refused, .help = kOnlyTexts},
    Member{.name = "audio", .kind = FieldKind::refused, .help = kOnlyTexts},
    Member{.name = "images", .kind = FieldKind::refused, .help = kOnlyTexts},
};

void check_members(const Json& object, std::span<const Member> members) {
  Json unused;
  read_fields<Json>(object, members, unused);
}

// Text parts are joined; templates know strings.
std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      throw invalid_field("messages", "only parts of type 'text' are understood in a message's content");
    }
    check_members(part, kPartMembers);
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

std::string as_short_text(const Json& value, std::string_view field) {
  constexpr std::size_t kMostBytes = 4096;
  std::string text = as_text(value);
  if (text.size() > kMostBytes) {
    throw invalid_field(std::string(field), fmt::format("'{}' may have {} bytes at most", field, kMostBytes));
  }
  return text;
}

std::vector<std::string> read_stop_strings(const Json& value) {
  std::vector<std::string> stops;
  if (value.is_string() && value.get_ref<const std::string&>().empty()) return stops;  // as good as absent
  std::size_t bytes = 0;
  for (const Json& each : value.is_array() ? value : Json::array({value})) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty() || stops.size() == kMostStops) {
      throw invalid_field("stop",
                          fmt::format("'stop' is a string or a list of at most {}, none of them empty", kMostStops));
    }
    stops.push_back(as_text(each));
    bytes += stops.back().size();
  }
  if (bytes > kMostStopBytes) {
    throw invalid_field(
        "stop", fmt::format("the texts of 'stop' have {} bytes together; {} are the most", bytes, kMostStopBytes));
  }
  return stops;
}

std::vector<TokenId> read_token_ids(const Json& value, const char* field) {
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<TokenId>::max()) {
      throw invalid_field(field, fmt::format("'{}' must hold token ids alone", field));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

std::vector<std::pair<TokenId, float>> read_logit_bias(const Json& value) {
  if (value.is_array() && value.empty()) return {};  // what some clients' languages write for an empty object
  if (!value.is_object() || value.size() > kMostBiases) {
    throw invalid_field("logit_bias",
                        fmt::format("'logit_bias' must be an object of at most {} token ids", kMostBiases));
  }
  std::vector<std::pair<TokenId, float>> biases;
  for (const auto& [name, bias] : value.items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error != std::errc() || end != name.data() + name.size() || id < 0 || !bias.is_number() ||
        !(std::abs(bias.get<double>()) <= kMostBias)) {
      throw invalid_field(
          "logit_bias", fmt::format("'logit_bias' maps token ids to numbers between {} and {}", -kMostBias, kMostBias));
    }
    biases.emplace_back(id, as_float(bias));
  }
  return biases;
}

bool read_mirostat(const Json& value) {
  if (as_integer(value) == 1) throw unsupported_field("mirostat", "'mirostat' 1 is not supported: 2 is its successor");
  return as_integer(value) == 2;
}

Json read_template_arguments(const Json& value) {
  if (!value.is_object()) throw invalid_field("chat_template_kwargs", "'chat_template_kwargs' must be an object");
  for (const std::string_view name : kTemplateVariables) {
    if (!value.contains(name)) continue;
    throw invalid_field("chat_template_kwargs",
                        fmt::format("'{}' cannot be set by 'chat_template_kwargs': the server gives it", name));
  }
  return value;
}

void check_response_format(const Json& value) {
  const bool is_text = value.is_object() && value.contains("type") && value["type"] == "text";
  if (!is_text && !is_neutral(value)) {
    throw unsupported_field("response_format",
                            fmt::format("'response_format' other than text is not supported: {}", kNotOfferedYet));
  }
  if (is_text && value.size() > 1) {
    throw invalid_field("response_format", "a 'response_format' of the type 'text' has no other members");
  }
}

void require_one_spelling(const Json& body, std::string_view one, std::string_view other) {
  const auto has = [&](std::string_view field) { return body.contains(field) && !body[field].is_null(); };
  if (!has(one) || !has(other)) return;
  throw invalid_field(std::string(other), fmt::format("'{}' and '{}' are the same: send one", one, other));
}

void require_same_text(const Json& body, std::string_view name, std::string_view older) {
  const auto has = [&](std::string_view field) { return body.contains(field) && !is_neutral(body[field]); };
  if (!has(name) || !has(older) || body[name] == body[older]) return;
  throw invalid_field(std::string(older),
                      fmt::format("'{}' is an older name of '{}', and the two differ: send one", older, name));
}

Json read_conversation(const Json& value) {
  if (!value.is_array() || value.empty()) throw invalid_field("messages", "'messages' must be a list with a message");
  Json messages = Json::array();
  for (const Json& each : value) {
    if (!each.is_object() || !each.contains("role") || !each["role"].is_string()) {
      throw invalid_field("messages", "each message is an object with a 'role'");
    }
    std::string role = each["role"].get<std::string>();
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
      throw invalid_field("messages", "a message's role is system, developer, user, assistant or tool");
    }
    check_members(each, kMessageMembers);
    Json message = Json::object();
    for (const auto& [name, member] : each.items()) {
      if (!member.is_null()) message[name] = member;  // null is as good as absent, to a template too
    }
    message["role"] = role;
    const Json content = each.contains("content") ? each["content"] : Json();
    if (content.is_array()) {
      message["content"] = joined_parts(content);
    } else if (content.is_null() && role == "assistant") {
      message["content"] = "";
    } else if (!content.is_string()) {
      throw invalid_field("messages", "a message's content is a string or a list of text parts");
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

Json stop_strings_schema() {
  Json one = schema::text();
  one["minLength"] = 1;
  Json several = schema::list(one);
  several["maxItems"] = kMostStops;
  return schema::either({schema::text("empty: none"), several},
                        fmt::format("together at most {} bytes", kMostStopBytes));
}

Json token_ids_schema() {
  Json id = schema::integer();
  id["minimum"] = 0;
  id["maximum"] = std::numeric_limits<TokenId>::max();
  Json ids = schema::list(id);
  ids["minItems"] = 1;
  return ids;
}

Json logit_bias_schema() {
  return {{"type", "object"},
          {"additionalProperties", {{"type", "number"}, {"minimum", -kMostBias}, {"maximum", kMostBias}}},
          {"propertyNames", {{"pattern", "^[0-9]{1,10}$"}}},
          {"maxProperties", kMostBiases}};
}

Json conversation_schema() {
  Json messages = schema::list(schema::request_of<Json>("Message", {"role"}, kMessageMembers));
  messages["minItems"] = 1;
  return messages;
}

Json response_format_schema() {
  return {{"type", {"object", "array", "string", "boolean"}}, {"items", Json::object()}};
}

SamplingParams default_sampling(const LoadedModel& model) { return model.recommended().over(default_sampling()); }

void apply_options(Ask& ask, const RecommendedSampling& options, const LoadedModel& model) {
  const RecommendedSampling& recommended = model.recommended();
  ask.sampling = options.over(default_sampling(model));
  ask.seed = options.seed ? options.seed : recommended.seed;
  ask.max_tokens = options.max_tokens.value_or(recommended.max_tokens.value_or(-1));
  ask.stop = options.stop.empty() ? recommended.stop : options.stop;
}

void apply_logit_bias(Ask& ask, const std::vector<std::pair<TokenId, float>>& biases, const LoadedModel& model) {
  for (const auto& each : biases) {
    if (each.first < model.spec().vocabulary) continue;
    throw invalid_field("logit_bias", fmt::format("'logit_bias' names the token id {}; the model's vocabulary has {}",
                                                  each.first, model.spec().vocabulary));
  }
  ask.sampling.logit_bias = biases;
}

Json with_system(const std::string& system, Json messages) {
  if (system.empty() || (!messages.empty() && messages.front()["role"] == "system")) return messages;
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
  return messages;
}

Json asked_by_user(const std::string& prompt) { return Json::array({{{"role", "user"}, {"content", prompt}}}); }

}  // namespace quarrel

#include "server/question.h"

#include <fmt/format.h>

#include <limits>

#include "server/schema.h"

namespace quarrel {
namespace {

constexpr std::size_t kMostStops = 16;

// Text parts are joined; templates know strings.
std::string joined_parts(const Json& parts) {
  std::string text;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("type") || part["type"] != "text" || !part.contains("text") ||
        !part["text"].is_string()) {
      throw invalid_field("messages", "only parts of type 'text' are understood in a message's content");
    }
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

}  // namespace

std::vector<std::string> read_stop_strings(const Json& value) {
  std::vector<std::string> stops;
  for (const Json& each : value.is_array() ? value : Json::array({value})) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty() || stops.size() == kMostStops) {
      throw invalid_field("stop",
                          fmt::format("'stop' is a string or a list of at most {}, none of them empty", kMostStops));
    }
    stops.push_back(as_text(each));
  }
  return stops;
}

std::vector<TokenId> read_token_ids(const Json& value, const char* field) {
  std::vector<TokenId> ids;
  ids.reserve(value.size());
  for (const Json& id : value) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 ||
        id.get<std::int64_t>() > std::numeric_limits<TokenId>::max()) {
      throw invalid_field(field, fmt::format("'{}' has something that is no token id", field));
    }
    ids.push_back(id.get<TokenId>());
  }
  return ids;
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
    Json message = each;
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
  return schema::either({one, several});
}

Json token_ids_schema() {
  Json id = schema::integer();
  id["minimum"] = 0;
  id["maximum"] = std::numeric_limits<TokenId>::max();
  Json ids = schema::list(id);
  ids["minItems"] = 1;
  return ids;
}

Json conversation_schema() {
  const Json part = schema::named(
      "TextPart", schema::object({{"type", schema::one_of({"text"})}, {"text", schema::text("what it says")}}));
  const Json content =
      schema::or_null(schema::either({schema::text(), schema::list(part)}, "null only of an assistant's message"));
  const Json role = schema::one_of({"system", "developer", "user", "assistant", "tool"}, "who says it");
  Json messages = schema::list(schema::named("Message", schema::object({{"role", role}, {"content", content, false}})));
  messages["minItems"] = 1;
  return messages;
}

SamplingParams default_sampling(const LoadedModel& model) { return model.recommended().over(default_sampling()); }

void apply_options(Ask& ask, const RecommendedSampling& options, const LoadedModel& model) {
  const RecommendedSampling& recommended = model.recommended();
  ask.sampling = options.over(default_sampling(model));
  ask.seed = options.seed ? options.seed : recommended.seed;
  ask.max_tokens = options.max_tokens.value_or(recommended.max_tokens.value_or(-1));
  ask.stop = options.stop.empty() ? recommended.stop : options.stop;
}

Json with_system(const std::string& system, Json messages) {
  if (system.empty() || (!messages.empty() && messages.front()["role"] == "system")) return messages;
  messages.insert(messages.begin(), Json{{"role", "system"}, {"content", system}});
  return messages;
}

Json asked_by_user(const std::string& prompt) { return Json::array({{{"role", "user"}, {"content", prompt}}}); }

}  // namespace quarrel

// What the dialects share on the way from a JSON body to a question: values out of JSON, bounds, stop strings, token
// ids, conversations, and how what a request says stands over what the model's makers recommend. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/token.h"
#include "server/fields.h"
#include "session/ask.h"
#include "session/loaded_model.h"
#include "session/recommended_sampling.h"

namespace quarrel {

inline constexpr double kMostTokens = 1 << 30;
inline constexpr double kMostSeed = 9007199254740992.0;  // what a number in JSON holds exactly
inline constexpr std::size_t kMostInputs = 2048;         // texts of one request
inline constexpr std::string_view kNotOfferedYet = "structured output, tools and reasoning are not offered yet";
inline constexpr std::string_view kTextsAreRead = "models read texts, no images";
inline constexpr std::string_view kStays = "the server's settings say how long a model stays";

// Of values that check_field() has seen.
inline float as_float(const Json& value) { return static_cast<float>(value.get<double>()); }
inline std::int32_t as_integer(const Json& value) { return static_cast<std::int32_t>(value.get<double>()); }
inline bool as_flag(const Json& value) { return value.get<bool>(); }
inline std::string as_text(const Json& value) { return value.get<std::string>(); }
// A text that is copied to each of many others: long ones would be as many times as long.
std::string as_short_text(const Json& value, std::string_view field);

// Throw ApiError that names the field.
std::vector<std::string> read_stop_strings(const Json& value);  // a string or a list, none of them empty
std::vector<TokenId> read_token_ids(const Json& value, const char* field);
std::vector<std::pair<TokenId, float>> read_logit_bias(const Json& value);
bool read_mirostat(const Json& value);  // 0: off, 2: on
// Variables for a chat template, none of them one that every template has.
Json read_template_arguments(const Json& value);
void check_response_format(const Json& value);  // text alone
// Two names of one field: a body has one of them at most.
void require_one_spelling(const Json& body, std::string_view one, std::string_view other);
// The same of texts, which may both be there if they say the same: clients fill in the older name for older servers.
void require_same_text(const Json& body, std::string_view name, std::string_view older);
// A conversation as templates want it: known roles, contents that are text.
Json read_conversation(const Json& value);

// What these take.
Json stop_strings_schema();
Json token_ids_schema();
Json logit_bias_schema();
Json conversation_schema();
Json response_format_schema();

// A question of one of the forms: its endpoint has fields of its own beside those that it shares with others, and what
// none of them has may be one that clients send everywhere (known_fields.h).
template <typename Request, std::size_t... Sizes>
Request read_request(const Json& body, const std::array<Field<Request>, Sizes>&... tables) {
  std::vector<Field<Request>> fields;
  (fields.insert(fields.end(), tables.begin(), tables.end()), ...);
  Request request;
  read_fields<Request>(body, fields, request, OtherFields::as_in_questions);
  return request;
}

// How answers are drawn where a request does not say it.
SamplingParams default_sampling(const LoadedModel& model);
// Sampling, seed, length and stop strings: what the request says, else what the model's makers recommend, else ours.
void apply_options(Ask& ask, const RecommendedSampling& options, const LoadedModel& model);
// Throws ApiError for an id that the model does not know.
void apply_logit_bias(Ask& ask, const std::vector<std::pair<TokenId, float>>& biases, const LoadedModel& model);
// The conversation, beginning with `system` if that is anything and it has no system prompt of its own.
Json with_system(const std::string& system, Json messages);
// A conversation of one question.
Json asked_by_user(const std::string& prompt);

}  // namespace quarrel

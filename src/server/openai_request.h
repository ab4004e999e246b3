// OpenAI's bodies, read: chat completions, completions and embeddings. Fields, their kinds and their bounds stand in
// tables; what is not in them is refused by name. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/fields.h"
#include "session/ask.h"
#include "session/loaded_model.h"

namespace quarrel {

// What the two generating endpoints share.
struct OpenAiRequest {
  std::string model = {};
  Json messages = nullptr;  // of a chat
  Json template_arguments = nullptr;
  std::variant<std::string, std::vector<TokenId>> prompt = {};  // of a completion
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool echo = false;
  std::optional<std::int32_t> max_tokens = {};
  std::optional<std::int32_t> max_completion_tokens = {};  // wins over the other
  Ask ask = {};                                            // but for its prompt and sampling
  // Set in place of what the model's makers recommend.
  std::optional<float> temperature = {}, top_p = {}, min_p = {}, typical_p = {}, repeat_penalty = {};
  std::optional<float> presence_penalty = {}, frequency_penalty = {};
  std::optional<std::int32_t> top_k = {}, repeat_last_n = {};
  std::vector<std::pair<TokenId, float>> logit_bias = {};
};

// A conversation as templates want it: known roles, contents that are text. Throws ApiError that names the field.
Json read_conversation(const Json& value);

// Throw ApiError that names the field.
OpenAiRequest read_chat_request(const Json& body);
OpenAiRequest read_completion_request(const Json& body);

// The question that it is to this model.
Ask ask_of(const OpenAiRequest& request, const LoadedModel& model);

// How answers are drawn where neither the request nor the model's makers say it.
SamplingParams default_sampling(const LoadedModel& model);

struct OpenAiEmbeddingRequest {
  std::string model = {};
  std::vector<std::variant<std::string, std::vector<TokenId>>> inputs = {};
  bool base64 = false;
  std::optional<std::int32_t> dimensions = {};
  bool truncate = false;
  bool normalize = true;
};
OpenAiEmbeddingRequest read_embedding_request(const Json& body);

}  // namespace quarrel

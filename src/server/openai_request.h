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
#include "server/longbow_request.h"
#include "session/ask.h"
#include "session/loaded_model.h"
#include "session/recommended_sampling.h"

namespace quarrel {

// What the two generating endpoints share.
struct OpenAiRequest {
  std::string model = {};
  Json messages = nullptr;  // of a chat
  Json template_arguments = nullptr;
  std::vector<std::variant<std::string, std::vector<TokenId>>> prompts = {};  // of a completion
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool echo = false;
  RecommendedSampling options = {};                        // comes in place of what the model's makers recommend
  std::optional<std::int32_t> max_completion_tokens = {};  // wins over `options.max_tokens`
  Ask ask = {};                                            // how many answers, and what is reported of them
  std::vector<std::pair<TokenId, float>> logit_bias = {};
  std::optional<RetrievalRequest> retrieval = {};  // of a chat
};

// Throw ApiError that names the field.
OpenAiRequest read_chat_request(const Json& body);
OpenAiRequest read_completion_request(const Json& body);

// The question that it is to this model; of several prompts the first.
Ask ask_of(const OpenAiRequest& request, const LoadedModel& model);
// Those behind the first.
std::vector<decltype(Ask::prompt)> further_prompts(const OpenAiRequest& request);

struct OpenAiEmbeddingRequest {
  std::string model = {};
  std::vector<std::variant<std::string, std::vector<TokenId>>> inputs = {};
  bool base64 = false;
  std::optional<std::int32_t> dimensions = {};
  bool truncate = false;
  bool normalize = true;
};
OpenAiEmbeddingRequest read_embedding_request(const Json& body);

// What they take.
Json chat_request_schema();
Json completion_request_schema();
Json embedding_request_schema();

}  // namespace quarrel

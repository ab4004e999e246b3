// Ollama's bodies, read: generate, chat, embed and those that name a model. Fields, their kinds and their bounds stand
// in tables; what is not in them is refused by name. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/fields.h"
#include "session/ask.h"
#include "session/loaded_model.h"
#include "session/recommended_sampling.h"

namespace quarrel {

// How long a model stays after its use; below zero: forever. None: as it was.
using KeepAlive = std::optional<std::chrono::milliseconds>;

// Of generate and of chat.
struct OllamaRequest {
  std::string model = {};
  bool stream = true;
  KeepAlive keep_alive = {};
  std::string prompt = {};            // of generate; empty: the model is only loaded
  std::string system = {};            // of generate
  bool raw = false;                   // of generate: the prompt is the whole text, no template
  std::vector<TokenId> context = {};  // of generate: what was said before
  Json messages = Json::array();      // of chat; empty: the model is only loaded
  // `options`: what they say comes in place of what the model's makers recommend.
  RecommendedSampling options = {};
  bool any_seed = false;           // whatever the makers say
  std::optional<bool> shift = {};  // a full context forgets its older half, and goes on
  bool logprobs = false;
  std::int32_t top_logprobs = 0;
};

struct OllamaEmbedRequest {
  std::string model = {};
  KeepAlive keep_alive = {};
  std::vector<std::string> inputs = {};  // none: the model is only loaded
  bool truncate = true;
  std::optional<std::int32_t> dimensions = {};
};

// Throw ApiError that names the field.
OllamaRequest read_ollama_generate(const Json& body);
OllamaRequest read_ollama_chat(const Json& body);
OllamaEmbedRequest read_ollama_embed(const Json& body);
// The older form, with one `prompt`.
OllamaEmbedRequest read_ollama_embeddings(const Json& body);

// A body that is about a model as a whole.
struct OllamaModelRequest {
  std::string model = {};  // `name` in older clients
  bool verbose = false;
};
OllamaModelRequest read_ollama_model(const Json& body);

struct OllamaCopyRequest {
  std::string source = {}, destination = {};
};
OllamaCopyRequest read_ollama_copy(const Json& body);

// What they take.
Json ollama_generate_schema();
Json ollama_chat_schema();
Json ollama_embed_schema();
Json ollama_embeddings_schema();
Json ollama_model_schema();
Json ollama_copy_schema();
// Parts of those.
Json keep_alive_schema();
Json ollama_options_schema();

// `options` as a model may have them of its own. Throws ApiError that names the option.
void check_ollama_options(const Json& options);
// A context that a model was `trained` for can be asked for by anybody: more than that is what Ollama, too, only cuts
// to it. Throws ApiError for one between the two where the server gives less.
void check_context(std::int32_t wanted, std::int32_t given, std::int32_t trained);

// A number of seconds, or a text such as "1h30m", "250ms" and "-1". Throws ApiError.
std::chrono::milliseconds read_keep_alive(const Json& value);

// The question that it is to this model.
Ask ask_of(const OllamaRequest& request, const LoadedModel& model);

}  // namespace quarrel

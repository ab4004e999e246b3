// A request for vectors, from its texts to its answer: the model is acquired, the texts tokenised on a thread for texts
// and handed to the engine together. The exchange owns the call: when the client is gone it is cancelled.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "server/api_error.h"
#include "server/http/exchange.h"
#include "server/service.h"
#include "session/embedding.h"

namespace quarrel {

struct EmbeddingAsk {
  std::vector<std::variant<std::string, std::vector<TokenId>>> inputs = {};  // none: the model is only loaded
  // Of a ranking: a model that ranks reads it together with each text; of any other its vector comes before theirs.
  std::string query = {};
  EmbeddingOptions options = {};
  bool truncate = false;  // a text that is too long is cut, not refused
  AcquireOptions acquire = {};
};

// How a dialect says what came of it. Called once, on a thread for texts.
struct EmbeddingAnswer {
  std::function<http::Response(std::span<const Embedding> embeddings, double load_seconds)> respond = {};
  http::Response (*fail)(const ApiError& error) = nullptr;
};

// Returns at once.
void start_embedding_call(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                          EmbeddingAsk ask, EmbeddingAnswer answer);

// [0.1,-0.2 …]: as many digits as it takes to read the same floats again.
void append_json_vector(std::string& out, std::span<const float> values);

}  // namespace quarrel

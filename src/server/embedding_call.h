// A request for vectors, from its texts to its answer: the model is acquired, the texts tokenised on a thread for texts
// and handed to the engine together; where the answer needs a vector store, a thread for such calls goes on with it.
// The exchange owns the call: when the client is gone it is cancelled.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
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
  bool truncate = false;        // a text that is too long is cut, not refused
  std::string field = "input";  // that the texts come from: what is wrong with one is told of it
  AcquireOptions acquire = {};
};

// What a vector store has to do with the vectors before there is an answer.
struct StoreWork {
  StoreLane lane = {};
  // With the model, before it is asked, on a thread for texts: what is to be known of it later. None: nothing.
  std::function<void(const ModelRegistry::Lease& model)> prepare = {};
  // In place of `respond`, on a thread that may wait for a store. What it throws is answered as an error.
  std::function<http::Response(std::span<const Embedding> embeddings, const std::stop_token& stop)> run = {};
};

// How a dialect says what came of it. Called once, on a thread for texts.
struct EmbeddingAnswer {
  std::function<http::Response(std::span<const Embedding> embeddings, double load_seconds)> respond = {};
  http::Response (*fail)(const ApiError& error) = nullptr;
  StoreWork store = {};  // without `run`: no store has anything to do with it
};

// Returns at once.
void start_embedding_call(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                          EmbeddingAsk ask, EmbeddingAnswer answer);

// [0.1,-0.2 …]: as many digits as it takes to read the same floats again.
void append_json_vector(std::string& out, std::span<const float> values);

}  // namespace quarrel

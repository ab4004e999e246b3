// How well texts answer a query: scores by a model that ranks, or by how alike the vectors of a model that embeds are.
// Two forms on one path, told apart by `texts`: Jina's and Cohere's, and that of text-embeddings-inference. Handlers of
// the rows in routes.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/fields.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

struct RerankRequest {
  std::string model = {};
  std::string query = {};
  std::vector<std::string> documents = {};
  std::optional<std::int32_t> top_n = {};  // only the best so many
  bool return_documents = false;
  bool texts = false;       // they came by that name: the answer is a plain list
  bool raw_scores = false;  // of a model that ranks: its logits, not their logistic function
  bool truncate = true;     // a text that is too long is cut, not refused
};

// Throws ApiError that names the field.
RerankRequest read_rerank(const Json& body);

Json rerank_schema();  // what it takes

// Of vectors of length 1, whose product may come out a rounding beyond.
double cosine(std::span<const float> one, std::span<const float> other);

void rerank(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void openai_rerank(Service& service, const std::shared_ptr<http::Exchange>& exchange);  // with errors in their form

}  // namespace quarrel

// OpenAI's endpoints: handlers of the rows in routes.cpp. Each answers through the exchange, then or later; what they
// throw is answered as openai_error says.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

void openai_chat(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void openai_completion(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void openai_embeddings(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void openai_models(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// /v1/models/{id}
void openai_model(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

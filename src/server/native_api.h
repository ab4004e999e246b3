// Quarrel's own endpoints for answers in one piece. Handlers of the rows in routes.cpp; what they throw is answered as
// plain_error says.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// One answer: text, tokens_generated, tokens_per_sec, finish_reason.
void native_generate(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// The path that Ollama's clients use too: a body with max_tokens, temperature, topk or topp at its top, or without a
// model, is ours, any other theirs.
void shared_generate(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

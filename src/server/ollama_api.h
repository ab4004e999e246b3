// Ollama's endpoints that ask a model something, and those that tell its clients that somebody is there. Handlers of
// the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>

#include "server/fields.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// Its path is shared with Quarrel's own form: see shared_generate, which has read the body.
void ollama_generate(Service& service, const std::shared_ptr<http::Exchange>& exchange, const Json& body);
void ollama_chat(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_embed(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// The older form: one text, one vector.
void ollama_embeddings(Service& service, const std::shared_ptr<http::Exchange>& exchange);

// "Ollama is running": what clients look for at /.
void ollama_root(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Numbers and dots alone: clients split it and read numbers.
void ollama_version(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

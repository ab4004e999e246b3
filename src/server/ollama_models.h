// Ollama's endpoints about models as such: which there are, what one is, which are loaded, copies and removal. Handlers
// of the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>
#include <string>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// The model of that name, with ":latest" or without; the default where it is empty. Throws ApiError(404).
OfferedModel find_ollama_model(const Service& service, const std::string& name);

void ollama_tags(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_show(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_ps(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Of Quarrel's own store; Ollama's is never written.
void ollama_delete(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_copy(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Known and not offered: they say so.
void ollama_pull(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_push(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_create(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

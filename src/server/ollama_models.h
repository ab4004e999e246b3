// Ollama's endpoints about models as such: which there are, what one is, which are loaded, copies and removal. Handlers
// of the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>
#include <string>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// As Service::find, in Ollama's words where it is not there.
OfferedModel find_ollama_model(const Service& service, const std::string& name, const Caller& caller);
// Throws ApiError(400) where what comes into a store would not be offered.
void require_stores(const Service& service);
// Throws ApiError(403) where the caller's key is not for a model of this name: whoever may not use it may not make or
// replace it either. It says nothing of whether there is one. Nor may a name that the key is for take the place of
// another model, whose name differs from it only where the store sees no difference.
void require_may_make(const Service& service, const std::string& name, const Caller& caller);

void ollama_tags(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_show(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_ps(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Of Quarrel's own store; Ollama's is never written.
void ollama_delete(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_copy(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

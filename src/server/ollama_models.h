// Ollama's endpoints about models as such: which there are, what one is, which are loaded, copies and removal. Handlers
// of the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// "toy" for "toy:latest": the tag that may be left out.
std::string without_tag(std::string_view name);

// As Service::find, with ":latest" or without.
OfferedModel find_ollama_model(const Service& service, const std::string& name, const Caller& caller);

void ollama_tags(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_show(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_ps(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Of Quarrel's own store; Ollama's is never written.
void ollama_delete(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_copy(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

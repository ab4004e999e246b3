// Ollama's endpoints that bring models into Quarrel's store: from a registry, and by making one of another. Ollama's
// own store is never written. Handlers of the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/fields.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

struct OllamaPullRequest {
  std::string model = {};  // `name` in older clients
  bool stream = true;
};

struct OllamaCreateRequest {
  std::string model = {};
  std::string from = {};  // a name, never a path
  std::optional<std::string> system = {};
  std::optional<std::string> template_text = {};
  Json parameters = Json::object();  // those of `options`
  std::string license = {};
  bool stream = true;
};

// Throw ApiError that names the field.
OllamaPullRequest read_ollama_pull(const Json& body);
// What a Modelfile says comes behind what the body's own fields say. Templates of Go's are refused, and such that are
// no Jinja.
OllamaCreateRequest read_ollama_create(const Json& body);

// What they take.
Json ollama_pull_schema();
Json ollama_create_schema();

void ollama_pull(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void ollama_create(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Known and not offered: it says so.
void ollama_push(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

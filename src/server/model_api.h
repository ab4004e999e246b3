// Quarrel's own endpoints about models: which there are, what one is, loading and unloading with news of it, clearing a
// cache. Handlers of the rows in routes.cpp; what they throw is answered as plain_error says.
#pragma once

#include <memory>
#include <optional>

#include "server/fields.h"
#include "server/http/exchange.h"
#include "server/ollama_request.h"
#include "server/service.h"

namespace quarrel {

// Of load and unload; the body may be missing.
struct ModelControlRequest {
  bool stream = false;  // news as they come
  bool reload = false;  // of load: what the name stands for now takes the place of what is loaded
  KeepAlive keep_alive = {};
};
// Throw ApiError that names the field.
ModelControlRequest read_load(const Json& body);
ModelControlRequest read_unload(const Json& body);

// What they take.
Json load_schema();
Json unload_schema();

void native_models(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void native_model(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void load_model(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void unload_model(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void clear_model_cache(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

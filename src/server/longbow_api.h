// Vectors into a vector store and texts out of it, over HTTP. Handlers of the rows in routes.cpp.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

void embed_to(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void search_store(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

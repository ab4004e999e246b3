// The server's description as OpenAPI 3.1, made from the rows that dispatch and the tables that read bodies, and the
// handlers that serve it. docs/openapi.yaml is the same file, kept for readers. Any thread.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "server/fields.h"
#include "server/http/exchange.h"
#include "server/routes.h"
#include "server/service.h"

namespace quarrel {

Json openapi_document(std::span<const Route> rows);

// JSON's values in YAML's block style: what a person reads and compares.
std::string to_yaml(const Json& value);

void openapi_json(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void openapi_yaml(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

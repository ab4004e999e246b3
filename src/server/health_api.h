// How the server is, for whoever watches it: health, readiness, version. Handlers of the rows in routes.cpp; they wait
// for nothing, so that they are answered whatever else is going on.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

void health(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void readiness(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void version(Service& service, const std::shared_ptr<http::Exchange>& exchange);

// "1d 2h 3m 4s", without the parts that are zero.
std::string uptime_text(std::chrono::seconds time);

}  // namespace quarrel

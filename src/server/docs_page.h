// The page at /docs: reads /openapi.json, shows it, and makes calls. Its files lie in web/docs and are part of the
// program; nothing comes from elsewhere, and the policy that goes with it allows nothing else. Any thread.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

void docs_page(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void docs_script(Service& service, const std::shared_ptr<http::Exchange>& exchange);
void docs_style(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

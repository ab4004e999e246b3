// A request that needs a model for a moment: to tokenise a text, to render a conversation. The model is acquired and
// the work done on a thread for texts. The exchange owns the call: when the client is gone it is cancelled.
#pragma once

#include <functional>
#include <memory>

#include "server/api_error.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

// What it throws is answered as an error of the request.
using ModelWork = std::function<http::Response(const LoadedModel& model)>;

// Returns at once.
void start_model_call(Service& service, const std::shared_ptr<http::Exchange>& exchange, const OfferedModel& model,
                      ModelWork work);

}  // namespace quarrel

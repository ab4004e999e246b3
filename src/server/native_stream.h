// Quarrel's own answers as server-sent events: token, token_id, stream, complete, tokens_per_sec. With `resume` each
// event has an id, and the answer can be taken up again after its connection was lost, by Last-Event-ID.
#pragma once

#include <memory>

#include "server/http/exchange.h"
#include "server/service.h"

namespace quarrel {

void native_stream(Service& service, const std::shared_ptr<http::Exchange>& exchange);
// Ends an answer with `resume`, which the end of its connection does not.
void stop_stream(Service& service, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace quarrel

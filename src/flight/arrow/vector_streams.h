// The two ways into a dataset: DoPut, which answers at its end, and DoExchange, which acknowledges each batch. Made by
// the client.
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "flight/arrow/client_state.h"

namespace quarrel::flight {

// The state is shared: a stream may outlive its client.
std::unique_ptr<VectorStream> open_put(std::shared_ptr<ClientState> state, const std::string& dataset,
                                       const DatasetSchema& schema, std::stop_token stop);
std::unique_ptr<VectorStream> open_ingest(std::shared_ptr<ClientState> state, const std::string& dataset,
                                          const DatasetSchema& schema, std::stop_token stop);

}  // namespace quarrel::flight

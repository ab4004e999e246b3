// Vectors for Arrow programs: texts come and vectors go over Arrow Flight, with the keys, limits, priorities and
// records that /v1/embeddings has. Made by the server where the settings name a port.
//
// Threads: the listener's own call it, several at once, and wait in it for their vectors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "flight/listener.h"
#include "server/http/http_server.h"
#include "server/service.h"

namespace quarrel {

using Admit = std::function<http::Admission(const http::Request& request)>;

// On the address of the HTTP server, with its certificate. Throws what listen_flight throws, and Error(usage) for a
// certificate that cannot be read. The service outlives it.
std::unique_ptr<FlightListener> serve_flight(const http::ServerOptions& http, std::uint16_t port, Service& service,
                                             Admit admit);
// The same without a socket, for tests.
std::shared_ptr<FlightHandler> make_flight_handler(Service& service, Admit admit);

}  // namespace quarrel

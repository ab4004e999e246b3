// The listener of flight/listener.h on Arrow's own server. See there for threads.
#pragma once

#include <memory>

#include "flight/listener.h"

namespace quarrel::flight {

// Throws std::runtime_error with a sentence where it cannot listen.
std::unique_ptr<FlightListener> make_listener(const FlightListenerOptions& options,
                                              std::shared_ptr<FlightHandler> handler);

}  // namespace quarrel::flight

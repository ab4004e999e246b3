// The functions that libquarrel_flight.so offers. The program finds them at run time (flight/module.h), so that it
// also runs where there is no Arrow. Both sides are of one build: what they hand each other are C++ objects.
#pragma once

#include <cstddef>
#include <memory>

namespace quarrel {

class FlightHandler;
class FlightListener;
class LongbowClient;
struct FlightListenerOptions;
struct LongbowAddress;
struct LongbowOptions;

// Counts changes of what the two sides share: LongbowClient, FlightListener and everything they mention.
inline constexpr int kFlightModuleVersion = 4;

// A client, to be deleted by the caller; or null, and into `reason` (of `capacity` bytes) a sentence why not.
using ConnectLongbow = LongbowClient* (*)(int version, const LongbowAddress* address, const LongbowOptions* options,
                                          char* reason, std::size_t capacity);
inline constexpr const char* kConnectLongbow = "quarrel_connect_longbow";

// The same with a listener.
using ListenFlight = FlightListener* (*)(int version, const FlightListenerOptions* options,
                                         const std::shared_ptr<FlightHandler>* handler, char* reason,
                                         std::size_t capacity);
inline constexpr const char* kListenFlight = "quarrel_listen_flight";

}  // namespace quarrel

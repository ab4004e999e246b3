// The one function that libquarrel_flight.so offers. The program finds it at run time (flight/module.h), so that it
// also runs where there is no Arrow. Both sides are of one build: what they hand each other are C++ objects.
#pragma once

#include <cstddef>

namespace quarrel {

class LongbowClient;
struct LongbowAddress;
struct LongbowOptions;

// Counts changes of what the two sides share: LongbowClient and everything it mentions.
inline constexpr int kFlightModuleVersion = 1;

// A client, to be deleted by the caller; or null, and into `reason` (of `capacity` bytes) a sentence why not.
using ConnectLongbow = LongbowClient* (*)(int version, const LongbowAddress* address, const LongbowOptions* options,
                                          char* reason, std::size_t capacity);
inline constexpr const char* kConnectLongbow = "quarrel_connect_longbow";

}  // namespace quarrel

// Finds libquarrel_flight.so beside the program (or beside the library that this is part of) and makes clients with it.
// The program links no Arrow, and runs without it. Any thread may call.
#pragma once

#include <memory>

#include "flight/longbow.h"

namespace quarrel {

// Whether the module is there; nothing is loaded.
bool has_flight_module();

// Does not connect yet: a server that cannot be reached shows with the first call. Throws Error(unsupported) with a
// sentence where there is no module, Error(usage) for options that contradict each other.
std::unique_ptr<LongbowClient> connect_longbow(const LongbowAddress& address, const LongbowOptions& options = {});

}  // namespace quarrel

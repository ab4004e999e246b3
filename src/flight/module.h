// Finds libquarrel_flight.so beside the program (or beside the library that this is part of) and makes clients with it.
// The program links no Arrow, and runs without it. Any thread may call.
#pragma once

#include <memory>

#include "flight/longbow.h"

namespace quarrel {

// Whether the module is there; nothing is loaded.
bool has_flight_module();

// What contradicts itself whichever store is meant, and what may not be said to that one without TLS: certificates and
// tokens. Both throw Error(usage), and are part of what `connect_longbow` does.
void check_longbow_options(const LongbowOptions& options);
void check_longbow_tls(const LongbowAddress& address, const LongbowOptions& options);

// Does not connect yet: a server that cannot be reached shows with the first call. Throws Error(unsupported) with a
// sentence where there is no module, Error(usage) for options that contradict each other.
std::unique_ptr<LongbowClient> connect_longbow(const LongbowAddress& address, const LongbowOptions& options = {});

}  // namespace quarrel

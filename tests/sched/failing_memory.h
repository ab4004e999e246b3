// Memory that runs out when a test says so, and is counted: the program's own `operator new`.
#pragma once

#include <cstdint>

namespace quarrel::sim {

// So many allocations succeed, the next ones do not; negative: all succeed.
void fail_allocations_after(int count);
// What is allocated at this moment.
std::int64_t live_bytes();

}  // namespace quarrel::sim

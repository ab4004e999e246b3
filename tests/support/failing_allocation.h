// Memory that runs out when a test says so, on whichever thread asks for it, and that is counted: the program's own
// `operator new`. A test program that wants it names the .cpp among its sources; no library has it.
#pragma once

#include <cstdint>

namespace quarrel::test {

// The next `count` allocations succeed, and the one after them fails …
void fail_allocation(long count);
// … or all that come after them.
void fail_allocations_after(long count);
// From now on none does. True: one had.
bool fail_no_allocation();

// What is allocated at this moment.
std::int64_t live_bytes();

}  // namespace quarrel::test

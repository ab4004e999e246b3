// Memory that runs out when a test says so: the program's `operator new` throws.
#pragma once

namespace quarrel::sim {

// So many allocations succeed, the next ones do not; negative: all succeed.
void fail_allocations_after(int count);

}  // namespace quarrel::sim

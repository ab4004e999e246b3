// One allocation that fails, on whichever thread it comes: the program's own `operator new`.
#pragma once

namespace quarrel::test {

// The allocation after the next `count` ones fails.
void fail_allocation(long count);
// From now on none does. True: one had.
bool fail_no_allocation();

}  // namespace quarrel::test

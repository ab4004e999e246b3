#include "sched/failing_memory.h"

#include <cstdlib>
#include <new>

namespace {

int allocations_left = -1;

}  // namespace

namespace quarrel::sim {

void fail_allocations_after(int count) { allocations_left = count; }

}  // namespace quarrel::sim

void* operator new(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

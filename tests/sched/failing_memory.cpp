#include "sched/failing_memory.h"

#include <malloc.h>

#include <cstdlib>
#include <new>

namespace {

int allocations_left = -1;
std::int64_t bytes = 0;

void give_back(void* memory) noexcept {
  if (memory != nullptr) bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

namespace quarrel::sim {

void fail_allocations_after(int count) { allocations_left = count; }

std::int64_t live_bytes() { return bytes; }

}  // namespace quarrel::sim

void* operator new(std::size_t size) {
  if (allocations_left == 0) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) {
    bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
    return memory;
  }
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }

#include "engine/failing_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

constexpr long kNever = -1;
constexpr long kFailed = -2;
std::atomic<long> left{kNever};

bool fails_now() {
  long now = left.load(std::memory_order_relaxed);
  while (now >= 0) {
    if (left.compare_exchange_weak(now, now == 0 ? kFailed : now - 1)) return now == 0;
  }
  return false;
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  size = size == 0 ? 1 : size;
  const std::size_t padded = alignment == 0 ? size : (size + alignment - 1) / alignment * alignment;
  void* memory = alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, padded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace quarrel::test {

void fail_allocation(long count) { left = count; }

bool fail_no_allocation() { return left.exchange(kNever) == kFailed; }

}  // namespace quarrel::test

void* operator new(std::size_t size) { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

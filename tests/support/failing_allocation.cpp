#include "support/failing_allocation.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

constexpr long kNever = -1;
std::atomic<long> left{kNever};  // allocations before the one that fails
std::atomic<bool> lasting{false};
std::atomic<bool> failed{false};
std::atomic<std::int64_t> bytes{0};

bool fails_now() {
  long now = left.load(std::memory_order_relaxed);
  while (now >= 0) {
    const long next = now > 0 ? now - 1 : (lasting ? 0 : kNever);
    if (!left.compare_exchange_weak(now, next)) continue;
    if (now == 0) failed = true;
    return now == 0;
  }
  return false;
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (fails_now()) throw std::bad_alloc();
  size = size == 0 ? 1 : size;
  const std::size_t padded = alignment == 0 ? size : (size + alignment - 1) / alignment * alignment;
  void* memory = alignment == 0 ? std::malloc(size) : std::aligned_alloc(alignment, padded);
  if (memory == nullptr) throw std::bad_alloc();
  bytes.fetch_add(static_cast<std::int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}

void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  bytes.fetch_sub(static_cast<std::int64_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

namespace quarrel::test {

void fail_allocation(long count) {
  lasting = false;
  left = count;
}

void fail_allocations_after(long count) {
  lasting = true;
  left = count;
}

bool fail_no_allocation() {
  left = kNever;
  return failed.exchange(false);
}

std::int64_t live_bytes() { return bytes; }

}  // namespace quarrel::test

void* operator new(std::size_t size) { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return allocate(size, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }

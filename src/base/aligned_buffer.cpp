#include "base/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>

#include "base/error.h"

namespace quarrel {
namespace {

// Null when there is no memory.
std::byte* map(std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Maps so much more that an aligned place lies within, and gives back what is before and behind. The end is not rounded
// up to a huge page: a buffer takes no more than was asked for.
std::byte* map_huge(std::size_t bytes) {
  constexpr std::size_t kHuge = AlignedBuffer::kHugePage;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes > std::numeric_limits<std::size_t>::max() - 2 * kHuge) return nullptr;
  const std::size_t wanted = (bytes + page - 1) / page * page;
  std::byte* begin = map(wanted + kHuge);
  if (begin == nullptr) return nullptr;
  const std::size_t before = (kHuge - reinterpret_cast<std::uintptr_t>(begin) % kHuge) % kHuge;
  std::byte* data = begin + before;
  if ((before != 0 && ::munmap(begin, before) != 0) || ::munmap(data + wanted, kHuge - before) != 0) {
    ::munmap(begin, wanted + kHuge);  // what is no longer mapped does not mind
    return nullptr;
  }
  ::madvise(data, wanted, MADV_HUGEPAGE);  // small pages serve as well, only slower
  return data;
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes, const char* purpose) : size_(bytes) {
  if (bytes == 0) return;
  data_ = bytes < kHugePage ? map(bytes) : map_huge(bytes);
  if (data_ == nullptr) fail(ErrorKind::out_of_memory, "no memory for {} ({} MiB)", purpose, bytes >> 20);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace quarrel

#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include "base/error.h"

namespace quarrel {

AlignedBuffer::AlignedBuffer(std::size_t bytes, const char* purpose) : size_(bytes) {
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail(ErrorKind::out_of_memory, "no memory for {} ({} MiB)", purpose, bytes >> 20);
  data_ = static_cast<std::byte*>(memory);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace quarrel

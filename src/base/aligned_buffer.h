// Anonymous memory, 64-byte aligned and zero, whose pages cost nothing until they are touched, and which lie near the
// processor that touches them first. From 2 MiB on it begins at a multiple of that and asks for huge pages, because
// weights are read from end to end, and with small pages the processor would look up one every few dozen lines. The one
// place through which large buffers are taken, so that a test can make it fail.
#pragma once

#include <cstddef>
#include <utility>

namespace quarrel {

class AlignedBuffer {
 public:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;

  AlignedBuffer() = default;
  // Throws Error(out_of_memory) naming what it was for.
  AlignedBuffer(std::size_t bytes, const char* purpose);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  float* floats() const noexcept { return reinterpret_cast<float*>(data_); }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quarrel
